//! Checks what `restore` does with a journal that an earlier boot left.

use serde_json::Value;

use super::number;
use crate::guests::transcript::CheckOutput;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let lent = number(part, "lent")?;
    if lent == 0 {
        return Err("no setting was changed before the reset".to_owned());
    }
    if part.output("boot")?.trim() == part.output("next")?.trim() {
        return Err("both boots have the same boot_id".to_owned());
    }
    let pool = number(part, "pool")?;
    if pool != 0 {
        return Err(format!("the pool has {pool} pages after the reset"));
    }
    let found = |name: &str| -> Result<Value, String> {
        serde_json::from_str(part.output(name)?).map_err(|error| format!("{name}: expected JSON: {error}"))
    };
    let (first, second) = (found("restore")?, found("again")?);
    if first["found"] != "journal_of_earlier_boot" || second["found"] != "nothing" {
        return Err(format!("restore found {}, and then {}", first["found"], second["found"]));
    }
    let left = part.output("left")?.trim();
    if left.contains("lease.jsonl") {
        return Err(format!("{left} was left"));
    }
    Ok(format!("a pool of {lent} pages was lent, and is gone; its journal is void"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    #[test]
    fn a_journal_of_another_boot_is_void() {
        let guest = |found: &str, next: &str| {
            judge(&part(vec![
                ran("lent", "2\n"),
                ran("boot", "one\n"),
                ran("next", next),
                ran("pool", "0\n"),
                ran("restore", &serde_json::json!({ "found": found }).to_string()),
                ran("again", r#"{"found":"nothing"}"#),
                ran("left", "\n"),
            ]))
        };
        assert!(guest("journal_of_earlier_boot", "two").unwrap().contains("a pool of 2 pages"));
        assert!(guest("journal", "two").unwrap_err().contains("\"journal\""));
        assert!(guest("journal_of_earlier_boot", "one").unwrap_err().contains("boot_id"));
    }
}
