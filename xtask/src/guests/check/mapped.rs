//! Checks the page sizes that pagelab reports for the memory of a program against those that the program itself reads from smaps
//! and kpageflags. The program is `looks`, one of the guests' programs.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::guests::transcript::CheckOutput;

/// The allowed difference between what the program observed and the census. Some pairs are from two runs of the
/// program, whose environments and stacks differ by a few pages.
const TOLERANCE_BYTES: u64 = 64 << 10;

/// The memory of one process, in bytes, by page size.
#[derive(Debug, Default, PartialEq)]
pub struct Bytes {
    /// Anonymous memory without hugetlb pages.
    pub anonymous: u64,
    /// The part of `anonymous` that is mapped by PMD leaves.
    pub by_pmd: u64,
    /// Anonymous memory by folio size, in bytes.
    folios: BTreeMap<u64, u64>,
    /// Memory of hugetlb pools by page size, in bytes.
    pools: BTreeMap<u64, u64>,
    /// Whether the census has no folio sizes. That is so on kernels without PAGEMAP_SCAN (before Linux 6.7), where the census is
    /// made from smaps.
    pub has_no_folios: bool,
}

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let document: Value =
        serde_json::from_str(part.output("compare")?).map_err(|error| format!("compare: expected JSON: {error}"))?;
    let arms = document["arms"].as_array().ok_or("compare: no arms")?;
    let mut seen = Vec::new();
    for ran in part.ran.iter().filter(|ran| ran.name.starts_with("exec.")) {
        let policy = ran.name.trim_start_matches("exec.");
        let observed = observed(part.output(&ran.name)?)?;
        let arm = arms.iter().find(|arm| arm["label"] == policy).ok_or_else(|| format!("no arm {policy}"))?;
        let holding = arm["verdict"]["holding"].as_str().unwrap_or("none");
        let census = of_census(&arm["census"]);
        check_agreement(&observed, &census).map_err(|problem| format!("{policy}: {problem}"))?;
        let no_folios = if census.has_no_folios { " (no folios in the census)" } else { "" };
        let share = share(policy, &observed);
        // A kernel may be unable to give large pages, but base pages always exist.
        let expected = if policy.starts_with("base") { "held" } else { holding };
        if holding != expected || (share > 0.99 && holding != "held") {
            return Err(format!(
                "{policy}: {:.1} % is mapped as requested, but the verdict is {holding}",
                share * 100.0
            ));
        }
        seen.push(format!("{policy} {:.1} % {holding}{no_folios}", share * 100.0));
    }
    if seen.is_empty() { Err("nothing ran".to_owned()) } else { Ok(seen.join(", ")) }
}

/// The share of the process's anonymous and hugetlb memory that is mapped as the policy asks, as a ratio.
fn share(policy: &str, bytes: &Bytes) -> f64 {
    let all = bytes.anonymous + bytes.pools.values().sum::<u64>();
    let granularity = policy.split('+').next().unwrap_or_default();
    let as_asked = match granularity.split_once('-') {
        Some(("mthp", size)) => bytes.folios.get(&size_bytes(size)).copied().unwrap_or(0),
        Some(("hugetlb", size)) => bytes.pools.get(&size_bytes(size)).copied().unwrap_or(0),
        _ if granularity == "thp" => bytes.by_pmd,
        _ => bytes.anonymous - bytes.by_pmd,
    };
    as_asked as f64 / all.max(1) as f64
}

/// The bytes of a size in the name of a policy, such as `64k`; 0 if it cannot be parsed.
fn size_bytes(size: &str) -> u64 {
    let unit = size.len() - 1;
    let shift = match &size[unit..] {
        "k" => 10,
        "m" => 20,
        _ => 30,
    };
    size[..unit].parse::<u64>().map_or(0, |number| number << shift)
}

/// Parses the output of `looks`: the page sizes that the program itself has observed.
pub fn observed(output: &str) -> Result<Bytes, String> {
    let mut bytes = Bytes::default();
    for line in output.lines().filter_map(|line| line.strip_prefix("looked ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match (words[0], number(1), number(2)) {
            ("anonymous", Some(found), _) => bytes.anonymous = found,
            ("by_pmd", Some(found), _) => bytes.by_pmd = found,
            ("folio", Some(size), Some(found)) => drop(bytes.folios.insert(size, found)),
            ("pool", Some(size), Some(found)) => drop(bytes.pools.insert(size, found)),
            _ => return Err(format!("looks printed {line:?}")),
        }
    }
    if bytes.anonymous == 0 { Err("looks printed no bytes of anonymous memory".to_owned()) } else { Ok(bytes) }
}

/// The sums over the rows of a census, by page size.
pub fn of_census(rows: &Value) -> Bytes {
    let mut bytes = Bytes::default();
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let base = rows.iter().filter_map(|row| row["leaf_bytes"].as_u64()).min().unwrap_or(0);
    for row in rows {
        let [found, leaf, folio] = ["bytes", "leaf_bytes", "folio_bytes"].map(|name| row[name].as_u64().unwrap_or(0));
        match row["backing"].as_str() {
            Some("anonymous") => {
                bytes.anonymous += found;
                bytes.by_pmd += if leaf > base { found } else { 0 };
                *bytes.folios.entry(folio).or_default() += found;
                bytes.has_no_folios |= row["folio"] == "unknown";
            }
            Some("hugetlb") => *bytes.pools.entry(leaf).or_default() += found,
            _ => {}
        }
    }
    bytes
}

/// Checks that the census agrees with what the program observed, except for a few pages.
pub fn check_agreement(observed: &Bytes, census: &Bytes) -> Result<(), String> {
    let check = |what: String, observed: u64, census: u64| {
        if observed.abs_diff(census) <= TOLERANCE_BYTES {
            Ok(())
        } else {
            Err(format!("{what}: looks observed {observed} bytes, the census {census}"))
        }
    };
    check("anonymous memory".into(), observed.anonymous, census.anonymous)?;
    check("mapped by a PMD".into(), observed.by_pmd, census.by_pmd)?;
    let folios = (!census.has_no_folios).then_some(("folios", &observed.folios, &census.folios));
    let pools = ("pages of a pool", &observed.pools, &census.pools);
    for (what, observed, census) in folios.into_iter().chain([pools]) {
        for size in observed.keys().chain(census.keys()) {
            let of = |map: &BTreeMap<u64, u64>| map.get(size).copied().unwrap_or(0);
            check(format!("{what} of {size}"), of(observed), of(census))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    fn guest(census_bytes: u64, holding: &str) -> Result<String, String> {
        let row = |bytes: u64, size: u64, folio: u64| serde_json::json!({ "backing": "anonymous", "bytes": bytes, "leaf_bytes": size, "folio_bytes": folio });
        let census = [row(8192, 4096, 4096), row(census_bytes, 4096, 65536)];
        let arm = serde_json::json!({ "label": "mthp-64k", "verdict": { "holding": holding }, "census": census });
        let looked =
            "looked anonymous 16785408\nlooked by_pmd 0\nlooked folio 4096 8192\nlooked folio 65536 16777216\n";
        let compare = serde_json::json!({ "arms": [arm] }).to_string();
        judge(&part(vec![ran("exec.mthp-64k", looked), ran("compare", &compare)]))
    }

    #[test]
    fn census_and_verdict_agree_with_the_observations() {
        assert_eq!(guest(16 << 20, "held").unwrap(), "mthp-64k 100.0 % held");
        assert!(guest(15 << 20, "held").unwrap_err().contains("the census 15736832"));
        assert!(guest(16 << 20, "not_held").unwrap_err().contains("the verdict is not_held"));
    }
}
