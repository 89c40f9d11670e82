//! Whether a host can provide a policy, which settings that needs, and how to make the policy permanent.
//!
//! [`lower`] turns a policy into the system settings that must be in force while a program runs under it. The tracer
//! does the rest, which affects only the program. Call `lower` before a lease changes the settings, because it reads them.

mod direct_map;
mod doctor;
mod khugepaged;
mod pool;
mod pte_mapped;
mod terms;
mod transparent;

use policy::size::PageSize;
use policy::{Admission, Unsupported};
use policy::{DirectMapLeaves, Granularity, Modifier, Policy};

use crate::{Host, KernelVersion, leaseholder};

pub use doctor::{DoctorLine, Fact, Suitability, doctor_lines, facts};
pub use khugepaged::khugepaged_settings;
pub use pool::not_granted;
pub use terms::{Privilege, Terms};
pub use transparent::thp_in_force;

/// The first version with madvise(MADV_POPULATE_WRITE) (mm/madvise.c).
const POPULATE_WRITE: KernelVersion = KernelVersion(5, 14);

/// A system setting and the value that it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Path of the file.
    pub path: String,
    pub value: String,
}

/// What a policy needs on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lowering {
    /// The mechanisms, joined by semicolons, for `Admission::Admitted`.
    pub mechanism: String,
    /// The settings to lease, in this order. Empty if the host already has the settings that the policy needs.
    pub settings: Vec<Setting>,
    /// Limitations, one sentence each: what is not proven, or how much memory is available.
    pub notes: Vec<String>,
}

impl Lowering {
    /// The settings in the form that a lease takes.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|setting| (setting.path.as_str(), setting.value.as_str()))
    }
}

/// What `policy` needs on `host`.
pub fn lower(policy: &Policy, host: &Host, terms: &Terms) -> Result<Lowering, Unsupported> {
    let lowering = match policy.granularity {
        Granularity::Default => Lowering::default(),
        Granularity::Base => base(),
        Granularity::Mthp(size) => transparent::mthp(size, host)?,
        Granularity::Thp => transparent::thp(host)?,
        Granularity::Hugetlb(size) => pool::hugetlb(size, host, terms)?,
        Granularity::DirectMap(DirectMapLeaves::Of(leaf)) => direct_map::lower(leaf, host)?,
        Granularity::DirectMap(DirectMapLeaves::Mixed) => direct_map::lower_mixed(host)?,
    };
    let is_advised = matches!(policy.granularity, Granularity::Mthp(_) | Granularity::Thp);
    let injects_advice = is_advised && !policy.has(Modifier::NoHuge);
    let is_implied = |modifier: &&Modifier| **modifier == Modifier::NoHuge && policy.granularity == Granularity::Base;
    let mut mechanisms: Vec<String> = injects_advice.then(|| advice_mechanism(policy)).into_iter().collect();
    mechanisms.extend((!lowering.mechanism.is_empty()).then_some(lowering.mechanism));
    for modifier in policy.modifiers().iter().filter(|modifier| !is_implied(modifier)) {
        mechanisms.push(mechanism_of(*modifier, policy.granularity, host)?.into());
    }
    if policy.touches_program() {
        terms.tracing.clone()?;
    }
    settable(&lowering.settings, host, terms)?;
    let mechanism = if mechanisms.is_empty() { "nothing is touched".into() } else { mechanisms.join("; ") };
    Ok(Lowering { mechanism, ..lowering })
}

fn advice_mechanism(policy: &Policy) -> String {
    let injected = "madvise(MADV_HUGEPAGE) injected after mmap and brk";
    match policy.windows() {
        Some(_) => format!("{injected} in a part of the windows, MADV_NOHUGEPAGE in the others"),
        None => injected.into(),
    }
}

/// The result of [`lower`] as the admission of an arm in a comparison.
pub fn admit(policy: &Policy, host: &Host, terms: &Terms) -> Admission {
    match lower(policy, host, terms) {
        Ok(lowering) => Admission::Admitted { mechanism: lowering.mechanism },
        Err(unsupported) => Admission::Unsupported(unsupported),
    }
}

/// The mechanism of `base` and `+no-huge`.
const DISABLED: &str = "prctl(PR_SET_THP_DISABLE) before the program starts";

/// PR_SET_THP_DISABLE (Linux 3.15) disables every size: `vma_thp_disabled` is checked before any order
/// (`__thp_vma_allowable_orders`, mm/huge_memory.c; `shmem_allowable_huge_orders`, mm/shmem.c).
fn base() -> Lowering {
    let note = "large folios of the page cache are the file system's choice and are not turned off";
    Lowering { mechanism: DISABLED.into(), settings: Vec::new(), notes: vec![note.into()] }
}

fn mechanism_of(modifier: Modifier, granularity: Granularity, host: &Host) -> Result<&'static str, Unsupported> {
    match modifier {
        Modifier::NoGuards => Ok("guard pages are left accessible at mprotect and mmap"),
        Modifier::NoHuge => Ok(DISABLED),
        Modifier::PteMapped => pte_mapped::means(granularity, host),
        Modifier::Prefault => match host.kernel_version()? {
            Some(version) if version < POPULATE_WRITE => Err(Unsupported {
                reason: format!("MADV_POPULATE_WRITE came with Linux {POPULATE_WRITE}, this is {version}"),
                remedy: "a newer kernel, or the policy without +prefault".into(),
            }),
            _ => Ok("madvise(MADV_POPULATE_WRITE) injected after mmap and brk"),
        },
    }
}

/// Checks that the settings can be written. Only the first one is checked.
fn settable(settings: &[Setting], host: &Host, terms: &Terms) -> Result<(), Unsupported> {
    let Some(first) = settings.first() else { return Ok(()) };
    let commands: Vec<String> = settings.iter().map(Setting::command).collect();
    let commands = commands.join(" && ");
    if host.is_read_only(&first.path)? {
        return Err(Unsupported {
            reason: format!("{} must change, and is on a file system mounted read-only", first.path),
            remedy: format!("outside the container, as root: {commands}"),
        });
    }
    if terms.privilege != Privilege::Root {
        let now = host.value(&first.path)?;
        let now = now.as_deref().unwrap_or("absent");
        if let Some(holder) = host.is_live().then(leaseholder).flatten() {
            return Err(Unsupported {
                reason: format!(
                    "{} is {now:?} and must be {:?}; but system settings are leased by {holder}, which puts them back when it \
                     ends",
                    first.path, first.value
                ),
                remedy: "try again when it has ended; as root pagelab waits for it".into(),
            });
        }
        return Err(Unsupported {
            reason: format!("needs root: {} is {now:?} and must be {:?}", first.path, first.value),
            remedy: format!("run pagelab as root, which puts it back afterwards; or, as root: {commands}"),
        });
    }
    Ok(())
}

impl Setting {
    fn new(path: impl Into<String>, value: impl ToString) -> Setting {
        Setting { path: path.into(), value: value.to_string() }
    }

    /// The shell command that writes the setting.
    pub fn command(&self) -> String {
        format!("echo {} > {}", self.value, self.path)
    }
}

/// The sizes separated by commas: `16K, 64K`.
fn list(sizes: &[PageSize]) -> String {
    let names: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
    names.join(", ")
}
