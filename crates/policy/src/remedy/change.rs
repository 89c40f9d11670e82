//! [`Change`]: one change that a user can make.

use serde::{Deserialize, Serialize};

use crate::cut::CutBy;
use crate::judge::THP;

/// One change that a user can make.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Change {
    /// An environment variable for the program's start.
    Environment {
        /// Its name.
        variable: String,
        /// Its value.
        value: String,
    },
    /// Arguments for the program's start.
    Arguments {
        /// The name of the program.
        program: String,
        /// The arguments.
        arguments: Vec<String>,
    },
    /// A setting in /sys or /proc/sys, which root writes.
    Setting {
        /// The file.
        path: String,
        /// The text to write.
        value: String,
    },
    /// A file in /proc/sys to which root writes 1. It acts once, and nothing stays set.
    Trigger {
        /// The file.
        path: String,
    },
    /// The option `huge=` of the tmpfs that holds a file.
    Mount {
        /// Path of the file.
        file: String,
        /// The value of the option.
        huge: String,
    },
    /// More pages in a hugetlb pool.
    Pool {
        /// The page size of the pool.
        page_bytes: u64,
        /// Number of pages to add.
        pages: u64,
    },
    /// MADV_COLLAPSE, requested from outside. It lasts until the memory is given back or cut.
    Collapse,
    /// A change of the program's source.
    Source {
        /// The change.
        change: SourceChange,
    },
    /// A new start of the program, which then takes the memory by itself.
    Restart {
        /// The program's setting that lets it take the memory, with its default: `huge_pages = try`.
        taken_by: String,
    },
    /// Anything else, in words.
    Other {
        /// An instruction.
        text: String,
    },
}

/// A change of a program's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum SourceChange {
    /// Advise the memory before it is touched.
    Advise,
    /// Do not advise against large pages.
    NoAdviceAgainst,
    /// Do not disable THP.
    NoPrctl,
    /// Make mappings that contain an aligned slot.
    Align,
    /// Map the memory at once.
    MapAtOnce,
    /// Make memory usable in steps of whole slots.
    GrowBySlots,
    /// Write memory before it is read.
    WriteFirst,
    /// Write every page of a slot, or advise before the first touch.
    FillSlots,
    /// Unmap, drop, protect and move whole slots only.
    WholeSlots,
    /// Drop whole slots only.
    DropSlots,
    /// Move memory to multiples of the size.
    MoveAligned,
    /// Start programs without fork, or fork before the memory is filled.
    NoFork,
    /// Keep cuts out of the slots.
    CutBetweenSlots {
        /// The kind of cut.
        by: CutBy,
    },
    /// Make the file a multiple of the size.
    FileLength,
    /// Map the file at an address that is congruent with the offset.
    MapCongruent,
    /// Advise a file's mapping before the file is in the page cache.
    AdviseUncached,
    /// Unregister complete memory from userfaultfd, and collapse it.
    UnregisterAndCollapse,
    /// Pin memory only after it has large pages.
    PinLate,
    /// Do not offer the memory to KSM.
    NotMergeable,
}

impl Change {
    /// The change for a setting.
    pub fn setting(path: impl Into<String>, value: &str) -> Change {
        Change::Setting { path: path.into(), value: value.into() }
    }

    /// A change in words.
    pub fn other(text: &str) -> Change {
        Change::Other { text: text.into() }
    }

    /// The changes that make free blocks of every size. Compaction only moves free memory together, and a full page cache leaves
    /// little of it.
    pub fn free_blocks() -> Vec<Change> {
        let trigger = |name| Change::Trigger { path: format!("/proc/sys/vm/{name}") };
        ["drop_caches", "compact_memory"].map(trigger).into()
    }

    /// Bytes that the change adds to a hugetlb pool; `None` for another change.
    pub fn pool_bytes(&self) -> Option<u64> {
        match self {
            Change::Pool { page_bytes, pages } => Some(page_bytes * pages),
            _ => None,
        }
    }

