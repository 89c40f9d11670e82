//! Boots of the host as arms of a study ([`Boot`]): the requirements that a boot must meet.

use policy::DirectMapLeaves;
use policy::size::{PageSize, SizeError, format_bytes, parse_bytes};

use super::DefinitionError;
use super::wire::WireBoot;
use policy::machine::Machine;
use study::guest;

/// The requirements of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Its name in the study.
    pub name: String,
    /// Whether it is the baseline.
    pub is_baseline: bool,
    /// Prefix of its kernel's release, in whole numbers: `6.1` matches 6.1.90 and not 6.12.
    pub kernel: Option<String>,
    /// Words that the kernel's command line must contain.
    pub with: Vec<String>,
    /// Words that the kernel's command line must not contain.
    pub without: Vec<String>,
    /// Base page size.
    pub base_page: Option<PageSize>,
    /// Words of the kernel's version, which distinguish builds of one release: `#2`, a date.
    pub build: Option<String>,
    /// The host: part of its processor's name, or a prefix of its id.
    pub host: Option<String>,
    /// Memory of the host in bytes. The kernel may manage a tenth less or a hundredth more.
    pub memory_bytes: Option<u64>,
    /// The leaf size that maps nine tenths of the kernel's direct map.
    pub leaves: Option<DirectMapLeaves>,
    /// Whether pagelab split the direct map since boot. If false, a boot with [`Boot::leaves`] must have had these leaves from
    /// the start.
    pub is_demoted: bool,
    /// The guest, if it is one; absent: a boot of the host itself.
    pub guest: Option<Guest>,
}

/// A boot that pagelab performs itself, in a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Path of the kernel image.
    pub image: String,
    /// Additional words for the kernel's command line.
    pub cmdline: String,
    /// Memory of the guest, in the syntax of `compare --memory`.
    pub memory: Option<String>,
    /// Whether the guest is emulated with a clock that counts instructions.
    pub icount: bool,
    /// Root directory of the system whose files the guest uses; absent: the host's.
    pub sysroot: Option<String>,
}

impl Boot {
    pub(super) fn of(name: &str, wire: &WireBoot) -> Result<Boot, DefinitionError> {
        let wrong = |error| DefinitionError::BasePage { boot: name.to_owned(), error };
        let wrong_leaves = |error| DefinitionError::Leaves { boot: name.to_owned(), error };
        if wire.demoted && wire.leaves.is_none() {
            return Err(DefinitionError::DemotedWithoutLeaves { boot: name.to_owned() });
        }
        let guest = Guest::of(name, wire)?;
        let own = guest.iter().map(|_| guest::kernel_word(name));
        // A guest has the memory that it is given, so there is nothing to require.
        let memory = wire.memory.as_ref().filter(|_| guest.is_none());
        let wrong_memory = |error| DefinitionError::Memory { boot: name.to_owned(), error };
        Ok(Boot {
            name: name.to_owned(),
            is_baseline: wire.baseline,
            kernel: wire.kernel.clone(),
            with: own.chain(wire.with.iter().cloned()).collect(),
            without: wire.without.clone(),
            base_page: wire.base_page.as_ref().map(|size| size.parse().map_err(wrong)).transpose()?,
            build: wire.build.clone(),
            host: wire.host.clone(),
            memory_bytes: memory.map(|size| parse_bytes(size).map_err(wrong_memory)).transpose()?,
            leaves: wire.leaves.as_deref().map(leaves).transpose().map_err(wrong_leaves)?,
            is_demoted: wire.demoted,
            guest,
        })
    }

    /// The boot of a guest that is named on the command line together with other guests.
    pub fn of_guest(name: &str, is_baseline: bool, guest: Guest) -> Boot {
        Boot {
            name: name.to_owned(),
            is_baseline,
            kernel: None,
            with: vec![guest::kernel_word(name)],
            without: Vec::new(),
            base_page: None,
            build: None,
            host: None,
            memory_bytes: None,
            leaves: None,
            is_demoted: false,
            guest: Some(guest),
        }
    }

    /// The required memory of a boot of the host in bytes, from `memory` or from `mem=` on the kernel's command line.
    pub fn required_memory_bytes(&self) -> Option<u64> {
        let of_word = |word: &String| parse_bytes(word.strip_prefix("mem=")?).ok();
        let by_word = || self.with.iter().find_map(of_word);
        self.memory_bytes.or_else(by_word).filter(|_| self.guest.is_none())
    }

