//! `--collapse`: asks the kernel to collapse memory into large pages where that is possible.

use census::inspect::Inspector;
use policy::inspect::{Inspection, Summary, Supply};
use results::inspection::{self, collapsing};

use super::Inspect;
use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Requests the collapse, inspects again, and shows what the collapse achieved and how memory is mapped now.
pub fn run(arguments: &Inspect, inspector: &Inspector, supply: &Supply, before: &Inspection) -> Result<(), Failure> {
    let Some(leaf) = inspector.pmd_leaf() else {
        return Err(Failure::NothingAdmitted("this kernel has no transparent huge pages to collapse into".into()));
    };
    let collapsed = inspector.collapse(before).map_err(Failure::input)?;
    let after = inspector.process(before.process.pid, supply).map_err(Failure::input)?;
    super::export(arguments, &[Summary::of(&after)])?;
    if arguments.json {
        let mut document = inspection::json::one(&after);
        document["collapsed"] = collapsing::document(before, &after, &collapsed, leaf);
        return print(&format!("{document:#}"), true);
    }
    let width = terminal_width();
    let outcome = collapsing::text(before, &after, &collapsed, leaf, width);
    print(&format!("{outcome}\n\n{}", inspection::process(&after, arguments.regions, width)), false)
}
