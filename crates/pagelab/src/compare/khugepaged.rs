//! `--khugepaged`: controls the kernel's khugepaged during a comparison.

use clap::ValueEnum;
use platform::Session;
use study::comparison;

use crate::failure::Failure;

/// What `--khugepaged` takes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Khugepaged {
    /// What it does by itself
    AsIs,
    /// Sleep in every trial
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
pub fn held(session: Session, khugepaged: comparison::Khugepaged) -> Result<Session, Failure> {
    match khugepaged {
        comparison::Khugepaged::AsIs => Ok(session),
        comparison::Khugepaged::Off => {
            let refused = |why| Failure::Input(format!("--khugepaged off: {why}, or leave it out"));
            session.with_khugepaged_still().map_err(refused)
        }
    }
}
