//! Resources that a study requests from Slurm when its rows are tasks of a job array.

use super::DefinitionError;
use super::wire::WireSlurm;

/// Resources requested from Slurm, named as in sbatch(1). Where a value is absent, the site's default applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slurm {
    /// Partition of all jobs.
    pub partition: Option<String>,
    /// Features of the measuring nodes.
    pub constraint: Option<String>,
    /// Account that is charged.
    pub account: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Reservation to use.
    pub reservation: Option<String>,
    /// Time limit of a task, in the syntax of `compare`: `2h`.
    pub time: Option<String>,
    /// Maximum number of array tasks that run at once.
    pub concurrent: Option<u32>,
    /// Processors of a simulating task.
    pub model_cpus: Option<u32>,
}

impl Slurm {
    pub(super) fn of(wire: &WireSlurm) -> Result<Slurm, DefinitionError> {
        Ok(Slurm {
            partition: word("partition", &wire.partition)?,
            constraint: word("constraint", &wire.constraint)?,
            account: word("account", &wire.account)?,
            qos: word("qos", &wire.qos)?,
            reservation: word("reservation", &wire.reservation)?,
            time: wire.time.clone(),
            concurrent: count("concurrent", wire.concurrent)?,
            model_cpus: count("model_cpus", wire.model_cpus)?,
        })
    }
}

/// A word that can be used in a line `#SBATCH --key=word` without quoting.
fn word(key: &'static str, value: &Option<String>) -> Result<Option<String>, DefinitionError> {
    let is_plain = |letter: char| letter.is_ascii_graphic() && !"\"'\\#`$".contains(letter);
    match value {
        Some(found) if found.is_empty() || !found.chars().all(is_plain) => Err(DefinitionError::Slurm {
            key,
            expected: "a word of Slurm, without spaces and quotes",
            found: found.clone(),
        }),
        value => Ok(value.clone()),
    }
}

fn count(key: &'static str, value: Option<u32>) -> Result<Option<u32>, DefinitionError> {
    match value {
        Some(0) => Err(DefinitionError::Slurm { key, expected: "1 or more", found: "0".to_owned() }),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_sbatch_would_misread_are_refused() {
        for good in ["bench", "[rack1*2|rack2]&intel", "a,b"] {
            assert_eq!(word("partition", &Some(good.to_owned())), Ok(Some(good.to_owned())));
        }
        for bad in ["", "a b", "a\n#SBATCH --wrap=x", "\"a\"", "a#b", "$HOME", "é"] {
            assert!(word("partition", &Some(bad.to_owned())).is_err(), "{bad:?}");
        }
        assert!(count("concurrent", Some(0)).is_err());
        assert_eq!(count("concurrent", Some(3)), Ok(Some(3)));
    }
}
