//! What a comparison asks of whatever runs its trials.

use platform::{Blame, HostPlatform};
use study::runner::Platform;

use crate::failure::Failure;

/// Whatever runs trials, and can be asked afterwards how that went.
pub trait Trials: Platform {
    /// Puts back what was changed.
    ///
    /// # Errors
    /// Something could not be put back.
    fn finish(&mut self) -> Result<(), Failure>;

    /// The end of what the command last wrote to standard error in a trial that failed; empty where none did.
    fn last_words(&self) -> &str;

    /// What is to blame where the last trial could not be run.
    fn blame(&self) -> Blame;
}

impl Trials for HostPlatform {
    fn finish(&mut self) -> Result<(), Failure> {
        HostPlatform::finish(self).map_err(Failure::input)
    }

    fn last_words(&self) -> &str {
        HostPlatform::last_words(self)
    }

    fn blame(&self) -> Blame {
        HostPlatform::blame(self)
    }
}
