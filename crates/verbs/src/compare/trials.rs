//! The interface between a comparison and the platform that runs its trials ([`Trials`]).

use platform::{Blame, Heat, HostPlatform};
use policy::windows::Windows;
use study::runner::Platform;
use study::trial::Arm;

use crate::failure::Failure;

/// A platform that runs trials. After the trials it restores settings, and says what caused a failure.
pub trait Trials: Platform {
    /// Restores all changed settings.
    ///
    /// # Errors
    /// A setting could not be restored.
    fn finish(&mut self) -> Result<(), Failure>;

    /// Runs the arm's command once with base pages, and counts the accesses to each window.
    ///
    /// # Errors
    /// Why the run failed, as a clause.
    fn heat(&mut self, arm: &Arm, windows: Windows) -> Result<Heat, String>;

    /// The end of the standard error of the last trial that failed; empty if none failed.
    fn last_words(&self) -> &str;

    /// Whether the command or the system caused the last failure to run a trial.
    fn blame(&self) -> Blame;
}

impl Trials for HostPlatform {
    fn finish(&mut self) -> Result<(), Failure> {
        HostPlatform::finish(self).map_err(Failure::input)
    }

    fn heat(&mut self, arm: &Arm, windows: Windows) -> Result<Heat, String> {
        HostPlatform::heat(self, arm, windows).map_err(|error| error.to_string())
    }

    fn last_words(&self) -> &str {
        HostPlatform::last_words(self)
    }

    fn blame(&self) -> Blame {
        HostPlatform::blame(self)
    }
}
