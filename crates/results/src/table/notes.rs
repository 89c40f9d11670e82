//! Notes below the table of a comparison ([`Note`]): what a reader must know about the figures.

use policy::Granularity;
use policy::cause::{Cause, CauseShare};
use policy::verdict::Holding;
use study::comparison::{Comparison, Khugepaged};
use study::stats::{Outcome, Warning};

use crate::rows::{self, Row, concerns_the_peak};
use crate::text::{enumerate, printable, times};
use crate::{figure, fragmented, variants};

/// Name of the line for the tracer's cost.
pub const COST: &str = "tracing";

/// A note that accompanies the figures.
pub(crate) struct Note {
    /// The note in the full table: its lead, and a line for each cause.
    pub full: Vec<String>,
    /// The note on the first screen; absent if the result reads the same without it.
    pub brief: Option<String>,
}

impl Note {
    fn full(line: String) -> Note {
        Note { full: vec![line], brief: None }
    }

    fn both(line: String) -> Note {
        Note { full: vec![line.clone()], brief: Some(line) }
    }

    /// The number of lines that only the full table shows.
    pub fn hidden(&self) -> usize {
        // A brief note shows the lead and the first cause.
        let shown = if self.brief.is_some() { 2 } else { 0 };
        self.full.len().saturating_sub(shown)
    }
}

