//! The result of a simulation in one sentence per machine: which policy is best, by how much translation time, with how
//! much memory, and on which assumptions.
//!
//! If something cannot be concluded, the sentence gives the reason: policies that the model cannot distinguish, a
//! policy that a machine does not support, or one that was not in force.

use policy::size::format_bytes;
use policy::verdict::Holding;

use crate::figure;
use crate::simulation::{Cell, Cost, Machine, MachineFigure, Per, Provenance, rate_in_words};
use crate::text::{enumerate, printable};

/// Minimum ratio by which the cycles of two policies must differ to be distinguished: the model's counts agree with a
/// kernel's within this ratio.
pub const TOLD_APART_RATIO: f64 = 0.02;
/// The policy with which others are compared, if it was simulated.
const REFERENCE: &str = "base";

/// The result of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Name of the machine.
    pub machine: String,
    /// The result in words.
    pub sentence: String,
    /// The policies that lose the fewest cycles to translation: several if the model cannot distinguish them, none if
    /// there is nothing to compare.
    pub best: Vec<String>,
    /// The policy with which they are compared.
    pub reference: Option<String>,
    /// Cycles lost under the first of them relative to the reference, if walks are done one at a time; `None` if the
    /// reference loses none.
    pub lost_ratio: Option<f64>,
    /// Peak memory of the first of them relative to the reference.
    pub resident_ratio: Option<f64>,
    /// The policies with the fewest cycles including the kernel's at faults; empty if these are unknown.
    pub best_with_kernel: Vec<String>,
}

/// The result of each machine of a trace, in the order of its cells. `is_part`: whether the figures cover only a part
/// of the trace.
pub fn answers(cells: &[Cell], machines: &[Machine], is_part: bool) -> Vec<Answer> {
    let of_machine = |cells: &[Cell]| {
        let machine = machines.iter().find(|machine| machine.name == cells[0].machine);
        Field::of(cells, machine, is_part).answer()
    };
    cells.chunk_by(|one, other| one.machine == other.machine).map(of_machine).collect()
}

/// A policy with figures.
#[derive(Clone, Copy)]
struct Entry<'a> {
    policy: &'a str,
    cost: &'a Cost,
}

impl Entry<'_> {
    /// Cycles lost to translation: the minimum and the maximum.
    fn lost(&self) -> [f64; 2] {
        [self.cost.least_lost_cycles as f64, self.cost.most_lost_cycles as f64]
    }

    /// Cycles of translation (one walk at a time) and of the kernel.
    fn with_kernel(&self) -> Option<f64> {
        self.cost.kernel.map(|kernel| self.cost.most_lost_cycles as f64 + kernel.total() as f64)
    }
}

/// The policies of one machine.
struct Field<'a> {
    name: &'a str,
    machine: Option<&'a Machine>,
    entries: Vec<Entry<'a>>,
    left_out: Vec<String>,
    is_part: bool,
}

