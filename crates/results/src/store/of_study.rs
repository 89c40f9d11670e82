//! What a store holds for a study: which comparisons belong to it, its simulations, and resumptions of interrupted
//! comparisons.

use policy::Admission;
use rusqlite::{OptionalExtension, Transaction, params};
use study::comparison::Comparison;

use super::{Error, Store, begin, write};

/// The study, workload and subject to which a comparison or a simulation belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfStudy {
    /// Name of the study.
    pub study: String,
    /// Name of the workload.
    pub workload: String,
    /// Everything that determines what is measured, as JSON. Comparisons with the same subject measure the same thing.
    pub subject: String,
}

/// A resumption of an interrupted comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Number of trials stored before the resumption.
    pub trials: u64,
    /// Time of the resumption, in seconds since 1970, UTC.
    pub started_unix_s: i64,
    /// ID of the boot in which the comparison continued.
    pub boot_id: String,
}

/// The result of a model machine under a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// The study, workload and subject to which it belongs.
    pub of: OfStudy,
    /// Name of the machine.
    pub machine: String,
    /// Name of the policy.
    pub policy: String,
    /// The result, as JSON.
    pub outcome: String,
}

/// What to do with a simulation if the store already has one for the same subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Keep the stored simulation: both are the same, or the new one failed.
    Keep,
    /// Replace the stored simulation.
    Replace,
    /// Report a contradiction between the two, and keep the stored one.
    Conflict,
}

impl Store {
    /// Same as [`Store::begin`], and assigns the comparison to a study in the same transaction.
    pub fn begin_of_study(&self, comparison: &Comparison, of: &OfStudy) -> Result<i64, Error> {
        self.write(|transaction| {
            let id = begin(transaction, comparison)?;
            let insert = "INSERT INTO study_comparisons VALUES (?1, ?2, ?3, ?4)";
            transaction.prepare_cached(insert)?.execute(params![of.study, of.workload, of.subject, id])?;
            Ok(id)
        })
    }

    /// The comparisons of a study with their ids, oldest first.
    pub fn comparisons_of(&self, study: &str) -> Result<Vec<(OfStudy, i64)>, Error> {
        let query = "SELECT workload, subject, comparison FROM study_comparisons WHERE study = ?1 ORDER BY comparison";
        self.read(|transaction| {
            let of = |row: &rusqlite::Row<'_>| {
                let of = OfStudy { study: study.to_owned(), workload: row.get(0)?, subject: row.get(1)? };
                Ok((of, row.get(2)?))
            };
            transaction.prepare(query)?.query_map([study], of)?.collect()
        })
    }

    /// The names of all studies in the store.
    pub fn studies(&self) -> Result<Vec<String>, Error> {
        let query = "SELECT study FROM study_comparisons UNION SELECT study FROM study_simulations ORDER BY 1";
        self.read(|transaction| transaction.prepare(query)?.query_map([], |row| row.get(0))?.collect())
    }

    /// Records that a comparison continues: in which boot, and which arms are admitted there.
    pub fn resume(&self, id: i64, admissions: &[Admission], resumption: &Resumption) -> Result<(), Error> {
        self.write(|transaction| {
            insert_resumption(transaction, id, resumption)?;
            write::admissions(transaction, id, admissions)?;
            let query =
                "UPDATE comparisons SET ended = 'not_ended', ended_message = NULL, analysis = NULL WHERE id = ?1";
            transaction.execute(query, [id])?;
            Ok(())
        })
    }

    /// The resumptions of a comparison, in chronological order.
    pub fn resumptions(&self, id: i64) -> Result<Vec<Resumption>, Error> {
        let query = "SELECT trials, started_unix_s, boot_id FROM resumptions WHERE comparison = ?1 ORDER BY position";
        self.read(|transaction| {
            let of = |row: &rusqlite::Row<'_>| {
                let trials: i64 = row.get(0)?;
                Ok(Resumption { trials: trials.max(0) as u64, started_unix_s: row.get(1)?, boot_id: row.get(2)? })
            };
            transaction.prepare(query)?.query_map([id], of)?.collect()
        })
    }

    /// Adds a resumption that was read from another store.
    pub fn add_resumption(&self, id: i64, resumption: &Resumption) -> Result<(), Error> {
        self.write(|transaction| insert_resumption(transaction, id, resumption))
    }

    /// Stores results of model machines; earlier results of the same subject are replaced.
    pub fn store_simulations(&self, simulations: &[Simulation]) -> Result<(), Error> {
        self.write(|transaction| {
            let insert = "INSERT OR REPLACE INTO study_simulations VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            for Simulation { of, machine, policy, outcome } in simulations {
                let values = params![of.study, of.workload, of.subject, machine, policy, outcome];
                transaction.prepare_cached(insert)?.execute(values)?;
            }
            Ok(())
        })
    }

    /// Adds results of model machines from another store. If the store already has a result for the same subject,
    /// `resolve` decides from the stored outcome and the new one. Returns the decision for each result; `None` for a
    /// result that was new.
    pub fn add_simulations(
        &self,
        simulations: &[Simulation],
        resolve: &dyn Fn(&str, &str) -> Resolution,
    ) -> Result<Vec<Option<Resolution>>, Error> {
        let query =
            "SELECT outcome FROM study_simulations WHERE study = ?1 AND subject = ?2 AND machine = ?3 AND policy = ?4";
        self.write(|transaction| {
            let mut resolutions = Vec::new();
            for Simulation { of, machine, policy, outcome } in simulations {
                let key = params![of.study, of.subject, machine, policy];
                let there: Option<String> =
                    transaction.prepare_cached(query)?.query_row(key, |row| row.get(0)).optional()?;
                let resolution = there.map(|there| resolve(&there, outcome));
                if matches!(resolution, None | Some(Resolution::Replace)) {
                    let insert = "INSERT OR REPLACE INTO study_simulations VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                    let values = params![of.study, of.workload, of.subject, machine, policy, outcome];
                    transaction.prepare_cached(insert)?.execute(values)?;
                }
                resolutions.push(resolution);
            }
            Ok(resolutions)
        })
    }

    /// The results of model machines in a study.
    pub fn simulations_of(&self, study: &str) -> Result<Vec<Simulation>, Error> {
        let query = "SELECT workload, subject, machine, policy, outcome FROM study_simulations WHERE study = ?1";
        self.read(|transaction| {
            let of = |row: &rusqlite::Row<'_>| {
                let of = OfStudy { study: study.to_owned(), workload: row.get(0)?, subject: row.get(1)? };
                Ok(Simulation { of, machine: row.get(2)?, policy: row.get(3)?, outcome: row.get(4)? })
            };
            transaction.prepare(query)?.query_map([study], of)?.collect()
        })
    }
}

