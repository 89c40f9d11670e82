//! Inspects many processes, one row each.

use census::inspect::{Detail, InspectError};
use census::{CensusError, Observer, page_sizes};
use policy::inspect::Summary;
use results::{held_files, inspection};

use super::Inspect;
use super::gate::RequirementChecks;
use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Inspects these processes. Processes that have ended or have no memory are skipped; those that may not be inspected
/// are counted.
pub fn run(arguments: &Inspect, processes: &[u32]) -> Result<(), Failure> {
    let detail = Detail { sizes_only: arguments.sizes, ..Detail::default() };
    let observer = Observer::open().map_err(Failure::input)?;
    // Folios of files take about as long as everything else, so with --all only folios of anonymous memory are read.
    let observer = if arguments.all { observer } else { observer.with_file_folios() };
    let inspector = super::new_inspector(observer, detail)?;
    let supply = inspector.supply().map_err(Failure::input)?;
    let (mut seen, mut unseen, mut checks) = (Vec::new(), Vec::new(), RequirementChecks::new(arguments));
    for pid in processes.iter().copied().filter(|pid| *pid != std::process::id()) {
        match inspector.process(pid, &supply) {
            Ok(inspection) => {
                checks.add(&inspection);
                seen.push(Summary::of(&inspection));
            }
            Err(error) if is_without_memory(&error) => {}
            Err(error) => unseen.push((pid, error.to_string())),
        }
    }
    checks.add_uninspected(unseen.len());
    let judgements = checks.judge();
    super::export(arguments, &seen)?;
    let base = page_sizes::base_page();
    let files = arguments.all.then(|| [census::hugetlb_files(), census::tmpfs_files(base)]);
    if arguments.json {
        let files = files.as_ref().map(|files| files.each_ref());
        let mut document = inspection::json::many(&seen, &supply, &unseen, files);
        judgements.add_to(&mut document);
        print(&format!("{document:#}"), true)?;
        return judgements.check();
    }
    if seen.is_empty() && unseen.is_empty() {
        return Err(Failure::Input(
            "there is no other process with memory here: /proc may hide processes (mount option hidepid: ask as root), or belong \
             to another PID namespace"
                .into(),
        ));
    }
    let mut text = inspection::processes(&seen, base, terminal_width());
    if let Some((_, why)) = unseen.first() {
        let note = format!("{} more could not be inspected, for example: {}", unseen.len(), results::printable(why));
        text += &format!("\n\n{}", results::fold(&note, terminal_width(), 2));
    }
    if let Some([hugetlb, tmpfs]) = files {
        let pools = supply.pools.iter().filter(|pool| pool.pages > 0);
        let pools = pools.map(|pool| results::fold(&format!("hugetlb pool: {}", pool.describe()), terminal_width(), 2));
        let hugetlb: Vec<String> = pools.chain([held_files::hugetlb_table(&hugetlb, terminal_width())]).collect();
        for table in [hugetlb.join("\n"), held_files::tmpfs_table(&tmpfs, base, terminal_width())] {
            text += &format!("{}{}", if table.is_empty() { "" } else { "\n\n" }, table.trim_end());
        }
    }
    text += "\n\npagelab inspect PID shows one of them, region by region";
    print(&judgements.append_to(text), false)?;
    judgements.check()
}

/// Whether the error means that the process has no memory, for any user who inspects it.
pub fn is_without_memory(error: &InspectError) -> bool {
    matches!(
        error,
        InspectError::NoSuchProcess { .. }
            | InspectError::Zombie { .. }
            | InspectError::KernelThread { .. }
            | InspectError::Replaced { .. }
            | InspectError::Census(CensusError::Gone { .. } | CensusError::NoAddressSpace { .. })
    )
}
