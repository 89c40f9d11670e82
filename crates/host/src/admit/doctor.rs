//! What a host allows, what it does not, and how to get it: for `pagelab doctor`.

use std::fs::File;

use policy::size::{PageSize, format_bytes};
use policy::{Modifier, Policy};
use study::comparison::Unsupported;
use study::machine::State;

use crate::{Host, KernelVersion, PtraceLimit, THP, hugetlb_file};

use super::{Privilege, Terms, lower};

/// Since when ioctl(PAGEMAP_SCAN) exists (fs/proc/task_mmu.c).
const PAGEMAP_SCAN: KernelVersion = KernelVersion(6, 7);

/// A policy, and whether it can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorLine {
    /// The policy.
    pub policy: Policy,
    /// What it needs and does not have here; `None` where it is available.
    pub needs: Option<String>,
    /// Where it is available, by which mechanisms; else, how to get what it needs.
    pub how: String,
    /// What to know about it.
    pub notes: Vec<String>,
}

/// How good a fact is for measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As it should be.
    Good,
    /// It limits what can be had or seen.
    Limited,
    /// Neither; to know.
    Neutral,
}

/// Something about the host that decides what can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is about.
    pub name: &'static str,
    /// How it is.
    pub value: String,
    /// What it means here, and what to do about it.
    pub meaning: String,
    /// How good that is.
    pub standing: Standing,
}

