//! The result of a simulation ([`Answer`]), a few sentences per machine: which share of the program's time address translation
//! takes, and so whether page size matters; which policy is best, with how much memory, and on which assumptions.
//!
//! The share is an upper bound: the model counts the cycles of walks as if the core did nothing else meanwhile. If something
//! cannot be concluded, the sentence gives the reason: policies that the model cannot distinguish, a policy that a machine does
//! not support, or a policy that was not in force.

mod lead;
mod run_time;
mod words;

use policy::verdict::Holding;

use crate::figure;
use crate::simulation::{Cell, Cost, Machine, MachineFigure, Provenance, rate_in_words};
use crate::spread::MIN_DIFFERENCE_RATIO;
use crate::text::{enumerate, printable};
pub use run_time::{CLOCK_HZ, RunTime};
use words::{change, change_in_words, held, lost_in_words, memory, not_in_force};

/// The practical band: a change of run time by less than this share does not matter.
pub const BAND_RATIO: f64 = 0.01;
/// Cycles below this share of the time distinguish no policies: a share is printed with this precision.
const NEGLIGIBLE_RATIO: f64 = 0.001;
/// Of policies that the model cannot distinguish, one that takes this many times the memory of another is not named first.
const THRIFTY_RATIO: f64 = 1.05;
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
    /// nothing can be compared.
    pub best: Vec<String>,
    /// The policy with which the others are compared.
    pub reference: Option<String>,
    /// Cycles lost to translation under the first policy in `best`, relative to the reference, if walks are done one at
    /// a time; `None` if the reference loses no cycles.
    pub lost_ratio: Option<f64>,
    /// Peak memory of the first policy in `best`, relative to the reference.
    pub resident_ratio: Option<f64>,
    /// The policies with the fewest cycles for translation and the kernel's work at faults; empty if the kernel's
    /// cycles are unknown.
    pub best_with_kernel: Vec<String>,
    /// The program's time in cycles of the machine; `None` if the time is unknown and cannot be assumed.
    pub time_cycles: Option<f64>,
    /// The share of the program's time that each policy saves over the reference: in translation and, if known, at faults. Negative
    /// if the policy costs time.
    pub saved: Vec<(String, f64)>,
    /// Shares of the program's time; `None` if the time is unknown and cannot be assumed.
    pub shares: Option<Shares>,
}

/// Shares of the program's time, if walks are done one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Upper bound on the share of translation under the reference.
    pub translation: f64,
    /// Upper bound on the share of translation under the best policy.
    pub best_translation: f64,
    /// The kernel's work at faults under the reference, if the machine file gives its costs.
    pub kernel: Option<f64>,
    /// Whether some policy changes the time by at least the practical band, by translation and, if known, by faults.
    pub page_size_matters: bool,
}

/// The result of each machine of a trace, in the order of its cells. `is_part`: the figures cover only a part of the
/// trace.
pub fn answers(cells: &[Cell], machines: &[Machine], is_part: bool, time: &RunTime) -> Vec<Answer> {
    let of_machine = |cells: &[Cell]| {
        let machine = machines.iter().find(|machine| machine.name == cells[0].machine);
        Candidates::of(cells, machine, is_part, time).answer()
    };
    cells.chunk_by(|one, other| one.machine == other.machine).map(of_machine).collect()
}

/// A policy and its figures.
#[derive(Clone, Copy)]
struct Entry<'a> {
    policy: &'a str,
    cost: &'a Cost,
}

impl Entry<'_> {
    /// Cycles lost to translation: the minimum (all walkers always busy) and the maximum (one walk at a time).
    fn lost(&self) -> [f64; 2] {
        [self.cost.min_lost_cycles as f64, self.cost.max_lost_cycles as f64]
    }

    /// Cycles of translation (one walk at a time) plus cycles of the kernel; `None` if the kernel's are unknown.
    fn with_kernel(&self) -> Option<f64> {
        self.cost.kernel.map(|kernel| self.cost.max_lost_cycles as f64 + kernel.total() as f64)
    }
}

/// The policies of one machine: those with figures, and those left out with the reason.
struct Candidates<'a> {
    name: &'a str,
    machine: Option<&'a Machine>,
    entries: Vec<Entry<'a>>,
    /// Reasons, each with the policies that were left out for it.
    left_out: Vec<(String, Vec<String>)>,
    is_part: bool,
    time: &'a RunTime,
}

