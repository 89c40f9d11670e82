//! What keeps larger pages out of shared memory: settings of their own (`shmem_allowable_huge_orders`, mm/shmem.c).

use super::ground::Ground;
use super::vma::VmaFacts;
use crate::cause::Cause;
use crate::census::Advice;
use crate::judge::THP;
use crate::size::PageSize;

/// Why the kernel would refuse shared memory the size now, and what shows it.
pub fn refusal(vma: &VmaFacts, size: PageSize, ground: &Ground) -> Option<(Cause, Vec<String>)> {
    let settings = &ground.supply.settings;
    let common = format!("{THP}/shmem_enabled");
    let own = format!("{THP}/hugepages-{}kB/shmem_enabled", size.bytes() >> 10);
    let is_own = settings.get(&own).is_some_and(|value| value != "inherit");
    let path = if is_own { own } else { common };
    let Some(word) = settings.get(&path) else {
        return Some((Cause::Unexplained, vec![format!("{path} cannot be read")]));
    };
    let evidence = vec![format!("{path}: {word}")];
    let advice = vma.advice();
    match (word.as_str(), advice) {
        _ if advice == Some(Advice::NoHuge) => {
            Some((Cause::AdvisedAgainst, vec![format!("VmFlags nh at {:#x}", vma.start)]))
        }
        ("never" | "deny", _) => Some((Cause::SharedDisabled { path }, evidence)),
        ("advise", Some(Advice::None)) => Some((Cause::SharedNotAdvised { path }, evidence)),
        ("advise" | "within_size", None) => {
            Some((Cause::Unexplained, vec!["what the mapping was advised could not be read (smaps)".into()]))
        }
        _ => None,
    }
}
