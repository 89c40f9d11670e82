//! Checks that after the holder of a lease was killed, the settings are the same as before the lease.

use crate::guests::transcript::CheckOutput;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let lent = part.output("lent").map_err(|_| "no setting was ever changed".to_owned())?;
    part.output("returned").map_err(|_| "the settings did not come back within 30 s".to_owned())?;
    let (before, after) = (part.output("before")?.trim(), part.output("after")?.trim());
    if before != after {
        return Err(format!("settings were {before:?} and are {after:?}"));
    }
    let restore = part.output("restore")?;
    if !restore.contains("nothing to restore") {
        return Err(format!("something was left: {}", restore.trim()));
    }
    let settings = lent.lines().filter(|line| line.contains("\"path\"")).count();
    Ok(format!("{settings} settings lent and returned"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    #[test]
    fn settings_come_back_and_nothing_is_left() {
        let guest = |after: &str, restore: &str| {
            let lent = "{\"schema\":1}\n{\"path\":\"/sys/x\"}\n";
            let rest = [ran("returned", ""), ran("before", "1\n"), ran("after", after), ran("restore", restore)];
            judge(&part([ran("lent", lent)].into_iter().chain(rest).collect()))
        };
        assert_eq!(guest("1\n", "nothing to restore: x").unwrap(), "1 settings lent and returned");
        assert!(guest("2\n", "nothing to restore").unwrap_err().contains("are \"2\""));
        assert!(guest("1\n", "put back").unwrap_err().contains("left"));
        assert!(judge(&part(vec![])).unwrap_err().contains("ever"));
    }
}
