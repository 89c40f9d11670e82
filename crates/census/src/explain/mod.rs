//! A [`Question`] answers the queries of the policy judge (`policy::judge`) about a process of this host. It reads facts only
//! when they are queried.

use std::io;

use host::if_exists;
use policy::census::Advice;
use policy::judge::{self, Answer, Examination, FoundMemory, Unread};
use policy::machine::State;
use policy::size::PageSize;
use policy::{PageSizes, Policy};

use crate::{CensusError, Observer, ProcessCensus, SmapsEntry};

/// The flags of mappings are read only if at least this much memory is unexplained, because smaps walks every page of a process.
const WORTH_SMAPS_BYTES: u64 = 1 << 20;

/// Examines a process: its census, and what the census shows about the policy.
///
/// At a ptrace exit stop pass the TID of the stopped thread. A small process that is mapped as asked costs one census and nothing
/// else. Facts that cannot be read in addition to the census are no error: they make a cause unknown.
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

/// What to judge a census against, and whether smaps may be read to explain it.
pub struct Question<'a> {
    /// The policy under which the memory was mapped.
    pub policy: &'a Policy,
    /// The page sizes of the kernel.
    pub page_sizes: &'a PageSizes,
    /// The settings that were in force.
    pub state: &'a State,
    /// The observer that may read smaps, which costs a walk over the whole process. `None`: memory that only the flags of
    /// mappings could explain stays unexplained.
    pub smaps: Option<&'a Observer>,
    /// Whether the process was forked, or has forked, since it executed its program.
    pub after_fork: bool,
}

impl Question<'_> {
    /// What the census shows about the policy.
    pub fn answer(&self, seen: &ProcessCensus) -> Examination {
        let question = judge::Question::of(self.policy, self.page_sizes, &self.state.settings);
        let question = judge::Question { after_fork: self.after_fork, ..question };
        let areas: Vec<policy::census::Area> = seen.areas.iter().map(|area| area.as_seen()).collect();
        let process = Process { seen, smaps: self.smaps };
        question.answer(&FoundMemory { census: &seen.census, areas: &areas }, &process)
    }
}

/// A process of this host.
struct Process<'a> {
    seen: &'a ProcessCensus,
    smaps: Option<&'a Observer>,
}

impl judge::Process for Process<'_> {
    /// `THP_enabled: 0` in /proc/PID/status (Linux 5.0). The mode with the exception for advised memory (Linux 6.18) is not
    /// visible there.
    fn is_thp_disabled(&self) -> Answer<bool> {
        is_disabled_in(host::content(format!("/proc/{}/status", self.seen.pid)))
    }

    fn advice(&self, bytes: u64) -> Answer<Vec<(u64, Advice)>> {
        let Some(observer) = self.smaps.filter(|_| bytes >= WORTH_SMAPS_BYTES) else { return Ok(Vec::new()) };
        let entries = observer.smaps(self.seen.pid).map_err(|error| Unread(error.without_pid()))?;
        Ok(entries.iter().map(|entry| (entry.vma.start, advice(entry))).collect())
    }

    fn may_have_folios(&self, size: PageSize) -> bool {
        self.seen.folios_of_system.as_ref().is_none_or(|all| all.exist(size))
    }

    /// A pool is exhausted if its free pages are all reserved and it may take no surplus page
    /// (Documentation/admin-guide/mm/hugetlbpage.rst).
    fn is_pool_exhausted(&self, size: PageSize) -> Answer<bool> {
        is_exhausted(|file| host::content(host::hugetlb_file(size, file)), size)
    }
}

/// A kernel before Linux 5.0 has no such line; a process that has ended counts as not disabled.
fn is_disabled_in(status: io::Result<String>) -> Answer<bool> {
    let status = if_exists(status).map_err(|error| Unread(format!("/proc/PID/status: {error}")))?;
    let is_disabled = |line: &str| line.strip_prefix("THP_enabled:").is_some_and(|value| value.trim() == "0");
    Ok(status.is_some_and(|status| status.lines().any(is_disabled)))
}

/// Whether the pool has no page available, according to its files; true on a kernel without the pool.
fn is_exhausted(read: impl Fn(&str) -> io::Result<String>, size: PageSize) -> Answer<bool> {
    let number = |file: &str| -> Answer<Option<u64>> {
        let failed = |what: String| Unread(format!("{}: {what}", host::hugetlb_file(size, file)));
        let text = if_exists(read(file)).map_err(|error| failed(error.to_string()))?;
        let parsed =
            |text: String| text.trim().parse().map_err(|_| failed(format!("expected a number, found {text:?}")));
        text.map(parsed).transpose()
    };
    let of =
        |has, less| Ok::<_, Unread>(number(has)?.zip(number(less)?).map(|(has, less)| u64::saturating_sub(has, less)));
    let (free, surplus) =
        (of("free_hugepages", "resv_hugepages")?, of("nr_overcommit_hugepages", "surplus_hugepages")?);
    Ok(free == Some(0) && surplus == Some(0))
}

fn advice(entry: &SmapsEntry) -> Advice {
    if entry.has_flag("nh") {
        Advice::NoHuge
    } else if entry.has_flag("hg") {
        Advice::Huge
    } else {
        Advice::None
    }
}

#[cfg(test)]
mod tests {
    use policy::judge::Process as _;

    use super::*;
    use crate::{Source, smaps};

    /// A process under PR_SET_THP_DISABLE that runs as long as this value exists.
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
        assert_eq!(of(child.0.id()), Ok(true));
        assert_eq!(of(u32::MAX), Ok(false), "there is no such process");
    }

    #[test]
    fn an_unreadable_fact_is_unknown_and_not_false() {
        let refused = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        let Unread(reason) = is_disabled_in(refused()).unwrap_err();
        assert!(reason.starts_with("/proc/PID/status: Too many open files"), "{reason}");
        assert_eq!(is_disabled_in(Ok("Name: a\nTHP_enabled:\t0\n".into())), Ok(true));
        assert_eq!(is_disabled_in(Ok("Name: a\n".into())), Ok(false));
        let pool = |refused_file: &'static str, number: &'static str| {
            let read = move |file: &str| if file == refused_file { refused() } else { Ok(number.into()) };
            is_exhausted(read, PageSize::M2)
        };
        assert_eq!((pool("", "0\n"), pool("", "1\n")), (Ok(true), Ok(true)), "all of them are reserved");
        for file in ["free_hugepages", "resv_hugepages", "nr_overcommit_hugepages", "surplus_hugepages"] {
            assert!(pool(file, "0\n").unwrap_err().0.contains(file));
        }
        assert!(pool("", "many\n").unwrap_err().0.contains("many"));
    }

    #[test]
    fn advice_is_known_by_the_flags_of_smaps() {
        for (flags, expected) in [("hg", Advice::Huge), ("nh", Advice::NoHuge), ("ht", Advice::None)] {
            let text = format!("200000-600000 rw-p 0 0:0 0\nVmFlags: rd wr {flags}\n");
            assert_eq!(advice(&smaps::parse(&text, "smaps").unwrap()[0]), expected, "{flags}");
        }
    }
}
