//! Inspects many processes, one row each.

use census::inspect::InspectError;
use census::{CensusError, Observer, page_sizes};
use policy::inspect::Summary;
use results::{hugetlb_files, inspection};

use super::Inspect;
use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Inspects these processes. Skips those that have ended or have no memory, and counts those that may not be inspected.
pub fn run(arguments: &Inspect, processes: &[u32]) -> Result<(), Failure> {
    let inspector = super::inspector(Observer::open().map_err(Failure::input)?, arguments.sizes)?;
    let supply = inspector.supply().map_err(Failure::input)?;
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    for pid in processes.iter().copied().filter(|pid| *pid != std::process::id()) {
        match inspector.process(pid, &supply) {
            Ok(inspection) => seen.push(Summary::of(&inspection)),
            Err(error) if is_without_memory(&error) => {}
            Err(error) => unseen.push((pid, error.to_string())),
        }
    }
    super::export(arguments, &seen)?;
    let files = arguments.all.then(census::hugetlb_files);
    if arguments.json {
        return print(&format!("{:#}", inspection::json::many(&seen, &supply, &unseen, files.as_ref())), true);
    }
    if seen.is_empty() && unseen.is_empty() {
        return Err(Failure::Input(
            "there is no other process with memory here: /proc may hide them (mount option hidepid: ask as root), or be that of \
             another PID namespace"
                .into(),
        ));
    }
    let mut text = inspection::processes(&seen, page_sizes::base_page(), terminal_width());
    if let Some((_, why)) = unseen.first() {
        let said = format!("{} more could not be inspected, for example: {}", unseen.len(), results::printable(why));
        text += &format!("\n\n{}", results::fold(&said, terminal_width(), 2));
    }
    if let Some(files) = files {
        let pools = supply.pools.iter().filter(|pool| pool.pages > 0);
        let pools = pools.map(|pool| results::fold(&format!("hugetlb pool: {}", pool.describe()), terminal_width(), 2));
        let hugetlb: Vec<String> = pools.chain([hugetlb_files::table(&files, terminal_width())]).collect();
        let hugetlb = hugetlb.join("\n");
        text += &format!("{}{}", if hugetlb.is_empty() { "" } else { "\n\n" }, hugetlb.trim_end());
    }
    text += "\n\npagelab inspect PID shows one of them, region by region";
    print(&text, false)
}

/// Whether the process has no memory that any user could inspect.
fn is_without_memory(error: &InspectError) -> bool {
    matches!(
        error,
        InspectError::NoSuchProcess { .. }
            | InspectError::Zombie { .. }
            | InspectError::KernelThread { .. }
            | InspectError::Replaced { .. }
            | InspectError::Census(CensusError::Gone { .. } | CensusError::NoAddressSpace { .. })
    )
}
