//! Checks the page sizes that `inspect` reports for a program against those that the program itself reads from smaps and
//! kpageflags.

use std::collections::BTreeSet;

use serde_json::Value;

use super::mapped::{Bytes, check_agreement, observed, of_census};
use super::number;
use crate::guests::transcript::CheckOutput;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let requested_bytes = number(part, "bytes")?;
    let never = inspected(part, "never")?;
    let always = inspected(part, "always")?;
    if never.observed.by_pmd > 0 || always.observed.by_pmd < requested_bytes / 2 {
        return Err(format!("a PMD maps {} and {} bytes", never.observed.by_pmd, always.observed.by_pmd));
    }
    // Memory before the first and after the last aligned address cannot be in larger pages, so not all memory is
    // counted.
    if never.could_be_larger < requested_bytes / 2 || always.could_be_larger > requested_bytes / 2 {
        let found = format!("{} and {}", never.could_be_larger, always.could_be_larger);
        return Err(format!("{found} bytes could be larger, and {requested_bytes} were mapped"));
    }
    if never.causes.is_empty() || never.causes.contains("unexplained") {
        return Err(format!("causes of small pages: {:?}", never.causes));
    }
    let causes: Vec<&str> = never.causes.iter().map(String::as_str).collect();
    let of_folios = if never.census.has_no_folios { " (no folios in the census)" } else { "" };
    let read_first = read_before_write(part, requested_bytes)?;
    Ok(format!(
        "never: {}; always: {} bytes by a PMD{of_folios}; read first: {read_first}",
        causes.join(", "),
        always.census.by_pmd
    ))
}

/// Checks memory that was advised, and read before it was written: the cause that `inspect` names, and that the remedy removes
/// the cause. Whether the cause occurs is the kernel's choice, because it may give such memory large pages.
fn read_before_write(part: &CheckOutput, requested_bytes: u64) -> Result<&'static str, String> {
    let seen = |name: &str| Ok::<_, String>((number(part, &format!("by_pmd.{name}"))?, read_first_bytes(part, name)?));
    let ((read_by_pmd, read_bytes), (written_by_pmd, written_bytes)) = (seen("read_first")?, seen("write_first")?);
    if written_by_pmd < requested_bytes / 2 || written_bytes > 0 {
        return Err(format!("written first: {written_by_pmd} bytes by a PMD, {written_bytes} were read first"));
    }
    match (read_by_pmd, read_bytes) {
        (0, bytes) if bytes >= requested_bytes / 2 => Ok("read_first, and writing first removes it"),
        (by_pmd, 0) if by_pmd >= requested_bytes / 2 => Ok("large pages all the same"),
        _ => Err(format!("read first: {read_by_pmd} bytes by a PMD, and {read_bytes} for this cause")),
    }
}