/// The notes of a comparison.
pub(crate) fn notes(comparison: &Comparison, rows: &[Row<'_>]) -> Vec<Note> {
    let mut notes: Vec<Note> =
        variants::parts(comparison).iter().flat_map(variants::Part::lines).map(Note::both).collect();
    let builds = variants::builds(comparison).into_iter();
    notes.extend(builds.map(|[name, command, hash]| Note::full(format!("{name}: {command}, build {hash}"))));
    notes.extend(cost_note(comparison, rows).map(Note::full));
    // The note about memory that no policy changes comes before the causes of the other memory.
    let is_shared = |warning: &&(&Warning, Option<String>)| matches!(warning.0, Warning::SharedMemory { .. });
    let warnings = rows::warnings(comparison);
    notes.extend(warnings.iter().filter(is_shared).map(|warning| of_warning(comparison, rows, warning)));
    notes.extend(rows.iter().flat_map(|row| row_notes(row, &comparison.design.primary)));
    notes.extend(of_khugepaged(comparison, rows).map(Note::full));
    notes.extend(of_fragments(comparison, rows).into_iter().map(Note::both));
    notes.extend(of_processors(comparison).map(Note::full));
    notes.extend(
        warnings.iter().filter(|warning| !is_shared(warning)).map(|warning| of_warning(comparison, rows, warning)),
    );
    notes
}

fn of_warning(comparison: &Comparison, rows: &[Row<'_>], (warning, remedy): &(&Warning, Option<String>)) -> Note {
    let sentence = printable(&warning.describe(&comparison.design.arms));
    let remedy = remedy.as_ref().map(|remedy| format!("; {}", printable(remedy))).unwrap_or_default();
    let line = format!("warning: {sentence}{remedy}");
    if warning.affects_interpretation() {
        return Note::both(line);
    }
    let brief = may_hide_a_gain(rows, warning)
        .then(|| "warning: first touches of large pages can fault in the hypervisor (--full: why)".to_owned());
    Note { full: vec![line], brief }
}

/// Whether a warning may explain why large pages that the program got show no gain here: touching them for the first time makes
/// the hypervisor fault.
fn may_hide_a_gain(rows: &[Row<'_>], warning: &Warning) -> bool {
    let is_large_without_gain = |row: &Row<'_>| {
        let is_large = matches!(row.arm.policy.granularity, Granularity::Thp | Granularity::Mthp(_));
        let shows_none = row.analysis.is_some_and(|analysis| {
            matches!(
                analysis.outcome,
                Outcome::Worse | Outcome::Equivalent | Outcome::Undecided { .. } | Outcome::WithinTracerCost
            )
        });
        is_large && shows_none && row.holding() != Some(Holding::NotHeld)
    };
    matches!(warning, Warning::FreeMemoryReported { .. }) && rows.iter().any(is_large_without_gain)
}

/// How khugepaged was controlled. If it was not controlled and was active, how it can be.
fn of_khugepaged(comparison: &Comparison, rows: &[Row<'_>]) -> Option<String> {
    let was_at_work = rows.iter().any(|row| row.collapses().is_some_and(|collapses| collapses.trials > 0));
    match comparison.design.khugepaged {
        Khugepaged::Off => Some(format!("khugepaged was {}", figure::khugepaged(&comparison.design))),
        Khugepaged::AsIs if was_at_work => {
            Some("khugepaged wakes up in some trials and not in others: --khugepaged off holds it still".to_owned())
        }
        Khugepaged::AsIs => None,
    }
}

/// How free memory was fragmented, and how scarce large pages were for each arm.
fn of_fragments(comparison: &Comparison, rows: &[Row<'_>]) -> Vec<String> {
    let notes = fragmented::notes(comparison);
    if notes.is_empty() {
        return Vec::new();
    }
    let scarce = rows.iter().filter_map(|row| Some(format!("{}: {}", row.label(), row.scarcity()?.describe()?)));
    notes.into_iter().chain(scarce).collect()
}

/// Whether each run had a session of its own, and how much processor time other work left.
fn of_processors(comparison: &Comparison) -> impl Iterator<Item = String> {
    let Comparison { design, invocation, .. } = comparison;
    let session = design.own_session.as_ref().map(|own| {
        let remedy = own.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        format!("{}{remedy} (--own-session)", printable(&own.describe()))
    });
    session.into_iter().chain(design.contention.as_ref().and_then(|load| load.advice(invocation.client.is_some())))
}

/// Explains the lines with the tracer's cost.
fn cost_note(comparison: &Comparison, rows: &[Row<'_>]) -> Option<String> {
    let primary = &comparison.design.primary;
    comparison.analysis.as_ref()?.arms.get(comparison.design.bare()?)?.medians.get(primary)?;
    let baseline = rows.iter().find(|row| row.index == comparison.design.baseline)?;
    baseline.cost(primary)?;
    let others = rows.iter().filter(|row| row.index != baseline.index && row.unsupported().is_none());
    let (own, same): (Vec<&Row<'_>>, Vec<&Row<'_>>) = others.partition(|row| row.cost(primary).is_some());
    let names = |rows: &[&Row<'_>]| enumerate(&rows.iter().map(|row| row.label()).collect::<Vec<_>>());
    let own = if own.is_empty() {
        String::new()
    } else {
        format!("; of {} against {}, by runs with the same stops (sham)", names(&own), baseline.label())
    };
    let same = match &same[..] {
        [] => String::new(),
        [one] => format!("; {} stops about as often as {}", one.label(), baseline.label()),
        same => format!("; {} stop about as often as {}", names(same), baseline.label()),
    };
    Some(format!(
        "{COST}: the change of {} caused by the tracer's stops: {} against a run without a tracer (bare)\
         {own}{same}. A change that this could explain is not claimed",
        figure::title(primary),
        baseline.label()
    ))
}

fn row_notes(row: &Row<'_>, primary: &str) -> Vec<Note> {
    let label = row.label();
    if let Some(unsupported) = row.unsupported() {
        return vec![Note::full(format!("{label} is unsupported: {}", printable(&unsupported.to_string())))];
    }
    let mut notes = Vec::new();
    if let Some(Outcome::WrongAnswer { message }) = row.analysis.map(|analysis| &analysis.outcome) {
        notes.push(Note::full(format!("{label} gave a wrong answer: {}", printable(message))));
    }
    if let Some(message) = &row.too_slow {
        let line = format!("{label} {message}; it was not run again, because that would take as long");
        notes.push(Note::full(line));
    }
    if row.analysis.is_some_and(|analysis| analysis.outcome == Outcome::WithinTracerCost) {
        let cost = row.cost(primary).map(|cost| format!(" ({})", cost.estimate())).unwrap_or_default();
        notes.push(Note::both(format!("{label}: {}{cost} could have caused or hidden its change", row.outcome())));
    }
    notes.extend(not_in_force(row).map_or_else(|| causes_of_the_run(row), |note| vec![note]));
    for answered in row.answered() {
        let call = printable(&answered.call);
        let line = format!("{label}: answered by the tracer, not the kernel: {call} ({} a run)", times(answered.times));
        notes.push(Note::full(line));
    }
    let collapses = row.collapses().and_then(|collapses| collapses.describe());
    notes.extend(collapses.map(|what| Note::full(format!("{label}: {what}"))));
    notes
}

/// Why a policy was not shown to be in force; `None` if it was, or if the policy requests nothing.
fn not_in_force(row: &Row<'_>) -> Option<Note> {
    let spread = row.spread().map(|spread| format!(" {spread}")).unwrap_or_default();
    let lead = match (row.holding()?, row.coverage_ratio()) {
        (Holding::Held | Holding::NotAsked, _) => return None,
        (Holding::Unknown, _) => format!("{}: not known whether it was in force", row.label()),
        (_, Some(ratio)) => {
            format!("{} was in force on {} of the memory{spread}", row.label(), figure::share(ratio))
        }
        (_, None) => format!("{} was not in force", row.label()),
    };
    let causes = row.causes();
    let is_remedied = |share: &CauseShare| !concerns_the_peak(&share.cause) && row.remedy(&share.cause).is_some();
    let remedies = if causes.iter().any(is_remedied) { "; the remedies of its causes were not tried:" } else { "" };
    let clauses: Vec<String> = causes.iter().map(|share| clause(row, share)).collect();
    let brief = match &clauses[..] {
        [] => lead.clone(),
        [first, ..] => format!("{lead}: {first}"),
    };
    let items = clauses.into_iter().map(|clause| format!("  - {clause}"));
    Some(Note { full: std::iter::once(format!("{lead}{remedies}")).chain(items).collect(), brief: Some(brief) })
}

/// Notes on causes of a policy that held: only causes that concern the whole run.
fn causes_of_the_run(row: &Row<'_>) -> Vec<Note> {
    let concerns_the_run =
        |share: &CauseShare| share.bytes.is_none() || matches!(share.cause, Cause::ProcessUnseen { .. });
    let line = |share: &CauseShare| Note::full(format!("{}: {}", row.label(), clause(row, share)));
    row.causes().iter().filter(|share| concerns_the_run(share)).map(line).collect()
}

fn clause(row: &Row<'_>, share: &CauseShare) -> String {
    if concerns_the_peak(&share.cause) { peak_clause(row, &share.cause) } else { row.cause_clause(share) }
}

/// A cause that concerns the peak, with the share of the peak that was inspected.
fn peak_clause(row: &Row<'_>, cause: &Cause) -> String {
    let seen = row.peak_seen().map(|seen| format!(" ({seen} at the peak)")).unwrap_or_default();
    let remedy = row.remedy(cause).map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{}{seen}{remedy}", cause.describe())
}
