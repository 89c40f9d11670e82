//! Notes on the limits of the figures of a simulated trace.

use std::collections::BTreeMap;

use model::policy::ModelPolicy;
use model::replay::Unrecorded;
use model::simulation::Outcome;
use paging::format::named::Named;
use paging::{Format as _, with_format};
use policy::Granularity;
use policy::size::format_bytes;
use results::enumerate;

use super::base_page;
use super::simulated::{Cell, Layouts, Simulated};
use super::swept::Swept;
use super::trace_notes::{incomplete, parts, shared};
use crate::executed::programs_by_times;
use crate::table::describe::count;

/// The unit of the page numbers in `mmap` calls on hosts where traces are recorded, in bytes.
const RECORDED_PAGE_BYTES: u64 = 4096;

/// The notes on the figures of one trace, in two groups.
pub struct Notes {
    /// Notes that only apply to this trace or this run, and that change how the figures are to be read.
    pub of_this_trace: Vec<String>,
    /// Notes on what the model leaves out of every trace, or does because it was asked to.
    pub of_the_model: Vec<String>,
}

impl Notes {
    /// The notes on the figures of a trace.
    pub fn of(simulated: &Simulated) -> Notes {
        Notes::about(simulated, |_| true)
    }

    /// The notes on the figures of one machine.
    pub fn of_machine(simulated: &Simulated, machine: &str) -> Notes {
        Notes::about(simulated, |outcome| outcome.machine == machine)
    }

    fn about(simulated: &Simulated, is_concerned: impl Fn(&Outcome) -> bool) -> Notes {
        let ran = simulated.cells.iter().filter_map(Cell::outcome);
        let ran: Vec<&Outcome> = ran.filter(|outcome| is_concerned(outcome)).collect();
        Notes { of_this_trace: of_this_trace(simulated, &ran), of_the_model: of_the_model(simulated, &ran) }
    }

    /// All notes, those of this trace first.
    pub fn all(self) -> Vec<String> {
        self.of_this_trace.into_iter().chain(self.of_the_model).collect()
    }
}

fn of_this_trace(simulated: &Simulated, ran: &[&Outcome]) -> Vec<String> {
    let mut notes: Vec<String> = ran.iter().filter_map(|outcome| stopped(outcome)).collect();
    if simulated.replayed.inferred {
        notes.push("the trace does not record mappings: ranges of touched pages count as mappings".to_owned());
    }
    let own: Vec<&Outcome> = ran.iter().copied().filter(|outcome| !simulated.is_foreign(&outcome.machine)).collect();
    notes.extend(base_page::unknown(&simulated.header, &own));
    notes.extend(parts(&simulated.header));
    notes.extend(simulated.swept.iter().flat_map(Swept::limits));
    notes.extend(incomplete(simulated.is_cut_off(), &simulated.replayed.cut_off_children, simulated.damage()));
    if let Some(machine) = &simulated.noted.guessed {
        notes.push(format!(
            "the trace does not say on which architecture it was recorded: {machine} was assumed; name a machine with -m"
        ));
    }
    if simulated.replayed.out_of_order != 0 {
        notes.push(format!("{} events came before others that are missing", simulated.replayed.out_of_order));
    }
    if simulated.replayed.untimed != 0 {
        notes.push(
            "the trace does not say which thread or process touched memory first. Between calls that change memory, threads \
             are replayed one after the other, and children before their parents. Faults are overestimated where one \
             thread fills what another reads, and CoW copies underestimated where a parent writes while its child lives. \
             Record the program again"
                .to_owned(),
        );
    }
    if let Some(outside) = ran.iter().map(|outcome| outcome.costs.outside_bytes).max().filter(|bytes| *bytes != 0) {
        notes.push(format!(
            "{} were touched outside all recorded mappings, and mapped as base pages",
            format_bytes(outside)
        ));
    }
    let mut policies = ran.iter().map(|outcome| &outcome.policy);
    if let Some(proposal) = policies.find(|policy| matches!(policy, ModelPolicy::Contig64k { .. })) {
        notes
            .push(format!("{proposal} is a proposal of 2016 ({}); kernels since 6.9 do mthp-64k", proposal.describe()));
    }
    notes.extend(software_pages(ran));
    notes.extend(unmodelled(ran));
    if let Some(swapped) = ran.iter().map(|outcome| outcome.costs.swapped_out_bytes).max().filter(|bytes| *bytes != 0) {
        let bytes = format_bytes(swapped);
        notes.push(format!("memory was short: up to {bytes} were reclaimed to swap, which costs nothing in the model; allow more with --memory"));
    }
    if let Some(forks) = ran.iter().map(|outcome| outcome.costs.forks).max().filter(|forks| *forks != 0) {
        let processes = if forks == 1 { "process" } else { "processes" };
        notes.push(format!("the program forked {forks} {processes} without a trace FILE.PID, which are not modelled"));
    }
    notes.extend(unrecorded(&simulated.replayed.unrecorded));
    notes.extend(decided_by_layout(simulated, ran));
    notes.extend(folios_without_reach(simulated, ran));
    let foreign = machines_of(ran.iter().filter(|outcome| simulated.is_foreign(&outcome.machine)));
    if !foreign.is_empty() {
        notes.push(format!(
            "the trace was recorded on {}: on {} the program would be compiled to other instructions",
            simulated.header.architecture,
            enumerate(&foreign)
        ));
    }
    notes
}

