//! The counted work of a study ([`CountedCosts`]): its tables, and what they say about the origin's claim. Counted work is
//! events, such as entries read or tables built, which a study file weighs with a cost each.

use policy::size::format_bytes;
use serde_json::{Value, json};
use study_files::counted::{Basis, Cost, Counted, Place, Range, Reproduction, Row, Saving, Table};
use study_files::matrix::Claim;

use super::cells::Sheet;
use crate::text::enumerate;

/// Counted events and their cost.
#[derive(Clone, Debug)]
pub struct CountedCosts<'a> {
    /// What is counted: phases, backings, variants, costs and published figures.
    pub counted: &'a Counted,
    /// The cost of each phase and variant; empty if nothing has been counted yet.
    pub table: Table,
}

impl CountedCosts<'_> {
    /// Each published saving with the saving found here.
    pub fn sets(&self) -> Vec<Reproduction> {
        self.counted.published.iter().map(|figure| Reproduction::of(figure, &self.table)).collect()
    }

    /// The variants after the first, which are compared with it.
    fn others(&self) -> &[String] {
        self.counted.variants.get(1..).unwrap_or_default()
    }

    fn first(&self) -> &str {
        self.counted.variants.first().map_or("", String::as_str)
    }

    /// The variant after the first, if anything was counted.
    fn compared(&self) -> Option<&String> {
        self.others().first().filter(|_| !self.table.rows.is_empty())
    }

    /// The phases for which the time that a variant saves was published; all phases if there is none.
    fn published_phases(&self) -> Vec<&str> {
        let is_published = |phase: &&str| {
            self.counted.published.iter().any(|figure| figure.phase == *phase && !figure.is_of_instructions)
        };
        let (published, others): (Vec<&str>, Vec<&str>) = self.table.phases().into_iter().partition(is_published);
        if published.is_empty() { others } else { published }
    }

    /// The names of the published rounds of measurements that have a figure for this phase.
    pub(super) fn rounds(&self, phase: &str) -> Vec<&str> {
        let mut rounds: Vec<&str> = Vec::new();
        for figure in self.counted.published.iter().filter(|figure| figure.phase == phase) {
            if !rounds.contains(&figure.what.as_str()) {
                rounds.push(&figure.what);
            }
        }
        rounds
    }

    /// The saving that a round published.
    pub(super) fn of_round(&self, round: &str, phase: &str, backing: &str, variant: &str) -> Option<&str> {
        let place = (round, phase, backing, variant);
        let mut figures = self.counted.published.iter();
        let own = figures
            .find(|one| (one.what.as_str(), one.phase.as_str(), one.backing.as_str(), one.variant.as_str()) == place);
        own.map(|figure| figure.change.as_str())
    }

    /// The rows of the origin's table for a phase and a variant, one cell per backing: one row for each granule, then
    /// the average, the average by instructions only, and the published figures.
    pub(super) fn lines(&self, phase: &str, variant: &str) -> Vec<(String, Vec<String>)> {
        let backings = self.table.backings();
        let of_granule = |granule: &&str| {
            let cell = |backing: &&str| {
                let mut rows = self.table.of_granules(phase, backing, variant);
                saved(rows.find(|row| row.granule == *granule).and_then(|row| row.saving).map(|saving| saving.time))
            };
            ((*granule).to_owned(), backings.iter().map(cell).collect())
        };
        let averaged = |name: &str, of: fn(Saving) -> Range| {
            let cell = |backing: &&str| saved(self.table.average(phase, backing, variant).map(of));
            (name.to_owned(), backings.iter().map(cell).collect())
        };
        let published = |round: &&str| {
            let cell = |backing: &&str| self.of_round(round, phase, backing, variant).map(percent).unwrap_or_default();
            ((*round).to_owned(), backings.iter().map(cell).collect::<Vec<String>>())
        };
        let (granules, rounds) = (self.table.granules(), self.rounds(phase));
        let own = granules.iter().map(of_granule);
        let means =
            [averaged("average", |saving| saving.time), averaged("by instructions", |saving| saving.instructions)];
        let kernels = self.counted.kernels.iter().map(|kernels| {
            let cell = |backing: &&str| kernels.change(phase, backing, variant).map(percent).unwrap_or_default();
            (kernels.what.clone(), backings.iter().map(cell).collect::<Vec<String>>())
        });
        let published = rounds.iter().map(published).chain(kernels);
        own.chain(means).chain(published.filter(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()))).collect()
    }
}

