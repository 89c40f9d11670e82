//! What the judge of policies (`policy::judge`) may ask of a process of this host, read where it is asked.

use std::fs;

use policy::census::Advice;
use policy::judge::{self, Examination, Look};
use policy::size::PageSize;
use policy::{PageSizes, Policy};
use study::machine::State;

use crate::{CensusError, Observer, ProcessCensus, SmapsEntry};

/// Memory to be explained from which on the flags of mappings are read: smaps walks every page of a process.
const WORTH_SMAPS_BYTES: u64 = 1 << 20;

/// Examines a process: its census, and what it says about the policy.
///
/// At a ptrace exit stop give the id of the stopped thread. A small process that is mapped as asked costs
/// one census and nothing else.
///
/// # Errors
/// Those of [`Observer::process`]. What cannot be read beyond the census makes a cause unknown and is no
/// error.
pub fn examine(
    observer: &Observer,
    pid: u32,
    policy: &Policy,
    page_sizes: &PageSizes,
    state: &State,
) -> Result<Examination, CensusError> {
    let seen = observer.process(pid)?;
    Ok(Question { policy, page_sizes, state, smaps: Some(observer), after_fork: false }.answer(&seen))
}

/// What is asked about a census that is there.
pub struct Question<'a> {
    /// What the memory was to be mapped with.
    pub policy: &'a Policy,
    /// The sizes of the kernel.
    pub page_sizes: &'a PageSizes,
    /// The settings that were in force.
    pub state: &'a State,
    /// Who may read smaps, which costs a walk over the whole process: without it, what only the flags of mappings could explain
    /// is unexplained.
    pub smaps: Option<&'a Observer>,
    /// Whether the process was forked, or has forked, since it loaded its program.
    pub after_fork: bool,
}

impl Question<'_> {
    /// What the census says about the policy.
    pub fn answer(&self, seen: &ProcessCensus) -> Examination {
        let question = judge::Question::of(self.policy, self.page_sizes, &self.state.settings);
        let question = judge::Question { after_fork: self.after_fork, ..question };
        let areas: Vec<policy::census::Area> = seen.areas.iter().map(|area| area.as_seen()).collect();
        let process = Process { seen, smaps: self.smaps };
        question.answer(&Look { census: &seen.census, areas: &areas }, &process)
    }
}

/// A process of this host.
struct Process<'a> {
    seen: &'a ProcessCensus,
    smaps: Option<&'a Observer>,
}

impl judge::Process for Process<'_> {
    /// `THP_enabled: 0` in /proc/PID/status (Linux 5.0). The mode that excepts advised memory (Linux 6.18) does not show there.
    fn is_thp_disabled(&self) -> bool {
        let status = host::content(format!("/proc/{}/status", self.seen.pid)).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("THP_enabled:").is_some_and(|value| value.trim() == "0"))
    }

    fn advice(&self, bytes: u64) -> Vec<(u64, Advice)> {
        let observer = self.smaps.filter(|_| bytes >= WORTH_SMAPS_BYTES);
        let entries = observer.and_then(|observer| observer.smaps(self.seen.pid).ok()).unwrap_or_default();
        entries.iter().map(|entry| (entry.vma.start, advice(entry))).collect()
    }

    fn may_have_folios(&self, size: PageSize) -> bool {
        self.seen.folios_of_system.as_ref().is_none_or(|all| all.exist(size))
    }

    /// None is free beyond those reserved, and no surplus is allowed (Documentation/admin-guide/mm/hugetlbpage.rst).
    fn is_pool_exhausted(&self, size: PageSize) -> bool {
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(host::hugetlb_file(size, file)).ok()?.trim().parse().ok()
        };
        let counts = || {
            let free = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
            let surplus = number("nr_overcommit_hugepages")?.saturating_sub(number("surplus_hugepages")?);
            Some(free + surplus)
        };
        counts() == Some(0)
    }
}

fn advice(entry: &SmapsEntry) -> Advice {
    match () {
        () if entry.has_flag("nh") => Advice::NoHuge,
        () if entry.has_flag("hg") => Advice::Huge,
        () => Advice::None,
    }
}

#[cfg(test)]
mod tests {
    use policy::judge::Process as _;

    use super::*;
    use crate::{Source, smaps};

    /// A process under PR_SET_THP_DISABLE that lives as long as the value.
    struct Disabled(std::process::Child);

    impl Disabled {
        fn start() -> Disabled {
            use std::os::unix::process::CommandExt;
            let mut command = std::process::Command::new("sleep");
            // SAFETY: prctl with plain numbers is async-signal-safe.
            unsafe {
                command.arg("60").pre_exec(|| match libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
            Disabled(command.spawn().unwrap())
        }
    }

    impl Drop for Disabled {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_process_without_thp_is_known_by_its_status() {
        let child = Disabled::start();
        let of = |pid: u32| {
            let (census, areas) = Default::default();
            let seen = ProcessCensus { pid, census, source: Source::PagemapScan, folios_of_system: None, areas };
            Process { seen: &seen, smaps: None }.is_thp_disabled()
        };
        assert!(of(child.0.id()));
        assert!(!of(u32::MAX), "nothing can be read of it");
    }

    #[test]
    fn advice_is_known_by_the_flags_of_smaps() {
        for (flags, expected) in [("hg", Advice::Huge), ("nh", Advice::NoHuge), ("ht", Advice::None)] {
            let text = format!("200000-600000 rw-p 0 0:0 0\nVmFlags: rd wr {flags}\n");
            assert_eq!(advice(&smaps::parse(&text, "smaps").unwrap()[0]), expected, "{flags}");
        }
    }
}
