//! [`Report`]: the result of restoring, setting by setting.

use std::fmt;
use std::io;

use super::setting::{Entry, RestoreOutcome};

/// The results for all settings of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry for each setting, in the order in which they were restored.
    pub settings: Vec<SettingReport>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingReport {
    /// Path of the setting.
    pub path: String,
    /// Its value before the lease.
    pub before: String,
    /// The result.
    pub outcome: ReportedOutcome,
}

/// The result of restoring a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportedOutcome {
    /// It already had its old value.
    Unchanged,
    /// It has its old value again.
    Restored,
    /// Another process gave it a different value in the meantime, which was left unchanged: overwriting it could undo an
    /// intentional change by an administrator.
    Foreign {
        /// Its current value.
        found: String,
    },
    /// It could not be restored.
    Failed {
        /// The reason, as text.
        reason: String,
    },
}

impl Report {
    pub(super) fn add(&mut self, path: String, entry: &Entry, outcome: RestoreOutcome) {
        let outcome = match outcome {
            RestoreOutcome::Unchanged => ReportedOutcome::Unchanged,
            RestoreOutcome::Restored => ReportedOutcome::Restored,
            RestoreOutcome::Foreign(found) => ReportedOutcome::Foreign { found: found.lossy() },
            RestoreOutcome::NotTaken(now) => {
                ReportedOutcome::Failed { reason: format!("the kernel keeps {:?}", now.lossy()) }
            }
            RestoreOutcome::Failed(errno) => {
                ReportedOutcome::Failed { reason: io::Error::from_raw_os_error(errno).to_string() }
            }
        };
        self.settings.push(SettingReport { path, before: entry.before.lossy(), outcome });
    }

    /// Whether a setting could not be restored.
    pub fn has_failed(&self) -> bool {
        self.settings.iter().any(|setting| matches!(setting.outcome, ReportedOutcome::Failed { .. }))
    }

    /// The settings that another process changed.
    pub fn foreign(&self) -> impl Iterator<Item = &SettingReport> {
        self.settings.iter().filter(|setting| matches!(setting.outcome, ReportedOutcome::Foreign { .. }))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.settings.iter().map(SettingReport::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for SettingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingReport { path, before, outcome } = self;
        match outcome {
            ReportedOutcome::Unchanged => write!(f, "{path}: still {before:?}"),
            ReportedOutcome::Restored => write!(f, "{path}: {before:?} again"),
            ReportedOutcome::Foreign { found } => {
                write!(f, "{path}: left at {found:?}, which pagelab did not write; to undo it: echo {before} > {path}")
            }
            ReportedOutcome::Failed { reason } => {
                write!(f, "{path}: not put back, {reason}; as root: echo {before} > {path}")
            }
        }
    }
}
