//! `--khugepaged`: controls the kernel's khugepaged during a comparison.

use clap::ValueEnum;
use platform::Session;
use study::comparison;

use crate::failure::Failure;

/// The values of `--khugepaged`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Khugepaged {
    /// It runs as the system configures it
    AsIs,
    /// It sleeps in every trial
    Off,
}

impl From<Khugepaged> for comparison::Khugepaged {
    fn from(option: Khugepaged) -> comparison::Khugepaged {
        match option {
            Khugepaged::AsIs => comparison::Khugepaged::AsIs,
            Khugepaged::Off => comparison::Khugepaged::Off,
        }
    }
}

/// The session with khugepaged in the requested state.
///
/// # Errors
/// khugepaged cannot be stopped on this host.
pub fn with_khugepaged(session: Session, khugepaged: comparison::Khugepaged) -> Result<Session, Failure> {
    match khugepaged {
        comparison::Khugepaged::AsIs => Ok(session),
        comparison::Khugepaged::Off => {
            let refused = |why| Failure::Input(format!("--khugepaged off: {why}, or leave it out"));
            session.with_khugepaged_held().map_err(refused)
        }
    }
}
