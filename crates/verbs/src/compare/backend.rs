//! What runs the trials ([`Backend`]): the host, or, in tests of the output, a fake platform. Released programs do not
//! have the fake platform.

use std::path::Path;

use super::arguments::Compare;
#[cfg(debug_assertions)]
use super::fake::Fake;
use crate::failure::Failure;

/// The platform that runs the trials.
pub enum Backend {
    /// The running host.
    Host,
    /// A fake platform that is read from a file.
    #[cfg(debug_assertions)]
    Fake(Box<Fake>),
}

impl Backend {
    /// The platform that the arguments ask for.
    ///
    /// # Errors
    /// The file does not describe a fake platform.
    #[cfg(debug_assertions)]
    pub fn of(arguments: &Compare) -> Result<Backend, Failure> {
        arguments
            .fake_platform
            .as_deref()
            .map_or(Ok(Backend::Host), |file| Fake::read(file).map(|fake| Backend::Fake(Box::new(fake))))
    }

    /// Always the host, because release builds have no fake platform.
    #[cfg(not(debug_assertions))]
    pub fn of(_: &Compare) -> Result<Backend, Failure> {
        Ok(Backend::Host)
    }

    /// The root of the host that supplies page sizes and settings.
    pub fn root(&self) -> &Path {
        match self {
            Backend::Host => Path::new("/"),
            #[cfg(debug_assertions)]
            Backend::Fake(fake) => fake.host_root(),
        }
    }
}
