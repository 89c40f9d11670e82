//! Checks that the programs of the torture set behave the same with and without policies.

use crate::guests::transcript::CheckOutput;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let mut compared = 0;
    let alone: Vec<_> = part.ran.iter().filter(|ran| !ran.name.contains('.')).collect();
    for program in &alone {
        if program.code != Some(0) || program.output.contains("WRONG") {
            return Err(format!("{} is wrong by itself: {}", program.name, program.output.trim().replace('\n', " / ")));
        }
        let under =
            part.ran.iter().filter(|ran| ran.name.split_once('.').is_some_and(|(name, _)| name == program.name));
        for ran in under {
            if (ran.code, &ran.output) != (program.code, &program.output) {
                let printed = format!("{} {}", ran.output.trim(), ran.error.trim()).replace('\n', " / ");
                return Err(format!("{} ended with {:?} and {printed:?}", ran.name, ran.code));
            }
            compared += 1;
        }
    }
    if compared == 0 { Err("nothing ran".to_owned()) } else { Ok(format!("{} programs, {compared} runs", alone.len())) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    #[test]
    fn a_program_with_different_output_is_reported() {
        let same = vec![ran("a", "1\n"), ran("a.thp", "1\n"), ran("b", "2\n"), ran("b.base", "2\n")];
        assert_eq!(judge(&part(same)).unwrap(), "2 programs, 2 runs");
        let other = vec![ran("a", "1\n"), ran("a.thp", "2\n")];
        assert!(judge(&part(other)).unwrap_err().starts_with("a.thp ended with Some(0)"));
        assert!(judge(&part(vec![ran("a", "WRONG: x\n")])).unwrap_err().contains("by itself"));
        assert!(judge(&part(vec![])).is_err());
    }
}