impl<'a> Field<'a> {
    fn of(cells: &'a [Cell], machine: Option<&'a Machine>, is_part: bool) -> Field<'a> {
        let (mut entries, mut left_out) = (Vec::new(), Vec::new());
        for cell in cells {
            match &cell.outcome {
                Ok(cost) if cost.verdict.holding == Holding::NotHeld => left_out.push(not_in_force(&cell.policy, cost)),
                Ok(cost) => entries.push(Entry { policy: &cell.policy, cost }),
                Err(missing) => {
                    left_out.push(format!("{} ({}: {})", cell.policy, missing.words(), printable(missing.why())))
                }
            }
        }
        Field { name: &cells[0].machine, machine, entries, left_out, is_part }
    }

    fn answer(&self) -> Answer {
        let mut answer = Answer { machine: self.name.to_owned(), ..Answer::default() };
        let mut sentences = match (self.reference(), &self.entries[..]) {
            (Some(reference), [_, _, ..]) => self.result(reference, &mut answer),
            (Some(only), _) => {
                let rate = lost_in_words(only.cost, only.cost.most_lost_cycles);
                vec![format!("there is nothing to compare {} with: it loses {rate} to translation", only.policy)]
            }
            (None, _) => vec!["no answer: no policy gave figures that count".to_owned()],
        };
        if !self.left_out.is_empty() {
            sentences.push(format!("Not compared: {}", self.left_out.join(", ")));
        }
        if !self.entries.is_empty() {
            sentences.push(self.assumed());
        }
        if self.is_part {
            sentences.push("All of it is of a part of what ran".to_owned());
        }
        answer.sentence = format!("{}: {}.", self.name, sentences.join(". "));
        answer
    }

    /// The policy with which others are compared: base pages, or else the first.
    fn reference(&self) -> Option<Entry<'a>> {
        self.entries.iter().find(|entry| entry.policy == REFERENCE).or(self.entries.first()).copied()
    }

    /// The sentences about at least two policies.
    fn result(&self, reference: Entry<'a>, answer: &mut Answer) -> Vec<String> {
        let best = self.best(Entry::lost);
        let Some(first) = best.first().copied() else { return Vec::new() };
        let ratio =
            |of: fn(&Cost) -> u64| (of(reference.cost) > 0).then(|| of(first.cost) as f64 / of(reference.cost) as f64);
        answer.best = names(&best);
        answer.reference = Some(reference.policy.to_owned());
        answer.lost_ratio = ratio(|cost| cost.most_lost_cycles);
        answer.resident_ratio = ratio(|cost| cost.resident_peak_bytes);
        let mut sentences = vec![self.main_sentence(&best, reference)];
        sentences.extend(of_a_run(reference));
        sentences.push(self.of_the_kernel(reference, &mut answer.best_with_kernel));
        sentences
    }

    /// The policies with the fewest cycles by all `N` counts, the one with the fewest first, including those that
    /// cannot be distinguished from it.
    fn best<const N: usize>(&self, of: impl Fn(&Entry<'a>) -> [f64; N]) -> Vec<Entry<'a>> {
        let last = |entry: &&Entry<'a>| of(entry)[N - 1];
        let Some(first) = self.entries.iter().min_by(|one, two| last(one).total_cmp(&last(two))) else {
            return Vec::new();
        };
        let is_less = |other: &Entry<'a>| {
            of(first).into_iter().zip(of(other)).all(|(best, other)| best * (1.0 + TOLD_APART_RATIO) < other)
        };
        let equal = self.entries.iter().filter(|other| other.policy != first.policy && !is_less(other));
        std::iter::once(first).chain(equal).copied().collect()
    }

    fn main_sentence(&self, best: &[Entry<'a>], reference: Entry<'a>) -> String {
        let others: Vec<Entry<'a>> =
            self.entries.iter().filter(|entry| best.iter().all(|best| best.policy != entry.policy)).copied().collect();
        let names = enumerate(&names(best));
        let equal = format!("equal within what the model can tell ({})", self.why_equal(best));
        let rate = |entry: Entry<'a>| lost_in_words(entry.cost, entry.cost.most_lost_cycles);
        match (best, nearest(&others)) {
            (all, None) => {
                format!("no policy takes less translation time than another: {names} are {equal}{}", most(all))
            }
            ([one], Some(next)) if one.policy == reference.policy => format!(
                "{} is the best of {} policies: even {} takes {} translation time ({} against {})",
                one.policy,
                self.entries.len(),
                next.policy,
                change(next.cost.most_lost_cycles as f64, one.cost.most_lost_cycles as f64),
                rate(next),
                rate(*one)
            ),
            ([one], Some(_)) => {
                format!("{} is the best of {} policies: {}", one.policy, self.entries.len(), gain(*one, reference))
            }
            (several, Some(_)) if several.iter().any(|entry| entry.policy == reference.policy) => {
                let others = enumerate(&self::names(&others));
                format!(
                    "nothing gained over {}: {names} are {equal}, and {others} worse{}",
                    reference.policy,
                    most(several)
                )
            }
            ([first, ..], Some(_)) => format!(
                "{names} are the best of {} policies, {equal}: {} has {}",
                self.entries.len(),
                first.policy,
                gain(*first, reference)
            ),
            ([], Some(_)) => "no answer".to_owned(),
        }
    }

    /// Why policies are not distinguished: their counts are close, or the overlap of walks decides.
    fn why_equal(&self, best: &[Entry<'a>]) -> String {
        let percent = figure::plain(TOLD_APART_RATIO * 100.0);
        let near = |bound: usize| {
            let lost = best.iter().map(|entry| entry.lost()[bound]);
            let (least, most) =
                lost.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), lost| (least.min(lost), most.max(lost)));
            least * (1.0 + TOLD_APART_RATIO) >= most
        };
        if near(0) && near(1) {
            format!("{percent} %")
        } else {
            format!("{percent} %, or how far walks overlap decides")
        }
    }

    /// The result including the cycles of the kernel.
    fn of_the_kernel(&self, reference: Entry<'a>, names: &mut Vec<String>) -> String {
        if self.entries.iter().any(|entry| entry.cost.kernel.is_none()) {
            return "What faults, zeroing and copying cost is not known: the machine file has no [kernel_costs]"
                .to_owned();
        }
        let total = |entry: &Entry<'a>| [entry.with_kernel().unwrap_or(f64::INFINITY)];
        let best = self.best(total);
        *names = self::names(&best);
        let with = if self.figures().any(|figure| is_of_kernel(figure) && is_assumed(figure)) {
            "With faults, zeroing and copying, whose cost is assumed"
        } else {
            "With faults, zeroing and copying"
        };
        match &best[..] {
            [one] if one.policy == reference.policy => format!("{with}, {} has the fewest cycles", one.policy),
            [one] => format!(
                "{with}, {} has the fewest cycles: {} than {}",
                one.policy,
                change(total(one)[0], total(&reference)[0]),
                reference.policy
            ),
            several => {
                let (names, percent) = (enumerate(&self::names(several)), figure::plain(TOLD_APART_RATIO * 100.0));
                format!("{with}, {names} have the fewest cycles, equal within {percent} %")
            }
        }
    }

    /// Which figures of the machine are assumed, and what is assumed for every machine.
    fn assumed(&self) -> String {
        let hidden = "that a core waits for each walk, one after the other";
        let assumed: Vec<&MachineFigure> = self.figures().filter(|figure| is_assumed(figure)).collect();
        if assumed.is_empty() {
            return format!("Assumed: {hidden}");
        }
        let mut parts: Vec<String> = Vec::new();
        for (prefix, part) in PARTS {
            let count = assumed.iter().filter(|figure| figure.key.starts_with(prefix)).count();
            if count > 0 {
                parts.push(format!("{part} {count}"));
            }
        }
        format!(
            "Assumed: {} of {} figures of the machine ({}), and {hidden}",
            assumed.len(),
            self.figures().count(),
            parts.join(", ")
        )
    }

    fn figures(&self) -> impl Iterator<Item = &'a MachineFigure> {
        self.machine.into_iter().flat_map(|machine| &machine.figures)
    }
}

