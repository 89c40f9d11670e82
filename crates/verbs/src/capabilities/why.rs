//! Why a combination of memory, way and size did not get the size.

use host::{Counters, FALLBACKS, Host, THP, chosen_word};
use policy::capability::{Kind, Setting, Way};
use policy::cause::Cause;

use super::settings::size_setting;
use super::subjects::Subject;
use super::trial::Combination;
use crate::failure::Failure;

/// The cause if every call succeeded and no allocation failed: it follows from the way alone.
pub fn expected(tried: &Combination) -> Cause {
    match tried.way {
        _ if tried.kind().is_file() => Cause::FilePages,
        _ if tried.kind() == Kind::Tmpfs && tried.way != Way::Collapse => mount_refusal(tried.subject),
        Way::Fork => Cause::SplitAfterFork,
        Way::Zeros => Cause::ReadFirst,
        Way::Mprotect => Cause::LeafSplit,
        Way::Mremap => Cause::MovedOutOfPlace,
        Way::SwapIn => Cause::SwappedOut,
        Way::Collapse | Way::Khugepaged => Cause::FilledWithBasePages,
        Way::Touch | Way::Populate => Cause::Unexplained,
    }
}

/// The cause, if the mount option of the tmpfs refuses large folios.
fn mount_refusal(subject: &Subject) -> Cause {
    match subject.memory.mount.as_deref().and_then(|mount| mount.strip_prefix("huge=")) {
        None | Some("always" | "advise") => Cause::Unexplained,
        Some(other) => Cause::MountRefuses { huge: other.to_owned() },
    }
}

/// The cause, if a counter of failed allocations of this size increased between `before` and `after`. The counters are
/// for the whole system.
pub fn shortage(tried: &Combination, before: &Counters, after: &Counters) -> Option<Cause> {
    let own = |name: &str| format!("hugepages-{}kB/{name}", tried.size.bytes() >> 10);
    let names: Vec<String> = match tried.way {
        Way::Collapse | Way::Khugepaged => vec!["thp_collapse_alloc_failed".to_owned()],
        _ if tried.kind() == Kind::Hugetlb => Vec::new(),
        _ if tried.kind().is_shmem() => vec![own("shmem_fallback"), "thp_file_fallback".to_owned()],
        _ => vec![own("anon_fault_fallback"), FALLBACKS.to_owned()],
    };
    names.into_iter().find_map(|counter| {
        let times = before.increase(after, &counter).filter(|times| *times > 0)?;
        Some(Cause::AllocationFellBack { counter, times })
    })
}

/// If a setting switches the size off, the cause and a value that would enable it. The value is for advised memory,
/// because trials advise their memory.
pub fn disabled(host: &Host, tried: &Combination) -> Result<Option<(Cause, Setting)>, Failure> {
    // For files on a tmpfs the mount decides, not these settings.
    let has_setting = tried.kind() != Kind::Hugetlb && !tried.kind().has_mount();
    if !has_setting || tried.way == Way::Collapse {
        return Ok(None);
    }
    let (own, _) = size_setting(host, tried.kind(), tried.size).map_err(Failure::input)?;
    let is_shmem = tried.kind().is_shmem();
    let whole = format!("{THP}/{}", if is_shmem { "shmem_enabled" } else { "enabled" });
    let own_word = host.value(&own).map_err(Failure::input)?;
    let path = match own_word.as_deref().map(chosen_word) {
        Some("never") => own,
        Some("inherit") | None => match host.value(&whole).map_err(Failure::input)?.as_deref().map(chosen_word) {
            Some("never" | "deny") => whole,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let value = if is_shmem { "advise" } else { "madvise" }.to_owned();
    let cause = if is_shmem {
        Cause::SharedDisabled { path: path.clone() }
    } else {
        Cause::SizeDisabled { path: path.clone() }
    };
    Ok(Some((cause, Setting { path, value, tried: false })))
}