/// `24.1 to 48.0`, in per cent; a single figure if both ends are the same.
pub(super) fn saved(range: Option<Range>) -> String {
    let Some(Range { low, high }) = range else { return "none".to_owned() };
    let percent = |share: f64| format!("{:.1}", 100.0 * share).replace("-0.0", "0.0");
    match (percent(low), percent(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    }
}

/// The tables in the origin's form: a summary, and one per phase.
pub fn of_origin(counted_costs: &CountedCosts<'_>) -> Vec<Sheet> {
    let of_variant = |phase: &str, variant: &String| {
        let line = |(name, cells): (String, Vec<String>)| [vec![variant.clone(), name], cells].concat();
        counted_costs.lines(phase, variant).into_iter().map(line).collect::<Vec<_>>()
    };
    let sheet = |phase: &str| Sheet {
        caption: format!(
            "{} of {}, {phase}: time saved against {}, %, modelled: counts are exact, and weighed with the costs below. A \
             range holds for every choice of costs. By instructions: as if they alone took time. Below: what was published",
            counted_costs.counted.what,
            format_bytes(counted_costs.counted.bytes),
            counted_costs.first()
        ),
        header: ["variant", "granule"].into_iter().chain(counted_costs.table.backings()).map(str::to_owned).collect(),
        rows: counted_costs.others().iter().flat_map(|variant| of_variant(phase, variant)).collect(),
    };
    summary(counted_costs).into_iter().chain(counted_costs.table.phases().into_iter().map(sheet)).collect()
}

/// Further tables: visits and time, published figures and their sources, costs.
pub fn others(counted_costs: &CountedCosts<'_>) -> Vec<Sheet> {
    if counted_costs.table.rows.is_empty() {
        Vec::new()
    } else {
        vec![of_time(counted_costs), of_published(counted_costs), of_rounds(counted_costs), of_costs(counted_costs)]
    }
}

fn of_time(counted_costs: &CountedCosts<'_>) -> Sheet {
    let variants = &counted_costs.counted.variants;
    let titles = variants.iter().map(|variant| format!("{variant}: visits, ms"));
    let first = counted_costs.first();
    let line = |row: &Row| {
        let cell = |variant: &String| {
            let mut rows = counted_costs.table.of_granules(&row.phase, &row.backing, variant);
            let own = rows.find(|other| other.granule == row.granule);
            own.map_or(String::new(), |own| format!("{}, {}", own.visits, milliseconds(own.time_s)))
        };
        let start = [row.phase.clone(), row.backing.clone(), row.granule.clone()];
        start.into_iter().chain(variants.iter().map(cell)).collect()
    };
    Sheet {
        caption: format!(
            "{} of {}: entries visited, exact, and time, modelled",
            counted_costs.counted.what,
            format_bytes(counted_costs.counted.bytes)
        ),
        header: ["phase", "backing", "granule"].map(str::to_owned).into_iter().chain(titles).collect(),
        rows: counted_costs.table.rows.iter().filter(|row| row.variant == first).map(line).collect(),
    }
}

fn milliseconds(Range { low, high }: Range) -> String {
    let ms = |seconds: f64| match seconds * 1e3 {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 1.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    };
    format!("{} to {}", ms(low), ms(high))
}

fn of_published(counted_costs: &CountedCosts<'_>) -> Sheet {
    let header = ["published", "of", "change there", "saved here, %", "result"];
    let line = |set: Reproduction| {
        let figure = &set.figure;
        let kind = if figure.is_of_instructions { ", instructions" } else { "" };
        vec![
            figure.what.clone(),
            format!("{}, {}, {}", figure.phase, figure.backing, figure.variant),
            figure.change.clone(),
            format!("{}{kind}", saved(set.found)),
            set.place.describe().to_owned(),
        ]
    };
    Sheet {
        caption: format!("Published savings and the model's averages over granules ({})", counted_costs.counted.what),
        header: header.map(str::to_owned).to_vec(),
        rows: counted_costs.sets().into_iter().map(line).collect(),
    }
}

fn of_rounds(counted_costs: &CountedCosts<'_>) -> Sheet {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for figure in &counted_costs.counted.published {
        let row = vec![figure.what.clone(), figure.source.clone(), figure.differs.clone().unwrap_or_default()];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    Sheet {
        caption: "Where these figures were published, and why ours can differ".to_owned(),
        header: ["published", "source", "figures can differ because"].map(str::to_owned).to_vec(),
        rows,
    }
}

fn of_costs(counted_costs: &CountedCosts<'_>) -> Sheet {
    let costs = &counted_costs.counted.costs;
    let pace = &costs.instruction;
    let first = ["instruction".to_owned(), String::new(), span(pace.ns)].into_iter();
    let first = first.chain([pace.basis.word().to_owned(), pace.source.clone()]).collect();
    let line = |cost: &Cost| {
        let figures = [cost.event.clone(), span(cost.instructions), span(cost.ns)].into_iter();
        figures.chain([cost.basis.word().to_owned(), cost.source.clone()]).collect()
    };
    Sheet {
        caption: format!("What an event of {} costs: instructions and nanoseconds", counted_costs.counted.what),
        header: ["event", "instructions", "ns", "basis", "source"].map(str::to_owned).to_vec(),
        rows: std::iter::once(first).chain(costs.events.iter().map(line)).collect(),
    }
}

/// The cost of each event and its basis, in words.
pub(super) fn costs_in_words(counted_costs: &CountedCosts<'_>) -> Vec<String> {
    let costs = &counted_costs.counted.costs;
    let pace = &costs.instruction;
    let first = format!("an instruction {} ns ({}: {})", span(pace.ns), pace.basis.word(), pace.source);
    let event_cost = |cost: &Cost| {
        let instructions = Some(cost.instructions).filter(|range| range.high > 0.0);
        let ns = Some(cost.ns).filter(|range| range.high > 0.0);
        let parts = [(instructions, "instructions"), (ns, "ns")];
        let parts = parts.into_iter().filter_map(|(range, unit)| Some(format!("{} {unit}", span(range?))));
        let parts = parts.collect::<Vec<_>>().join(" and ");
        format!("{} {parts} ({}: {})", cost.event, cost.basis.word(), cost.source)
    };
    std::iter::once(first).chain(costs.events.iter().map(event_cost)).collect()
}

fn span(Range { low, high }: Range) -> String {
    match (low, high) {
        (0.0, 0.0) => "0".to_owned(),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low} to {high}"),
    }
}