    /// The change as an instruction.
    pub fn describe(&self) -> String {
        match self {
            Change::Environment { .. } => format!("start it with {}", self.variable().unwrap_or_default()),
            Change::Arguments { program, arguments } => format!("start {program} with {}", arguments.join(" ")),
            Change::Setting { .. } | Change::Trigger { .. } | Change::Pool { .. } => {
                format!("as root: {}", self.command().unwrap_or_default())
            }
            Change::Mount { file, huge } => {
                format!(
                    "as root: mount -o remount,huge={huge} \"$(findmnt -no TARGET -T {})\", then write the file anew",
                    quoted(file)
                )
            }
            Change::Collapse => "collapse it (MADV_COLLAPSE, Linux 6.1): pagelab inspect PID --collapse".into(),
            Change::Source { change } => format!("in the source: {}", change.describe()),
            Change::Restart { taken_by } => format!("start it again with {taken_by} (its default; off takes none)"),
            Change::Other { text } => text.clone(),
        }
    }

    /// The shell command with which root makes the change; `None` where no single command does.
    fn command(&self) -> Option<String> {
        match self {
            Change::Setting { path, value } => Some(format!("echo {value} > {path}")),
            Change::Trigger { path } => Some(format!("echo 1 > {path}")),
            Change::Pool { page_bytes, pages } => {
                let path = pool_path(*page_bytes);
                Some(format!("echo $(($(cat {path}) + {pages})) > {path}"))
            }
            _ => None,
        }
    }

    /// Whether a variable has this value in an environment (`NAME=VALUE` each). Allocators take lists (`GLIBC_TUNABLES`, `MALLOC_CONF`):
    /// every part of the value must be in the variable's.
    pub(super) fn is_in_environment(&self, environment: &[String]) -> bool {
        let Change::Environment { variable, value } = self else { return false };
        let split = |text: &str| text.split([':', ',']).filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let wanted: Vec<String> = split(value);
        environment.iter().filter_map(|one| one.split_once('=')).any(|(name, found)| {
            let found: Vec<String> = split(found);
            name == variable && wanted.iter().all(|part| found.contains(part))
        })
    }

    /// The assignment of an environment variable.
    fn variable(&self) -> Option<String> {
        match self {
            Change::Environment { variable, value } => Some(format!("{variable}={value}")),
            _ => None,
        }
    }

    /// The change of the source, as an instruction to a programmer.
    fn in_source(&self) -> Option<&'static str> {
        match self {
            Change::Source { change } => Some(change.describe()),
            _ => None,
        }
    }

    /// How much the change affects beyond the program; smaller is better.
    pub(super) fn intrusiveness(&self) -> u32 {
        match self {
            Change::Environment { .. } | Change::Arguments { .. } | Change::Restart { .. } => 1,
            Change::Setting { value, .. } if value == "madvise" || value == "advise" => 2,
            Change::Setting { .. } | Change::Trigger { .. } | Change::Mount { .. } | Change::Other { .. } => 4,
            Change::Pool { .. } => 5,
            // The source may not be at hand.
            Change::Source { .. } => 20,
            // A collapse does not last.
            Change::Collapse => 50,
        }
    }
}

/// A path, quoted for the shell.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', "'\\''"))
}

/// The file with the number of pages of a pool.
pub fn pool_path(page_bytes: u64) -> String {
    format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page_bytes >> 10)
}

impl SourceChange {
    /// The change as an instruction to a programmer.
    pub fn describe(self) -> &'static str {
        match self {
            SourceChange::Advise => "advise the memory (MADV_HUGEPAGE) before the first touch",
            SourceChange::NoAdviceAgainst => "remove the program's MADV_NOHUGEPAGE",
            SourceChange::NoPrctl => "remove the program's PR_SET_THP_DISABLE, or systemd's MemoryTHP=disable",
            SourceChange::Align => "allocate multiples of the size, at multiples of it",
            SourceChange::MapAtOnce => "map the memory with one mmap before any of it is touched",
            SourceChange::GrowBySlots => "make memory usable in steps of the size or more, before it is touched",
            SourceChange::WriteFirst => "write the memory before it is read, or populate it (MADV_POPULATE_WRITE)",
            SourceChange::FillSlots => "advise the memory before the first touch, or write every page of each slot",
            SourceChange::WholeSlots => "unmap, drop, protect and move whole pages of that size only",
            SourceChange::DropSlots => "drop whole pages of that size only; give an allocator a longer decay, or none",
            SourceChange::MoveAligned => "move to a multiple of the size (MREMAP_FIXED), or allocate anew and copy",
            SourceChange::NoFork => {
                "start other programs by posix_spawn, which copies nothing, or fork before the memory is filled"
            }
            SourceChange::CutBetweenSlots { by: CutBy::Guard | CutBy::LightGuard } => {
                "put guard pages outside the slots: around the allocation, or in place of a whole slot"
            }
            SourceChange::CutBetweenSlots { by: CutBy::Flags } => "advise, lock and register memory by whole slots",
            SourceChange::CutBetweenSlots { by: CutBy::Name } => "give one allocation one name",
            SourceChange::CutBetweenSlots { by: CutBy::Protection } => "protect memory by whole slots",
            SourceChange::CutBetweenSlots { by: CutBy::Unseen } => SourceChange::MapAtOnce.describe(),
            SourceChange::FileLength => "make the file a multiple of the size",
            SourceChange::MapCongruent => {
                "map the file at an address that equals its offset modulo the size (a program: link it with \
                 -Wl,-z,max-page-size=2097152)"
            }
            SourceChange::AdviseUncached => {
                "advise the mapping (MADV_HUGEPAGE) before its file is in the page cache: readahead then takes folios of that \
                 size, where the file system has them (ext4 since Linux 6.16, xfs, btrfs)"
            }
            SourceChange::UnregisterAndCollapse => {
                "unregister memory that is complete (UFFDIO_UNREGISTER), then collapse it (MADV_COLLAPSE)"
            }
            SourceChange::PinLate => "pin the memory after it has its large pages",
            SourceChange::NotMergeable => "do not offer the memory to KSM (MADV_MERGEABLE)",
        }
    }
}

