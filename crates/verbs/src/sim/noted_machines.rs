//! Machines whose figures need a note ([`NotedMachines`]): those with another instruction set than the trace, and those on which
//! the trace or the address layout does not determine what a TLB holds.

use model::machine::{AccessKind, Architecture, Machine, Needs};
use trace::Header;

/// Machines whose figures need a note, by name.
#[derive(Default)]
pub struct NotedMachines {
    /// Machines with another instruction set than the trace.
    pub foreign: Vec<String>,
    /// Machines whose first-level TLB is shared by fetches and data, while the trace stores fetch and data runs separately.
    pub shared: Vec<String>,
    /// Machines that store neighbouring pages in one TLB entry if their addresses and frames happen to be aligned
    /// alike.
    pub coalescing: Vec<String>,
    /// Machines whose TLBs never store several base pages in one entry.
    pub without_coalescing: Vec<String>,
    /// The machine that was assumed, because the trace does not record its architecture.
    pub guessed: Option<String>,
}

impl NotedMachines {
    /// The machines of a simulation that need a note. `none_was_named`: the user named no machine, so it was chosen by the trace's
    /// architecture.
    pub fn of(machines: &[Machine], header: &Header, none_was_named: bool) -> NotedMachines {
        // Imported traces do not record their architecture.
        let is_known = Architecture::ALL.iter().any(|known| known.name() == header.architecture);
        let is_foreign = |machine: &&Machine| is_known && machine.architecture.name() != header.architecture;
        let is_shared = |machine: &&Machine| !header.columns.addresses && shares_first_level(machine);
        let name = |machine: &Machine| machine.name.clone();
        NotedMachines {
            foreign: machines.iter().filter(is_foreign).map(name).collect(),
            shared: machines.iter().filter(is_shared).map(name).collect(),
            coalescing: machines.iter().filter(|machine| coalesces_by_chance(machine)).map(name).collect(),
            without_coalescing: machines
                .iter()
                .filter(|machine| machine.tlbs.iter().all(|tlb| tlb.coalescing.is_none()))
                .map(name)
                .collect(),
            guessed: machines.first().filter(|_| none_was_named && !is_known).map(name),
        }
    }
}

/// Whether a TLB of the machine stores neighbouring pages in one entry although their PTEs have no bit for that.
fn coalesces_by_chance(machine: &Machine) -> bool {
    machine.tlbs.iter().any(|tlb| tlb.coalescing.is_some_and(|coalescing| coalescing.needs == Needs::Contiguity))
}

/// Whether a level-1 TLB serves both fetches and data.
fn shares_first_level(machine: &Machine) -> bool {
    let has_both = |serves: &[AccessKind]| {
        serves.contains(&AccessKind::Fetch) && serves.iter().any(|serves| *serves != AccessKind::Fetch)
    };
    machine.tlbs.iter().any(|tlb| tlb.level == 1 && has_both(&tlb.serves))
}
