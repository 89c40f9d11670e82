//! Advice for a running process. It cannot be restarted, so settings are only listed and not tried. `--collapse` collapses the
//! memory of the process.

use census::Observer;
use census::inspect::{Detail, Inspector, environment_of};
use host::Host;
use policy::inspect::Inspection;
use policy::size::{PageSize, format_bytes};
use policy::{Granularity, Policy};
use results::inspection::collapsing;

use super::candidates::{Candidate, Candidates, candidates};
use crate::failure::Failure;
use crate::output::{folded, terminal_width};

/// The advice for a process, as text.
///
/// # Errors
/// The process is gone or cannot be inspected, or the kernel has no transparent pages.
pub fn text(pid: u32, collapse: bool) -> Result<String, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let inspector = Inspector::new(Host::open("/").map_err(Failure::input)?, observer()?, Detail::default());
    let Some(leaf) = inspector.pmd_leaf() else {
        return Err(Failure::NothingAdmitted("this kernel has no transparent huge pages".into()));
    };
    let supply = inspector.supply().map_err(Failure::input)?;
    let inspected = inspector.process(pid, &supply).map_err(Failure::input)?;
    let could_be_larger_bytes: u64 = inspected.regions.iter().map(|region| region.benefit.bytes).sum();
    let head = format!(
        "process {pid} ({}): {} could be in larger pages, of {} resident; pagelab inspect {pid} says why it is not",
        inspected.process.name,
        format_bytes(could_be_larger_bytes),
        format_bytes(inspected.resident_bytes())
    );
    let mut lines = vec![folded(results::printable(&head))];
    lines.extend(untried(&inspected, leaf, &host)?);
    lines.extend(without_environment(pid).map(folded));
    if collapse {
        let collapsed = inspector.collapse(&inspected).map_err(Failure::input)?;
        let after = inspector.process(pid, &supply).map_err(Failure::input)?;
        lines.push(collapsing::text(&inspected, &after, &collapsed, leaf, terminal_width()));
    } else if could_be_larger_bytes > 0 {
        lines.push(folded(format!(
            "pagelab advise {pid} --collapse tries to collapse it now, which lasts until the memory is freed or split"
        )));
    }
    Ok(lines.join("\n"))
}

fn observer() -> Result<Observer, Failure> {
    Ok(Observer::open().map_err(Failure::input)?.with_file_folios())
}

/// One line, with its condition, for each setting that concerns at least a hundredth of the resident memory. A setting that takes
/// hugetlb pages and one that takes THP can concern the same memory.
fn untried(inspected: &Inspection, leaf: PageSize, host: &Host) -> Result<Vec<String>, Failure> {
    let mut settings: Vec<Candidate> = Vec::new();
    let mut source = None;
    for granularity in [Granularity::Thp, Granularity::Hugetlb(leaf)] {
        let Candidates { settings: found, source_change } = candidates(&Policy::plain(granularity), inspected, host)?;
        settings.extend(found);
        source = source.or(source_change);
    }
    // What the process was started with has been tried.
    let environment = environment_of(inspected.process.pid);
    settings.retain(|one| !one.remedy.is_in_environment(&environment));
    if settings.is_empty() {
        let source = source.map(|change| format!("; {change}")).unwrap_or_default();
        return Ok(vec![folded(format!("no setting is known that would give this process more large pages{source}"))]);
    }
    // The sort is stable, so of settings for the same memory the least intrusive comes first.
    settings.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    let worth = (inspected.resident_bytes() / 100).min(settings[0].bytes);
    let (shown, small): (Vec<&Candidate>, Vec<&Candidate>) = settings.iter().partition(|one| one.bytes >= worth);
    let head = "settings, by the memory that each could put in larger pages; not tried, because a running process cannot be restarted \
                (pagelab advise -- COMMAND tries them, with --server for a server):";
    let row = |one: &&Candidate| {
        let text = format!("{}: {}", format_bytes(one.bytes), one.remedy.describe());
        folded(format!("  {}", results::printable(&text)))
    };
    let small = match small.len() {
        0 => None,
        1 => Some("  1 more setting, for less than 1 % of the memory".to_owned()),
        n => Some(format!("  {n} more settings, each for less than 1 % of the memory")),
    };
    Ok(std::iter::once(folded(head.to_owned())).chain(shown.iter().map(row)).chain(small).collect())
}

/// A note if the process was started with an empty environment, or has overwritten it with its title (`setproctitle`).
fn without_environment(pid: u32) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let note = if environment.is_empty() {
        "its environment is empty, as with env -i or a container's init: to give it a variable, set the variable where the process \
         is started"
    } else if !environment.contains(&b'=') {
        "it has overwritten its environment, so whether it was started with such a variable is not visible"
    } else {
        return None;
    };
    Some(note.to_owned())
}
