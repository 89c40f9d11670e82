//! Boots as an axis of a study of any policies: two kernels, or two base pages, under each policy.

#[path = "../../study/tests/common/mod.rs"]
mod common;

use common::{Fake, Noise, comparison, design, machine};
use policy::verdict::Holding;
use study::comparison::Comparison;
use study::runner::compare;
use study_files::definition::{Definition, Size, Wire};
use study_files::matrix::{Agreement, Conclusion, Matrix, Row, boots};

fn definition() -> Definition {
    let wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "kernels", "question": "Which kernel?", "policies": ["base", "thp"],
        "sizes": { "standard": {} }, "workload": [{ "name": "sort", "command": ["sort"] }],
        "boots": { "new": { "kernel": "6.12" }, "old": { "kernel": "6.1", "baseline": true } },
        "published": [{
            "what": "the new kernel", "workload": "sort", "policy": "thp", "boot": "new", "change": "-20%", "source": "s",
        }],
    });
    serde_json::from_value::<Wire>(wire).unwrap().of_size(Size::Standard).unwrap()
}

/// One boot of a host, in which everything takes `scale` of the time.
fn boot(host: u32, kernel: &str, number: u64, scale: f64) -> Comparison {
    let mut design = design(&["base", "thp"], number);
    (design.min_blocks, design.max_blocks) = (8, 8);
    let mut fake = Fake::new(&design, &[scale, scale * 0.9], Noise::quiet(), number);
    fake.arms[1].holding = Holding::Held;
    let run = compare(&design, &mut fake, &mut |_| ());
    let mut machine = machine(host, number);
    machine.kernel = format!("{kernel} #1");
    let mut comparison = comparison(number as i64, machine, design, run);
    comparison.started_unix_s = number as i64 * 1000;
    // The path of pagelab differs between hosts, but the command is the same.
    comparison.invocation.command = vec![format!("/opt/{host}/pagelab")];
    comparison
}

fn rows(comparisons: &[(&str, Comparison)]) -> Vec<Row> {
    let named: Vec<(String, &Comparison)> = comparisons.iter().map(|(host, one)| ((*host).to_owned(), one)).collect();
    boots::rows(&definition(), "sort", &named)
}

/// Six boots of each kernel on each host; the new kernel takes four fifths of the time.
fn many(hosts: u32) -> Vec<(&'static str, Comparison)> {
    let names = ["one", "two"];
    let of_host = |host: u32| {
        (0..12).map(move |at| {
            let (kernel, scale) = if at % 2 == 0 { ("6.1.90", 1.0) } else { ("6.12.4", 0.8) };
            (names[host as usize], boot(host, kernel, u64::from(host * 20 + at + 1), scale))
        })
    };
    (0..hosts).flat_map(of_host).collect()
}

#[test]
fn two_kernels_are_arms_of_any_study() {
    let rows = rows(&many(2));
    let pairs: Vec<(&str, &str)> = rows.iter().map(|row| (row.workload.as_str(), row.machine.as_str())).collect();
    let expected = ["one", "two", boots::ALL_HOSTS].map(|host| [("sort under base", host), ("sort under thp", host)]);
    assert_eq!(pairs.len(), 6);
    assert!(expected.as_flattened().iter().all(|row| pairs.contains(row)), "{pairs:?}");
    let all = rows.iter().find(|row| row.machine == boots::ALL_HOSTS).unwrap();
    assert_eq!(all.cells.iter().map(|cell| cell.policy.as_str()).collect::<Vec<_>>(), ["new", "old"]);
    assert_eq!((&all.cells[0].conclusion, &all.cells[1].conclusion), (&Conclusion::Better, &Conclusion::Baseline));
    let change = all.cells[0].effects["wall_s"];
    assert!((change.ratio - 0.8).abs() < 0.02 && change.low.is_some(), "{change:?}");
    assert_eq!(change.blocks, 12, "a boot is one observation");
    assert!(all.notes.iter().all(|note| !note.contains("kernels")), "kernels are the question: {:?}", all.notes);
    assert_eq!(all.origins.len(), 24, "all comparisons are origins of the row");
}

#[test]
fn one_boot_each_is_undecided_and_reported() {
    let two = [("one", boot(1, "6.1.90", 1, 1.0)), ("one", boot(1, "6.12.4", 2, 0.5))];
    let rows = rows(&two);
    assert_eq!(rows.len(), 2, "there is no row for all hosts if there is only one");
    let cell = &rows[0].cells[0];
    assert_eq!((&cell.conclusion, cell.effects["wall_s"].low), (&Conclusion::Undecided, None));
    assert!(rows[0].notes.iter().any(|note| note.contains("one boot")), "{:?}", rows[0].notes);
}

#[test]
fn a_missing_boot_has_a_cell_with_a_reason_and_other_kernels_are_ignored() {
    let rows = rows(&[("one", boot(1, "6.1.90", 1, 1.0)), ("one", boot(1, "6.6.1", 2, 0.5))]);
    let why = Conclusion::None { why: "no boot that has it was measured".to_owned() };
    assert_eq!(rows[0].cells[0].conclusion, why);
    assert_eq!(rows[0].origins.len(), 1, "6.6 matches no boot of the study");
}

#[test]
fn shows_published_figures_of_boots_next_to_boots() {
    let definition = definition();
    assert_eq!(boots::baseline(&definition.boots), Some(1), "the boot marked as the baseline");
    let published: Vec<_> = definition
        .published
        .iter()
        .map(|one| study_files::definition::Published {
            workload: Some(boots::row_name("sort", "thp")),
            suite: None,
            policy: one.boot.clone(),
            ..one.clone()
        })
        .collect();
    let names: Vec<String> = definition.boots.iter().map(|boot| boot.name.clone()).collect();
    let matrix = Matrix::of(&names, "old", rows(&many(1)), &published);
    assert_eq!(matrix.published[0].agreement, Agreement::Inside, "{:?}", matrix.published[0]);
    assert_eq!(matrix.totals[0].wins.won, 2, "the new kernel wins under both policies");
}