    /// The requirements in words.
    pub fn describe(&self) -> String {
        if let Some(guest) = &self.guest {
            return format!("a guest with {}", guest.image);
        }
        let kernel = self.kernel.iter().map(|kernel| format!("a kernel {kernel}"));
        let with = self.with.iter().map(|word| format!("`{word}` on the kernel's command line"));
        let without = self.without.iter().map(|word| format!("no `{word}` on the kernel's command line"));
        let base = self.base_page.iter().map(|base| format!("base pages of {base}"));
        let build = self.build.iter().map(|build| format!("a kernel whose version has `{build}`"));
        let host = self.host.iter().map(|host| format!("the host {host}"));
        let memory = self.memory_bytes.iter().map(|bytes| format!("{} of memory", format_bytes(*bytes)));
        let split = if self.is_demoted { "split into " } else { "" };
        let leaves = self.leaves.iter().map(|leaves| format!("a direct map {split}{}", with_leaves(*leaves, split)));
        let own = build.chain(host).chain(memory).chain(leaves);
        let all: Vec<String> = kernel.chain(with).chain(without).chain(base).chain(own).collect();
        if all.is_empty() { "any boot".to_owned() } else { all.join(", ") }
    }

    /// The first requirement that a machine does not meet; `None` if it meets all.
    pub fn lacks(&self, machine: &Machine) -> Option<String> {
        let words: Vec<&str> = machine.kernel_command_line.split_whitespace().collect();
        let release = machine.kernel.split_whitespace().next().unwrap_or_default();
        let has = |word: &String| words.contains(&word.as_str());
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| !begins(release, kernel)) {
            return Some(format!("a kernel {kernel}"));
        }
        if let Some(word) = self.with.iter().find(|word| !has(word)) {
            return Some(format!("`{word}` on the kernel's command line"));
        }
        if let Some(word) = self.without.iter().find(|word| has(word)) {
            return Some(format!("a kernel's command line without `{word}`"));
        }
        let base = self.base_page.filter(|base| *base != machine.page_sizes.base);
        base.map(|base| format!("a kernel with base pages of {base}")).or_else(|| self.lacks_host(machine))
    }

    /// Requirements on the kernel's build and on the host.
    fn lacks_host(&self, machine: &Machine) -> Option<String> {
        let version = machine.kernel.split_once(' ').map_or("", |(_, version)| version);
        let is_host = |host: &String| {
            machine.cpu_model.contains(host) || machine.host_id.as_ref().is_some_and(|id| id.starts_with(host))
        };
        let build = self.build.as_ref().filter(|build| !version.contains(build.as_str()));
        let host = self.host.as_ref().filter(|host| !is_host(host));
        let memory = self.memory_bytes.filter(|bytes| !has_memory(machine.memory_bytes, *bytes));
        build
            .map(|build| format!("a kernel whose version has `{build}`"))
            .or_else(|| host.map(|host| format!("the host {host}")))
            .or_else(|| memory.map(|bytes| format!("{} of memory", format_bytes(bytes))))
            .or_else(|| self.lacks_leaves(machine))
    }

    /// Requirements on the direct map. A direct map that was split after boot does not meet a requirement for boots with those
    /// leaves, because splitting has side effects.
    fn lacks_leaves(&self, machine: &Machine) -> Option<String> {
        let wanted = self.leaves?;
        let Some(found) = machine.direct_map else {
            return Some(format!("{wanted} in its direct map: the kernel, or the result, does not report its leaves"));
        };
        match (found.demoted_to, self.is_demoted) {
            _ if found.leaves() != wanted => Some(format!("{wanted} in its direct map: it has {}", found.leaves())),
            (Some(leaf), false) => {
                Some(format!("{wanted} in its direct map from the boot on: it was split to {leaf} since"))
            }
            (None, true) => Some(format!("{wanted} in its direct map by splitting: it booted with them")),
            _ => None,
        }
    }
}

/// Parses `4K`, `2M`, `1G` or `mixed`.
fn leaves(text: &str) -> Result<DirectMapLeaves, SizeError> {
    match text {
        "mixed" => Ok(DirectMapLeaves::Mixed),
        size => size.parse().map(DirectMapLeaves::Of),
    }
}

/// The leaves as words, preceded by "with" if `split` is empty.
fn with_leaves(leaves: DirectMapLeaves, split: &str) -> String {
    if split.is_empty() { format!("with {leaves}") } else { leaves.to_string() }
}

impl Guest {
    fn of(name: &str, wire: &WireBoot) -> Result<Option<Guest>, DefinitionError> {
        let boot = || name.to_owned();
        match &wire.image {
            Some(_) if !guest::is_name(name) => Err(DefinitionError::GuestName { boot: boot() }),
            Some(image) => {
                let (image, cmdline) = (image.clone(), wire.cmdline.clone().unwrap_or_default());
                let (memory, sysroot) = (wire.memory.clone(), wire.sysroot.clone());
                Ok(Some(Guest { image, cmdline, memory, icount: wire.icount, sysroot }))
            }
            None if wire.cmdline.is_some() || wire.icount || wire.sysroot.is_some() => {
                Err(DefinitionError::NotAGuest { boot: boot() })
            }
            None => Ok(None),
        }
    }
}

