//! [`Feature`]s that decide the leaves of the direct map: boot options, processor flags and properties of the kernel.
//!
//! Sources: `init_gbpages`, `probe_page_size_mask` (arch/x86/mm/init.c); `can_set_direct_map` (arch/arm64/mm/pageattr.c);
//! Documentation/admin-guide/kernel-parameters.txt.

use super::KernelConfig;
use crate::{Host, HostError, KernelVersion, absent};

/// The version since which large leaves are rebuilt after set_memory_rox (arch/x86/mm/pat/set_memory.c).
const COLLAPSES: KernelVersion = KernelVersion(6, 15);

/// A feature that decides how large the leaves are, or what can be changed about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name: a processor flag, a boot option, a configuration option.
    pub name: &'static str,
    /// Its value on this host.
    pub value: String,
    /// The consequence for the direct map.
    pub meaning: String,
}

/// The boot parameters that decide the direct map.
pub(super) struct Boot {
    arch: String,
    words: Vec<String>,
    config: KernelConfig,
}

impl Boot {
    pub fn of(host: &Host) -> Result<Boot, HostError> {
        // A capture of a process may lack the command line.
        let line = absent::text(host.root(), "/proc/cmdline")?.unwrap_or_default();
        // Words after `--` are for init.
        let words = line.split_whitespace().take_while(|word| *word != "--").map(String::from).collect();
        // The file exists since Linux 6.1.
        let arch = host.value("/proc/sys/kernel/arch")?.unwrap_or_else(|| std::env::consts::ARCH.to_string());
        Ok(Boot { arch, words, config: KernelConfig::read(host) })
    }

    pub fn is_x86(&self) -> bool {
        self.arch == "x86_64"
    }

    pub fn is_arm(&self) -> bool {
        self.arch == "aarch64"
    }

    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|one| one == word)
    }

    /// The last value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.words.iter().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether freed pages are unmapped, which requires an entry for every single page.
    pub fn debugs_page_allocation(&self) -> bool {
        match self.option("debug_pagealloc") {
            Some(value) => value == "on" || value == "1",
            None => self.config.value("CONFIG_DEBUG_PAGEALLOC_ENABLE_DEFAULT") == Some("y"),
        }
    }

    /// Whether `nogbpages` comes last among `gbpages` and `nogbpages`.
    pub fn forbids_gigabytes(&self) -> bool {
        self.words
            .iter()
            .rev()
            .find(|word| *word == "gbpages" || *word == "nogbpages")
            .is_some_and(|word| word == "nogbpages")
    }
}

/// The features that decide the leaves of the direct map here, and what can be done to them. Values that only root can read are
/// shown as unknown.
pub fn features(host: &Host) -> Result<Vec<Feature>, HostError> {
    let boot = Boot::of(host)?;
    let mut features = Vec::new();
    if boot.is_x86() {
        features.push(gigabyte_flag(host)?);
        features.push(gigabyte_option(&boot));
    }
    features.push(debug_pagealloc(&boot));
    if boot.is_arm() {
        features.push(rodata(&boot));
    }
    features.push(kfence(host, &boot));
    features.push(secretmem(host, &boot));
    if boot.is_x86() {
        features.extend(collapses(host)?);
    }
    features.push(configuration(&boot.config));
    Ok(features)
}

/// A cost of this boot's leaves that does not come from their size (debug_pagealloc); `None` if there is none.
pub(crate) fn cost_of_leaves(host: &Host) -> Result<Option<String>, HostError> {
    let boot = Boot::of(host)?;
    Ok(boot.debugs_page_allocation().then(|| format!("debug_pagealloc: {}", debug_pagealloc(&boot).meaning)))
}

fn configuration(config: &KernelConfig) -> Feature {
    let value = match (&config.file, &config.problem) {
        (Some(file), _) => file.clone(),
        (None, Some(problem)) => format!("unknown: {problem}"),
        (None, None) => "not found".into(),
    };
    let meaning = "of the kernel: /proc/config.gz or /boot/config-RELEASE".into();
    Feature { name: "configuration", value, meaning }
}

/// Whether the processor has 1G leaves; `None` where /proc/cpuinfo does not have the flags.
pub(super) fn has_gigabyte_leaves(host: &Host) -> Result<Option<bool>, HostError> {
    let cpuinfo = host.root().required("/proc/cpuinfo")?;
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    Ok(flags.map(|(_, flags)| flags.split_whitespace().any(|flag| flag == "pdpe1gb")))
}

fn gigabyte_flag(host: &Host) -> Result<Feature, HostError> {
    let (value, meaning) = match has_gigabyte_leaves(host)? {
        Some(true) => ("yes", "the processor has 1G leaves"),
        Some(false) => ("no", "the processor has no 1G leaves, or the hypervisor hides them"),
        None => ("unknown", "/proc/cpuinfo has no line `flags`"),
    };
    Ok(Feature { name: "pdpe1gb", value: value.into(), meaning: meaning.into() })
}