/// Prefixes of keys in a machine file, and the parts that they belong to.
const PARTS: [(&str, &str); 6] = [
    ("formats", "page tables"),
    ("tlb[", "TLBs"),
    ("walk_cache[", "caches of walks"),
    ("walker", "walker"),
    ("stage2", "second stage"),
    (KERNEL, "the kernel's costs"),
];
const KERNEL: &str = "kernel_costs";

fn is_of_kernel(figure: &MachineFigure) -> bool {
    figure.key.starts_with(KERNEL)
}

fn is_assumed(figure: &MachineFigure) -> bool {
    matches!(figure.provenance, Provenance::Assumed(_))
}

fn names(entries: &[Entry<'_>]) -> Vec<String> {
    entries.iter().map(|entry| entry.policy.to_owned()).collect()
}

fn nearest<'a>(entries: &[Entry<'a>]) -> Option<Entry<'a>> {
    entries.iter().min_by_key(|entry| entry.cost.most_lost_cycles).copied()
}

/// `thp (not in force: mappings smaller than one page)`
fn not_in_force(policy: &str, cost: &Cost) -> String {
    let why = cost.verdict.causes.first().map(|share| format!(": {}", printable(&share.cause.describe())));
    format!("{policy} (not in force{})", why.unwrap_or_default())
}