/// One line for each policy that this kernel has a name for, and one for each modifier.
pub fn doctor_lines(host: &Host, terms: &Terms) -> Vec<DoctorLine> {
    let plain = Policy::granularities(host.page_sizes()).into_iter().map(Policy::plain);
    let modified = Modifier::ALL.into_iter().map(|modifier| Policy::DEFAULT.with(modifier));
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

/// What decides what can be measured here.
pub fn facts(host: &Host, terms: &Terms) -> Vec<Fact> {
    let mut facts = vec![kernel(host), sizes(host), thp(host), census(host), folios(host, terms), tracing(terms)];
    facts.extend([yama(host), filter(host), counters(host), hidden(host), writable(host, terms)]);
    match host.state() {
        Ok(state) => facts.extend(host.page_sizes().pmd.map(|pmd| fragmentation(pmd, host, &state))),
        Err(error) => facts.push(limited("memory", "unknown", error.to_string())),
    }
    facts.extend(host.page_sizes().hugetlb.iter().map(|size| pool(*size, host)));
    facts.extend(governor(host));
    facts
}

fn fact(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Fact {
    Fact { name, value: value.into(), meaning: meaning.into(), standing: Standing::Neutral }
}

fn good(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Fact {
    Fact { standing: Standing::Good, ..fact(name, value, meaning) }
}

fn limited(name: &'static str, value: impl Into<String>, meaning: impl Into<String>) -> Fact {
    Fact { standing: Standing::Limited, ..fact(name, value, meaning) }
}

fn kernel(host: &Host) -> Fact {
    match host.value("/proc/sys/kernel/osrelease") {
        Some(release) => fact("kernel", release, ""),
        None => limited("kernel", "unknown", "/proc/sys/kernel/osrelease cannot be read; mount /proc"),
    }
}

fn sizes(host: &Host) -> Fact {
    let page_sizes = host.page_sizes();
    let pmd = page_sizes.pmd.map_or("none".into(), |pmd| pmd.to_string());
    let list = |sizes: &[PageSize]| if sizes.is_empty() { "none".into() } else { super::list(sizes) };
    let value = format!("base {}, PMD {pmd}", page_sizes.base);
    fact("page sizes", value, format!("mTHP: {}; hugetlb: {}", list(&page_sizes.mthp), list(&page_sizes.hugetlb)))
}

fn thp(host: &Host) -> Fact {
    const NAME: &str = "transparent huge pages";
    let Some(enabled) = host.value(&format!("{THP}/enabled")) else {
        return limited(NAME, "none", "the kernel is built without them, or the processor lacks the leaf");
    };
    let defrag = host.value(&format!("{THP}/defrag")).unwrap_or_default();
    let boot = host.boot_option("transparent_hugepage").map(|value| format!("; booted with {value}"));
    let meaning = format!("defrag {defrag}{}", boot.unwrap_or_default());
    match enabled.as_str() {
        "never" => limited(NAME, enabled, format!("{meaning}; as root pagelab switches sizes on while it measures")),
        _ => good(NAME, enabled, meaning),
    }
}

fn census(host: &Host) -> Fact {
    const NAME: &str = "PAGEMAP_SCAN";
    match host.kernel_version() {
        Some(version) if version >= PAGEMAP_SCAN => good(NAME, "yes", "huge pages can be seen without root"),
        Some(_) => limited(NAME, "no", format!("came with Linux {PAGEMAP_SCAN}; without it smaps is read, slower")),
        None => limited(NAME, "unknown", "the kernel's release does not begin with two numbers"),
    }
}

fn folios(host: &Host, terms: &Terms) -> Fact {
    const NAME: &str = "folio sizes";
    let path = "/proc/kpageflags";
    let visible = match host.is_live() {
        true => File::open(path).is_ok() && terms.privilege == Privilege::Root,
        false => terms.privilege == Privilege::Root,
    };
    match visible {
        true => good(NAME, "visible", format!("{path} and the frame numbers of pagemap can be read")),
        false => {
            limited(NAME, "not visible", format!("mTHP cannot be told from base pages without {path}: run as root"))
        }
    }
}

fn tracing(terms: &Terms) -> Fact {
    match &terms.tracing {
        Ok(()) => good("tracing", "allowed", "policies can be applied to unmodified programs"),
        Err(missing) => limited("tracing", "forbidden", missing.to_string()),
    }
}

fn yama(host: &Host) -> Fact {
    let meaning = match host.ptrace_limit() {
        PtraceLimit::None => "every process of the same user may be traced",
        PtraceLimit::Descendants => "descendants may be traced, which a measured program is",
        PtraceLimit::Privileged => "only CAP_SYS_PTRACE may trace",
        PtraceLimit::Nobody => "nobody may trace until the next boot",
    };
    let value = host.value("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_else(|| "no Yama".into());
    fact("yama.ptrace_scope", value, meaning)
}

/// The line `Seccomp:` of /proc/self/status: 0 none, 1 strict, 2 a filter (proc(5)).
fn filter(host: &Host) -> Fact {
    const NAME: &str = "seccomp filter";
    let status = host.root().text("/proc/self/status").unwrap_or_default();
    match status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim) {
        Some("0") => fact(NAME, "none", ""),
        Some(_) => limited(NAME, "yes", "pagelab itself runs in a sandbox, such as a container: calls may be refused"),
        None => fact(NAME, "unknown", "/proc/self/status does not say"),
    }
}

/// A processor's PMU shows in sysfs under a name of its own: `cpu` (x86, RISC-V: `cpu`, hybrid x86:
/// `cpu_core`), `armv8_pmuv3_0`, `armv8_cortex_a57`.
fn counters(host: &Host) -> Fact {
    const NAME: &str = "performance counters";
    const DEVICES: &str = "/sys/bus/event_source/devices";
    let names = host.root().entries(DEVICES).into_iter();
    let pmus: Vec<String> = names.filter(|name| name.starts_with("cpu") || name.starts_with("armv")).collect();
    let paranoid = host.value("/proc/sys/kernel/perf_event_paranoid").unwrap_or_else(|| "none".into());
    let may = paranoid.parse::<i32>().is_ok_and(|level| level <= 2);
    match (pmus.is_empty(), may) {
        (true, _) => limited(NAME, "none", "no PMU (usual in virtual machines): page walks cannot be counted"),
        (false, true) => good(NAME, pmus.join(", "), format!("perf_event_paranoid {paranoid}")),
        (false, false) => limited(
            NAME,
            pmus.join(", "),
            format!(
                "perf_event_paranoid {paranoid} keeps them from users; as root: sysctl kernel.perf_event_paranoid=2"
            ),
        ),
    }
}

fn hidden(host: &Host) -> Fact {
    const NAME: &str = "/proc";
    let options = host.mount_of("/proc").map(|mount| mount.options).unwrap_or_default();
    match options
        .iter()
        .find(|option| option.starts_with("hidepid=") && !matches!(option.as_str(), "hidepid=0" | "hidepid=off"))
    {
        Some(option) => {
            limited(NAME, option.clone(), "processes of other users cannot be inspected; root can inspect them")
        }
        None => good(NAME, "not hidden", ""),
    }
}

fn writable(host: &Host, terms: &Terms) -> Fact {
    const NAME: &str = "system settings";
    match (host.is_read_only(THP), terms.privilege) {
        (true, _) => limited(NAME, "read-only", "sysfs is mounted read-only (a container?): run outside of it"),
        (false, Privilege::Root) => good(NAME, "writable", "leased while pagelab measures, then put back"),
        (false, Privilege::User) => limited(NAME, "not writable", "run as root for mTHP sizes and hugetlb pools"),
    }
}

fn fragmentation(pmd: PageSize, host: &Host, state: &State) -> Fact {
    let base = host.page_sizes().base;
    let order = pmd.order(base) as usize;
    let bytes = |(order, blocks): (usize, &u64)| blocks.saturating_mul(base.bytes() << order);
    let all: u64 = state.free_blocks_by_order.iter().enumerate().map(bytes).sum();
    let large: u64 = state.free_blocks_by_order.iter().enumerate().skip(order).map(bytes).sum();
    let value = format!("{} of {} free in blocks of {pmd} or more", format_bytes(large), format_bytes(all));
    match large.saturating_mul(4) >= all {
        true => good("fragmentation", value, ""),
        false => {
            limited("fragmentation", value, "large pages may be lacking; as root: echo 1 > /proc/sys/vm/compact_memory")
        }
    }
}

fn pool(size: PageSize, host: &Host) -> Fact {
    let number = |file: &str| host.number(&hugetlb_file(size, file)).unwrap_or(0);
    let (pages, free, reserved) = (number("nr_hugepages"), number("free_hugepages"), number("resv_hugepages"));
    let value = format!("{size}: {pages} pages, {free} free, {reserved} of them reserved");
    fact("hugetlb pool", value, format!("{} more on demand", number("nr_overcommit_hugepages")))
}

fn governor(host: &Host) -> Option<Fact> {
    let state = host.state().ok()?;
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