fn gigabyte_option(boot: &Boot) -> Feature {
    const NAME: &str = "nogbpages";
    let configured = boot.config.value("CONFIG_X86_DIRECT_GBPAGES");
    let (value, meaning) = match (boot.forbids_gigabytes(), configured) {
        (true, _) => ("on the kernel command line", "2M is the largest leaf"),
        (false, Some("n")) if boot.has("gbpages") => ("gbpages instead", "1G leaves are used"),
        (false, Some("n")) => {
            ("not given", "but CONFIG_X86_DIRECT_GBPAGES is off: 2M is the largest leaf; boot with gbpages")
        }
        (false, _) => ("not given", "1G leaves are used where memory is aligned"),
    };
    Feature { name: NAME, value: value.into(), meaning: meaning.into() }
}

fn debug_pagealloc(boot: &Boot) -> Feature {
    let value = match boot.option("debug_pagealloc") {
        Some(value) => format!("{value} on the kernel command line"),
        None => "not given".into(),
    };
    let meaning = match boot.debugs_page_allocation() {
        true => "every page has its own entry, and each free page is unmapped, which costs time",
        false if boot.config.value("CONFIG_DEBUG_PAGEALLOC") == Some("n") => {
            "the kernel cannot (CONFIG_DEBUG_PAGEALLOC is off)"
        }
        false => "it does not ask for 4K leaves",
    };
    Feature { name: "debug_pagealloc", value, meaning: meaning.into() }
}

fn rodata(boot: &Boot) -> Feature {
    let by_default = boot.config.value("CONFIG_RODATA_FULL_DEFAULT_ENABLED");
    let (value, is_full) = match (boot.option("rodata"), by_default) {
        (Some(value), _) => (format!("{value} on the kernel command line"), Some(value == "full")),
        (None, Some(default)) => ("not given".to_string(), Some(default == "y")),
        (None, None) => ("not given".to_string(), None),
    };
    let meaning = match is_full {
        Some(true) => "full: base pages only, unless the processors have BBML2 without aborts (Linux 6.18)",
        Some(false) => "not full: blocks where memory is aligned",
        None => "the default is not known without the kernel's configuration (CONFIG_RODATA_FULL_DEFAULT_ENABLED)",
    };
    Feature { name: "rodata", value, meaning: meaning.into() }
}

fn kfence(host: &Host, boot: &Boot) -> Feature {
    // Readable by root only.
    let interval = host.value("/sys/module/kfence/parameters/sample_interval");
    let meaning = match (&interval, boot.is_arm()) {
        (Err(_), _) => "where it is on, its pool is mapped by base pages",
        (Ok(None), _) => "none: it splits nothing",
        (Ok(Some(value)), _) if value == "0" => "off",
        (Ok(Some(_)), true) => "on: base pages only where its pool was not set apart at boot",
        (Ok(Some(_)), false) => "on: its pool, 2M by default, is mapped by base pages",
    };
    let value = match interval {
        Ok(Some(value)) => format!("sample interval {value} ms"),
        Ok(None) => "not in this kernel".into(),
        Err(error) => format!("unknown: {error}"),
    };
    Feature { name: "kfence", value, meaning: meaning.into() }
}

/// Whether memfd_secret is available, as far as files show.
pub(super) enum SecretMemory {
    Available,
    /// Not known, for this reason.
    Unknown(String),
    /// Not available, for this reason.
    Missing(&'static str),
}

pub(super) fn secretmem_by_files(host: &Host, boot: &Boot) -> SecretMemory {
    if boot.config.value("CONFIG_SECRETMEM") == Some("n") {
        return SecretMemory::Missing("the kernel is built without it (CONFIG_SECRETMEM)");
    }
    // Readable by root only.
    let parameter = host.value("/sys/module/secretmem/parameters/enable");
    let option = boot.option("secretmem.enable").or_else(|| boot.option("secretmem_enable"));
    match (parameter.as_ref().map(Option::as_deref), option) {
        (Ok(Some("0" | "n" | "N" | "off")), _) | (Ok(None) | Err(_), Some("0" | "n" | "N" | "off")) => {
            SecretMemory::Missing("it is switched off at boot (secretmem.enable=0)")
        }
        (Err(error), None) => SecretMemory::Unknown(error.to_string()),
        (Ok(None), None) if boot.config.value("CONFIG_SECRETMEM").is_none() => {
            SecretMemory::Unknown("neither a module parameter nor the configuration shows it".into())
        }
        _ => SecretMemory::Available,
    }
}

fn secretmem(host: &Host, boot: &Boot) -> Feature {
    let (value, meaning) = match secretmem_by_files(host, boot) {
        SecretMemory::Available => {
            ("available".to_string(), "leaves can be split from user space (direct-map demote)".to_string())
        }
        SecretMemory::Unknown(why) => ("unknown".into(), why),
        SecretMemory::Missing(reason) => ("none".into(), format!("{reason}; leaves cannot be split from user space")),
    };
    Feature { name: "memfd_secret", value, meaning }
}

fn collapses(host: &Host) -> Result<Option<Feature>, HostError> {
    let Some(version) = host.kernel_version()? else { return Ok(None) };
    let (value, meaning) = if version >= COLLAPSES {
        ("yes", "large leaves are rebuilt where code is made read-only and executable; not after memfd_secret")
    } else {
        ("no", "a split leaf stays split until reboot")
    };
    Ok(Some(Feature { name: "collapses", value: value.into(), meaning: meaning.into() }))
}