/// The number of bytes for which `inspect` names this cause, with a remedy.
fn read_first_bytes(part: &CheckOutput, name: &str) -> Result<u64, String> {
    let name = format!("inspect.{name}");
    let document: Value =
        serde_json::from_str(part.output(&name)?).map_err(|error| format!("{name}: expected JSON: {error}"))?;
    let regions = document["processes"][0]["regions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let causes = regions.iter().flat_map(|region| region["causes"].as_array().into_iter().flatten());
    let is_it =
        |one: &&Value| one["cause"]["code"] == "read_first" && one["remedies"].to_string().contains("write_first");
    Ok(causes.filter(is_it).filter_map(|one| one["bytes"].as_u64()).sum())
}

/// What is known about one process: figures that the process has observed itself, and figures from pagelab.
struct Inspected {
    observed: Bytes,
    census: Bytes,
    could_be_larger: u64,
    /// The codes of the causes why memory is not in larger pages.
    causes: BTreeSet<String>,
}

fn inspected(part: &CheckOutput, setting: &str) -> Result<Inspected, String> {
    let name = format!("inspect.{setting}");
    let document: Value =
        serde_json::from_str(part.output(&name)?).map_err(|error| format!("{name}: expected JSON: {error}"))?;
    let observed = observed(part.output(&format!("looked.{setting}"))?)?;
    let process = &document["processes"][0];
    let census = of_census(&process["census"]);
    check_agreement(&observed, &census).map_err(|problem| format!("{setting}: {problem}"))?;
    let regions = process["regions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let could = |region: &&Value| region["could_be_larger_bytes"].as_u64().unwrap_or(0) > 0;
    let causes = regions.iter().filter(could).flat_map(|region| region["causes"].as_array().into_iter().flatten());
    Ok(Inspected {
        observed,
        census,
        could_be_larger: process["could_be_larger_bytes"]
            .as_u64()
            .ok_or("the document has no could_be_larger_bytes")?,
        causes: causes.filter_map(|cause| Some(cause["cause"]["code"].as_str()?.to_owned())).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;
    use crate::guests::transcript::CommandOutput;

    const BYTES: u64 = 16 << 20;

    fn guest(could_be_larger: u64, code: &str) -> Result<String, String> {
        judge(&part([boot(could_be_larger, code), read_first(0, BYTES)].concat()))
    }

    /// The output of the program under `never` and under `always`, for tests.
    fn boot(could_be_larger: u64, code: &str) -> Vec<CommandOutput> {
        let document = |leaf: u64, could: u64| {
            let row =
                serde_json::json!({ "backing": "anonymous", "bytes": BYTES, "leaf_bytes": leaf, "folio_bytes": leaf });
            let small =
                serde_json::json!({ "backing": "anonymous", "bytes": 8192, "leaf_bytes": 4096, "folio_bytes": 4096 });
            let causes = serde_json::json!([{ "cause": { "code": code } }]);
            let regions = serde_json::json!([{ "could_be_larger_bytes": could, "causes": causes }]);
            let process =
                serde_json::json!({ "census": [row, small], "could_be_larger_bytes": could, "regions": regions });
            serde_json::json!({ "processes": [process] }).to_string()
        };
        let looked = |leaf: u64| {
            let by_pmd = if leaf > 4096 { BYTES } else { 0 };
            format!("looked anonymous {BYTES}\nlooked by_pmd {by_pmd}\nlooked folio {leaf} {BYTES}\n")
        };
        vec![
            ran("bytes", "16777216\n"),
            ran("inspect.never", &document(4096, could_be_larger)),
            ran("looked.never", &looked(4096)),
            ran("inspect.always", &document(2 << 20, 0)),
            ran("looked.always", &looked(2 << 20)),
        ]
    }

    /// The output, for tests, of the program that reads first. The kernel maps this number of its bytes by a PMD.
    fn read_first(by_pmd: u64, bytes: u64) -> Vec<CommandOutput> {
        let remedy = serde_json::json!([{ "changes": [{ "change": { "code": "write_first" } }] }]);
        let cause =
            |bytes: u64| serde_json::json!({ "cause": { "code": "read_first" }, "bytes": bytes, "remedies": remedy });
        let document = |bytes: u64| {
            serde_json::json!({ "processes": [{ "regions": [{ "causes": [cause(bytes)] }] }] }).to_string()
        };
        vec![
            ran("inspect.read_first", &document(bytes)),
            ran("by_pmd.read_first", &format!("{by_pmd}\n")),
            ran("inspect.write_first", &document(0)),
            ran("by_pmd.write_first", &format!("{BYTES}\n")),
        ]
    }

    #[test]
    fn memory_that_was_read_first_has_this_cause_or_large_pages() {
        let judged = |by_pmd, bytes| read_before_write(&part(read_first(by_pmd, bytes)), BYTES);
        assert_eq!(judged(0, BYTES).unwrap(), "read_first, and writing first removes it");
        assert_eq!(judged(BYTES, 0).unwrap(), "large pages all the same");
        assert!(judged(0, 0).is_err() && judged(BYTES, BYTES).is_err());
    }

    #[test]
    fn small_pages_have_causes_and_large_ones_are_seen() {
        assert_eq!(
            guest(BYTES, "size_off").unwrap(),
            "never: size_off; always: 16777216 bytes by a PMD; read first: read_first, and writing first removes it"
        );
        assert!(guest(0, "size_off").unwrap_err().contains("could be larger"));
        assert!(guest(BYTES, "unexplained").unwrap_err().contains("unexplained"));
    }
}