/// `skip-level3 takes less time than vanilla (modelled, average over granules): at enable 21 to 48 % on pages, ...`: the saving of
/// the second variant in each published phase, without a full stop. `None` if nothing was counted.
pub fn answer(counted_costs: &CountedCosts<'_>) -> Option<String> {
    let variant = counted_costs.compared()?;
    let of_phase = |phase: &&str| {
        let saving = |backing: &str| {
            let Range { low, high } = counted_costs.table.average(phase, backing, variant)?.time;
            Some(format!("{:.0} to {:.0} % on {backing}", 100.0 * low, 100.0 * high))
        };
        let savings: Vec<String> = counted_costs.table.backings().into_iter().filter_map(saving).collect();
        (!savings.is_empty()).then(|| format!("at {phase} {}", enumerate(&savings)))
    };
    let phases: Vec<String> = counted_costs.published_phases().iter().filter_map(of_phase).collect();
    let first = counted_costs.first();
    (!phases.is_empty()).then(|| {
        format!("{variant} takes less time than {first} (modelled, average over granules): {}", phases.join("; "))
    })
}

/// The first saving of the answer, for a title.
pub fn title(counted_costs: &CountedCosts<'_>) -> Option<String> {
    let variant = counted_costs.compared()?;
    let phase = *counted_costs.published_phases().first()?;
    let backing = *counted_costs.table.backings().first()?;
    let saving = saved(Some(counted_costs.table.average(phase, backing, variant)?.time));
    Some(format!("{variant} saves {saving} % of the time of {phase} on {backing}, modelled"))
}

