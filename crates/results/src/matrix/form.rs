//! The result in the form of the origin's own table, next to the published figures.

use policy::size::format_bytes;
use serde_json::{Value, json};
use study::metric::{Direction, Metric, Unit};
use study_files::matrix::{Filled, FilledRow, Order};

use super::cells::{Sheet, change};
use super::{Report, further};
use crate::figure;

/// All tables in their origin's form.
pub(crate) fn of_origin(report: &Report<'_>) -> Vec<Sheet> {
    report.forms.iter().map(sheet).chain(further::of_origin(report.published_of_cells())).collect()
}

/// The table of one machine, one row per configuration.
fn sheet(form: &Filled) -> Sheet {
    let metric = figure::title(&form.metric);
    let columns = form.columns.iter().map(|(name, heading)| heading_of(name, heading));
    let start = ["configuration", "runs", metric.as_str(), "change", "published", "result"].map(str::to_owned);
    let line = |row: &FilledRow| {
        let here = match (&row.why_not, &row.effect) {
            (Some(why), _) => format!("none: {why}"),
            (None, Some(effect)) => change(effect),
            (None, None) => "0".to_owned(),
        };
        let published = row.reproduction.as_ref().map(|set| (set.published.change.clone(), set.describe())).unzip();
        let start = [row.name.clone(), row.runs.to_string(), in_form(row, &form.metric), here];
        let columns = [published.0.unwrap_or_default(), published.1.unwrap_or_default().to_owned()];
        start.into_iter().chain(columns).chain(form.columns.iter().map(|(name, _)| in_form(row, name))).collect()
    };
    Sheet {
        caption: format!(
            "In the origin's form, next to {}: changes against {:?} with 95 % intervals. {} Source: {}",
            form.machine,
            form.rows.first().map_or("", |row| row.name.as_str()),
            interleaving(form),
            form.source
        ),
        header: start.into_iter().chain(columns).collect(),
        rows: form.rows.iter().map(line).collect(),
    }
}

/// Which rows were measured in the same blocks as the first row.
fn interleaving(form: &Filled) -> String {
    let apart: Vec<&str> =
        form.rows.iter().filter(|row| !row.is_interleaved && row.runs > 0).map(|row| row.name.as_str()).collect();
    if apart.is_empty() {
        "All rows were measured in the same blocks.".to_owned()
    } else {
        format!(
            "Not measured in the same blocks as the first row, so their changes include drift of the machine: {}.",
            apart.join("; ")
        )
    }
}

/// Heading of a column.
pub(super) fn heading_of(name: &str, heading: &str) -> String {
    if heading == name { figure::title(name) } else { crate::text::printable(heading).to_string() }
}

/// The median of one metric in a row; empty if the row has none.
pub(super) fn in_form(row: &FilledRow, name: &str) -> String {
    let Some(value) = row.medians.get(name) else { return String::new() };
    let unit = figure::metric(&[], name).unit;
    match unit {
        Unit::Custom if name.ends_with("_bytes") => format_bytes(*value as u64),
        // Large figures are grouped by thousands; a median between two integers is not rounded.
        Unit::Custom if value.fract() == 0.0 || value.abs() >= 1000.0 => figure::long(*value, Unit::Count),
        Unit::Custom => figure::long(*value, Unit::Custom),
        _ => figure::short(*value, Metric::new(name, unit, Direction::Lower).unit),
    }
}

/// `boot_cpu_s against master, one region (each 95 % interval by itself): 2M, guards +2.9 % (+1.0 to +4.8); ...`: the changes of the
/// configurations that the origin ranks. `None` if none of them has a change.
pub(super) fn changes(form: &Filled) -> Option<String> {
    let (first, others) = form.rows.split_first()?;
    let (mut changes, mut missing) = (Vec::new(), Vec::new());
    for row in others.iter().filter(|row| row.is_ranked) {
        match row.effect.as_ref().filter(|_| row.why_not.is_none()) {
            Some(effect) if row.is_interleaved => changes.push(format!("{} {}", row.name, change(effect))),
            Some(effect) => changes.push(format!("{} {}, not in the same blocks", row.name, change(effect))),
            None => missing.push(row.name.as_str()),
        }
    }
    if changes.is_empty() {
        return None;
    }
    if !missing.is_empty() {
        changes.push(format!("no figure to compare for {}", missing.join(" and ")));
    }
    let (metric, confidence) = (figure::title(&form.metric), figure::confidence(0.95));
    Some(format!("{metric} against {} (each {confidence} interval by itself): {}", first.name, changes.join("; ")))
}

/// Whether the figures here are in the same order as the origin's, as a sentence.
pub(super) fn order(form: &Filled) -> String {
    let Order { pairs, alike, shown, against } = form.order;
    if pairs == 0 {
        return format!(
            "The origin's order cannot be judged on {}: no two configurations of it have figures.",
            form.machine
        );
    }
    let verdict = match (shown, against) {
        (0, 0) => "no interval tells any two of them apart".to_owned(),
        (shown, 0) => format!("the intervals show it for {shown}, and contradict it for none"),
        (shown, against) => format!("the intervals show it for {shown}, and the contrary for {against}"),
    };
    format!(
        "{alike} of {pairs} pairs that the origin tells apart have its order on {} by their estimates (chance gives half); \
         {verdict}.",
        form.machine
    )
}

