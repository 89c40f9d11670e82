//! Counted work in all forms of a report.

use study_files::counted::Case;
use study_files::definition::{Definition, Size, Wire};
use study_files::matrix::Matrix;

use super::*;
use crate::matrix::sample::with_report;
use crate::matrix::{Report, claim as claimed, conclude, document as whole, mail, markdown, render};

/// A study in which reading costs 10 instructions, and building 30 to 70.
fn definition() -> Definition {
    let cost = |event: &str, instructions: [u32; 2], basis: &str| serde_json::json!({ "event": event, "instructions": instructions, "basis": basis, "source": format!("{event}|()") });
    let published = |phase: &str, variant: &str, change: &str| {
        serde_json::json!({
            "what": "a round", "counted": { "phase": phase, "backing": "thp", "variant": variant }, "change": change,
            "source": "a list", "differs": "it was another machine",
        })
    };
    let wire = serde_json::json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "Does it help?", "policies": ["base", "thp"],
        "sizes": { "standard": { "parameters": { "slot": "1G" } } },
        "workload": [{ "name": "nothing", "missing": "no free one" }],
        "published": [published("enable", "skip", "-20%"), published("enable", "skip more", "-50%")],
        "counted": {
            "what": "walks", "bytes": "{slot}", "granules": ["4K", "64K"], "variants": ["vanilla", "skip", "skip more"],
            "note": "one author's",
            "kernels": {
                "what": "two kernels", "source": "a page",
                "changes": [{ "phase": "enable", "backing": "thp", "variant": "skip", "change": "-21%" }],
            },
            "instruction": { "ns": [1.0, 2.0], "basis": "assumed", "source": "a core" },
            "cost": [cost("read", [10, 10], "counted"), cost("build", [30, 70], "assumed")],
        },
    });
    serde_json::from_value::<Wire>(wire).unwrap().of_size(Size::Standard).unwrap()
}

fn cases() -> Vec<Case> {
    let all = [("4K", "vanilla", 100), ("4K", "skip", 1), ("4K", "skip more", 0)];
    let all = all.into_iter().chain([("64K", "vanilla", 100), ("64K", "skip", 1), ("64K", "skip more", 0)]);
    let case = |(granule, variant, read): (&str, &str, u64)| Case {
        phase: "enable".to_owned(),
        backing: "thp".to_owned(),
        granule: granule.to_owned(),
        variant: variant.to_owned(),
        visits: read + 100,
        counts: [("read".to_owned(), read), ("build".to_owned(), 100)].into(),
    };
    all.map(case).collect()
}

fn report(cases: &[Case], check: impl Fn(&Report<'_>)) {
    let definition = definition();
    let counted = definition.counted.as_ref().unwrap();
    let matrix = Matrix::of(&definition.policies, &definition.baseline, Vec::new(), &definition.published);
    with_report(|other| {
        let counted = Some(CountedCosts { counted, table: Table::of(counted, cases) });
        check(&Report { definition: &definition, matrix: &matrix, counted, ..other.clone() });
    });
}

#[test]
fn the_origin_s_table_has_granules_their_average_and_what_was_published() {
    report(&cases(), |report| {
        let counted_costs = report.counted.as_ref().unwrap();
        let lines = counted_costs.lines("enable", "skip");
        let lines: Vec<(&str, &str)> = lines.iter().map(|(name, cells)| (name.as_str(), cells[0].as_str())).collect();
        // 990 saved instructions are 12.4 % of 8000, and 24.8 % of 4000.
        let range = "12.4 to 24.8";
        let expected = [
            ("4K", range),
            ("64K", range),
            ("average", range),
            ("by instructions", range),
            ("a round", "20"),
            ("two kernels", "21"),
        ];
        assert_eq!(lines, expected);
        let sheets = of_origin(counted_costs);
        assert_eq!(sheets.len(), 2);
        assert_eq!(sheets[0].header, ["calls, memory", "two kernels", "model", "a round"]);
        assert_eq!(sheets[0].rows, [["enable, thp", "21", range, "20"]]);
        assert!(sheets[1].caption.contains("modelled"), "{}", sheets[1].caption);
    });
}

#[test]
fn a_range_confirms_a_direction_and_no_size() {
    report(&cases(), |report| {
        assert_eq!(judge_claim(report.counted.as_ref().unwrap()), Claim::Direction);
        let text = claimed(report).unwrap();
        for part in [
            "confirmed in its direction only: of 2 published figures 1 is within the range, 1 is more than the range holds",
            "because 2 of 3 costs are assumed; one author's.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = conclude(report).join("\n");
        assert!(
            text.contains(
                ". skip takes less time than vanilla (modelled, average over granules): at enable 12 to 25 % on thp."
            ),
            "{text}"
        );
        assert!(text.contains("skip more, modelled: takes at most 0.33 % less time than skip"), "{text}");
    });
}

#[test]
fn what_was_not_counted_says_so() {
    report(&[], |report| {
        let text = claimed(report).unwrap();
        assert_eq!(text, "The origin's claim is, here, undecided: walks has not been counted yet.");
        assert!(!mail(report).contains("skip more"), "no empty table");
        assert_eq!(whole(report)["claim"], "undecided");
    });
}

#[test]
fn every_form_has_it() {
    report(&cases(), |report| {
        let page = crate::html::matrix::report(report);
        let forms = [render(report, 100), markdown(report), mail(report), page];
        for form in &forms {
            let parts = [
                "average",
                "12.4 to 24.8",
                "a list",
                "counted",
                "assumed",
                "modelled",
                "two kernels",
                "another machine",
            ];
            for part in parts {
                assert!(form.contains(part), "{part} in\n{form}");
            }
        }
        assert!(forms[2].is_ascii() && forms[2].lines().all(|line| line.len() <= 72), "{}", forms[2]);
        assert!(forms[2].contains("build 30 to 70 instructions"), "{}", forms[2]);
        let document = &whole(report)["counted"];
        assert_eq!((&document["what"], &document["provenance"]), (&"walks".into(), &"modelled".into()));
        assert_eq!(document["rows"].as_array().unwrap().len(), 6);
        assert_eq!(document["rows"][0]["saving"], Value::Null);
        let low = document["averages"][0]["saving"]["time"]["low"].as_f64().unwrap();
        assert!((low - 0.12375).abs() < 1e-9, "{low}");
        assert_eq!(document["published"][1]["says"], "more than the range holds");
    });
}
