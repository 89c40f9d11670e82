//! `pagelab limits TRACE`: the memory that a limit has to admit for the recorded program, as the model has it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use model::policy::ModelPolicy;
use model::simulation::Outcome;
use policy::Granularity;
use policy::size::format_bytes;
use results::{enumerate, fold, grid, printable};
use serde::Serialize;

use super::Limits;
use crate::failure::Failure;
use crate::output::{print, terminal_width};
use crate::sim::{self, Cell, Simulated};

/// Memory of the kernel for a thread, apart from page tables: its stack of 16K, and its share of what its process needs. Over 26 programs
/// `other kernel` of `pagelab limits` was 36K in the median (docs/evidence/limits.md), most of them with one thread.
const KERNEL_BYTES_PER_THREAD: u64 = 32 << 10;

/// Limits that differ by less than 1/N are the same.
const SAME: u64 = 50;

/// The memory that a limit has to admit under one policy.
#[derive(Serialize)]
struct OfPolicy {
    machine: String,
    policy: String,
    /// The safe limit: what follows, together. Absent if the policy has none; then `why_none` says why.
    limit_bytes: Option<u64>,
    /// The peak of anonymous and shared memory together with page tables.
    charged_peak_bytes: Option<u64>,
    /// The peak of page tables alone.
    tables_peak_bytes: Option<u64>,
    /// The number of threads, of all processes.
    threads: Option<u64>,
    /// Other memory of the kernel, which is assumed.
    kernel_bytes: Option<u64>,
    why_none: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    provenance: &'static str,
    trace: String,
    command: &'a [String],
    policies: &'a [OfPolicy],
    notes: &'a [String],
}

/// The trace, if the words are the path of one.
pub fn trace(words: &[OsString]) -> Option<PathBuf> {
    let [word] = words else { return None };
    sim::is_trace(Path::new(word)).then(|| word.into())
}

/// Models the limits and prints them.
///
/// # Errors
/// The trace is damaged, a machine is unknown, or no policy has a limit.
pub fn run(trace: &Path, arguments: &Limits) -> Result<(), Failure> {
    let simulated = sim::of_trace(trace, &arguments.machines, &arguments.policies, arguments.linux.as_deref())?;
    let policies: Vec<OfPolicy> = simulated.cells.iter().map(of_cell).collect();
    let notes = notes(&simulated);
    if arguments.json {
        let document = Document {
            schema: "pagelab.limits-model/1",
            provenance: "modelled",
            trace: simulated.file.clone(),
            command: &simulated.header.command,
            policies: &policies,
            notes: &notes,
        };
        print(&serde_json::to_string_pretty(&document).unwrap_or_default(), true)?;
    } else {
        print(&text(&policies, &notes, terminal_width()), false)?;
    }
    simulated.failure().map_or(Ok(()), Err)
}

fn of_cell(cell: &Cell) -> OfPolicy {
    let none = |machine: &str, policy: String, why: String| OfPolicy {
        machine: machine.to_owned(),
        policy,
        limit_bytes: None,
        charged_peak_bytes: None,
        tables_peak_bytes: None,
        threads: None,
        kernel_bytes: None,
        why_none: Some(why),
    };
    match cell {
        Cell::Refused(unsupported) => {
            none(&unsupported.machine, unsupported.policy.clone(), unsupported.reason.clone())
        }
        Cell::Ran(outcome) => match why_none(outcome) {
            Some(why) => none(&outcome.machine, outcome.policy.to_string(), why),
            None => of_outcome(outcome),
        },
    }
}

fn of_outcome(outcome: &Outcome) -> OfPolicy {
    let costs = &outcome.costs;
    let threads = (outcome.threads as u64).max(u64::from(costs.processes_peak));
    let kernel_bytes = threads * KERNEL_BYTES_PER_THREAD;
    OfPolicy {
        machine: outcome.machine.clone(),
        policy: outcome.policy.to_string(),
        limit_bytes: Some(costs.charged_peak_bytes + kernel_bytes),
        charged_peak_bytes: Some(costs.charged_peak_bytes),
        tables_peak_bytes: Some(costs.all_table_peak_bytes),
        threads: Some(threads),
        kernel_bytes: Some(kernel_bytes),
        why_none: None,
    }
}

/// Why the model has no limit under a policy.
fn why_none(outcome: &Outcome) -> Option<String> {
    if let Some(stopped) = &outcome.stopped {
        return Some(format!("the simulation stopped early: {stopped}"));
    }
    let cannot_start = outcome.verdict.causes.iter().find(|share| share.cause.prevents_start());
    if let Some(share) = cannot_start {
        return Some(share.cause.describe());
    }
    let is_pool =
        matches!(&outcome.policy, ModelPolicy::Kernel(policy) if matches!(policy.granularity, Granularity::Hugetlb(_)));
    is_pool.then(|| {
        "pages of the pool are charged only where memory_hugetlb_accounting is set; the hugetlb controller limits them".to_owned()
    })
}