/// The commands for root. Several settings below one directory are written from there, because their paths are long.
fn commands(changes: &[Change]) -> Vec<String> {
    let commands: Vec<String> = changes.iter().filter_map(Change::command).collect();
    let directory = format!("{THP}/");
    let is_there = |change: &&Change| matches!(change, Change::Setting { path, .. } if path.starts_with(&directory));
    if commands.len() < 2 || changes.iter().filter(is_there).count() < commands.len() {
        return commands;
    }
    let shorter = commands.iter().map(|command| command.replace(&directory, ""));
    [format!("cd {THP}")].into_iter().chain(shorter).collect()
}

/// Changes as one instruction. All commands for root can be copied in one piece, and so can all variables.
pub fn describe(changes: &[Change]) -> String {
    let join = |lead: &str, parts: Vec<String>, between: &str| {
        (!parts.is_empty()).then(|| format!("{lead}{}", parts.join(between)))
    };
    let commands = join("as root: ", commands(changes), "; ");
    let variables = join("start it with ", changes.iter().filter_map(Change::variable).collect(), " ");
    let source =
        join("in the source: ", changes.iter().filter_map(Change::in_source).map(str::to_owned).collect(), ", and ");
    let is_other =
        |change: &&Change| change.command().is_none() && change.variable().is_none() && change.in_source().is_none();
    let others = changes.iter().filter(is_other).map(Change::describe);
    commands.into_iter().chain(variables).chain(source).chain(others).collect::<Vec<_>>().join("; then ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_a_list_needs_only_the_parts() {
        let change = Change::Environment { variable: "GLIBC_TUNABLES".into(), value: "glibc.malloc.hugetlb=1".into() };
        let is_in = |variable: &str| change.is_in_environment(&["HOME=/root".to_owned(), variable.to_owned()]);
        assert!(is_in("GLIBC_TUNABLES=glibc.malloc.check=1:glibc.malloc.hugetlb=1"));
        assert!(!is_in("GLIBC_TUNABLES=glibc.malloc.hugetlb=2"));
        assert!(!is_in("OTHER=glibc.malloc.hugetlb=1"));
        assert!(!Change::setting("/sys/x", "always").is_in_environment(&["/sys/x=always".to_owned()]));
    }

    #[test]
    fn settings_below_one_directory_are_written_from_there() {
        let setting = |name: &str, value| Change::setting(format!("{THP}/{name}/enabled"), value);
        let two = [setting("hugepages-2048kB", "never"), setting("hugepages-64kB", "always")];
        let text =
            format!("as root: cd {THP}; echo never > hugepages-2048kB/enabled; echo always > hugepages-64kB/enabled");
        assert_eq!(describe(&two), text);
        assert_eq!(describe(&two[..1]), format!("as root: echo never > {THP}/hugepages-2048kB/enabled"));
        let other = [two[0].clone(), Change::Trigger { path: "/proc/sys/vm/compact_memory".into() }];
        assert!(!describe(&other).contains("cd "), "{}", describe(&other));
    }
}