fn insert_resumption(transaction: &Transaction<'_>, id: i64, resumption: &Resumption) -> Result<(), write::Failure> {
    let query = "SELECT count(*) FROM resumptions WHERE comparison = ?1";
    let position: i64 = transaction.query_row(query, [id], |row| row.get(0))?;
    let there = "SELECT id FROM comparisons WHERE id = ?1";
    let there: Option<i64> = transaction.query_row(there, [id], |row| row.get(0)).optional()?;
    there.ok_or(write::Failure::NoSuchComparison(id))?;
    let Resumption { trials, started_unix_s, boot_id } = resumption;
    let trials = i64::try_from(*trials).unwrap_or(i64::MAX);
    transaction.prepare_cached("INSERT INTO resumptions VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
        id,
        position,
        trials,
        started_unix_s,
        boot_id
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use policy::Unsupported;
    use study::comparison::Ended;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("results.sqlite")).unwrap();
        (directory, store)
    }

    fn of(study: &str, workload: &str) -> OfStudy {
        OfStudy { study: study.into(), workload: workload.into(), subject: format!("[{workload:?}]") }
    }

    #[test]
    fn comparisons_are_found_by_their_study() {
        let (_directory, store) = store();
        assert!(store.comparisons_of("one").unwrap().is_empty());
        store.begin(&sample::comparison()).unwrap();
        let gups = store.begin_of_study(&sample::comparison(), &of("one", "gups")).unwrap();
        let other = store.begin_of_study(&sample::comparison(), &of("two", "gups")).unwrap();
        assert_eq!(store.comparisons_of("one").unwrap(), [(of("one", "gups"), gups)]);
        assert_eq!(store.comparisons_of("two").unwrap(), [(of("two", "gups"), other)]);
        assert_eq!(store.studies().unwrap(), ["one", "two"]);
    }

    #[test]
    fn a_running_comparison_has_not_ended() {
        let (_directory, store) = store();
        let mut comparison = sample::comparison();
        comparison.ended = Ended::Interrupted;
        let id = store.begin_of_study(&comparison, &of("one", "gups")).unwrap();
        let resumption = Resumption { trials: 81, started_unix_s: 5, boot_id: "b".into() };
        let mut admissions = comparison.admissions.clone();
        admissions[1] = Admission::Unsupported(Unsupported { reason: "gone".into(), remedy: "get it".into() });
        store.resume(id, &admissions, &resumption).unwrap();
        let stored = store.load(id).unwrap();
        assert_eq!((stored.ended, stored.admissions), (Ended::NotEnded, admissions));
        assert_eq!(store.resumptions(id).unwrap(), std::slice::from_ref(&resumption));
        assert!(matches!(store.resume(99, &[], &resumption), Err(Error::NoSuchComparison { .. })));
    }

    #[test]
    fn simulations_are_kept_once() {
        let (_directory, store) = store();
        let outcome = |outcome: &str| Simulation {
            of: of("one", "gups"),
            machine: "cortex-a53".into(),
            policy: "base".into(),
            outcome: outcome.into(),
        };
        store.store_simulations(&[outcome("{}")]).unwrap();
        store.store_simulations(&[outcome("[]")]).unwrap();
        assert_eq!(store.simulations_of("one").unwrap(), [outcome("[]")]);
        assert!(store.simulations_of("two").unwrap().is_empty());
    }

    #[test]
    fn a_simulation_of_another_store_replaces_nothing_by_itself() {
        let (_directory, store) = store();
        let simulation = |policy: &str, outcome: &str| Simulation {
            of: of("one", "gups"),
            machine: "cortex-a53".into(),
            policy: policy.into(),
            outcome: outcome.into(),
        };
        let add = |simulations: &[Simulation], resolution: Resolution| {
            store.add_simulations(simulations, &|there, new| if there == new { Resolution::Keep } else { resolution })
        };
        let both = [simulation("base", "{}"), simulation("thp", "{}")];
        assert_eq!(add(&both, Resolution::Conflict).unwrap(), [None, None]);
        assert_eq!(add(&both, Resolution::Conflict).unwrap(), [Some(Resolution::Keep); 2]);
        let other = [simulation("thp", "[]")];
        assert_eq!(add(&other, Resolution::Conflict).unwrap(), [Some(Resolution::Conflict)]);
        assert_eq!(store.simulations_of("one").unwrap(), both, "the stored ones stay");
        assert_eq!(add(&other, Resolution::Replace).unwrap(), [Some(Resolution::Replace)]);
        assert_eq!(store.simulations_of("one").unwrap()[1], other[0]);
    }
}
