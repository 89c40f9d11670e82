//! Tests of `pagelab sim sweep`, `sim chase` and `sim --linux`.

mod common;
#[path = "common/traced.rs"]
mod traced;

use std::fs;

use common::*;
use serde_json::Value;
use traced::Traced;

#[test]
fn every_geometry_is_swept() {
    let traced = Traced::new();
    let document = traced.sweep(&["--json"]).json();
    assert_eq!(document["schema"], "pagelab.sim-sweep/1");
    assert_eq!((&document["most_sets"], &document["most_ways"]), (&2048.into(), &15.into()));
    let geometries = document["traces"][0]["geometries"].as_array().unwrap();
    assert_eq!(geometries.len(), 900);
    let misses = |page_bytes: u64, sets: u64, ways: u64| {
        let found = geometries.iter().find(|geometry| {
            geometry["page_bytes"] == page_bytes && geometry["sets"] == sets && geometry["ways"] == ways
        });
        found.unwrap()["misses"].as_u64().unwrap()
    };
    assert_eq!((misses(4096, 2048, 2), misses(4096, 16, 4), misses(2 << 20, 1, 15)), (1025, 2049, 3));
    let swept = traced.sweep(&[]);
    swept.assert_stdout(&[
        "sets times ways of the smallest one with 1 to 2048 sets, in powers of two, and 1 to 15 ways; modelled",
    ]);
    let text = swept.stdout;
    assert!(text.contains("15 ways") && text.contains("ways 1 to 15\n      1  ██"), "{text}");
}

#[test]
fn chosen_geometries_have_the_figures_that_they_have_among_all() {
    let traced = Traced::new();
    let geometries = |arguments: &[&str]| -> Vec<Value> {
        let document = traced.sweep(&[arguments, &["--json"]].concat()).json();
        document["traces"][0]["geometries"].as_array().unwrap().clone()
    };
    let chosen = geometries(&["--sets", "64..256", "--ways", "4..6", "--pages", "2M,4K,2M,1G"]);
    assert_eq!(chosen.len(), 3 * 3 * 3);
    let all = geometries(&[]);
    let known = chosen.iter().filter(|geometry| geometry["page_bytes"] != 1 << 30);
    assert_eq!(known.clone().count(), 2 * 3 * 3);
    assert!(known.clone().all(|geometry| all.contains(geometry)));
    // More ways than a stack of sixteen entries can show, for one page size.
    let many = geometries(&["--sets", "16", "--ways", "1..128", "--pages", "4K"]);
    assert_eq!(many.len(), 128);
    assert!(many[..15].iter().all(|geometry| all.contains(geometry)));
    let misses: Vec<u64> = many.iter().map(|geometry| geometry["misses"].as_u64().unwrap()).collect();
    assert!(misses.is_sorted_by(|fewer, more| fewer >= more) && misses[127] < misses[14], "{misses:?}");
    traced
        .sweep(&["--sets", "16", "--ways", "1..128", "--pages", "4K"])
        .assert_stdout(&["128 ways", "ways 1 to 128, one in 4"]);
    let page = traced.bench.word("sweep.html");
    let ran = traced.sweep(&["--sets", "16", "--ways", "1..4", "--pages", "64K", "--html", &page]);
    ran.assert_exit(0, &[]).assert_stdout(&["pages of 64K", "with 16 sets and 1 to 4 ways", "4 ways", "ways 1 to 4"]);
    assert!(!ran.stdout.contains("8 ways") && !ran.stdout.contains("pages of 4K"), "{ran}");
    assert!(fs::read_to_string(&page).unwrap().contains("16 sets of 4 ways"));
    for (arguments, parts) in [
        (&["--sets", "3"][..], &["--sets", "powers of two from 1 to 2048", "found \"3\""][..]),
        (&["--sets", "64..16"], &["--sets", "found \"64..16\""]),
        (&["--ways", "129"], &["--ways", "expected 1 to 128", "found \"129\""]),
        (&["--pages", "3M"], &["--pages", "power of two from 4K to 1G", "3M"]),
        (&["-p", "thp"], &["unexpected argument '-p'"]),
        (&["--memory", "1G"], &["unexpected argument '--memory'"]),
        (&["--html", "/nonexistent/page.html"], &["/nonexistent/page.html cannot be written"]),
    ] {
        traced.sweep(arguments).assert_exit(2, parts);
    }
}

