//! Notes that accompany the figures of the table.

use policy::cause::Cause;
use policy::verdict::Holding;
use study::comparison::{Comparison, Khugepaged};
use study::stats::Outcome;

use crate::rows::{self, Row, cause_clause};
use crate::text::{enumerate, printable, times};
use crate::{figure, fragmented, variants};

/// Unit of a cause's bytes, which are means per run.
const A_RUN: &str = " a run";

/// Name of the line for the tracer's cost.
pub const COST: &str = "cost";

/// The notes, one line each, separated from the table by an empty line.
pub fn notes(comparison: &Comparison, rows: &[Row<'_>]) -> Vec<String> {
    let mut notes: Vec<String> = variants::parts(comparison).iter().flat_map(variants::Part::lines).collect();
    notes.extend(
        variants::builds(comparison)
            .into_iter()
            .map(|[name, command, hash]| format!("{name}: {command}, build {hash}")),
    );
    notes.extend(cost_note(comparison, rows));
    notes.extend(rows.iter().flat_map(|row| row_notes(row, &comparison.design.primary)));
    notes.extend(of_khugepaged(comparison, rows));
    notes.extend(of_fragments(comparison, rows));
    for (warning, remedy) in rows::warnings(comparison) {
        let sentence = printable(&warning.describe(&comparison.design.arms));
        let remedy = remedy.map(|remedy| format!("; {}", printable(&remedy))).unwrap_or_default();
        notes.push(format!("warning: {sentence}{remedy}"));
    }
    if !notes.is_empty() {
        notes.insert(0, String::new());
    }
    notes
}

/// How khugepaged was controlled, or how it can be if it was active.
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

/// Explains the lines of the tracer's cost.
fn cost_note(comparison: &Comparison, rows: &[Row<'_>]) -> Option<String> {
    let primary = &comparison.design.primary;
    let bare = comparison.analysis.as_ref()?.arms.get(comparison.design.bare()?)?.medians.get(primary)?;
    let baseline = rows.iter().find(|row| row.index == comparison.design.baseline)?;
    baseline.cost(primary)?;
    let metric = figure::metric(&comparison.design.metrics, primary);
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
        "{COST}: tracing overhead, the change of {} caused by the tracer's stops: {} against a run without a tracer (bare, \
         {}){own}{same}. No change within it is claimed",
        figure::title(primary),
        baseline.label(),
        figure::short(*bare, metric.unit)
    ))
}

fn row_notes(row: &Row<'_>, primary: &str) -> Vec<String> {
    let label = row.label();
    if let Some(unsupported) = row.unsupported() {
        return vec![format!("{label} is unsupported: {}", printable(&unsupported.to_string()))];
    }
    let mut notes = Vec::new();
    if let Some(Outcome::WrongAnswer { message }) = row.analysis.map(|analysis| &analysis.outcome) {
        notes.push(format!("{label} gave a wrong answer: {}", printable(message)));
    }
    if let Some(message) = &row.too_slow {
        notes.push(format!("{label} {message}; it was not run again, because that would take as long"));
    }
    if row.analysis.is_some_and(|analysis| analysis.outcome == Outcome::WithinTracerCost) {
        let cost = row.cost(primary).map(|cost| format!(" ({})", cost.estimate())).unwrap_or_default();
        notes.push(format!("{label}: {}{cost} could have made or hidden its change", row.outcome()));
    }
    let short = matches!(row.holding(), Some(Holding::NotHeld | Holding::Partly | Holding::Unknown));
    if short {
        let spread = row.spread().map(|spread| format!(" {spread}")).unwrap_or_default();
        notes.push(format!("{label} was not shown to be in force: {}{spread}", row.verdict(" ")));
    }
    for share in row.causes() {
        // If the policy held, only causes that concern the whole run are mentioned.
        if matches!(share.cause, Cause::PeakUnseen | Cause::PeakUnwatched { .. } | Cause::PeakUncertain) {
            let lead = if short { "  - ".to_string() } else { format!("{label}: ") };
            notes.push(format!("{lead}{}", peak_clause(row, &share.cause)));
        } else if short {
            notes.push(format!("  - {}", cause_clause(&share, A_RUN)));
        } else if share.bytes.is_none() || matches!(share.cause, Cause::ProcessUnseen { .. }) {
            notes.push(format!("{label}: {}", cause_clause(&share, A_RUN)));
        }
    }
    for answered in row.answered() {
        let call = printable(&answered.call);
        notes
            .push(format!("{label}: answered by the tracer, not the kernel: {call} ({} a run)", times(answered.times)));
    }
    notes.extend(row.collapses().and_then(|collapses| collapses.describe()).map(|what| format!("{label}: {what}")));
    notes
}

/// A cause that concerns the peak, with the share of the peak that was inspected.
fn peak_clause(row: &Row<'_>, cause: &Cause) -> String {
    let seen = row.peak_seen().map(|seen| format!(" ({seen} at the peak)")).unwrap_or_default();
    let remedy = policy::remedy::of_cause(cause).map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{}{seen}{remedy}", cause.describe())
}
