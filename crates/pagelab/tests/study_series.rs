//! Tests of series of sizes in studies: the derived values, the values of this host, and their comparison.

mod common;

use std::fs;

use common::*;
use serde_json::Value;

/// A study with a series of the page cache of files, a series of page tables, and a workload.
fn written(bench: &Bench, layouts: &str) -> String {
    let text = format!(
        r#"
schema = "pagelab.study/1"
name = "series"
question = "?"
policies = ["default", "base"]
[sizes.standard]
parameters = {{ most = "64M" }}
blocks = 6
min_blocks = 6
[[workload]]
name = "true"
command = ["true"]
[[series]]
name = "page cache"
what = "page-cache"
sizes = ["1", "4K", "5K", "64K"]
layouts = ["x86-64", "arm64-4k-48", "arm64-64k-48", "sv39-64k"]
source = "a list"
[[series]]
name = "tables"
what = "table-growth"
sizes = ["4K", "2M", "64M", "4G"]
measured = "{{most}}"
layouts = {layouts}
source = "a manual"
"#
    );
    fs::write(bench.path("series.toml"), text).unwrap();
    bench.word("series.toml")
}

fn study(bench: &Bench, words: &[&str]) -> Ran {
    bench.pagelab(&[&["study"], words, &["--store", &bench.store()]].concat()).ran()
}

/// The bytes in a column of the report, which is found by the prefix of its name.
fn column<'a>(report: &'a Value, series: usize, begins: &str) -> Vec<Option<f64>> {
    let columns = report["series"][series]["columns"].as_array().unwrap();
    let is_own = |column: &&'a Value| column["name"].as_str().unwrap().starts_with(begins);
    columns.iter().find(is_own).unwrap()["held_bytes"].as_array().unwrap().iter().map(Value::as_f64).collect()
}

#[test]
fn this_host_holds_the_bytes_that_its_layout_predicts() {
    let bench = Bench::new();
    let file = written(&bench, r#"["x86-64", "x86-64 2M", "arm64-4k-48", "sv39", "sv39-64k"]"#);
    study(&bench, &["run", &file, "--only", "page cache,tables"]).assert_exit(0, &["workload 2 of 2"]);
    let report = study(&bench, &["report", &file, "--json"]).json();
    assert_eq!(column(&report, 0, "sv39-64k"), [Some(65536.0); 4]);
    assert_eq!(column(&report, 0, "x86-64"), [4096.0, 4096.0, 8192.0, 65536.0].map(Some));
    assert_eq!(column(&report, 1, "sv39-64k"), [131_072.0, 131_072.0, 196_608.0, 8_454_144.0].map(Some));
    let measured =
        report["series"][0]["columns"].as_array().unwrap().iter().find(|one| one["provenance"] == "measured");
    let layout = measured.unwrap()["layout"].clone();
    let host = measured.unwrap()["name"].as_str().unwrap().to_owned();
    let own = layout.as_str().unwrap_or_else(|| panic!("no layout for this host: {report:#}"));
    assert_eq!(column(&report, 0, &host), column(&report, 0, own));
    let tables = column(&report, 1, &host);
    assert_eq!(tables[3], None, "4G is more than is measured");
    if own == "x86-64" || own == "arm64-4k-48" {
        assert_eq!(tables[..3], column(&report, 1, own)[..3]);
        let answer = report["answer"].to_string();
        assert!(answer.contains(&format!("as derived for {own}, at all 3 sizes")), "{answer}");
    }
    let rows: Vec<&str> =
        report["rows"].as_array().unwrap().iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(rows, ["true"], "a series is no row of the matrix");
    study(&bench, &["report", &file, "--mail"])
        .assert_stdout(&["tables: bytes held for a size. a manual", "x86-64 2M, derived"]);
    let page = bench.word("page.html");
    study(&bench, &["report", &file, "--html", &page]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("By size") && page.contains("a manual"), "a section of its own");
}

#[test]
fn series_that_make_no_sense_are_refused_by_name() {
    let bench = Bench::new();
    for (layouts, message) in [
        (r#"["x68-64"]"#, "series \"tables\": layout \"x68-64\""),
        (r#"["x86-64 3M"]"#, "3M"),
        (r#"["sv39", "sv39"]"#, "series.layouts"),
        ("[]", "series.layouts"),
    ] {
        let file = written(&bench, layouts);
        study(&bench, &["run", &file, "--dry-run"]).assert_exit(2, &[message]);
    }
    let file = written(&bench, r#"["sv39"]"#);
    let text = fs::read_to_string(&file).unwrap();
    for (one, other, message) in [
        ("what = \"page-cache\"", "what = \"pages\"", "there is no \"pages\"; there are page-cache, table-growth"),
        ("\"4K\", \"5K\"", "\"5K\", \"4K\"", "each larger than the one before"),
        ("source = \"a list\"", "source = \"\"", "expected where the formula of the derived values comes from"),
        ("name = \"tables\"", "name = \"true\"", "true"),
    ] {
        fs::write(&file, text.replace(one, other)).unwrap();
        study(&bench, &["run", &file, "--dry-run"]).assert_exit(2, &[message]);
    }
}