/// What the limits leave out.
fn notes(simulated: &Simulated) -> Vec<String> {
    let kernel = format_bytes(KERNEL_BYTES_PER_THREAD);
    let mut notes = vec![format!(
        "Modelled: the peak of anonymous and shared memory with page tables. Assumed: {kernel} of other kernel memory a thread. A smaller \
         limit may do under THP, because the kernel gives small pages where a large one cannot be charged. Files come on top as far as \
         the kernel cannot take them back, and so does what is charged in advance: up to 64 pages a processor."
    )];
    let is_default = |outcome: &Outcome| matches!(outcome.policy, ModelPolicy::Default(_));
    if simulated.cells.iter().filter_map(Cell::outcome).any(is_default) {
        notes.push(
            "What a C library advises can depend on the setting of THP where the trace was recorded: glibc advises malloc's memory only \
             where it is madvise."
                .to_owned(),
        );
    }
    let forks: u64 =
        simulated.cells.iter().filter_map(Cell::outcome).map(|outcome| outcome.costs.forks).max().unwrap_or(0);
    if forks > 0 {
        notes.push(format!("{forks} forked processes were not recorded, so their memory is missing."));
    }
    notes
}

fn text(policies: &[OfPolicy], notes: &[String], width: usize) -> String {
    let header = ["machine", "policy", "limit", "user memory and tables", "tables", "threads", "other kernel"];
    let rows: Vec<[String; 7]> = policies.iter().filter_map(row).collect();
    let mut lines = Vec::new();
    if !rows.is_empty() {
        lines.extend([grid::plain(header, rows, width).trim_end().to_owned(), String::new()]);
    }
    let without = policies
        .iter()
        .filter_map(|one| Some(format!("{}: no limit, because {}.", one.policy, one.why_none.as_ref()?)));
    let sentences = answer(policies).into_iter().chain(without).chain(notes.iter().cloned());
    lines.extend(sentences.map(|line| fold(&printable(&line), width, 0)));
    lines.join("\n")
}

fn row(one: &OfPolicy) -> Option<[String; 7]> {
    let size = |bytes: Option<u64>| bytes.map_or_else(String::new, format_bytes);
    one.limit_bytes?;
    Some([
        one.machine.clone(),
        one.policy.clone(),
        size(one.limit_bytes),
        size(one.charged_peak_bytes),
        size(one.tables_peak_bytes),
        one.threads.map_or_else(String::new, |threads| threads.to_string()),
        size(one.kernel_bytes),
    ])
}

/// A sentence for each machine: its limits, smallest first, with policies that need the same together.
fn answer(policies: &[OfPolicy]) -> Vec<String> {
    let mut machines: Vec<&str> = policies.iter().map(|one| one.machine.as_str()).collect();
    machines.dedup();
    let of_machine = |machine: &str| {
        let own = policies.iter().filter(|one| one.machine == machine);
        let mut limits: Vec<(u64, &str)> =
            own.filter_map(|one| Some((one.limit_bytes?, one.policy.as_str()))).collect();
        limits.sort_by_key(|(bytes, _)| *bytes);
        let (smallest_bytes, _) = *limits.first()?;
        let groups = limits.chunk_by(|(one, _), (other, _)| other - one <= one / SAME);
        let clause = |group: &[(u64, &str)]| {
            let names: Vec<String> = group.iter().map(|(_, policy)| (*policy).to_owned()).collect();
            let bytes = group.iter().map(|(bytes, _)| *bytes).max().unwrap_or_default();
            let ratio = bytes as f64 / smallest_bytes as f64;
            let times = if ratio < 1.02 { String::new() } else { format!(" ({ratio:.1} times as much)") };
            format!("{} under {}{times}", format_bytes(bytes), enumerate(&names))
        };
        let clauses: Vec<String> = groups.map(clause).collect();
        Some(format!("On {machine} these limits are enough: {}.", clauses.join("; ")))
    };
    machines.into_iter().filter_map(of_machine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/reference/formats/limits-model.md");

    fn one(policy: &str, limit_bytes: Option<u64>) -> OfPolicy {
        OfPolicy {
            machine: "a57".to_owned(),
            policy: policy.to_owned(),
            limit_bytes,
            charged_peak_bytes: limit_bytes,
            tables_peak_bytes: limit_bytes,
            threads: Some(1),
            kernel_bytes: Some(KERNEL_BYTES_PER_THREAD),
            why_none: None,
        }
    }

    #[test]
    fn policies_that_need_the_same_are_named_together() {
        let all = [("thp", 7000), ("base", 1000), ("default+never", 1010), ("default+always", 7100)];
        let all = all.map(|(policy, kib)| one(policy, Some(kib << 10)));
        let expected = "On a57 these limits are enough: 1010K under base and default+never; 6.93M under thp and default+always (7.1 times as much).";
        assert_eq!(answer(&all), [expected]);
        assert!(answer(&[one("hugetlb-2m", None)]).is_empty());
    }

    #[test]
    fn the_reference_has_every_key() {
        let document = Document {
            schema: "",
            provenance: "",
            trace: String::new(),
            command: &[],
            policies: &[one("base", Some(1))],
            notes: &[],
        };
        let document = serde_json::to_value(document).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<String>>();
        for key in [keys(&document), keys(&document["policies"][0])].concat() {
            assert!(PAGE.contains(&format!("`{key}`")), "{key} is not in docs/reference/formats/limits-model.md");
        }
    }
}