/// Whether a machine with `bytes` of memory can have a kernel that manages `managed_bytes`: firmware and kernel reserve up to
/// a tenth, and sizes are rounded by up to a hundredth.
fn has_memory(managed_bytes: u64, bytes: u64) -> bool {
    (bytes - bytes / 10..=bytes.saturating_add(bytes / 100)).contains(&managed_bytes)
}

/// Whether a release begins with the numbers of `kernel`, without cutting a number in two.
fn begins(release: &str, kernel: &str) -> bool {
    let is_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let ends_in_number = kernel.ends_with(|c: char| c.is_ascii_digit());
    release.strip_prefix(kernel).is_some_and(|rest| !(ends_in_number && is_digit(rest)))
}

/// Refuses two baseline boots.
pub(super) fn check_single_baseline(boots: &[Boot]) -> Result<(), DefinitionError> {
    let mut all = boots.iter().filter(|boot| boot.is_baseline);
    match all.next().zip(all.next()) {
        Some((one, other)) => {
            Err(DefinitionError::SeveralBaselines { one: one.name.clone(), other: other.name.clone() })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::machine::DirectMap;

    #[test]
    fn a_release_begins_with_whole_numbers() {
        assert!(begins("6.1.0-18-amd64", "6.1") && begins("6.1.0", "6.1.0") && begins("6.12.1-64k", "6.12.1-"));
        assert!(!begins("6.12.1", "6.1") && !begins("6.1", "6.1.0"));
    }

    fn machine() -> Machine {
        Machine {
            name: "host".into(),
            arch: "x86_64".into(),
            kernel: "6.18.0 #2 SMP 2026-11-23".into(),
            kernel_command_line: String::new(),
            boot_id: "x".into(),
            host_id: Some("1f2e3d".into()),
            cpu_model: "a processor E5-2690".into(),
            cpus: 2,
            memory_bytes: 251 << 30,
            hypervisor: None,
            page_sizes: policy::PageSizes { base: PageSize::K4, pmd: None, mthp: vec![], hugetlb: vec![] },
            direct_map: None,
        }
    }

    #[test]
    fn recognises_a_boot_by_its_build_its_host_and_its_memory() {
        let boot = |text: &str| {
            let wire: WireBoot = serde_json::from_str(text).unwrap();
            Boot::of("a", &wire).unwrap().lacks(&machine())
        };
        for own in [r##"{"build": "#2"}"##, r#"{"host": "E5-2690"}"#, r#"{"host": "1f2e"}"#, r#"{"memory": "256G"}"#] {
            assert_eq!(boot(own), None, "{own}");
        }
        assert_eq!(boot(r##"{"build": "#3"}"##).unwrap(), "a kernel whose version has `#3`");
        assert_eq!(boot(r#"{"host": "EPYC"}"#).unwrap(), "the host EPYC");
        assert_eq!(boot(r#"{"memory": "512G"}"#).unwrap(), "512G of memory");
        assert!(boot(r#"{"memory": "248G"}"#).is_some(), "the kernel manages more");
    }

    #[test]
    fn a_split_direct_map_does_not_count_as_booted_with_those_leaves() {
        let split = |leaf, demoted_to| Some(DirectMap { leaf, demoted_to });
        let (m2, g1) = (Some(PageSize::M2), Some(PageSize::G1));
        let lacks = |text: &str, direct_map| {
            let wire: WireBoot = serde_json::from_str(text).unwrap();
            Boot::of("a", &wire).unwrap().lacks(&Machine { direct_map, ..machine() })
        };
        let (booted, demoted) = (r#"{"leaves": "2M"}"#, r#"{"leaves": "2M", "demoted": true}"#);
        assert_eq!(lacks(booted, split(m2, None)), None);
        assert_eq!(lacks(demoted, split(m2, m2)), None);
        assert_eq!(lacks(r#"{"leaves": "mixed"}"#, split(None, None)), None);
        for (text, found, why) in [
            (booted, split(m2, m2), "it was split to 2M since"),
            (demoted, split(m2, None), "it booted with them"),
            (booted, split(g1, None), "it has leaves of 1G"),
            (booted, split(None, None), "it has leaves of several sizes"),
            (booted, None, "does not report its leaves"),
        ] {
            let lack = lacks(text, found).unwrap();
            assert!(lack.contains(why), "{text} {found:?}: {lack}");
        }
        let refused = |text: &str| Boot::of("a", &serde_json::from_str(text).unwrap()).unwrap_err().to_string();
        assert!(refused(r#"{"leaves": "3M"}"#).starts_with("boots.a.leaves: "));
        assert!(refused(r#"{"demoted": true}"#).contains("leaves"));
    }
}