/// The names of the machines of these outcomes, each once.
fn machines_of<'a>(outcomes: impl Iterator<Item = &'a &'a Outcome>) -> Vec<String> {
    let mut names: Vec<String> = outcomes.map(|outcome| outcome.machine.clone()).collect();
    names.dedup();
    names
}

/// A note on base pages that are larger than those of the hardware, which writes several entries for each.
fn software_pages(ran: &[&Outcome]) -> Option<String> {
    let is_software = |outcome: &&&Outcome| {
        let format: Option<Named> = outcome.table_format.parse().ok();
        format.is_some_and(|format| with_format!(&format, format => format.run_bits() != 0))
    };
    let concerned: Vec<&&Outcome> = ran.iter().filter(is_software).collect();
    let first = concerned.first()?;
    let base = format_bytes(first.base_bytes);
    let machines = enumerate(&machines_of(concerned.iter().copied()));
    Some(format!(
        "{} on {machines} is a proposal (software pages of {base} on RISC-V, a patch series): the hardware has no base pages of {base}, \
         and the kernel writes several entries for each",
        first.policy
    ))
}

/// A note on machines whose TLBs store one leaf per entry: folios of several base pages then save faults, but no walks.
fn folios_without_reach(simulated: &Simulated, ran: &[&Outcome]) -> Option<String> {
    let is_mthp = |outcome: &&&Outcome| matches!(&outcome.policy, ModelPolicy::Kernel(policy) if matches!(policy.granularity, Granularity::Mthp(_)));
    let has_none = |outcome: &&&Outcome| simulated.noted.without_coalescing.contains(&outcome.machine);
    let concerned: Vec<&&Outcome> = ran.iter().filter(is_mthp).filter(has_none).collect();
    let policy = &concerned.first()?.policy;
    let machines = enumerate(&machines_of(concerned.into_iter()));
    Some(format!(
        "{policy} saves faults on {machines}, and no translation: a folio is mapped by base pages, and these TLBs store each of them in \
         an entry of its own"
    ))
}

fn of_the_model(simulated: &Simulated, ran: &[&Outcome]) -> Vec<String> {
    let mut notes: Vec<String> = layouts(simulated).into_iter().collect();
    if simulated.replayed.accesses_only {
        notes.push(
            "only the accesses, at the recorded addresses: system calls are ignored, forked processes are not followed, \
             and all touched memory counts as anonymous"
                .to_owned(),
        );
    }
    if let Some(calls) = ran.iter().map(|outcome| outcome.costs.refused_calls).max().filter(|calls| *calls != 0) {
        notes.push(format!(
            "{calls} calls of the trace did nothing: no kernel would have let them succeed (misaligned, empty or beyond \
             the addresses of programs), or the policy makes them fail"
        ));
    }
    let has_mappings = !simulated.replayed.inferred && !simulated.replayed.accesses_only;
    let large_base = ran.iter().filter(|outcome| outcome.base_bytes > RECORDED_PAGE_BYTES);
    if let Some(bytes) = large_base.map(|outcome| outcome.base_bytes).max().filter(|_| has_mappings) {
        notes.push(format!(
            "mappings were placed for pages of 4K: with base pages of up to {} they are rounded outwards, and \
             neighbours share pages; a kernel with such pages would have aligned them",
            format_bytes(bytes)
        ));
    }
    if let Some(moved) = ran.iter().find(|outcome| outcome.moved_addresses) {
        notes.push(format!(
            "{} ({}) has fewer bits of address than the trace: stack and mappings were moved to the end of its address \
             space, the program to two thirds of it",
            moved.machine, moved.table_format
        ));
    }
    notes.extend(ran.first().map(|outcome| no_interference(outcome)));
    let is_shown = |machine: &&String| ran.iter().any(|outcome| outcome.machine == **machine);
    notes.extend(
        simulated
            .noted
            .shared
            .iter()
            .filter(is_shown)
            .map(|machine| shared(&format!("{machine} has a TLB of level 1 that"))),
    );
    notes.extend(simulated.host.iter().cloned());
    notes
}

