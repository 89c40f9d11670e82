//! Checks the page sizes that `inspect` reports for a program against the values that the program itself reads from smaps and
//! kpageflags.

use std::collections::BTreeSet;

use serde_json::Value;

use super::mapped::{Bytes, of_census, of_kernel, same};
use super::number;
use crate::guests::transcript::Part;

pub fn judge(part: &Part) -> Result<String, String> {
    let asked = number(part, "bytes")?;
    let never = inspected(part, "never")?;
    let always = inspected(part, "always")?;
    if never.kernel.by_pmd > 0 || always.kernel.by_pmd < asked / 2 {
        return Err(format!("a PMD maps {} and {} bytes", never.kernel.by_pmd, always.kernel.by_pmd));
    }
    // Memory before the first and after the last aligned address cannot be in larger pages.
    if never.could_be_larger < asked / 2 || always.could_be_larger > asked / 2 {
        let found = format!("{} and {}", never.could_be_larger, always.could_be_larger);
        return Err(format!("{found} bytes could be larger, and {asked} were mapped"));
    }
    if never.causes.is_empty() || never.causes.contains("unexplained") {
        return Err(format!("causes of small pages: {:?}", never.causes));
    }
    let causes: Vec<&str> = never.causes.iter().map(String::as_str).collect();
    let of_folios = if never.census.has_no_folios { " (no folios in the census)" } else { "" };
    Ok(format!("never: {}; always: {} bytes by a PMD{of_folios}", causes.join(", "), always.census.by_pmd))
}

/// One process: the kernel's figures and those of pagelab.
struct Inspected {
    kernel: Bytes,
    census: Bytes,
    could_be_larger: u64,
    /// The codes of the reasons why memory is not in larger pages.
    causes: BTreeSet<String>,
}

fn inspected(part: &Part, setting: &str) -> Result<Inspected, String> {
    let name = format!("inspect.{setting}");
    let document: Value =
        serde_json::from_str(part.output(&name)?).map_err(|error| format!("{name}: no JSON: {error}"))?;
    let kernel = of_kernel(part.output(&format!("looked.{setting}"))?)?;
    let process = &document["processes"][0];
    let census = of_census(&process["census"]);
    same(&kernel, &census).map_err(|problem| format!("{setting}: {problem}"))?;
    let regions = process["regions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let could = |region: &&Value| region["could_be_larger_bytes"].as_u64().unwrap_or(0) > 0;
    let causes = regions.iter().filter(could).flat_map(|region| region["causes"].as_array().into_iter().flatten());
    Ok(Inspected {
        kernel,
        census,
        could_be_larger: process["could_be_larger_bytes"].as_u64().ok_or("nothing is said of larger pages")?,
        causes: causes.filter_map(|cause| Some(cause["cause"]["code"].as_str()?.to_owned())).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    const BYTES: u64 = 16 << 20;

    fn guest(could_be_larger: u64, code: &str) -> Result<String, String> {
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
        judge(&part(vec![
            ran("bytes", "16777216\n"),
            ran("inspect.never", &document(4096, could_be_larger)),
            ran("looked.never", &looked(4096)),
            ran("inspect.always", &document(2 << 20, 0)),
            ran("looked.always", &looked(2 << 20)),
        ]))
    }

    #[test]
    fn small_pages_have_causes_and_large_ones_are_seen() {
        assert_eq!(guest(BYTES, "size_off").unwrap(), "never: size_off; always: 16777216 bytes by a PMD");
        assert!(guest(0, "size_off").unwrap_err().contains("could be larger"));
        assert!(guest(BYTES, "unexplained").unwrap_err().contains("unexplained"));
    }
}
