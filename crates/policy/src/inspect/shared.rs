//! [`refusals`]: settings that prevent larger pages in shared memory (`shmem_allowable_huge_orders`, mm/shmem.c).
//!
//! A file on a tmpfs follows the mount option `huge=`. The kernel's internal tmpfs (memfd, System V, shared anonymous memory)
//! follows `shmem_enabled`. `deny` and `force` in `shmem_enabled` override both. Since Linux 6.10 the setting of the size applies
//! too, but only to memory without a name.

use super::context::Context;
use super::process::ThpMode;
use super::vma::VmaFacts;
use crate::cause::Cause;
use crate::census::Advice;
use crate::judge::THP;
use crate::size::PageSize;

/// The setting that decides about shared memory of a size: its path and its value.
struct Setting {
    path: String,
    word: String,
    /// Whether it is a mount option.
    is_mount: bool,
}

/// The valid words of a setting for shared memory; any other word is a value that could not be read.
const WORDS: [&str; 6] = ["always", "within_size", "advise", "never", "deny", "force"];

/// All reasons for which the kernel would currently refuse the size to shared memory, with the evidence.
pub fn refusals(vma: &VmaFacts, size: PageSize, context: &Context) -> (Vec<Cause>, Vec<String>) {
    let mut causes = Vec::new();
    let mut evidence = Vec::new();
    let mut add = |cause: Cause, line: String| {
        causes.push(cause);
        evidence.push(line);
    };
    if context.process.thp == ThpMode::Disabled {
        add(Cause::DisabledForProcess, "THP_enabled: 0 in /proc/PID/status".into());
    }
    if vma.advice() == Some(Advice::NoHuge) {
        add(Cause::AdvisedAgainst, format!("VmFlags nh at {:#x}", vma.start));
    }
    match deciding(vma, size, context) {
        None => add(Cause::Unexplained, format!("{THP}/shmem_enabled cannot be read")),
        Some(deciding) => {
            // Where the setting gives no size at all, the kernel does not align the address either (`shmem_get_unmapped_area`).
            let aligns = !["never", "deny"].contains(&deciding.word.as_str());
            deciding.refusals(vma.advice()).into_iter().for_each(|(cause, line)| add(cause, line));
            if aligns && !vma.is_congruent(size) {
                add(Cause::SharedMisaligned, super::files::misaligned(vma, size));
            }
        }
    }
    (causes, evidence)
}

impl Setting {
    /// Why the setting refuses memory with this advice, with the evidence.
    fn refusals(self, advice: Option<Advice>) -> Vec<(Cause, String)> {
        let Setting { path, word, is_mount } = self;
        let seen = format!("{path}: {word}");
        let is_advised = advice == Some(Advice::Huge);
        let not_advised = || (Cause::SharedNotAdvised { path: path.clone() }, "no hg in VmFlags".to_owned());
        match word.as_str() {
            "never" | "deny" => {
                let disabled = if is_mount {
                    Cause::MountRefuses { huge: word }
                } else {
                    Cause::SharedDisabled { path: path.clone() }
                };
                let advice = (advice.is_some() && !is_advised).then(not_advised);
                std::iter::once((disabled, seen)).chain(advice).collect()
            }
            "advise" if advice.is_none() => {
                vec![(Cause::Unexplained, "the advice of the mapping was not read (smaps)".into())]
            }
            "advise" if !is_advised => vec![(not_advised().0, seen)],
            word if !WORDS.contains(&word) => vec![(Cause::Unexplained, seen)],
            _ => Vec::new(),
        }
    }
}

/// Whether the size is only given where the file covers the whole slot.
pub fn is_within_size(vma: &VmaFacts, size: PageSize, context: &Context) -> bool {
    deciding(vma, size, context).is_some_and(|deciding| deciding.word == "within_size")
}

