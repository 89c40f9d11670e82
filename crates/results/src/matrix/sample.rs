//! Sample studies for tests of reports.

use study::metric::Provenance;
use study_files::definition::{Definition, Size, Wire};
use study_files::matrix::{Conclusion, Matrix, Row};

use super::{HostOf, Report};
use crate::sample;

pub(crate) fn definition() -> Definition {
    let wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "Does it help?",
        "policies": ["default", "thp", "mthp-64k", "contig-64k"],
        "sizes": { "standard": {} },
        "workload": [{ "name": "sort|it", "command": ["sort"] }, { "name": "omnet", "missing": "no free one" }],
        "boots": { "base-4k": { "base_page": "4K" }, "base-64k": { "base_page": "64K" } },
        "published": [{
            "what": "THP", "workload": "sort|it", "policy": "thp", "change": "-50%", "source": "a list",
            "differs": "its input was larger",
        }],
    });
    serde_json::from_value::<Wire>(wire).unwrap().of_size(Size::Standard).unwrap()
}

/// A report with a measured workload and a missing one.
pub(crate) fn with_report(check: impl Fn(&Report<'_>)) {
    let definition = definition();
    let left_out = [("contig-64k".to_owned(), "a policy of models".to_owned())];
    let policies = &definition.policies;
    let comparison = sample::comparison();
    let rows = vec![
        Row::of_comparison("sort|it", "a host", policies, &comparison, &left_out),
        Row::without("omnet", "a host", policies, "no free one"),
    ];
    let matrix = Matrix::of(policies, &definition.baseline, rows, &definition.published);
    check(&of(&definition, &matrix, None));
}

/// A report with many workloads on two hosts and a model, with boots, and with text that contains markup.
pub(crate) fn with_large_report(check: impl Fn(&Report<'_>)) {
    let definition = definition();
    let left_out = [("contig-64k".to_owned(), "a policy of models".to_owned())];
    let policies = &definition.policies;
    let comparison = sample::comparison();
    let machines = [
        ("a host with a rather long name, Linux 6.18.44-of-a-distribution, base-4k", false),
        ("b<script>", false),
        ("cortex-a53", true),
    ];
    let names = [
        "sort|it",
        "gups threads=2",
        "a workload with a name that is too long for any label",
        "<b>chase</b>",
        "redis get",
        "omnet",
    ];
    let mut rows = Vec::new();
    for (number, (machine, is_model)) in machines.into_iter().enumerate() {
        for (at, name) in names.into_iter().enumerate() {
            if name == "omnet" {
                rows.push(Row::without(name, machine, policies, "no free one"));
                continue;
            }
            let mut row = Row::of_comparison(name, machine, policies, &comparison, &left_out);
            row.origins[0].comparison = Some((number * 10 + at + 1) as i64);
            let factor = 1.0 + 0.06 * (at as f64 - 2.0) + 0.02 * number as f64;
            for cell in &mut row.cells {
                for effect in cell.effects.values_mut() {
                    effect.ratio *= factor;
                    effect.low = effect.low.map(|low| low * factor * 0.98);
                    effect.high = effect.high.map(|high| high * factor * 1.02);
                }
                if is_model && !cell.effects.is_empty() {
                    cell.conclusion = Conclusion::Modelled;
                    cell.effects.values_mut().for_each(|effect| (effect.low, effect.high) = (None, None));
                }
            }
            row.provenance = if is_model { Provenance::Modelled } else { Provenance::Measured };
            rows.push(row);
        }
    }
    let matrix = Matrix::of(policies, &definition.baseline, rows, &definition.published);
    let boots = ["base-4k".to_owned(), "base-64k".to_owned()];
    let boot = |name: &str| {
        let mut row = Row::of_comparison(name, "a host", policies, &comparison, &left_out);
        row.cells.truncate(2);
        row.cells.iter_mut().zip(&boots).for_each(|(cell, boot)| cell.policy.clone_from(boot));
        row
    };
    let over_boots = Matrix::of(&boots, &boots[0], names.into_iter().map(boot).collect(), &[]);
    check(&of(&definition, &matrix, Some(&over_boots)));
}

/// A report of two kernels that were named on the command line. Each of `rows` has the workload's policy, and the new kernel's
/// conclusion and ratio.
pub(crate) fn with_kernels_report(rows: &[(&str, Conclusion, f64)], check: impl Fn(&Report<'_>)) {
    let mut definition = definition();
    definition.name = study::guest::NO_STUDY.to_owned();
    definition.baseline = "base".to_owned();
    let kernels: Vec<String> = definition.boots.iter().map(|boot| boot.name.clone()).collect();
    let row = |(policy, conclusion, ratio): &(&str, Conclusion, f64)| {
        let name = format!("sort|it under {policy}");
        let mut row = Row::of_comparison(&name, "QEMU 7.2.22", &definition.policies, &sample::comparison(), &[]);
        row.cells.truncate(2);
        row.cells.iter_mut().zip(&kernels).for_each(|(cell, kernel)| cell.policy.clone_from(kernel));
        row.cells[1].conclusion = conclusion.clone();
        let effect = row.cells[1].effects.get_mut(&row.metric).unwrap();
        (effect.ratio, effect.low, effect.high) = (*ratio, Some(ratio - 0.01), Some(ratio + 0.01));
        row
    };
    let matrix = Matrix::of(&kernels, &kernels[0], rows.iter().map(row).collect(), &[]);
    check(&of(&definition, &matrix, None));
}

fn of<'a>(definition: &'a Definition, matrix: &'a Matrix, over_boots: Option<&'a Matrix>) -> Report<'a> {
    let mut machine = sample::comparison().machine;
    machine.hypervisor = Some("KVM".to_owned());
    Report {
        definition,
        matrix,
        over_boots,
        forms: Vec::new(),
        counted: None,
        series: Vec::new(),
        explained: Vec::new(),
        over_variants: &[],
        hosts: vec![HostOf {
            label: "a host".to_owned(),
            machine,
            measured_unix_s: Some(1_700_000_000),
            settings: None,
        }],
        missing: vec!["one boot".to_owned()],
        lacking: None,
        kernels_differ: None,
        command: ["pagelab", "study", "report", "tiny", "--html", "a long name of a file.html"]
            .map(str::to_owned)
            .to_vec(),
        version: "0.1".into(),
    }
}
