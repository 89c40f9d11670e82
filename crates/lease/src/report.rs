//! [`Report`]: the result of restoring, setting by setting.

use std::fmt;
use std::io;

use super::setting::{Entry, PutBack};

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
    pub fate: Fate,
}

/// The result of restoring a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
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
    pub(super) fn add(&mut self, path: String, entry: &Entry, outcome: PutBack) {
        let fate = match outcome {
            PutBack::Unchanged => Fate::Unchanged,
            PutBack::Restored => Fate::Restored,
            PutBack::Foreign(found) => Fate::Foreign { found: found.lossy() },
            PutBack::NotTaken(now) => Fate::Failed { reason: format!("the kernel keeps {:?}", now.lossy()) },
            PutBack::Failed(errno) => Fate::Failed { reason: io::Error::from_raw_os_error(errno).to_string() },
        };
        self.settings.push(SettingReport { path, before: entry.before.lossy(), fate });
    }

    /// Whether a setting could not be restored.
    pub fn has_failed(&self) -> bool {
        self.settings.iter().any(|setting| matches!(setting.fate, Fate::Failed { .. }))
    }

    /// The settings that another process changed.
    pub fn foreign(&self) -> impl Iterator<Item = &SettingReport> {
        self.settings.iter().filter(|setting| matches!(setting.fate, Fate::Foreign { .. }))
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
        let SettingReport { path, before, fate } = self;
        match fate {
            Fate::Unchanged => write!(f, "{path}: still {before:?}"),
            Fate::Restored => write!(f, "{path}: {before:?} again"),
            Fate::Foreign { found } => {
                write!(f, "{path}: left at {found:?}, which pagelab did not write; to undo it: echo {before} > {path}")
            }
            Fate::Failed { reason } => {
                write!(f, "{path}: not put back, {reason}; as root: echo {before} > {path}")
            }
        }
    }
}