#[test]
fn the_kernel_that_is_listed_is_the_one_without_a_file() {
    let traced = Traced::new();
    let listed = traced.bench.pagelab(&["list", "linux"]).ran();
    listed.assert_exit(0, &[]).assert_stdout(&["pagelab.linux/1", "scan_sleep_millisecs = 10000", "also_enabled = []"]);
    let file = traced.bench.word("listed.toml");
    fs::write(&file, &listed.stdout).unwrap();
    let arguments = ["-m", "cascade-lake", "-p", "base,thp"];
    assert_eq!(traced.json(&[&arguments[..], &["--linux", &file]].concat()), traced.json(&arguments));
    let document = traced.bench.pagelab(&["list", "linux", "--json"]).ran().json();
    assert_eq!(
        (&document["schema"], document["file"].as_str()),
        (&"pagelab.list-linux/1".into(), Some(listed.stdout.trim_end()))
    );
}

#[test]
fn further_folios_that_a_machine_cannot_have_are_refused() {
    let traced = Traced::new();
    let also = |sizes: &str, policies: &str| {
        traced.under(&format!("[mthp]\nalso_enabled = [{sizes}]"), &["-m", "cascade-lake", "-p", policies])
    };
    let ran = also("\"128K\"", "mthp-64k");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("a kernel tries folios of 128K before those of 64K"), "{words}");
    also("\"16K\", \"32K\"", "base,mthp-64k").assert_exit(0, &[]);
    // The file describes a kernel, whatever machine is simulated.
    also("\"16K\", \"2M\"", "base,thp").assert_exit(0, &[]);
    also("\"4M\"", "thp").assert_exit(3, &[]).assert_stdout(&["folios mapped by PTEs are of 16K to 1M with x86-64"]);
}

#[test]
fn more_missing_pages_than_a_kernel_takes_are_refused() {
    let traced = Traced::new();
    let missing = |pages: &str| {
        traced.under(&format!("[khugepaged]\nmax_ptes_none = {pages}"), &["-m", "cascade-lake", "-p", "thp"])
    };
    assert_eq!(missing("511").code, Some(0));
    let ran = missing("512");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("max_ptes_none can be 0 to 511 with x86-64, found 512"), "{words}");
}

#[test]
fn a_small_chase_is_measured_and_modelled() {
    let bench = Bench::new();
    let page = bench.word("chase.html");
    let ran =
        bench.pagelab(&["sim", "chase", "--largest", "128K", "-m", "cascade-lake", "--json", "--html", &page]).ran();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&document["schema"], &document["machine"]["name"]),
        (&"pagelab.sim-chase/1".into(), &"cascade-lake".into())
    );
    let points = document["points"].as_array().unwrap();
    let sizes: Vec<Option<u64>> = points.iter().map(|point| point["bytes"].as_u64()).collect();
    assert_eq!(sizes, [Some(64 << 10), Some(128 << 10)]);
    for (point, policy) in points.iter().flat_map(|point| ["base", "thp"].map(|policy| (point, policy))) {
        let (modelled, measured) = (&point["modelled"][policy], &point["measured"][policy]);
        // The first-level TLB of Cascade Lake holds all 16 or 32 pages.
        assert_eq!((modelled["provenance"].as_str(), modelled["cycles"].as_f64()), (Some("modelled"), Some(0.0)));
        // If this machine cannot measure a point, the document says why.
        let why = format!("not measured under {policy}: ");
        match measured["ns_per_load"].as_f64() {
            Some(ns) => assert!(ns > 0.0 && measured["provenance"] == "measured", "{measured}"),
            None => assert!(document["notes"].to_string().contains(&why), "{}", document["notes"]),
        }
    }
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("The reach of TLBs") && html.contains("cascade-lake") && !html.contains("<script"));
    bench.pagelab(&["sim", "chase", "--largest", "1K"]).ran().assert_exit(2, &["expected 64K to 4"]);
    bench.pagelab(&["sim", "a.trace", "--largest", "1M"]).ran().assert_exit(2, &["unexpected argument '--largest'"]);
}

#[test]
fn a_chase_takes_one_machine_and_no_trace() {
    let traced = Traced::new();
    let sim = |arguments: &[&str]| traced.bench.pagelab(&[&["sim"], arguments].concat()).ran();
    sim(&["chase", "-m", "zen-3", "-m", "zen-4"])
        .assert_exit(2, &["'--machine <MACHINE>' cannot be used multiple times"]);
    sim(&["chase", "-m", "zen-3,zen-4"]).assert_exit(2, &["no machine \"zen-3,zen-4\""]);
    sim(&["chase", "-m", "zen-9"]).assert_exit(2, &["no machine \"zen-9\""]);
    sim(&["chase", &traced.file]).assert_exit(2, &["unexpected argument"]);
    sim(&["chase", "--html", "/nonexistent/page.html"]).assert_exit(2, &["/nonexistent/page.html cannot be written"]);
    sim(&[]).assert_exit(2, &["<FILE>"]);
    let listed = traced.bench.pagelab(&["list", "machines", "--json"]).ran();
    let document: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert!(document["host_model"].is_null() || document["host_model"].is_string());
}
