//! Checks the contiguous bits in the page table entries of large folios against the architecture, and the output of `table decode`
//! for them.

use serde_json::Value;

use super::number;
use crate::guests::transcript::Part;

/// The name and number of the bit. VMSAv8-64: the Contiguous bit (Arm ARM, D8.3). RISC-V: N of Svnapot.
const BITS: [(&str, &str, u32); 2] = [("arm64", "contiguous", 52), ("riscv64", "N", 63)];

pub fn judge(part: &Part) -> Result<String, String> {
    let (page, folio) = (number(part, "page")?, number(part, "folio")?);
    let group = (folio / page) as usize;
    let looked = part.output("looked")?;
    let large = |line: &str| line.contains(&format!(" {folio} "));
    if !looked.lines().any(large) {
        return Err(format!("no page of {folio} bytes to look at: {}", looked.trim().replace('\n', " / ")));
    }
    let answer = part.output("answer")?.trim();
    let words = answer.strip_prefix("entries ").ok_or_else(|| format!("the tables were not read: {answer}"))?;
    let entries: Option<Vec<u64>> = words.split(' ').skip(1).map(|word| u64::from_str_radix(word, 16).ok()).collect();
    let entries = entries.filter(|entries| entries.len() >= group).ok_or("the answer has too few entries")?;
    let architecture = part.output("architecture")?.trim();
    let (_, field, bit) =
        BITS.into_iter().find(|(name, ..)| *name == architecture).ok_or_else(|| format!("no bit of {architecture}"))?;
    decodes(part, &entries, (field, bit))?;
    let is_folded = |entry: &u64| entry >> bit & 1 == 1;
    let groups: Vec<usize> =
        entries.chunks(group).map(|group| group.iter().filter(|one| is_folded(one)).count()).collect();
    if let Some(count) = groups.iter().find(|count| **count != group) {
        return Err(format!("{count} of the {group} entries of a group are folded"));
    }
    Ok(format!("{0} of {0} groups of {group} entries are folded, {field}", groups.len()))
}

/// Checks that `table decode` reports the bits of the entries.
fn decodes(part: &Part, entries: &[u64], (field, bit): (&str, u32)) -> Result<(), String> {
    let document: Value = serde_json::from_str(part.output("decoded")?).map_err(|error| format!("no JSON: {error}"))?;
    let decoded = document["entries"].as_array().ok_or("table decode explains no entries")?;
    for (entry, decoded) in entries.iter().zip(decoded) {
        let fields = decoded["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let said = fields.iter().find(|one| one["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(field)));
        let said = said.ok_or_else(|| format!("table decode says nothing of {field} in {entry:#x}"))?;
        if (said["value"] == "0x1") != (entry >> bit & 1 == 1) {
            return Err(format!("table decode says {} of {field} in {entry:#x}", said["value"]));
        }
    }
    if decoded.is_empty() { Err("table decode explained nothing".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    fn guest(entries: &[u64], value: &str) -> Result<String, String> {
        let words: Vec<String> = entries.iter().map(|entry| format!("{entry:x}")).collect();
        let fields = serde_json::json!([{ "name": "contiguous", "value": value }]);
        let decoded = serde_json::json!({ "entries": [{ "fields": fields }] }).to_string();
        judge(&part(vec![
            ran("architecture", "arm64\n"),
            ran("page", "4096\n"),
            ran("folio", "65536\n"),
            ran("looked", "looked folio 65536 4194304\n"),
            ran("answer", &format!("entries 48 {}\n", words.join(" "))),
            ran("decoded", &decoded),
        ]))
    }

    #[test]
    fn groups_are_folded_whole_or_not_at_all() {
        let folded = [0x0010_0000_4100_0f43; 32];
        assert!(guest(&folded, "0x1").unwrap().starts_with("2 of 2 groups of 16"));
        assert!(guest(&folded, "0x0").unwrap_err().contains("table decode"));
        let mut torn = folded;
        torn[3] &= !(1 << 52);
        assert!(guest(&torn, "0x1").unwrap_err().starts_with("15 of the 16"));
        assert!(guest(&[0x4100_0f43; 16], "0x0").unwrap_err().starts_with("0 of the 16"));
    }
}
