//! Reads the trials of a comparison, with their rows in other tables, by one query per table instead of one per trial.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use policy::Exit;
use policy::cause::CauseShare;
use policy::census::{Census, Folio, Mapping};
use policy::machine::{SettingChange, State};
use policy::size::PageSize;
use policy::verdict::{AnsweredCall, Peak, Verdict};
use rusqlite::{Row, Transaction, params};
use serde_json::{Map, Value};
use study::metric::{Observation, Provenance};
use study::trial::{Answer, Trial, TrialRecord};

use super::columns::{Read, document, optional_document, parsed, rows, unreadable, unsigned, word};

/// The trials of a comparison, in execution order.
pub(super) fn trials(transaction: &Transaction<'_>, comparison: i64) -> Read<Vec<TrialRecord>> {
    let query = "SELECT * FROM trials WHERE comparison = ?1 ORDER BY id";
    let numbered = rows(transaction, query, [comparison], |row| {
        Ok((row.get("id")?, [row.get("state_before")?, row.get("state_after")?], bare_trial(row)?))
    })?;
    let (mut ids, mut of_states, mut trials) = (Vec::new(), Vec::new(), Vec::new());
    for (id, states, trial) in numbered {
        ids.push(id);
        of_states.push(states);
        trials.push(trial);
    }
    let parts = Parts { transaction, ids };
    observations(&parts, &mut trials)?;
    census(&parts, &mut trials)?;
    verdicts(&parts, &mut trials)?;
    rejections(&parts, &mut trials)?;
    let states = states(transaction, of_states.iter().flatten().copied().collect())?;
    for (trial, [before, after]) in trials.iter_mut().zip(of_states) {
        let state = |id| states.get(&id).cloned().ok_or(rusqlite::Error::QueryReturnedNoRows);
        (trial.state_before, trial.state_after) = (state(before)?, state(after)?);
    }
    Ok(trials)
}

/// Reads the rows that belong to a list of trials from other tables.
struct Parts<'t, 'c> {
    transaction: &'t Transaction<'c>,
    /// Ids of the trials, ascending.
    ids: Vec<i64>,
}

impl Parts<'_, '_> {
    /// Calls `take` for each row of a query, with the index of its trial. The query must select the column `trial`, for
    /// trials from `?1` to `?2`, in the order of the trials.
    fn each(&self, query: &str, mut take: impl FnMut(usize, &Row<'_>) -> Read<()>) -> Read<()> {
        let mut statement = self.transaction.prepare_cached(query)?;
        for (first, last) in runs(&self.ids) {
            let from = self.ids.partition_point(|id| *id < first);
            let mut found = statement.query(params![first, last])?;
            while let Some(row) = found.next()? {
                let trial: i64 = row.get("trial")?;
                take(from + (trial - first) as usize, row)?;
            }
        }
        Ok(())
    }
}

/// Ascending numbers as ranges without gaps: the first and the last number of each range.
fn runs(ids: &[i64]) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => runs.push((*id, *id)),
        }
    }
    runs
}

/// The columns of the trial itself; what other tables hold is left empty.
fn bare_trial(row: &Row<'_>) -> Read<TrialRecord> {
    let exit = match row.get("exit_signal")? {
        Some(signal) => Exit::Signal(signal),
        None => Exit::Code(row.get("exit_code")?),
    };
    Ok(TrialRecord {
        trial: Trial {
            arm: unsigned(row, "arm")?,
            block: row.get("block")?,
            position: row.get("position")?,
            attempt: row.get("attempt")?,
        },
        started_s: row.get("started_s")?,
        observations: Vec::new(),
        census: Census::default(),
        verdict: Verdict {
            holding: policy::verdict::Holding::Unknown,
            concerned_bytes: 0,
            covered_bytes: 0,
            peak: None,
            causes: Vec::new(),
            answered: Vec::new(),
        },
        answer: Answer {
            exit,
            stdout_sha256: row.get("stdout_sha256")?,
            too_slow: row.get("too_slow")?,
            stated: optional_document(row, "stated")?.unwrap_or_default(),
        },
        state_before: State::default(),
        state_after: State::default(),
        rejected: Vec::new(),
    })
}

fn observations(parts: &Parts<'_, '_>, trials: &mut [TrialRecord]) -> Read<()> {
    let query = "SELECT trial, metric, value, provenance FROM observations WHERE trial BETWEEN ?1 AND ?2
                 ORDER BY trial, position";
    // Most rows of a store are observations, and most observations have the same word as the row before, so parsed
    // words are reused.
    let mut known: Option<(String, Provenance)> = None;
    parts.each(query, |trial, row| {
        let stored = row.get_ref("provenance")?;
        let same = known.as_ref().filter(|(word, _)| stored.as_str().is_ok_and(|stored| stored == word));
        let provenance = match same {
            Some((_, provenance)) => *provenance,
            None => {
                let provenance = word(row, "provenance")?;
                known = Some((row.get("provenance")?, provenance));
                provenance
            }
        };
        let (metric, value) = (row.get("metric")?, row.get("value")?);
        trials[trial].observations.push(Observation { metric, value, provenance });
        Ok(())
    })
}

