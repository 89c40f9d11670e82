//! Checks the phases of dirty logging: all pages must be in the log, in every run.

use serde_json::Value;

use crate::guests::transcript::CheckOutput;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let mut seen = Vec::new();
    for ran in part.ran.iter().filter(|ran| ran.name.ends_with(".first")) {
        let chunk = ran.name.trim_end_matches(".first");
        let [first, second] = ["first", "second"].map(|time| document(part, &format!("{chunk}.{time}")));
        let (first, second) = (first?, second?);
        if first["checksum"] != second["checksum"] || phases(&first) != phases(&second) {
            return Err(format!("{chunk}: two runs differ: {:?} and {:?}", phases(&first), phases(&second)));
        }
        let pages = first["arguments"]["bytes"].as_u64().zip(first["arguments"]["page_bytes"].as_u64());
        let pages = pages.map(|(bytes, page)| bytes / page).ok_or("the arguments have no bytes")?;
        let logged: Vec<u64> = phases(&first).into_iter().filter_map(|(_, pages)| pages).collect();
        if logged.is_empty() || logged.iter().any(|found| *found != pages) {
            return Err(format!("{chunk}: {pages} pages were written, and the log has {logged:?}"));
        }
        seen.push(format!("{chunk}: {pages} pages in {} logs", logged.len()));
    }
    if seen.is_empty() { Err("nothing ran".to_owned()) } else { Ok(seen.join(", ")) }
}

/// The JSON document that a run printed.
pub fn document(part: &CheckOutput, name: &str) -> Result<Value, String> {
    serde_json::from_str(part.output(name)?).map_err(|error| format!("{name}: expected JSON: {error}"))
}

/// The phases in order, each with the number of pages that it found in the log.
fn phases(document: &Value) -> Vec<(String, Option<u64>)> {
    let phases = document["phases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |phase: &Value| (phase["name"].as_str().unwrap_or_default().to_owned(), phase["dirty_pages"].as_u64());
    phases.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    #[test]
    fn every_page_is_in_the_log_of_both_runs() {
        let run = |dirty: u64| {
            let phases = serde_json::json!([{ "name": "enable" }, { "name": "get", "dirty_pages": dirty }]);
            let arguments = serde_json::json!({ "bytes": 8192, "page_bytes": 4096 });
            serde_json::json!({ "checksum": "0x1", "arguments": arguments, "phases": phases }).to_string()
        };
        let guest = |first: u64, second: u64| {
            judge(&part(vec![ran("split-0.first", &run(first)), ran("split-0.second", &run(second))]))
        };
        assert_eq!(guest(2, 2).unwrap(), "split-0: 2 pages in 1 logs");
        assert!(guest(2, 1).unwrap_err().contains("two runs differ"));
        assert!(guest(1, 1).unwrap_err().contains("2 pages were written"));
        assert!(judge(&part(vec![])).is_err());
    }
}
