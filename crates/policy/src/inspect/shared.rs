//! What keeps larger pages out of shared memory: settings of their own (`shmem_allowable_huge_orders`, mm/shmem.c).
//!
//! A file of a tmpfs follows the mount's `huge=`, and the kernel's own tmpfs (memfd, System V, shared anonymous memory)
//! `shmem_enabled`. Above them stand `deny` and `force` in `shmem_enabled`; and, for what has no name and since Linux 6.10, the
//! file of the size.

use super::ground::Ground;
use super::process::ThpMode;
use super::vma::VmaFacts;
use crate::cause::Cause;
use crate::census::Advice;
use crate::judge::THP;
use crate::size::PageSize;

/// What decides about shared memory of a size: where it stands, and what it says.
struct Deciding {
    path: String,
    word: String,
    /// Whether it is the option of a mount.
    is_mount: bool,
}

/// Why the kernel would refuse shared memory the size now, and what shows it.
pub fn refusal(vma: &VmaFacts, size: PageSize, ground: &Ground) -> Option<(Cause, Vec<String>)> {
    if ground.process.thp == ThpMode::Disabled {
        return Some((Cause::DisabledForProcess, vec!["THP_enabled: 0 in /proc/PID/status".into()]));
    }
    let Deciding { path, word, is_mount } = match deciding(vma, size, ground) {
        Ok(deciding) => deciding,
        Err(path) => return Some((Cause::Unexplained, vec![format!("{path} cannot be read")])),
    };
    let evidence = vec![format!("{path}: {word}")];
    let advice = vma.advice();
    match (word.as_str(), advice) {
        _ if advice == Some(Advice::NoHuge) => {
            Some((Cause::AdvisedAgainst, vec![format!("VmFlags nh at {:#x}", vma.start)]))
        }
        ("never", _) if is_mount => Some((Cause::MountRefuses { huge: word }, evidence)),
        ("never" | "deny", _) => Some((Cause::SharedDisabled { path }, evidence)),
        ("advise", Some(Advice::None)) => Some((Cause::SharedNotAdvised { path }, evidence)),
        ("advise", None) => {
            Some((Cause::Unexplained, vec!["what the mapping was advised was not read (smaps)".into()]))
        }
        _ if !vma.is_congruent(size) => Some((Cause::FileMisaligned, vec![super::files::misaligned(vma, size)])),
        _ => None,
    }
}

/// Whether the size is given only where the file is there from end to end.
pub fn is_within_size(vma: &VmaFacts, size: PageSize, ground: &Ground) -> bool {
    deciding(vma, size, ground).is_ok_and(|deciding| deciding.word == "within_size")
}

/// The setting that decides; the path of the one that cannot be read.
fn deciding(vma: &VmaFacts, size: PageSize, ground: &Ground) -> Result<Deciding, String> {
    let settings = &ground.supply.settings;
    let (common, own) =
        (format!("{THP}/shmem_enabled"), format!("{THP}/hugepages-{}kB/shmem_enabled", size.bytes() >> 10));
    let word = settings.get(&common);
    let is_above = word.is_some_and(|word| word == "deny" || word == "force");
    let own_word = settings.get(&own).filter(|own| !is_above && vma.is_unnamed() && *own != "inherit");
    if let Some(word) = own_word {
        return Ok(Deciding { path: own, word: word.clone(), is_mount: false });
    }
    match (&vma.file_system, word) {
        (Some(on), _) if !is_above => {
            let word = on.huge.clone().unwrap_or_else(|| "never".into());
            Ok(Deciding { path: format!("huge= of the {} that holds {}", on.name, vma.name), word, is_mount: true })
        }
        (_, Some(word)) => Ok(Deciding { path: common, word: word.clone(), is_mount: false }),
        (_, None) => Err(common),
    }
}
