//! The properties of KVM on this host ([`Parameters`]), and whether a measurement here can show eager splitting
//! ([`EagerSplit`]).

use host::{HostError, Root, absent};

/// KVM's module parameters that affect dirty logging. `None`: this kernel does not have the parameter, or it is not readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The loaded modules that run guests: `kvm_intel`, `kvm_amd`, ...
    pub modules: Vec<String>,
    /// `tdp_mmu` of the module kvm: whether the MMU that uses nested page tables, and can split them eagerly, is in use. KVM
    /// itself clears it where the processor has no nested page tables (arch/x86/kvm/mmu/tdp_mmu.c, `kvm_mmu_init_tdp_mmu`;
    /// `kvm_configure_mmu`).
    pub tdp_mmu: Option<bool>,
    /// `eager_page_split` of the module kvm.
    pub eager_page_split: Option<bool>,
    /// `ept` of kvm_intel or `npt` of kvm_amd: whether nested page tables are used.
    pub nested_page_tables: Option<bool>,
}

/// Eager splitting: KVM splits leaves when logging is switched on or the log is cleared, and not at the guest's later writes.
/// This says whether it happens on this host, and so shows in the duration of those phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EagerSplit {
    /// KVM splits leaves when logging is switched on, or when the log is cleared.
    Shown,
    /// KVM does not split leaves in those phases.
    NotShown {
        /// The reason, as text.
        because: String,
    },
    /// It is unknown whether KVM splits leaves in those phases.
    Unknown {
        /// The reason, as text.
        because: String,
    },
}

impl EagerSplit {
    /// The identifier in reports.
    pub fn name(&self) -> &'static str {
        match self {
            EagerSplit::Shown => "shown",
            EagerSplit::NotShown { .. } => "not_shown",
            EagerSplit::Unknown { .. } => "unknown",
        }
    }

    /// Why eager splitting does not show, or why that is not known.
    pub fn because(&self) -> Option<&str> {
        match self {
            EagerSplit::Shown => None,
            EagerSplit::NotShown { because } | EagerSplit::Unknown { because } => Some(because),
        }
    }
}

const MODULES: &str = "/sys/module";

impl Parameters {
    /// Reads the parameters of a host. A parameter that cannot be read counts as absent.
    pub fn read(root: &Root) -> Result<Parameters, HostError> {
        let flag = |module: &str, name: &str| {
            let text = root.text(&format!("{MODULES}/{module}/parameters/{name}")).ok()?;
            match text.trim() {
                "Y" | "1" => Some(true),
                "N" | "0" => Some(false),
                _ => None,
            }
        };
        let modules = absent::names(root, MODULES)?.into_iter().filter(|name| name.starts_with("kvm_")).collect();
        Ok(Parameters {
            modules,
            tdp_mmu: flag("kvm", "tdp_mmu"),
            eager_page_split: flag("kvm", "eager_page_split"),
            nested_page_tables: flag("kvm_intel", "ept").or_else(|| flag("kvm_amd", "npt")),
        })
    }

    /// Whether this x86 host shadows the guest's page tables. Then no leaf of KVM is larger than the guest's own
    /// (`FNAME(page_fault)` sets `max_level`, arch/x86/kvm/mmu/paging_tmpl.h). `None`: not known. Only kvm_intel and kvm_amd
    /// support nested page tables, and both report whether they use them.
    pub fn shadow_paging(&self) -> Option<bool> {
        match (self.tdp_mmu, self.nested_page_tables) {
            (Some(true), _) | (_, Some(true)) => Some(false),
            (_, Some(false)) | (Some(false), None) => Some(true),
            (None, None) => None,
        }
    }