/// The table as a part of the JSON document.
pub(super) fn document(form: &Filled) -> Value {
    let row = |row: &FilledRow| {
        json!({
            "name": row.name,
            "workload": row.of.0,
            "policy": row.of.1,
            "runs": row.runs,
            "medians": row.medians,
            "effect": row.effect,
            "is_interleaved": row.is_interleaved,
            "published_ratio": row.reproduction.as_ref().map(|set| set.published.ratio),
            "why_not": row.why_not,
        })
    };
    let Order { pairs, alike, shown, against } = form.order;
    json!({
        "source": form.source,
        "machine": form.machine,
        "metric": form.metric,
        "columns": form.columns.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "rows": form.rows.iter().map(row).collect::<Vec<_>>(),
        "order": { "pairs": pairs, "alike": alike, "shown": shown, "against": against },
    })
}

#[cfg(test)]
mod tests {
    use study::comparison::Comparison;
    use study_files::definition::{Form, Size, Wire};
    use study_files::matrix::Agreement;

    use super::*;
    use crate::matrix::{Report, claim, conclude, mail, markdown, sample};

    fn form(columns: &str) -> Form {
        let wire = format!(
            r#"{{ "schema": "pagelab.study/1", "name": "x", "question": "?",
            "policies": ["default", "thp", "thp+no-guards"], "sizes": {{ "standard": {{}} }},
            "workload": [{{ "name": "sort|it", "command": ["sort"] }}, {{ "name": "other", "command": ["sort"] }}],
            "form": {{ "source": "a list of 2018", "columns": ["{columns}"], "row": [
            {{ "name": "master", "workload": "sort|it", "policy": "default", "place": 2 }},
            {{ "name": "2M", "workload": "sort|it", "policy": "thp", "place": 1, "change": "-12%" }},
            {{ "name": "elsewhere", "workload": "other", "policy": "thp", "place": 1, "change": "-40%" }},
            {{ "name": "guards", "workload": "sort|it", "policy": "thp+no-guards", "change": "-12%" }} ] }} }}"#
        );
        let definition = serde_json::from_str::<Wire>(&wire).unwrap().of_size(Size::Standard).unwrap();
        definition.form.unwrap()
    }

    fn filled(comparison: &Comparison, other: Option<&Comparison>) -> Filled {
        let form = form("minor_faults");
        Filled::of(&form, "a host", &|name| if name == "other" { other } else { Some(comparison) }).unwrap()
    }

    #[test]
    fn rows_of_one_comparison_are_paired_and_those_of_another_are_not() {
        let comparison = crate::sample::comparison();
        let other = comparison.clone();
        let filled = filled(&comparison, Some(&other));
        let [master, thp, elsewhere, not_held] = &filled.rows[..] else { panic!("{filled:?}") };
        assert!(master.effect.is_none() && master.is_interleaved && master.runs == 15, "{master:?}");
        assert!(thp.is_interleaved && !elsewhere.is_interleaved);
        let width = |row: &FilledRow| row.effect.and_then(|effect| Some(effect.high? - effect.low?)).unwrap();
        assert!(width(thp) < width(elsewhere), "drift is in what is not paired: {} {}", width(thp), width(elsewhere));
        assert_eq!(thp.reproduction.as_ref().unwrap().agreement, Agreement::Inside);
        assert_eq!(elsewhere.reproduction.as_ref().unwrap().agreement, Agreement::OtherSize);
        assert_eq!(not_held.why_not.as_deref(), Some("thp+no-guards was not held"));
        assert_eq!(
            not_held.reproduction.as_ref().unwrap().agreement,
            Agreement::Undecided,
            "what was not held says nothing"
        );
        assert_eq!(filled.order, Order { pairs: 2, alike: 2, shown: 2, against: 0 });
    }

    #[test]
    fn every_form_of_the_report_has_the_origins_own() {
        let comparison = crate::sample::comparison();
        sample::with_report(|report| {
            let report = Report { forms: vec![filled(&comparison, None)], ..report.clone() };
            let sheet = of_origin(&report).remove(0);
            assert_eq!(sheet.header.last().unwrap(), "minor faults");
            assert_eq!(sheet.rows[2][3], "none: it was not measured");
            assert!(
                sheet.caption.contains("All rows were measured in the same blocks. Source: a list of 2018"),
                "{}",
                sheet.caption
            );
            let text = conclude(&report).join(" ");
            let begin = "a host (measured): wall time against master (each 95 % interval by itself): 2M -11.8 % (-12.";
            assert!(text.starts_with(begin), "{text}");
            assert!(text.contains("1 of 1 pairs that the origin tells apart have its order on a host"), "{text}");
            let text = claim(&report).unwrap();
            assert!(text.contains("of 4 published figures"), "{text}");
            assert!(markdown(&report).contains("In the origin's form, next to a host"));
            let mail = mail(&report);
            assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
            assert!(mail.contains("As the origin has it, a host:") && mail.contains("elsewhere"), "{mail}");
            assert_eq!(document(&report.forms[0])["rows"][1]["is_interleaved"], true);
            let page = crate::html::matrix::report(&report);
            assert_eq!(page.matches(">elsewhere<").count(), 1, "it is shown once");
        });
    }
}