fn census(parts: &Parts<'_, '_>, trials: &mut [TrialRecord]) -> Read<()> {
    let query = "SELECT trial, backing, leaf_bytes, folio, folio_bytes, bytes FROM census WHERE trial BETWEEN ?1 AND ?2
                 ORDER BY trial";
    parts.each(query, |trial, row| {
        trials[trial].census.add(mapping(row)?, unsigned(row, "bytes")?);
        Ok(())
    })
}

fn mapping(row: &Row<'_>) -> Read<Mapping> {
    let size = |name: &'static str| parsed(row, name, |bytes: i64| PageSize::new(bytes.try_into().unwrap_or(0)));
    let folio = match row.get::<_, String>("folio")?.as_str() {
        "unknown" => Folio::Unknown,
        "whole" => Folio::Whole(size("folio_bytes")?),
        "part" => Folio::Part(size("folio_bytes")?),
        other => return Err(unreadable(row, "folio", format!("expected unknown, whole or part, found {other:?}"))),
    };
    Ok(Mapping { backing: word(row, "backing")?, leaf: size("leaf_bytes")?, folio })
}

fn verdicts(parts: &Parts<'_, '_>, trials: &mut [TrialRecord]) -> Read<()> {
    let mut found = vec![false; trials.len()];
    parts.each("SELECT * FROM verdicts WHERE trial BETWEEN ?1 AND ?2 ORDER BY trial", |trial, row| {
        found[trial] = true;
        trials[trial].verdict = Verdict {
            holding: word(row, "holding")?,
            concerned_bytes: unsigned(row, "concerned_bytes")?,
            covered_bytes: unsigned(row, "covered_bytes")?,
            peak: peak(row)?,
            causes: Vec::new(),
            answered: Vec::new(),
        };
        Ok(())
    })?;
    if found.contains(&false) {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    let causes = "SELECT trial, cause, bytes FROM causes WHERE trial BETWEEN ?1 AND ?2 ORDER BY trial, position";
    parts.each(causes, |trial, row| {
        let bytes = row.get::<_, Option<i64>>("bytes")?.map(|_| unsigned(row, "bytes")).transpose()?;
        trials[trial].verdict.causes.push(CauseShare { cause: document(row, "cause")?, bytes });
        Ok(())
    })?;
    let answered =
        "SELECT trial, call, times FROM answered_calls WHERE trial BETWEEN ?1 AND ?2 ORDER BY trial, position";
    parts.each(answered, |trial, row| {
        let answered = AnsweredCall { call: row.get("call")?, times: unsigned(row, "times")? };
        trials[trial].verdict.answered.push(answered);
        Ok(())
    })
}

fn peak(row: &Row<'_>) -> Read<Option<Peak>> {
    if row.get::<_, Option<i64>>("peak_seen_bytes")?.is_none() {
        return Ok(None);
    }
    let [seen_bytes, least_bytes, most_bytes] =
        ["peak_seen_bytes", "peak_least_bytes", "peak_most_bytes"].map(|column| unsigned(row, column));
    Ok(Some(Peak { seen_bytes: seen_bytes?, least_bytes: least_bytes?, most_bytes: most_bytes? }))
}

fn rejections(parts: &Parts<'_, '_>, trials: &mut [TrialRecord]) -> Read<()> {
    let query =
        "SELECT trial, path, before, after FROM rejections WHERE trial BETWEEN ?1 AND ?2 ORDER BY trial, position";
    parts.each(query, |trial, row| {
        let change = SettingChange { path: row.get("path")?, before: row.get("before")?, after: row.get("after")? };
        trials[trial].rejected.push(change);
        Ok(())
    })
}

/// The states with these IDs.
fn states(transaction: &Transaction<'_>, mut ids: Vec<i64>) -> Read<HashMap<i64, State>> {
    ids.sort_unstable();
    ids.dedup();
    let mut settings: HashMap<String, Arc<BTreeMap<String, String>>> = HashMap::new();
    let mut states = HashMap::with_capacity(ids.len());
    let mut query =
        transaction.prepare_cached("SELECT id, moment, settings FROM states WHERE id BETWEEN ?1 AND ?2 ORDER BY id")?;
    let mut of_hash = transaction.prepare_cached("SELECT settings FROM settings WHERE hash = ?1")?;
    for (first, last) in runs(&ids) {
        let mut found = query.query(params![first, last])?;
        while let Some(row) = found.next()? {
            let hash: String = row.get("settings")?;
            if !settings.contains_key(&hash) {
                let own: BTreeMap<String, String> = of_hash.query_row([&hash], |row| document(row, "settings"))?;
                settings.insert(hash.clone(), Arc::new(own));
            }
            let mut state: State = parsed(row, "moment", |moment: String| {
                let mut moment: Map<String, Value> = serde_json::from_str(&moment)?;
                moment.insert("settings".to_owned(), Value::Object(Map::new()));
                serde_json::from_value(Value::Object(moment))
            })?;
            state.settings = settings[&hash].clone();
            states.insert(row.get("id")?, state);
        }
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_gap_are_one_run() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]), [(1, 3), (7, 7), (9, 10)]);
        assert_eq!(runs(&[i64::MAX - 1, i64::MAX]), [(i64::MAX - 1, i64::MAX)]);
    }
}
