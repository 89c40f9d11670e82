//! Checks what `list policies` prints against sysfs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{in_name, number};
use crate::guests::transcript::CheckOutput;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let (base, pmd) = (number(part, "page")?, number(part, "pmd")?);
    let kib = |name: &str| name.trim_start_matches("hugepages-").trim_end_matches("kB").parse::<u64>().ok();
    // Before Linux 6.8 there is no directory for each size of anonymous folios. The PMD size is left out, because
    // its policy is `thp`, without a size.
    let folios = part.of("folios")?.output.lines().filter_map(|line| kib(line.strip_suffix("/enabled")?));
    let mut expected: BTreeSet<String> = folios
        .map(|kib| kib << 10)
        .filter(|bytes| (base + 1..pmd).contains(bytes))
        .map(|bytes| format!("mthp-{}", in_name(bytes)))
        .collect();
    let pools = part.output("pools")?.lines().filter_map(kib);
    expected.extend(pools.map(|kib| format!("hugetlb-{}", in_name(kib << 10))));
    expected.extend(["default", "base", "thp"].map(str::to_owned));
    let document: Value =
        serde_json::from_str(part.output("policies")?).map_err(|error| format!("expected JSON: {error}"))?;
    let rows = document["policies"].as_array().ok_or("the document has no policies")?;
    let rows = rows.iter().filter_map(|row| Some((row["policy"].as_str()?, row)));
    let rows: Vec<(&str, &Value)> = rows.filter(|(name, _)| !name.starts_with("direct-map-")).collect();
    let offered: BTreeSet<String> = rows.iter().map(|(name, _)| (*name).to_owned()).collect();
    if offered != expected {
        return Err(format!("expected the kernel's {expected:?}, found {offered:?}"));
    }
    // A hugetlb pool is not available if a single page of it is too large for the memory.
    if let Some((name, row)) =
        rows.iter().find(|(name, row)| !name.starts_with("hugetlb-") && row["here"] != "available")
    {
        return Err(format!("{name} is {}: {}", row["here"], row["how"]));
    }
    let doctor = part.output("doctor")?;
    let sizes = format!("base {}, PMD {}", in_name(base).to_uppercase(), in_name(pmd).to_uppercase());
    if !doctor.contains(&sizes) {
        return Err(format!("expected {sizes:?} in the output of doctor"));
    }
    Ok(format!("{} policies; {sizes}", offered.len()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    fn guest(policies: &str) -> Result<String, String> {
        let rows: Vec<Value> = policies
            .split_whitespace()
            .map(|policy| serde_json::json!({ "policy": policy, "here": "available", "how": "" }))
            .collect();
        judge(&part(vec![
            ran("page", "4096\n"),
            ran("pmd", "2097152\n"),
            ran("folios", "hugepages-64kB/enabled\nhugepages-2048kB/enabled\n"),
            ran("pools", "hugepages-2048kB\n"),
            ran("policies", &serde_json::json!({ "policies": rows }).to_string()),
            ran("doctor", "page sizes base 4K, PMD 2M"),
        ]))
    }

    #[test]
    fn offers_exactly_the_policies_that_the_kernel_has() {
        assert!(guest("default base thp mthp-64k hugetlb-2m direct-map-4k").unwrap().starts_with("5 policies"));
        assert!(guest("default base thp hugetlb-2m").unwrap_err().contains("mthp-64k"));
        assert!(guest("default base thp mthp-64k mthp-32k hugetlb-2m").unwrap_err().contains("mthp-32k"));
    }
}