/// `85.0 % less translation time than base (0.169 cycles per 1000 instructions against 1.125), for about the same peak memory
/// (4.96M against 4.88M); held on 97 % of the memory`
fn gain(best: Entry<'_>, reference: Entry<'_>) -> String {
    let lost = |entry: Entry<'_>| entry.cost.most_lost_cycles;
    format!(
        "{} translation time than {} ({} against {}){}{}",
        change(lost(best) as f64, lost(reference) as f64),
        reference.policy,
        lost_in_words(best.cost, lost(best)),
        rate_in_words(reference.cost.per.rate(lost(reference))),
        memory(best.cost, reference.cost),
        held(best.cost)
    )
}

/// `12.3 % less`, `4.5 % more`
fn change(of: f64, against: f64) -> String {
    match of / against {
        ratio if !ratio.is_finite() => "more".to_owned(),
        ratio if ratio >= 10.0 => format!("{ratio:.0} times the"),
        ratio if ratio > 1.0 => format!("{:.1} % more", (ratio - 1.0) * 100.0),
        ratio if ratio > 0.0 && ratio < 0.0005 => ">99.9 % less".to_owned(),
        ratio => format!("{:.1} % less", (1.0 - ratio) * 100.0),
    }
}

/// `0.169 cycles per 1000 instructions`
fn lost_in_words(cost: &Cost, cycles: u64) -> String {
    match cost.per {
        Per::Nothing => format!("{cycles} cycles"),
        per => format!("{} cycles per 1000 {}", rate_in_words(per.rate(cycles)), per.unit()),
    }
}

/// The maximum that several policies lose.
fn most(entries: &[Entry<'_>]) -> String {
    let most = entries.iter().max_by_key(|entry| entry.cost.most_lost_cycles);
    most.map_or(String::new(), |most| format!(", at most {}", lost_in_words(most.cost, most.cost.most_lost_cycles)))
}

/// `, for 1.2 times the peak memory (5.57M against 4.88M)`, and other held memory.
fn memory(best: &Cost, reference: &Cost) -> String {
    let (peak, before) = (best.resident_peak_bytes, reference.resident_peak_bytes);
    let besides = match best.held_unmapped_peak_bytes {
        0 => String::new(),
        bytes => format!(" and up to {} that is held and not mapped", format_bytes(bytes)),
    };
    let against = format!("({} against {}){besides}", format_bytes(peak), format_bytes(before));
    match peak as f64 / before as f64 {
        ratio if !ratio.is_finite() => String::new(),
        ratio if (0.95..1.05).contains(&ratio) => format!(", for about the same peak memory {against}"),
        ratio => format!(", for {ratio:.1} times the peak memory {against}"),
    }
}

/// `; held on 97 % of the memory`
fn held(cost: &Cost) -> String {
    let ratio = cost.verdict.coverage_ratio();
    ratio.map_or(String::new(), |ratio| format!("; held on {} of the memory", figure::share(ratio)))
}

/// Translation as a share of a run, counting one cycle per instruction, because the model does not know the actual number.
fn of_a_run(reference: Entry<'_>) -> Option<String> {
    let Per::Instructions(instructions) = reference.cost.per else { return None };
    let cycles = reference.cost.most_lost_cycles as f64;
    let share = cycles / (instructions as f64 + cycles);
    Some(format!(
        "At a cycle an instruction, translation is {} of the time under {}",
        if share < 0.001 { "less than 0.1 %".to_owned() } else { format!("{:.1} %", share * 100.0) },
        reference.policy
    ))
}

#[cfg(test)]
mod tests;