/// The additional saving of each further variant over the one before it: one sentence each.
pub fn sentences(counted_costs: &CountedCosts<'_>) -> Vec<String> {
    let others = counted_costs.others();
    let of_pair = |pair: &[String]| {
        let [before, variant] = pair else { return None };
        let rows = counted_costs.table.rows.iter().filter(|row| row.variant == *variant);
        let ranges = rows.filter_map(|row| row.saving.and_then(|saving| saving.beyond));
        let most = ranges.map(|range| range.high).reduce(f64::max)?;
        Some(format!(
            "{variant}, modelled: takes at most {:.2} % less time than {before}, in any phase and on any granule.",
            100.0 * most
        ))
    };
    others.windows(2).filter_map(of_pair).collect()
}

/// What the second variant saves in each published phase, on each backing: instructions of patched kernels, the model's time,
/// and the published rounds. `None` if nothing was counted.
pub(super) fn summary(counted_costs: &CountedCosts<'_>) -> Option<Sheet> {
    let variant = counted_costs.compared()?;
    let (phases, backings) = (counted_costs.published_phases(), counted_costs.table.backings());
    let mut rounds: Vec<&str> = Vec::new();
    for round in phases.iter().flat_map(|phase| counted_costs.rounds(phase)) {
        if !rounds.contains(&round) {
            rounds.push(round);
        }
    }
    let kernels = counted_costs.counted.kernels.as_ref();
    let line = |phase: &str, backing: &str| {
        let of_kernels =
            kernels.map(|kernels| kernels.change(phase, backing, variant).map(percent).unwrap_or_default());
        let model = saved(counted_costs.table.average(phase, backing, variant).map(|saving| saving.time));
        let published = rounds
            .iter()
            .map(|round| counted_costs.of_round(round, phase, backing, variant).map(percent).unwrap_or_default());
        [format!("{phase}, {backing}")].into_iter().chain(of_kernels).chain([model]).chain(published).collect()
    };
    let header = ["calls, memory".to_owned()].into_iter();
    let header = header.chain(kernels.map(|kernels| kernels.what.clone())).chain(["model".to_owned()]);
    let note =
        kernels.map(|kernels| format!("; {}: instructions, {}", kernels.what, kernels.source)).unwrap_or_default();
    Some(Sheet {
        caption: format!(
            "Saved by {variant} against {}, %: by the model, of the time, averaged over granules; and as published{note}",
            counted_costs.first()
        ),
        header: header.chain(rounds.iter().map(|round| (*round).to_owned())).collect(),
        rows: phases.iter().flat_map(|phase| backings.iter().map(move |backing| line(phase, backing))).collect(),
    })
}

/// A change as a saving: `33.1` for `-33.1%`, `-5` for `+5%`.
fn percent(change: &str) -> String {
    let number = change.trim_end_matches('%');
    match number.strip_prefix('+') {
        Some(more) => format!("-{more}"),
        None => number.trim_start_matches('-').to_owned(),
    }
}

