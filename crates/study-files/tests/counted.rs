//! `[counted]` of a study: valid keys, and errors that name the invalid one.

use serde_json::{Value, json};
use study_files::counted::{Basis, Case, Place, Range, Reproduction, Table};
use study_files::definition::{Definition, DefinitionError, Size, Wire};

fn document() -> Value {
    json!({
        "schema": "pagelab.study/1", "name": "tiny", "question": "?", "policies": ["base", "thp"],
        "sizes": { "standard": { "parameters": { "slot": "64G" } } },
        "workload": [{ "name": "gups", "command": ["gups"] }],
        "published": [
            { "what": "a round", "counted": { "phase": "enable", "backing": "pages", "variant": "skip" },
              "change": "-33.1%", "source": "a list" },
            { "what": "THP", "policy": "thp", "change": "-5%", "source": "a list" },
        ],
        "counted": {
            "what": "walks", "bytes": "{slot}", "granules": ["4K", "64K"], "variants": ["vanilla", "skip"],
            "instruction": { "ns": [0.1, 0.3], "basis": "assumed", "source": "a core" },
            "cost": [{ "event": "read", "instructions": [50, 51], "basis": "counted", "source": "a function" },
                     { "event": "flush", "ns": [5, 50], "basis": "published", "source": "a message" }],
            "kernels": { "what": "patched kernels", "source": "a page", "changes": [
                { "phase": "enable", "backing": "pages", "variant": "skip", "change": "-39.9%" }] },
        },
    })
}

fn read(change: impl Fn(&mut Value)) -> Result<Definition, DefinitionError> {
    let mut document = document();
    change(&mut document);
    serde_json::from_value::<Wire>(document).unwrap().of_size(Size::Standard)
}

#[test]
fn costs_and_published_figures_are_read() {
    let definition = read(|_| ()).unwrap();
    let counted = definition.counted.unwrap();
    assert_eq!((counted.bytes, counted.costs.events.len()), (64 << 30, 2));
    assert_eq!(counted.costs.events[1].ns, Range { low: 5.0, high: 50.0 });
    assert_eq!((counted.costs.events[0].basis, counted.costs.events[0].ns), (Basis::Counted, Range::default()));
    assert!((counted.published[0].saved - 0.331).abs() < 1e-9);
    let kernels = counted.kernels.unwrap();
    assert_eq!(kernels.change("enable", "pages", "skip"), Some("-39.9%"));
    assert_eq!(kernels.change("clear", "pages", "skip"), None);
    assert_eq!(definition.published.len(), 1, "figures of counted work belong to no policy");
    let without = read(|document| {
        document.as_object_mut().unwrap().remove("counted");
        document["published"].as_array_mut().unwrap().remove(0);
    });
    assert!(without.unwrap().counted.is_none());
}

#[test]
fn invalid_keys_are_refused_by_name() {
    let cases: [(&str, Value, &str); 11] = [
        ("/counted/bytes", json!("{slice}"), "counted: \"{slice}\" asks for {slice}; there are {slot}"),
        ("/counted/bytes", json!("64 apples"), "counted: bytes: "),
        ("/counted/granules", json!([]), "counted.granules: expected one or more, found 0"),
        ("/counted/variants", json!(["skip"]), "counted.variants: expected two or more, found 1"),
        ("/counted/variants", json!(["a", "a"]), "counted.variants: duplicate \"a\""),
        ("/counted/cost/0/instructions", json!([51, 50]), "counted: cost of \"read\": expected two numbers"),
        ("/counted/cost/0/source", json!(" "), "counted: cost of \"read\": source: expected the source of the cost"),
        (
            "/counted/kernels/changes/0/variant",
            json!("skip-all"),
            "counted.kernels.changes.variant: there is no \"skip-all\"",
        ),
        (
            "/counted/kernels/changes/0/change",
            json!("39.9"),
            "counted.kernels.changes.change: expected a signed percentage",
        ),
        ("/published/0/counted/variant", json!("skip-all"), "published.counted.variant: there is no \"skip-all\""),
        ("/published/0/policy", json!("thp"), "counted: published \"a round\": a figure of counted work has `change`"),
    ];
    for (path, value, expected) in cases {
        let error = read(|document| match document.pointer_mut(path) {
            Some(place) => *place = value.clone(),
            None => document["published"][0]["policy"] = value.clone(),
        });
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{path}: {error}");
    }
    let nothing = read(|document| {
        document.as_object_mut().unwrap().remove("counted");
    });
    let nothing = nothing.unwrap_err().to_string();
    assert_eq!(nothing, "counted: published \"a round\": there is no [counted] in this study");
}

#[test]
fn published_figures_are_within_above_or_below_the_range() {
    let counted = read(|_| ()).unwrap().counted.unwrap();
    let case = |granule: &str, variant: &str, read, flush| Case {
        phase: "enable".to_owned(),
        backing: "pages".to_owned(),
        granule: granule.to_owned(),
        variant: variant.to_owned(),
        visits: read,
        counts: [("read".to_owned(), read), ("flush".to_owned(), flush)].into(),
    };
    let set_with_flush = |flush| {
        let cases =
            ["4K", "64K"].map(|granule| [case(granule, "vanilla", 90, flush), case(granule, "skip", 30, flush)]);
        Reproduction::of(&counted.published[0], &Table::of(&counted, &cases.concat()))
    };
    let wide = set_with_flush(20);
    let range = wide.found.unwrap();
    assert!(wide.place == Place::Within && range.low > 0.0 && range.holds(0.331), "{range:?}");
    // If only reads cost anything, two thirds are saved.
    assert_eq!(set_with_flush(0).place, Place::Below);
    assert!((set_with_flush(0).found.unwrap().low - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(set_with_flush(100_000).place, Place::Above);
    assert_eq!(Reproduction::of(&counted.published[0], &Table::default()).place, Place::NotCounted);
}