    /// Whether this x86 host can show eager splitting (`kvm_mmu_slot_try_split_huge_pages` and `kvm_mmu_try_split_huge_pages`,
    /// arch/x86/kvm/mmu/mmu.c: they do nothing without the TDP MMU).
    pub fn eager_split_x86(&self) -> EagerSplit {
        let no_tables = self.nested_page_tables == Some(false);
        match (self.tdp_mmu, self.eager_page_split) {
            (Some(false), _) if no_tables => EagerSplit::NotShown {
                because: "ept or npt is off, so KVM shadows the guest's page tables and splits nothing eagerly (load \
                          kvm_intel with ept=Y or kvm_amd with npt=Y)"
                    .into(),
            },
            (Some(false), _) => EagerSplit::NotShown {
                because:
                    "tdp_mmu is off: KVM shadows the guest's page tables (the processor offers it no nested ones), \
                          or manages nested ones the old way, and splits eagerly in neither case (a host with EPT \
                          or NPT can: modprobe kvm tdp_mmu=Y)"
                        .into(),
            },
            (_, Some(false)) => EagerSplit::NotShown {
                because: "eager_page_split is off; root can switch it on: \
                          echo Y > /sys/module/kvm/parameters/eager_page_split"
                    .into(),
            },
            (Some(true), Some(true)) => EagerSplit::Shown,
            (tdp_mmu, _) => EagerSplit::Unknown {
                because: format!(
                    "/sys/module/kvm/parameters/{} is missing or not readable; KVM splits eagerly since Linux 5.17",
                    if tdp_mmu.is_none() { "tdp_mmu" } else { "eager_page_split" }
                ),
            },
        }
    }

    /// Whether an arm64 host can show eager splitting. `chunk_bytes` is the value of KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE (0: off,
    /// the default).
    pub fn eager_split_arm64(chunk_bytes: u64) -> EagerSplit {
        if chunk_bytes > 0 {
            return EagerSplit::Shown;
        }
        let because = "KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE is 0, its default: ask for a chunk".into();
        EagerSplit::NotShown { because }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(parameters: &[(&str, &str)]) -> Parameters {
        let root = tempfile::tempdir().unwrap();
        for (path, value) in parameters {
            let file = root.path().join("sys/module").join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{value}\n")).unwrap();
        }
        Parameters::read(&Root::open(root.path()).unwrap()).unwrap()
    }

    #[test]
    fn parameters_are_read_as_the_kernel_writes_them() {
        let read = host(&[
            ("kvm/parameters/tdp_mmu", "Y"),
            ("kvm/parameters/eager_page_split", "N"),
            ("kvm_amd/parameters/npt", "1"),
        ]);
        let expected = Parameters {
            modules: vec!["kvm_amd".into()],
            tdp_mmu: Some(true),
            eager_page_split: Some(false),
            nested_page_tables: Some(true),
        };
        assert_eq!(read, expected);
        assert_eq!(host(&[("kvm/parameters/tdp_mmu", "maybe")]), Parameters::default());
    }

    #[test]
    fn only_both_parameters_together_show_a_split() {
        let of = |tdp_mmu: Option<bool>, eager_page_split: Option<bool>| {
            Parameters { tdp_mmu, eager_page_split, ..Parameters::default() }.eager_split_x86()
        };
        let (on, off) = (Some(true), Some(false));
        assert_eq!(of(on, on), EagerSplit::Shown);
        assert!(of(off, on).because().unwrap().contains("tdp_mmu is off"));
        assert!(of(on, off).because().unwrap().contains("eager_page_split is off"));
        for unknown in [of(None, on), of(on, None), of(None, None)] {
            assert_eq!(unknown.name(), "unknown");
            assert!(unknown.because().unwrap().contains("/sys/module/kvm/parameters/"));
        }
        let no_tables = Parameters { tdp_mmu: off, nested_page_tables: off, ..Parameters::default() };
        assert!(no_tables.eager_split_x86().because().unwrap().contains("ept or npt is off"));
    }

    #[test]
    fn guests_are_shadowed_where_no_module_has_nested_tables() {
        let of = |tdp_mmu, nested_page_tables| {
            Parameters { tdp_mmu, nested_page_tables, ..Parameters::default() }.shadow_paging()
        };
        let (on, off) = (Some(true), Some(false));
        assert_eq!([of(on, None), of(on, on), of(off, on), of(None, on)], [Some(false); 4]);
        assert_eq!([of(off, None), of(off, off), of(None, off)], [Some(true); 3]);
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn arm64_splits_eagerly_on_request() {
        assert_eq!(Parameters::eager_split_arm64(2 << 20), EagerSplit::Shown);
        assert_eq!(Parameters::eager_split_arm64(0).name(), "not_shown");
    }
}