/// A note on madvise calls whose effect is not modelled. The amount of memory with such advice bounds the effect.
fn unmodelled(ran: &[&Outcome]) -> Option<String> {
    let mut most: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, bytes) in ran.iter().flat_map(|outcome| &outcome.costs.unmodelled_advice) {
        let known = most.entry(name).or_default();
        *known = (*known).max(*bytes);
    }
    let how = |name: &str| if name == "MADV_PAGEOUT" { " (modelled without swap)" } else { "" };
    let advised: Vec<String> =
        most.iter().map(|(name, bytes)| format!("{name} for {}{}", format_bytes(*bytes), how(name))).collect();
    (!advised.is_empty()).then(|| {
        format!(
            "the program's advice has effects that are not modelled, at most on the memory advised: {}",
            advised.join(", ")
        )
    })
}

/// A note on programs that were executed and have no trace, most frequent first.
fn unrecorded(programs: &BTreeMap<Unrecorded, u64>) -> Option<String> {
    let all: u64 = programs.values().sum();
    let named = programs.iter().map(|(Unrecorded { program, why }, times)| (program.as_str(), why.as_deref(), *times));
    (all > 0).then(|| {
        format!(
            "processes executed {} without a trace FILE.PID.execN, and their further work is not modelled: {}",
            count(all, "program"),
            programs_by_times(named)
        )
    })
}

/// Whether the figures are for one of many address layouts that the program can have.
pub fn has_one_of_many_layouts(simulated: &Simulated) -> bool {
    simulated.header.emulator.is_some() && !simulated.header.system && !simulated.replayed.accesses_only
}

/// A note on machines on which the address layout decides whether neighbouring base pages share a TLB entry.
fn decided_by_layout(simulated: &Simulated, ran: &[&Outcome]) -> Option<String> {
    let has_walks = |outcome: &&&Outcome| outcome.walks != 0 && simulated.noted.coalescing.contains(&outcome.machine);
    let outcome = ran.iter().find(has_walks)?;
    has_one_of_many_layouts(simulated).then(|| {
        let shown = match &simulated.layouts {
            Some(layouts) => format!("the table has medians over {} layouts", layouts.count),
            None => "this is one layout, without randomisation: --layouts 8 shows how far, and can change which policy is best"
                .to_owned(),
        };
        format!(
            "{} stores neighbouring pages in one TLB entry where addresses and frames are aligned alike, so walks depend on the \
             layout of addresses; {shown}",
            outcome.machine
        )
    })
}

/// A note on the addresses at which the program was laid out.
fn layouts(simulated: &Simulated) -> Option<String> {
    match &simulated.layouts {
        _ if !has_one_of_many_layouts(simulated) => None,
        None => Some(
            "one address layout, without randomisation (setarch --addr-no-randomize); with randomisation, figures differ from run \
             to run: --layouts N shows how far"
                .to_owned(),
        ),
        Some(Layouts { count, seed, spreads }) => {
            let ended = spreads.iter().map(|spread| spread.layouts).min().unwrap_or(0);
            let early = (ended < *count).then(|| format!("; in some cells only {ended} reached the end of the trace"));
            Some(format!(
                "{count} randomised layouts, chosen by --seed {seed}, in addition to the one without randomisation, which the tables \
                 of all figures are for{}",
                early.unwrap_or_default()
            ))
        }
    }
}

/// A note that the model leaves out interference from other threads, cores and processes.
fn no_interference(outcome: &Outcome) -> String {
    let who = match outcome.threads {
        1 => "the program has a core to itself".to_owned(),
        threads => format!("each of the {threads} threads has a core to itself"),
    };
    format!(
        "{who}, with its own TLBs, walkers and caches of table entries: competition with the other hardware thread of a core \
         (SMT), other cores and other processes is not modelled"
    )
}

fn stopped(outcome: &Outcome) -> Option<String> {
    let why = outcome.stopped.as_ref()?;
    Some(format!("{} under {} ended before the trace did: {why}", outcome.machine, outcome.policy))
}
