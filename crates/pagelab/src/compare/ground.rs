//! What runs the trials: the host, or for tests of what is printed a fake platform, which the released program does not have.

use std::path::Path;

use super::arguments::Compare;
#[cfg(debug_assertions)]
use super::fake::Fake;
use crate::failure::Failure;

/// What runs the trials.
pub enum Ground {
    /// The running host.
    Host,
    /// A file.
    #[cfg(debug_assertions)]
    Fake(Fake),
}

impl Ground {
    /// What was asked for.
    ///
    /// # Errors
    /// A file that is no fake platform.
    #[cfg(debug_assertions)]
    pub fn of(arguments: &Compare) -> Result<Ground, Failure> {
        arguments.fake_platform.as_deref().map_or(Ok(Ground::Host), |file| Fake::read(file).map(Ground::Fake))
    }

    /// The host.
    #[cfg(not(debug_assertions))]
    pub fn of(_: &Compare) -> Result<Ground, Failure> {
        Ok(Ground::Host)
    }

    /// The root of the host whose page sizes and settings count.
    pub fn root(&self) -> &Path {
        match self {
            Ground::Host => Path::new("/"),
            #[cfg(debug_assertions)]
            Ground::Fake(fake) => fake.host_root(),
        }
    }
}