impl<'a> Candidates<'a> {
    fn of(cells: &'a [Cell], machine: Option<&'a Machine>, is_part: bool, time: &'a RunTime) -> Candidates<'a> {
        let mut entries = Vec::new();
        let mut left_out: Vec<(String, Vec<String>)> = Vec::new();
        for cell in cells {
            let reason = match &cell.outcome {
                Ok(cost) if cost.verdict.holding == Holding::NotHeld => not_in_force(cost),
                Ok(cost) => {
                    entries.push(Entry { policy: &cell.policy, cost });
                    continue;
                }
                Err(missing) => format!("{}: {}", missing.label(), printable(missing.why())),
            };
            match left_out.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, policies)) => policies.push(cell.policy.clone()),
                None => left_out.push((reason, vec![cell.policy.clone()])),
            }
        }
        Candidates { name: &cells[0].machine, machine, entries, left_out, is_part, time }
    }

    fn answer(&self) -> Answer {
        let mut answer = Answer { machine: self.name.to_owned(), ..Answer::default() };
        let mut sentences = match (self.reference(), &self.entries[..]) {
            (Some(reference), [_, _, ..]) => self.result(reference, &mut answer),
            (Some(only), _) => self.alone(only, &mut answer),
            (None, _) => vec![format!("no answer for {}: no policy gave figures that count", self.name)],
        };
        if !self.left_out.is_empty() {
            let named = self.left_out.iter().map(|(reason, policies)| format!("{} ({reason})", enumerate(policies)));
            sentences.push(format!("Not compared: {}", named.collect::<Vec<_>>().join(", ")));
        }
        sentences.extend(self.reference().and_then(|reference| self.hits_of_second_level(reference)));
        if !self.entries.is_empty() {
            sentences.push(self.assumed());
        }
        if self.is_part {
            sentences.push("All figures cover only a part of the run".to_owned());
        }
        answer.sentence = format!("{}.", sentences.join(". "));
        answer
    }

    /// The policy with which others are compared: base pages, or else the first.
    fn reference(&self) -> Option<Entry<'a>> {
        self.entries.iter().find(|entry| entry.policy == REFERENCE).or(self.entries.first()).copied()
    }

    /// With which policy others are compared, and why, if it is not base pages.
    fn other_reference(&self, reference: Entry<'a>) -> Option<String> {
        let is_left_out = self.left_out.iter().any(|(_, policies)| policies.iter().any(|policy| policy == REFERENCE));
        let why = if is_left_out { "has no figures that count" } else { "is not among the policies" };
        (reference.policy != REFERENCE)
            .then(|| format!("Compared with {}, because {REFERENCE} {why}", reference.policy))
    }

    /// The sentences if at least two policies have figures.
    fn result(&self, reference: Entry<'a>, answer: &mut Answer) -> Vec<String> {
        let best = self.best(Entry::lost);
        let Some(first) = best.first().copied() else { return Vec::new() };
        let ratio =
            |of: fn(&Cost) -> u64| (of(reference.cost) > 0).then(|| of(first.cost) as f64 / of(reference.cost) as f64);
        answer.best = names(&best);
        answer.reference = Some(reference.policy.to_owned());
        answer.lost_ratio = ratio(|cost| cost.max_lost_cycles);
        answer.resident_ratio = ratio(|cost| cost.resident_peak_bytes);
        let cycles = self.time.cycles(reference.cost);
        answer.time_cycles = cycles;
        answer.shares = cycles.map(|cycles| self.shares(reference, first, cycles));
        let others = self.entries.iter().filter(|entry| entry.policy != reference.policy);
        answer.saved = cycles.map_or(Vec::new(), |cycles| {
            others.map(|entry| (entry.policy.to_owned(), self.saved(*entry, reference, cycles))).collect()
        });
        let mut sentences = match (answer.shares, cycles) {
            (Some(shares), Some(cycles)) => vec![self.lead(&best, reference, &shares, cycles)],
            _ => vec![self.of_translation_alone(&best, reference)],
        };
        sentences.extend(self.other_reference(reference));
        sentences.push(self.time.sentence(self.name, reference.cost));
        let of_the_kernel = self.of_the_kernel(reference, first, cycles, &mut answer.best_with_kernel);
        sentences.extend((!answer.shares.is_some_and(lead::leads_with_faults)).then_some(of_the_kernel));
        sentences.extend(cycles.and_then(|cycles| contradicted(reference, cycles)));
        sentences
    }

    /// The sentences if only one policy has figures.
    fn alone(&self, only: Entry<'a>, answer: &mut Answer) -> Vec<String> {
        let cycles = self.time.cycles(only.cost);
        answer.time_cycles = cycles;
        answer.shares = cycles.map(|cycles| self.shares(only, only, cycles));
        let lead = match answer.shares {
            Some(shares) => format!("{} under {}", self.translation_is(&shares), only.policy),
            None => format!(
                "on {}, {} loses {} to translation",
                self.name,
                only.policy,
                lost_in_words(only.cost, only.cost.max_lost_cycles)
            ),
        };
        vec![
            format!("{lead}; there is nothing to compare {} with", only.policy),
            self.time.sentence(self.name, only.cost),
        ]
    }

    /// The policies with the fewest cycles: the one with the fewest first, then those that none of the `N` counts
    /// distinguishes from it.
    fn best<const N: usize>(&self, of: impl Fn(&Entry<'a>) -> [f64; N]) -> Vec<Entry<'a>> {
        let last = |entry: &&Entry<'a>| of(entry)[N - 1];
        let Some(first) = self.entries.iter().min_by(|one, two| last(one).total_cmp(&last(two))) else {
            return Vec::new();
        };
        // What a policy saves over the reference is its result, however little.
        let reference = self.reference().map(|reference| reference.policy);
        let negligible = |other: &Entry<'a>| {
            if Some(other.policy) == reference { 0.0 } else { self.negligible_cycles() }
        };
        let is_less = |other: &Entry<'a>| {
            let negligible = negligible(other);
            let differs =
                |(best, other): (f64, f64)| best * (1.0 + MIN_DIFFERENCE_RATIO) < other && best + negligible < other;
            of(first).into_iter().zip(of(other)).all(differs)
        };
        let equal = self.entries.iter().filter(|other| other.policy != first.policy && !is_less(other));
        let mut best: Vec<Entry<'a>> = std::iter::once(first).chain(equal).copied().collect();
        let memory = |entry: &Entry<'a>| entry.cost.resident_peak_bytes;
        if let Some(least) = best.iter().map(memory).min()
            && memory(first) as f64 > least as f64 * THRIFTY_RATIO
        {
            // The sort is stable: of those with about the least memory, the first remains the one with the fewest cycles.
            best.sort_by_key(|entry| memory(entry) as f64 > least as f64 * THRIFTY_RATIO);
        }
        best
    }

    /// Cycles that make no difference to the program's time; 0 if the time is unknown.
    fn negligible_cycles(&self) -> f64 {
        let cycles = self.reference().and_then(|reference| self.time.cycles(reference.cost));
        cycles.map_or(0.0, |cycles| cycles * NEGLIGIBLE_RATIO)
    }

    /// The first sentence if the share of translation in the time is unknown.
    fn of_translation_alone(&self, best: &[Entry<'a>], reference: Entry<'a>) -> String {
        let count = self.entries.len();
        let equal = || format!("equal within what the model can tell ({})", self.why_equal(best));
        match best {
            [first] => format!(
                "{} is the best of {count} policies on {}: {}",
                first.policy,
                self.name,
                less(*first, reference)
            ),
            [first, ..] => {
                let names = enumerate(&names(best));
                format!(
                    "{names} have the least translation of {count} policies on {}, {}: {} has {}",
                    self.name,
                    equal(),
                    first.policy,
                    less(*first, reference)
                )
            }
            [] => "no answer".to_owned(),
        }
    }

    /// Why policies are called equal: their counts are close, or which is better depends on how far walks overlap.
    fn why_equal(&self, best: &[Entry<'a>]) -> String {
        let percent = figure::plain(MIN_DIFFERENCE_RATIO * 100.0);
        let extremes = |bound: usize| {
            let lost = best.iter().map(|entry| entry.lost()[bound]);
            lost.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), lost| (least.min(lost), most.max(lost)))
        };
        let is_near = |(least, most): (f64, f64)| least * (1.0 + MIN_DIFFERENCE_RATIO) >= most;
        let is_negligible = |(least, most): (f64, f64)| most - least <= self.negligible_cycles();
        let bounds = [extremes(0), extremes(1)];
        if bounds.into_iter().all(is_near) {
            format!("{percent} %")
        } else if bounds.into_iter().all(|bound| is_near(bound) || is_negligible(bound)) {
            format!("{} % of the time", figure::plain(NEGLIGIBLE_RATIO * 100.0))
        } else {
            format!("{percent} %, or how far walks overlap decides")
        }
    }

    /// `with faults, zeroing and copying, whose cost is assumed`
    fn with_faults(&self) -> &'static str {
        if self.figures().any(|figure| is_of_kernel(figure) && is_assumed(figure)) {
            "with faults, zeroing and copying, whose cost is assumed"
        } else {
            "with faults, zeroing and copying"
        }
    }

    /// The result including the kernel's cycles. `first`: the best policy by translation alone.
    fn of_the_kernel(
        &self,
        reference: Entry<'a>,
        first: Entry<'a>,
        cycles: Option<f64>,
        names: &mut Vec<String>,
    ) -> String {
        if self.entries.iter().any(|entry| entry.cost.kernel.is_none()) {
            return "The cost of faults, zeroing and copying is not known: the machine file has no [kernel_costs]"
                .to_owned();
        }
        let best = self.best(|entry| [entry.with_kernel().unwrap_or(f64::INFINITY)]);
        *names = self::names(&best);
        let percent = figure::plain(MIN_DIFFERENCE_RATIO * 100.0);
        let cheapest = match &best[..] {
            [one] => format!("{} has the fewest cycles", one.policy),
            several => format!("{} have the fewest cycles, equal within {percent} %", enumerate(&self::names(several))),
        };
        let shown = best.first().copied().filter(|best| best.policy != reference.policy).unwrap_or(first);
        let change = cycles.filter(|_| shown.policy != reference.policy).map_or(String::new(), |cycles| {
            let saved = self.saved(shown, reference, cycles);
            format!("; {} takes {} time than {}", shown.policy, change_in_words(saved), reference.policy)
        });
        let with = self.with_faults();
        format!("W{}, {cheapest}{change}", &with[1..])
    }

    /// Which figures of this machine are assumed, and what is assumed for every machine.
    fn assumed(&self) -> String {
        let hidden = "that a core waits for each walk and each hit of the second level, one after the other";
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

    /// A sentence if a large part of the lost cycles are hits in the second-level TLB, which no larger second level saves.
    fn hits_of_second_level(&self, entry: Entry<'_>) -> Option<String> {
        let hits = entry.cost.figure("second_hit_cycles")? as f64;
        let share = hits / entry.cost.max_lost_cycles.max(1) as f64;
        let mut costs = self.figures().filter(|figure| figure.key.ends_with(HIT_CYCLES) && figure.value != "0");
        let cost = costs.next().filter(|first| costs.all(|other| other.value == first.value));
        let cost = cost.map_or(String::new(), |cost| {
            let basis = if is_assumed(cost) { ", which is assumed" } else { "" };
            format!(" at {} cycles each{basis}", cost.value)
        });
        (share > MIN_HITS_RATIO).then(|| {
            format!(
                "Under {}, {} of the lost cycles are hits in the second level{cost}{}; the rest are walks",
                entry.policy,
                percent(share),
                of_stores(entry.cost)
            )
        })
    }

    fn figures(&self) -> impl Iterator<Item = &'a MachineFigure> {
        self.machine.into_iter().flat_map(|machine| &machine.figures)
    }
}

