//! What of a store is of a study: comparisons, simulations, and where interrupted comparisons went on.

use rusqlite::{OptionalExtension, Transaction, params};
use study::comparison::{Admission, Comparison};

use super::{Error, Store, begin, write};

/// What a comparison is in a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfStudy {
    /// The study's name.
    pub study: String,
    /// The workload's name.
    pub workload: String,
    /// JSON: everything that decides what is measured. Comparisons of one subject are of the same thing.
    pub subject: String,
}

/// Where an interrupted comparison went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Trials that there were before.
    pub trials: u64,
    /// Seconds since 1970.
    pub started_unix_s: i64,
    /// The boot in which it went on.
    pub boot_id: String,
}

/// What a model machine gave under a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// What it is in a study.
    pub of: OfStudy,
    /// The machine.
    pub machine: String,
    /// The policy.
    pub policy: String,
    /// JSON: what came of it.
    pub outcome: String,
}

/// What becomes of a simulation of which the store has another outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Both say the same: nothing is written.
    There,
    /// What is there gives way.
    GivesWay,
    /// They say different things: what is there stays.
    Conflict,
}

impl Store {
    /// As [`Store::begin`], for a comparison of a study: both are stored, or nothing.
    ///
    /// # Errors
    /// As [`Store::begin`].
    pub fn begin_of_study(&self, comparison: &Comparison, of: &OfStudy) -> Result<i64, Error> {
        self.write(|transaction| {
            let id = begin(transaction, comparison)?;
            let insert = "INSERT INTO study_comparisons VALUES (?1, ?2, ?3, ?4)";
            transaction.prepare_cached(insert)?.execute(params![of.study, of.workload, of.subject, id])?;
            Ok(id)
        })
    }

    /// The comparisons of a study, the oldest first: each with its number.
    ///
    /// # Errors
    /// The store cannot be read.
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

    /// The names of all studies of which there is something.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn studies(&self) -> Result<Vec<String>, Error> {
        let query = "SELECT study FROM study_comparisons UNION SELECT study FROM study_simulations ORDER BY 1";
        self.read(|transaction| transaction.prepare(query)?.query_map([], |row| row.get(0))?.collect())
    }

    /// Says that a comparison goes on, in which boot, and what of its arms can be given there.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn go_on(&self, id: i64, admissions: &[Admission], resumption: &Resumption) -> Result<(), Error> {
        self.write(|transaction| {
            resume(transaction, id, resumption)?;
            write::admissions(transaction, id, admissions)?;
            let query =
                "UPDATE comparisons SET ended = 'not_ended', ended_message = NULL, analysis = NULL WHERE id = ?1";
            transaction.execute(query, [id])?;
            Ok(())
        })
    }

    /// Where a comparison went on, in the order of time.
    ///
    /// # Errors
    /// The store cannot be read.
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

    /// Adds where a comparison that comes from another store went on.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn add_resumption(&self, id: i64, resumption: &Resumption) -> Result<(), Error> {
        self.write(|transaction| resume(transaction, id, resumption))
    }

    /// Stores what a model machine gave; what the same subject gave before is replaced.
    ///
    /// # Errors
    /// As [`Store::begin`].
    pub fn keep_simulations(&self, simulations: &[Simulation]) -> Result<(), Error> {
        self.write(|transaction| {
            let insert = "INSERT OR REPLACE INTO study_simulations VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            for Simulation { of, machine, policy, outcome } in simulations {
                let values = params![of.study, of.workload, of.subject, machine, policy, outcome];
                transaction.prepare_cached(insert)?.execute(values)?;
            }
            Ok(())
        })
    }

    /// Adds what model machines gave by another store; `meet` says what becomes of one that is there, by both outcomes,
    /// its own first. Returns for each what it met; `None`: it was new.
    ///
    /// # Errors
    /// As [`Store::begin`].
    pub fn add_simulations(
        &self,
        simulations: &[Simulation],
        meet: &dyn Fn(&str, &str) -> Meeting,
    ) -> Result<Vec<Option<Meeting>>, Error> {
        let query =
            "SELECT outcome FROM study_simulations WHERE study = ?1 AND subject = ?2 AND machine = ?3 AND policy = ?4";
        self.write(|transaction| {
            let mut met = Vec::new();
            for Simulation { of, machine, policy, outcome } in simulations {
                let key = params![of.study, of.subject, machine, policy];
                let there: Option<String> =
                    transaction.prepare_cached(query)?.query_row(key, |row| row.get(0)).optional()?;
                let meeting = there.map(|there| meet(&there, outcome));
                if matches!(meeting, None | Some(Meeting::GivesWay)) {
                    let insert = "INSERT OR REPLACE INTO study_simulations VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                    let values = params![of.study, of.workload, of.subject, machine, policy, outcome];
                    transaction.prepare_cached(insert)?.execute(values)?;
                }
                met.push(meeting);
            }
            Ok(met)
        })
    }

    /// What model machines gave in a study.
    ///
    /// # Errors
    /// The store cannot be read.
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

fn resume(transaction: &Transaction<'_>, id: i64, resumption: &Resumption) -> Result<(), write::Failure> {
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
    use study::comparison::{Ended, Unsupported};

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
    fn a_comparison_that_goes_on_has_not_ended() {
        let (_directory, store) = store();
        let mut comparison = sample::comparison();
        comparison.ended = Ended::Interrupted;
        let id = store.begin_of_study(&comparison, &of("one", "gups")).unwrap();
        let went_on = Resumption { trials: 81, started_unix_s: 5, boot_id: "b".into() };
        let mut admissions = comparison.admissions.clone();
        admissions[1] = Admission::Unsupported(Unsupported { reason: "gone".into(), remedy: "get it".into() });
        store.go_on(id, &admissions, &went_on).unwrap();
        let stored = store.load(id).unwrap();
        assert_eq!((stored.ended, stored.admissions), (Ended::NotEnded, admissions));
        assert_eq!(store.resumptions(id).unwrap(), std::slice::from_ref(&went_on));
        assert!(matches!(store.go_on(99, &[], &went_on), Err(Error::NoSuchComparison { .. })));
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
        store.keep_simulations(&[outcome("{}")]).unwrap();
        store.keep_simulations(&[outcome("[]")]).unwrap();
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
        let add = |simulations: &[Simulation], meeting: Meeting| {
            store.add_simulations(simulations, &|there, new| if there == new { Meeting::There } else { meeting })
        };
        let both = [simulation("base", "{}"), simulation("thp", "{}")];
        assert_eq!(add(&both, Meeting::Conflict).unwrap(), [None, None]);
        assert_eq!(add(&both, Meeting::Conflict).unwrap(), [Some(Meeting::There); 2]);
        let other = [simulation("thp", "[]")];
        assert_eq!(add(&other, Meeting::Conflict).unwrap(), [Some(Meeting::Conflict)]);
        assert_eq!(store.simulations_of("one").unwrap(), both, "what is there stays");
        assert_eq!(add(&other, Meeting::GivesWay).unwrap(), [Some(Meeting::GivesWay)]);
        assert_eq!(store.simulations_of("one").unwrap()[1], other[0]);
    }
}