/// What the counted work says about the origin's claim. Because each cost is a range, the result shows only whether a
/// published figure is possible. So it never confirms a size, and it shows a direction only if the range does not
/// contain zero.
pub fn judge_claim(counted_costs: &CountedCosts<'_>) -> Claim {
    let sets = counted_costs.sets();
    let found: Vec<(f64, Range)> = sets.iter().filter_map(|set| Some((set.figure.saved, set.found?))).collect();
    let is_for = |(published, range): &(f64, Range)| if *published > 0.0 { range.low > 0.0 } else { range.high < 0.0 };
    let is_against =
        |(published, range): &(f64, Range)| if *published > 0.0 { range.high < 0.0 } else { range.low > 0.0 };
    if sets.is_empty() {
        Claim::NothingPublished
    } else if found.is_empty() {
        Claim::Undecided
    } else if found.iter().all(is_for) {
        Claim::Direction
    } else if found.iter().any(is_against) && !found.iter().any(is_for) {
        Claim::Contradicted
    } else {
        Claim::Undecided
    }
}

/// Whether the origin's claim is confirmed, contradicted or undecided here, as a sentence.
pub fn claim(counted_costs: &CountedCosts<'_>) -> String {
    let conclusion = judge_claim(counted_costs).describe();
    if counted_costs.table.rows.is_empty() {
        return format!(
            "The origin's claim is, here, {conclusion}: {} has not been counted yet.",
            counted_costs.counted.what
        );
    }
    let sets = counted_costs.sets();
    let count = |place: Place| sets.iter().filter(|set| set.place == place).count();
    let places = [Place::Within, Place::Above, Place::Below, Place::NotCounted];
    let counted: Vec<String> = places
        .into_iter()
        .filter(|place| count(*place) > 0)
        .map(|place| format!("{} {} {}", count(place), if count(place) == 1 { "is" } else { "are" }, place.describe()))
        .collect();
    let costs = &counted_costs.counted.costs;
    let bases: Vec<Basis> = costs.events.iter().map(|cost| cost.basis).chain([costs.instruction.basis]).collect();
    let width = match bases.iter().filter(|basis| **basis == Basis::Assumed).count() {
        0 => String::new(),
        1 => format!("; the ranges are wide, because 1 of {} costs is assumed", bases.len()),
        assumed => format!("; the ranges are wide, because {assumed} of {} costs are assumed", bases.len()),
    };
    let note = counted_costs.counted.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    format!(
        "The origin's claim is, here, {conclusion}: of {} published figures {}{width}{note}.",
        sets.len(),
        counted.join(", ")
    )
}

/// Known reasons why the figures here may differ from the published ones.
pub fn differences(counted_costs: &CountedCosts<'_>) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for reason in counted_costs.counted.published.iter().filter_map(|figure| figure.differs.clone()) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// The counted work as a part of the JSON document.
pub fn document(counted_costs: &CountedCosts<'_>) -> Value {
    let counted = counted_costs.counted;
    let average = |(phase, backing): (&str, &str), variant: &String| {
        let saving = counted_costs.table.average(phase, backing, variant)?;
        Some(json!({ "phase": phase, "backing": backing, "variant": variant, "saving": saving }))
    };
    let places = counted_costs.table.phases().into_iter().flat_map(|phase| {
        counted_costs.table.backings().into_iter().map(move |backing| (phase, backing)).collect::<Vec<_>>()
    });
    let averages = places.flat_map(|place| {
        counted_costs.others().iter().filter_map(|variant| average(place, variant)).collect::<Vec<_>>()
    });
    json!({
        "what": counted.what,
        "bytes": counted.bytes,
        "provenance": "modelled",
        "granules": counted.granules,
        "variants": counted.variants,
        "note": counted.note,
        "kernels": counted.kernels,
        "instruction": counted.costs.instruction,
        "costs": counted.costs.events,
        "rows": counted_costs.table.rows,
        "averages": averages.collect::<Vec<_>>(),
        "published": counted_costs.sets().iter().map(set).collect::<Vec<_>>(),
    })
}

fn set(set: &Reproduction) -> Value {
    let figure = &set.figure;
    json!({
        "what": figure.what,
        "phase": figure.phase,
        "backing": figure.backing,
        "variant": figure.variant,
        "is_of_instructions": figure.is_of_instructions,
        "published_saved_ratio": figure.saved,
        "source": figure.source,
        "saved_ratio": set.found,
        "says": set.place.describe(),
    })
}

#[cfg(test)]
mod tests;