/// The share of the lost cycles from which hits in the second-level TLB are named.
const MIN_HITS_RATIO: f64 = 0.2;
/// The share of hits in the second-level TLB from which those of stores are named.
const MIN_STORES_RATIO: f64 = 0.5;

/// Prefixes of keys in a machine file, each with the part of the machine that the keys describe.
const PARTS: [(&str, &str); 6] = [
    ("formats", "page tables"),
    ("tlb[", "TLBs"),
    ("walk_cache[", "caches of walks"),
    ("walker", "walker"),
    ("stage2", "second stage"),
    (KERNEL, "the kernel's costs"),
];
const KERNEL: &str = "kernel_costs";
const HIT_CYCLES: &str = ".hit_cycles";

fn is_of_kernel(figure: &MachineFigure) -> bool {
    figure.key.starts_with(KERNEL)
}

fn is_assumed(figure: &MachineFigure) -> bool {
    matches!(figure.provenance, Provenance::Assumed(_))
}

fn names(entries: &[Entry<'_>]) -> Vec<String> {
    entries.iter().map(|entry| entry.policy.to_owned()).collect()
}

/// `72 %`, `>99 %`
fn percent(share: f64) -> String {
    if share > 0.995 { ">99 %".to_owned() } else { format!("{} %", figure::significant(share * 100.0, 2)) }
}

/// `, 72 % of them of stores, whose misses a store buffer can hide`, if most hits in the second-level TLB are of stores. Only a machine
/// with a first-level TLB for stores alone counts them.
fn of_stores(cost: &Cost) -> String {
    let hits = |of: &str| {
        let misses = |level: &str| cost.figure(&format!("{level}_level_misses{of}")).unwrap_or_default();
        misses("first").saturating_sub(misses("second")) as f64
    };
    let share = hits(", store") / hits("").max(1.0);
    if share > MIN_STORES_RATIO {
        format!(", {} of them of stores, whose misses a store buffer can hide", percent(share))
    } else {
        String::new()
    }
}

/// `85.0 % less translation time than base (0.169 cycles per 1000 instructions against 1.125), for about the same peak memory
/// (4.96M against 4.88M); held on 97 % of the memory`
fn less(best: Entry<'_>, reference: Entry<'_>) -> String {
    let lost = |entry: Entry<'_>| entry.cost.max_lost_cycles;
    if best.policy == reference.policy {
        return lost_in_words(best.cost, lost(best));
    }
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

/// A sentence if the model's bound on translation exceeds the program's time.
fn contradicted(reference: Entry<'_>, cycles: f64) -> Option<String> {
    (reference.cost.max_lost_cycles as f64 > cycles).then(|| {
        "Translation alone would take longer than that time: walks overlap, or the time is of a faster processor, so the share says \
         little"
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
