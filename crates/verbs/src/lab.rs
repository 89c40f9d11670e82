//! The interface of the labs: what one of them adds to the command line, and what it may use of the verbs.
//!
//! A lab is the rig of one origin that needs more than every user of pagelab does: `labs/kvm-split`, `labs/code-buffers`,
//! `labs/direct-map`. It knows the verbs; no verb knows a lab. `crates/pagelab/src/labs.rs` lists those that are built in.

use std::sync::OnceLock;

use serde_json::Value;
use study_files::counted::{Case, Counted};

use crate::direct_map::Verb as DirectMapVerb;
use crate::lab_command::Extensible;
use crate::list::Listed;
use crate::table::TableVerb;
use crate::workload::Workload;

pub use crate::direct_map::status::{change_documents, leaf_documents, leaf_rows, marker_document};
pub use crate::failure::{Failure, report};
pub use crate::lab_command::LabCommand;
pub use crate::output::{print, terminal_width, write};
pub use crate::status_line::tick;
pub use crate::table::describe::{count, explain, size};
pub use crate::table::format_name::{FormatName, parse_format};
pub use crate::table::level::label;
pub use crate::table::number::parse_number;
pub use crate::tail::Tail;
pub use crate::waiting::report_lease_holder;
pub use crate::words::{parse_duration, parse_size};
pub use crate::workload::{Report, WorkloadError, arguments, check};

/// What a lab adds to the program.
#[derive(Debug, Default)]
pub struct Lab {
    /// Workloads: `pagelab workload NAME`.
    pub workloads: Vec<LabCommand<Result<Report, WorkloadError>>>,
    /// `pagelab table NAME`.
    pub table: Vec<LabCommand<Result<(), Failure>>>,
    /// `pagelab direct-map NAME`.
    pub direct_map: Vec<LabCommand<Result<(), Failure>>>,
    /// `pagelab list NAME`: the text, and the document for `--json`.
    pub list: Vec<LabCommand<Result<(String, Value), Failure>>>,
    /// Events that study files may weigh with costs (`[counted]`).
    pub counts: Vec<EventCounts>,
}

/// Counts of events for the `[counted]` part of a study.
#[derive(Debug)]
pub struct EventCounts {
    /// The value of `counted.what` in a study file.
    pub what: &'static str,
    /// Every phase and backing, in the order of tables.
    pub order: fn() -> Vec<(&'static str, &'static str)>,
    /// An error message if the study names an event, phase, backing or variant that is not counted.
    pub unknown: fn(&Counted) -> Option<String>,
    /// Counts every case of a granule; an error message if its tables cannot map the memory.
    pub cases: fn(&Counted, &str) -> Result<Vec<Case>, String>,
}

/// The labs of this program: set once, before it reads its arguments. They are a global because clap asks a type, not a value, for
/// its subcommands.
static INSTALLED: OnceLock<Vec<Lab>> = OnceLock::new();

/// Makes labs part of the program.
pub(crate) fn install(labs: Vec<Lab>) {
    // Only the first call of a process counts.
    let _ = INSTALLED.set(labs);
}

/// The labs of this program, in the order of `labs.rs`.
pub(crate) fn installed() -> &'static [Lab] {
    INSTALLED.get().map_or(&[], Vec::as_slice)
}

impl Extensible for Workload {
    type Output = Result<Report, WorkloadError>;

    fn of_labs() -> Vec<&'static LabCommand<Self::Output>> {
        installed().iter().flat_map(|lab| &lab.workloads).collect()
    }
}

impl Extensible for TableVerb {
    type Output = Result<(), Failure>;

    fn of_labs() -> Vec<&'static LabCommand<Self::Output>> {
        installed().iter().flat_map(|lab| &lab.table).collect()
    }
}

impl Extensible for DirectMapVerb {
    type Output = Result<(), Failure>;

    fn of_labs() -> Vec<&'static LabCommand<Self::Output>> {
        installed().iter().flat_map(|lab| &lab.direct_map).collect()
    }
}

impl Extensible for Listed {
    type Output = Result<(String, Value), Failure>;

    fn of_labs() -> Vec<&'static LabCommand<Self::Output>> {
        installed().iter().flat_map(|lab| &lab.list).collect()
    }
}
