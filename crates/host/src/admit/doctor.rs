//! [`doctor_lines`] and [`facts`]: what a host supports, what it does not, and the remedies. `pagelab doctor` shows them.

use std::fs::File;
use std::io;

use policy::Unsupported;
use policy::hugetlb::{HugetlbLimit, HugetlbLimits, Limited};
use policy::inspect::ChangedSetting;
use policy::machine::State;
use policy::remedy::{Change, describe};
use policy::size::{PageSize, format_bytes};
use policy::{Granularity, Modifier, Policy};

use crate::absence::is_absence;
use crate::absent;
use crate::read::HostError;
use crate::{Host, KernelVersion, PtraceLimit, THP, changed_settings, leaseholder};

use super::{Privilege, Terms, lower};

/// The version since which ioctl(PAGEMAP_SCAN) exists (fs/proc/task_mmu.c).
const PAGEMAP_SCAN: KernelVersion = KernelVersion(6, 7);

/// A policy, and whether it is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorLine {
    pub policy: Policy,
    /// What it needs and this host lacks; `None` where the policy is available.
    pub needs: Option<String>,
    /// The mechanisms where it is available; otherwise how to get what it needs.
    pub how: String,
    /// Further information about the policy.
    pub notes: Vec<String>,
}

/// How well a fact suits measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// Suitable.
    Good,
    /// It limits what is available or visible.
    Limited,
    /// Neither good nor limiting; for information.
    Neutral,
}

/// A fact about the host that decides what can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What the fact is about.
    pub name: &'static str,
    pub value: String,
    /// What it means here, and what can be done about it.
    pub meaning: String,
    /// How well it suits measurements.
    pub suitability: Suitability,
}

/// One line for each policy that this kernel offers, and one for each modifier.
pub fn doctor_lines(host: &Host, terms: &Terms) -> Vec<DoctorLine> {
    let plain = Policy::granularities(host.page_sizes()).into_iter().map(Policy::plain);
    let modified = Modifier::ALL.into_iter().map(|modifier| match modifier {
        Modifier::PteMapped => Policy::plain(Granularity::Thp).with(modifier),
        _ => Policy::DEFAULT.with(modifier),
    });
    plain.chain(modified).map(|policy| line(policy, host, terms)).collect()
}

fn line(policy: Policy, host: &Host, terms: &Terms) -> DoctorLine {
    match lower(&policy, host, terms) {
        Ok(lowering) => DoctorLine { policy, needs: None, how: lowering.mechanism, notes: lowering.notes },
        Err(Unsupported { reason, remedy }) => {
            DoctorLine { policy, needs: Some(reason), how: remedy, notes: Vec::new() }
        }
    }
}

/// The facts that decide what can be measured here.
pub fn facts(host: &Host, terms: &Terms) -> Vec<Fact> {
    let mut facts: Vec<Fact> = [
        (KERNEL, kernel(host)),
        ("page sizes", Ok(sizes(host))),
        (TRANSPARENT, thp(host)),
        (SCAN, census(host)),
        (FOLIOS, folios(host, terms)),
        ("tracing", Ok(tracing(terms))),
        (YAMA, yama(host)),
        (FILTER, filter(host)),
        (COUNTERS, counters(host)),
        (PROC, hidden(host)),
        (SETTINGS, writable(host, terms)),
    ]
    .into_iter()
    .map(|(name, fact)| fact.unwrap_or_else(|error| unknown(name, error)))
    .collect();
    match host.state() {
        Ok(state) => {
            facts.extend(host.page_sizes().pmd.map(|pmd| fragmentation(pmd, host, &state)));
            facts.extend(governor(&state));
        }
        Err(error) => facts.push(unknown("memory", error)),
    }
    let pools = host.page_sizes().hugetlb.iter();
    for size in pools {
        facts.push(pool(*size, host).unwrap_or_else(|error| unknown(POOL, error)));
        facts.extend(limits(*size, host).unwrap_or_else(|error| vec![unknown(LIMIT, error)]));
    }
    facts
}

const KERNEL: &str = "kernel";
const TRANSPARENT: &str = "transparent huge pages";
const SCAN: &str = "PAGEMAP_SCAN";
const FOLIOS: &str = "folio sizes";
const YAMA: &str = "yama.ptrace_scope";
const FILTER: &str = "seccomp filter";
const COUNTERS: &str = "performance counters";
const PROC: &str = "/proc";
const SETTINGS: &str = "system settings";
const POOL: &str = "hugetlb pool";
const LIMIT: &str = "hugetlb limit";

fn unknown(name: &'static str, error: HostError) -> Fact {
    limited(name, "unknown", error.to_string())
}

