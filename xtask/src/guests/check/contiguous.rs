//! Checks that every page table entry of a large folio has the contiguous bit (arm64) or N (RISC-V), and that `table decode` shows it.

use serde_json::Value;

use super::number;
use crate::guests::transcript::CheckOutput;

/// The name and the number of the bit. VMSAv8-64: Contiguous (Arm ARM, D8.3). RISC-V: N of Svnapot.
const BITS: [(&str, &str, u32); 2] = [("arm64", "contiguous", 52), ("riscv64", "N", 63)];

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let (page, folio) = (number(part, "page")?, number(part, "folio")?);
    let group = (folio / page) as usize;
    let looked = part.output("looked")?;
    let has_folio = |line: &str| line.contains(&format!(" {folio} "));
    if !looked.lines().any(has_folio) {
        return Err(format!("no folio of {folio} bytes was found: {}", looked.trim().replace('\n', " / ")));
    }
    let answer = part.output("answer")?.trim();
    let words = answer.strip_prefix("entries ").ok_or_else(|| format!("the tables were not read: {answer}"))?;
    // The first word is the number of address bits; the entries follow.
    let entries: Option<Vec<u64>> = words.split(' ').skip(1).map(|word| u64::from_str_radix(word, 16).ok()).collect();
    let entries = entries
        .filter(|entries| !entries.is_empty() && entries.len().is_multiple_of(group))
        .ok_or("the answer has no whole groups of entries")?;
    let architecture = part.output("architecture")?.trim();
    let (_, field, bit) = BITS
        .into_iter()
        .find(|(name, ..)| *name == architecture)
        .ok_or_else(|| format!("no contiguous bit is known for {architecture}"))?;
    decodes(part, &entries, (field, bit))?;
    let has_bit = |entry: &&u64| *entry >> bit & 1 == 1;
    let counts: Vec<usize> = entries.chunks(group).map(|chunk| chunk.iter().filter(has_bit).count()).collect();
    if let Some(count) = counts.iter().find(|count| **count != group) {
        return Err(format!("{count} of the {group} entries of a group have {field} set"));
    }
    Ok(format!("all {} groups of {group} entries have {field} set", counts.len()))
}

/// Checks that `table decode` reports the bits of the entries.
fn decodes(part: &CheckOutput, entries: &[u64], (field, bit): (&str, u32)) -> Result<(), String> {
    let document: Value =
        serde_json::from_str(part.output("decoded")?).map_err(|error| format!("expected JSON: {error}"))?;
    let decoded = document["entries"].as_array().ok_or("table decode explains no entries")?;
    for (entry, decoded) in entries.iter().zip(decoded) {
        let fields = decoded["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let shown = fields.iter().find(|one| one["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(field)));
        let shown = shown.ok_or_else(|| format!("table decode does not explain {field} in {entry:#x}"))?;
        if (shown["value"] == "0x1") != (entry >> bit & 1 == 1) {
            return Err(format!("table decode shows {} for {field} in {entry:#x}", shown["value"]));
        }
    }
    if decoded.is_empty() { Err("table decode explained nothing".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    /// The result of the check, for a guest that has these entries, and in which the first entry is decoded with this
    /// value.
    fn judged(entries: &[u64], value: &str) -> Result<String, String> {
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
    fn every_entry_of_every_group_must_have_the_bit() {
        let contiguous = [0x0010_0000_4100_0f43; 32];
        assert_eq!(judged(&contiguous, "0x1").unwrap(), "all 2 groups of 16 entries have contiguous set");
        assert!(judged(&contiguous, "0x0").unwrap_err().contains("table decode"));
        let mut torn = contiguous;
        torn[3] &= !(1 << 52);
        assert!(judged(&torn, "0x1").unwrap_err().starts_with("15 of the 16"));
        assert!(judged(&[0x4100_0f43; 16], "0x0").unwrap_err().starts_with("0 of the 16"));
        assert!(judged(&contiguous[..24], "0x1").unwrap_err().contains("no whole groups"));
    }
}
