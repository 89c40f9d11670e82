//! The backings that `kvm-dirty-log` accepts by name, and whether this host can provide them now.

use crate::guest::{HostBacking, KvmError};
use host::admit::thp_in_force;
use host::{Host, THP};
use policy::size::{PageSize, format_bytes};

use verbs::lab::{WorkloadError, arguments};

/// Where the guest's memory comes from, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackingName {
    /// Plain anonymous memory: the policy under which the workload runs decides
    Policy,
    /// Anonymous memory of base pages (MADV_NOHUGEPAGE)
    Base,
    /// Anonymous memory with transparent huge pages of PMD size (MADV_HUGEPAGE)
    Thp,
    /// Anonymous memory with the smaller folios that the host has enabled (MADV_HUGEPAGE)
    Mthp,
    /// Pages of the pool of 2M
    #[value(name = "hugetlb-2m")]
    Hugetlb2M,
    /// Pages of the pool of 1G
    #[value(name = "hugetlb-1g")]
    Hugetlb1G,
    /// A memfd, shared
    Memfd,
}

impl BackingName {
    /// The name of the backing on the command line.
    pub fn name(self) -> &'static str {
        match self {
            BackingName::Policy => "policy",
            BackingName::Base => "base",
            BackingName::Thp => "thp",
            BackingName::Mthp => "mthp",
            BackingName::Hugetlb2M => "hugetlb-2m",
            BackingName::Hugetlb1G => "hugetlb-1g",
            BackingName::Memfd => "memfd",
        }
    }

    /// The backing with this name on this host. Refuses a backing that the host cannot provide with its current settings, because
    /// a workload does not change settings.
    pub fn lower(self, host: &Host, bytes: u64) -> Result<HostBacking, WorkloadError> {
        let pool = |size: PageSize| {
            arguments::multiple("bytes", bytes, size.bytes(), "the page of its backing")?;
            if host.page_sizes().hugetlb.contains(&size) {
                return Ok(HostBacking::Hugetlb(size));
            }
            Err(self.lacking(format!("this kernel has no pool of {size} pages"), "another backing"))
        };
        let backing = match self {
            BackingName::Policy => HostBacking::Policy,
            BackingName::Base => HostBacking::Base,
            BackingName::Memfd => HostBacking::Memfd,
            BackingName::Thp => self.thp(host)?,
            BackingName::Mthp => self.mthp(host)?,
            BackingName::Hugetlb2M => return pool(PageSize::M2),
            BackingName::Hugetlb1G => return pool(PageSize::G1),
        };
        arguments::room("bytes", bytes.into())?;
        Ok(backing)
    }

    fn thp(self, host: &Host) -> Result<HostBacking, WorkloadError> {
        let pmd = host.page_sizes().pmd;
        if is_any_enabled(pmd, host)? {
            return Ok(HostBacking::Advised);
        }
        let what = match pmd {
            None => "this kernel has no transparent huge pages".to_string(),
            Some(size) => format!("advised memory gets no folios of {} ({THP}/enabled)", format_bytes(size.bytes())),
        };
        Err(self
            .lacking(what, "pagelab exec -p thp -- pagelab workload kvm-dirty-log, whose memory is that of the policy"))
    }

    fn mthp(self, host: &Host) -> Result<HostBacking, WorkloadError> {
        let page_sizes = host.page_sizes();
        let remedy = "pagelab exec -p mthp-64k -- pagelab workload kvm-dirty-log, whose memory is that of the policy";
        if !is_any_enabled(page_sizes.mthp.iter().copied(), host)? {
            let what = format!("advised memory gets no folios below PMD size ({THP}/hugepages-*kB/enabled)");
            return Err(self.lacking(what, remedy));
        }
        // The kernel uses the largest size that is enabled and fits (alloc_anon_folio, mm/memory.c).
        if is_any_enabled(page_sizes.pmd, host)? {
            let what = "folios of PMD size are enabled too, and the kernel takes the largest that fits";
            return Err(self.lacking(what.into(), remedy));
        }
        Ok(HostBacking::Advised)
    }

    fn lacking(self, what: String, remedy: &str) -> WorkloadError {
        let what = format!("--backing {}: {what}", self.name());
        KvmError::Unsupported { what, remedy: remedy.to_string() }.into()
    }
}

/// Whether memory with MADV_HUGEPAGE can use folios of one of these sizes (`thp_vma_allowable_orders`,
/// include/linux/huge_mm.h).
fn is_any_enabled(sizes: impl IntoIterator<Item = PageSize>, host: &Host) -> Result<bool, WorkloadError> {
    for size in sizes {
        let word = thp_in_force(size, host).map_err(|error| WorkloadError::Host(error.to_string()))?;
        if matches!(word.as_str(), "always" | "madvise") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake host with 4K base pages, mTHP of 64K and pools of 2M.
    fn host(thp: &str, own: &[(u64, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("/proc/self/smaps", "55550000-55551000 r-xp 00000000 00:01 1 /x\nKernelPageSize:        4 kB\n");
        write(&format!("{THP}/enabled"), thp);
        write(&format!("{THP}/hpage_pmd_size"), "2097152\n");
        for (kb, value) in own {
            write(&format!("{THP}/hugepages-{kb}kB/enabled"), value);
        }
        write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
        let host = Host::open(root.path()).unwrap();
        (root, host)
    }

    const NEVER: &str = "always madvise [never]\n";
    const MADVISE: &str = "always [madvise] never\n";
    const INHERIT: &str = "always [inherit] madvise never\n";
    const SIZE_NEVER: &str = "always inherit madvise [never]\n";
    const SIZE_MADVISE: &str = "always inherit [madvise] never\n";

    #[test]
    fn transparent_pages_are_refused_where_the_settings_forbid_them() {
        let lowered = |name: BackingName, thp, own: &[(u64, &str)]| {
            let (_root, host) = host(thp, own);
            name.lower(&host, 4 << 20).map_err(|error| error.to_string())
        };
        let (thp, mthp) = (BackingName::Thp, BackingName::Mthp);
        assert_eq!(lowered(thp, MADVISE, &[(2048, INHERIT)]), Ok(HostBacking::Advised));
        assert_eq!(lowered(mthp, NEVER, &[(64, SIZE_MADVISE), (2048, INHERIT)]), Ok(HostBacking::Advised));
        for (name, thp, own, words) in [
            (thp, NEVER, [(64, SIZE_NEVER), (2048, INHERIT)], "no folios of 2M"),
            (mthp, MADVISE, [(64, SIZE_NEVER), (2048, INHERIT)], "no folios below PMD size"),
            (mthp, MADVISE, [(64, SIZE_MADVISE), (2048, INHERIT)], "takes the largest"),
        ] {
            let error = lowered(name, thp, &own).unwrap_err();
            assert!(error.contains(words) && error.contains("pagelab exec -p"), "{error}");
        }
    }

    #[test]
    fn a_pool_needs_whole_pages_of_an_existing_size() {
        let (_root, host) = host(NEVER, &[]);
        assert_eq!(BackingName::Hugetlb2M.lower(&host, 4 << 20).unwrap(), HostBacking::Hugetlb(PageSize::M2));
        let error = BackingName::Hugetlb2M.lower(&host, 3 << 20).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().contains("--bytes")), (2, true), "{error}");
        let error = BackingName::Hugetlb1G.lower(&host, 1 << 30).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().contains("no pool of 1G")), (3, true), "{error}");
    }
}