fn fact(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Fact {
    Fact { name, value: value.into(), meaning: meaning.into(), suitability: Suitability::Neutral }
}

fn good(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Fact {
    Fact { suitability: Suitability::Good, ..fact(name, value, meaning) }
}

fn limited(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Fact {
    Fact { suitability: Suitability::Limited, ..fact(name, value, meaning) }
}

fn kernel(host: &Host) -> Result<Fact, HostError> {
    let release = host.root().required("/proc/sys/kernel/osrelease")?;
    Ok(fact(KERNEL, release.trim(), ""))
}

fn sizes(host: &Host) -> Fact {
    let page_sizes = host.page_sizes();
    let pmd = page_sizes.pmd.map_or("none".into(), |pmd| pmd.to_string());
    let list = |sizes: &[PageSize]| if sizes.is_empty() { "none".into() } else { super::list(sizes) };
    let value = format!("base {}, PMD {pmd}", page_sizes.base);
    fact("page sizes", value, format!("mTHP: {}; hugetlb: {}", list(&page_sizes.mthp), list(&page_sizes.hugetlb)))
}

fn thp(host: &Host) -> Result<Fact, HostError> {
    let Some(enabled) = host.value(&format!("{THP}/enabled"))? else {
        return Ok(limited(TRANSPARENT, "none", "the kernel is built without them, or the processor lacks the leaf"));
    };
    let defrag = host.value(&format!("{THP}/defrag"))?.map_or("no defrag".into(), |word| format!("defrag {word}"));
    let boot =
        host.boot_option("transparent_hugepage")?.map_or(String::new(), |value| format!("; booted with {value}"));
    let meaning = format!("{defrag}{boot}");
    Ok(match enabled.as_str() {
        "never" => {
            limited(TRANSPARENT, enabled, format!("{meaning}; as root pagelab switches sizes on while it measures"))
        }
        _ => good(TRANSPARENT, enabled, meaning),
    })
}

fn census(host: &Host) -> Result<Fact, HostError> {
    Ok(match host.kernel_version()? {
        Some(version) if version >= PAGEMAP_SCAN => good(SCAN, "yes", "huge pages can be seen without root"),
        Some(_) => {
            limited(SCAN, "no", format!("came with Linux {PAGEMAP_SCAN}; older kernels need smaps, which is slower"))
        }
        None => limited(SCAN, "unknown", "the kernel's release does not begin with two numbers"),
    })
}

fn folios(host: &Host, terms: &Terms) -> Result<Fact, HostError> {
    let path = "/proc/kpageflags";
    let is_readable = || match File::open(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absence(&error) || error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(absent::unreadable(host.root(), path, error)),
    };
    let visible = terms.privilege == Privilege::Root && (!host.is_live() || is_readable()?);
    Ok(if visible {
        good(FOLIOS, "visible", format!("{path} and the frame numbers of pagemap can be read"))
    } else {
        limited(
            FOLIOS,
            "not visible",
            format!("mTHP cannot be distinguished from base pages without {path}: run as root"),
        )
    })
}

fn tracing(terms: &Terms) -> Fact {
    match &terms.tracing {
        Ok(()) => good("tracing", "allowed", "policies can be applied to unmodified programs"),
        Err(missing) => limited("tracing", "forbidden", missing.to_string()),
    }
}

fn yama(host: &Host) -> Result<Fact, HostError> {
    let meaning = match host.ptrace_limit()? {
        PtraceLimit::None => "every process of the same user may be traced",
        PtraceLimit::Descendants => "pagelab may trace its descendants, and a measured program is one",
        PtraceLimit::Privileged => "only CAP_SYS_PTRACE may trace",
        PtraceLimit::NoProcess => "no process may trace until the next boot",
    };
    let value = host.value("/proc/sys/kernel/yama/ptrace_scope")?.unwrap_or_else(|| "no Yama".into());
    Ok(fact(YAMA, value, meaning))
}

/// Whether this process has a seccomp filter: the line `Seccomp:` of /proc/self/status, 0 none, 1 strict, 2 a filter
/// (proc(5)).
fn filter(host: &Host) -> Result<Fact, HostError> {
    let status = host.root().required("/proc/self/status")?;
    Ok(match status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim) {
        Some("0") => fact(FILTER, "none", ""),
        Some(_) => {
            limited(FILTER, "yes", "pagelab itself runs in a sandbox, such as a container: calls may be refused")
        }
        None => fact(FILTER, "unknown", "/proc/self/status does not say"),
    })
}

/// The hardware counters. The processor's PMU has one of these names in sysfs: `cpu` (x86, RISC-V), `cpu_core` (hybrid x86),
/// `armv8_pmuv3_0`, `armv8_cortex_a57`.
fn counters(host: &Host) -> Result<Fact, HostError> {
    let names = absent::names(host.root(), "/sys/bus/event_source/devices")?.into_iter();
    let pmus: Vec<String> = names.filter(|name| name.starts_with("cpu") || name.starts_with("armv")).collect();
    let paranoid = host.value("/proc/sys/kernel/perf_event_paranoid")?.unwrap_or_else(|| "none".into());
    let may = paranoid.parse::<i32>().is_ok_and(|level| level <= 2);
    Ok(match (pmus.is_empty(), may) {
        (true, _) => limited(COUNTERS, "none", "no PMU (usual in virtual machines): page walks cannot be counted"),
        (false, true) => good(COUNTERS, pmus.join(", "), format!("perf_event_paranoid {paranoid}")),
        (false, false) => limited(
            COUNTERS,
            pmus.join(", "),
            format!(
                "perf_event_paranoid {paranoid} denies them to users; as root: sysctl kernel.perf_event_paranoid=2"
            ),
        ),
    })
}

fn hidden(host: &Host) -> Result<Fact, HostError> {
    // A capture without a mount table counts as one without options.
    let options = host.mount_of("/proc")?.map(|mount| mount.options).unwrap_or_default();
    Ok(
        match options
            .iter()
            .find(|option| option.starts_with("hidepid=") && !matches!(option.as_str(), "hidepid=0" | "hidepid=off"))
        {
            Some(option) => {
                limited(PROC, option.clone(), "processes of other users cannot be inspected; root can inspect them")
            }
            None => good(PROC, "not hidden", ""),
        },
    )
}

fn writable(host: &Host, terms: &Terms) -> Result<Fact, HostError> {
    if let Some(holder) = host.is_live().then(leaseholder).flatten() {
        let changed = ChangedSetting::describe(&changed_settings()).map(|what| format!("; {what}")).unwrap_or_default();
        return Ok(limited(SETTINGS, "leased", format!("by {holder}, which puts them back when it ends{changed}")));
    }
    Ok(match (host.is_read_only(THP)?, terms.privilege) {
        (true, _) => limited(SETTINGS, "read-only", "sysfs is mounted read-only (a container?): run outside of it"),
        (false, Privilege::Root) => good(SETTINGS, "writable", "leased while pagelab measures, then put back"),
        (false, Privilege::User) => limited(SETTINGS, "not writable", "run as root for mTHP sizes and hugetlb pools"),
    })
}

fn fragmentation(pmd: PageSize, host: &Host, state: &State) -> Fact {
    let base = host.page_sizes().base;
    let order = pmd.order(base) as usize;
    let bytes = |(order, blocks): (usize, &u64)| blocks.saturating_mul(base.bytes() << order);
    let all: u64 = state.free_blocks_by_order.iter().enumerate().map(bytes).sum();
    let large: u64 = state.free_blocks_by_order.iter().enumerate().skip(order).map(bytes).sum();
    let value = format!("{} of {} free in blocks of {pmd} or more", format_bytes(large), format_bytes(all));
    if large.saturating_mul(4) >= all {
        good("fragmentation", value, "")
    } else {
        let remedy = describe(&Change::free_blocks());
        limited("fragmentation", value, format!("large pages may be lacking; {remedy}"))
    }
}

fn pool(size: PageSize, host: &Host) -> Result<Fact, HostError> {
    let pool = host.pool(size)?;
    let meaning = match pool.pages {
        0 => format!("{} on demand", pool.surplus_left),
        _ => "free excludes reserved pages, which mappings have been promised and have not touched yet".into(),
    };
    let value = if pool.pages == 0 { format!("no pages of {size}") } else { pool.describe() };
    Ok(fact(POOL, value, meaning))
}

/// The limits of control groups, and whether there may be more.
fn limits(size: PageSize, host: &Host) -> Result<Vec<Fact>, HostError> {
    let HugetlbLimits { limits, may_be_hidden } = host.hugetlb_limits(size)?;
    let shown = |limit: &HugetlbLimit| {
        let meaning = match limit.limited {
            Limited::Use => "a program that touches a page beyond it dies by SIGBUS, even if the pool has free pages",
            Limited::Reservation => "a program that maps pages beyond it gets ENOMEM, even if the pool has free pages",
        };
        let value = format!("{size}: {} of {} left", format_bytes(limit.room_bytes()), format_bytes(limit.limit_bytes));
        limited(LIMIT, value, format!("{}: {meaning}", limit.file))
    };
    let hidden = may_be_hidden.then(|| {
        let meaning = "control groups above this cgroup namespace may limit the pages, and are not visible in it";
        fact(LIMIT, format!("{size}: not all visible"), meaning)
    });
    Ok(limits.iter().map(shown).chain(hidden).collect())
}

fn governor(state: &State) -> Option<Fact> {
    let governors = state.settings.iter().filter(|(path, _)| path.ends_with("/scaling_governor"));
    let mut names: Vec<&str> = governors.map(|(_, governor)| governor.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let value = names.join(", ");
    match names.as_slice() {
        [] => None,
        ["performance"] => Some(good("frequency governor", value, "")),
        _ => Some(limited(
            "frequency governor",
            value,
            "the clock follows the load, which adds noise; as root: cpupower frequency-set -g performance",
        )),
    }
}