/// The setting that decides; `None` where it cannot be read.
fn deciding(vma: &VmaFacts, size: PageSize, context: &Context) -> Option<Setting> {
    let settings = &context.supply.settings;
    let (common, own) =
        (format!("{THP}/shmem_enabled"), format!("{THP}/hugepages-{}kB/shmem_enabled", size.bytes() >> 10));
    let word = settings.get(&common);
    if let Some(word) = word.filter(|word| !WORDS.contains(&word.as_str())) {
        return Some(Setting { path: common, word: word.clone(), is_mount: false });
    }
    let overrides_all = word.is_some_and(|word| word == "deny" || word == "force");
    let own_word = settings.get(&own).filter(|own| !overrides_all && vma.is_unnamed() && *own != "inherit");
    if let Some(word) = own_word {
        return Some(Setting { path: own, word: word.clone(), is_mount: false });
    }
    match (&vma.file_system, word) {
        (Some(on), _) if !overrides_all => {
            let word = on.huge.clone().unwrap_or_else(|| "never".into());
            Some(Setting { path: format!("huge= of the {} that holds {}", on.name, vma.name), word, is_mount: true })
        }
        (_, Some(word)) => Some(Setting { path: common, word: word.clone(), is_mount: false }),
        (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::VmaKind;
    use crate::inspect::{FileSystem, Process, SmapsInfo, Supply, VmFlags, VmaPart};

    const M: u64 = 1 << 20;

    fn vma(name: &str, mount: Option<&str>, flags: &str) -> VmaFacts {
        VmaFacts {
            start: 4 * M,
            end: 20 * M,
            kind: VmaKind::Shared,
            protection: crate::call::prot::READ,
            shared: true,
            device: (0, 1),
            inode: 7,
            offset: 0,
            name: name.into(),
            is_shmem: true,
            file_system: mount.map(|huge| FileSystem { name: "tmpfs".into(), huge: Some(huge.into()) }),
            part: VmaPart::First,
            smaps_info: Some(SmapsInfo { flags: VmFlags::of(flags), ..SmapsInfo::default() }),
        }
    }

    /// The cause when `shmem_enabled` and the setting of 2M have these values.
    fn cause(vma: &VmaFacts, common: &str, own: &str) -> Option<Cause> {
        let setting = |path: &str, word: &str| (format!("{THP}/{path}"), word.to_string());
        let settings = [setting("shmem_enabled", common), setting("hugepages-2048kB/shmem_enabled", own)].into();
        let (process, supply) = (Process::default(), Supply { settings, ..Supply::default() });
        let (base, pmd) = (PageSize::K4, Some(PageSize::M2));
        let context =
            Context { process: &process, supply: &supply, base, pmd, sees_folios: true, runtimes: &[], kernel: None };
        refusals(vma, PageSize::M2, &context).0.into_iter().next()
    }

    #[test]
    fn name_mount_and_global_setting_decide_for_shared_memory() {
        let (unnamed, mounted) = (vma("/memfd:x (deleted)", None, ""), vma("/dev/shm/x", Some("advise"), ""));
        let advised = vma("/dev/shm/x", Some("advise"), "hg");
        let disabled = |path: &str| Some(Cause::SharedDisabled { path: format!("{THP}/{path}") });
        assert_eq!(cause(&unnamed, "never", "inherit"), disabled("shmem_enabled"));
        assert_eq!(cause(&unnamed, "always", "never"), disabled("hugepages-2048kB/shmem_enabled"));
        assert_eq!(cause(&unnamed, "never", "always"), None);
        assert_eq!(cause(&unnamed, "deny", "always"), disabled("shmem_enabled"));
        // The settings of single sizes do not apply to memory with a name; the mount option does.
        assert!(matches!(cause(&mounted, "never", "always"), Some(Cause::SharedNotAdvised { .. })));
        assert_eq!(cause(&advised, "never", "never"), None);
        assert_eq!(cause(&advised, "deny", "always"), disabled("shmem_enabled"));
        assert_eq!(cause(&mounted, "force", "never"), None);
        let never = vma("/dev/shm/x", Some("never"), "hg");
        assert_eq!(cause(&never, "always", "always"), Some(Cause::MountRefuses { huge: "never".into() }));
        // A setting that could not be read permits nothing.
        let unknown = "unknown: Permission denied (os error 13)";
        assert_eq!(cause(&unnamed, unknown, "always"), Some(Cause::Unexplained));
        assert_eq!(cause(&unnamed, "always", unknown), Some(Cause::Unexplained));
        assert_eq!(cause(&mounted, unknown, "always"), Some(Cause::Unexplained), "`deny` may override the mount");
        // Only the offset prevents the size.
        let beyond = VmaFacts { offset: 4096, ..advised };
        assert_eq!(cause(&beyond, "never", "never"), Some(Cause::SharedMisaligned));
    }
}
