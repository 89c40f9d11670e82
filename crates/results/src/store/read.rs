//! From rows to the types of `study`.

use std::collections::HashMap;

use policy::cause::CauseShare;
use policy::census::{Census, Folio, Mapping};
use policy::size::PageSize;
use policy::verdict::{AnsweredCall, Peak, Verdict};
use rusqlite::types::{FromSql, Type};
use rusqlite::{OptionalExtension, Params, Row, Transaction, params};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use study::comparison::{Admission, Adoption, Comparison, Design, Ended, Invocation, Khugepaged, Unsupported};
use study::control::Role;
use study::machine::{SettingChange, State};
use study::metric::{Metric, Observation, names};
use study::stats::Analysis;
use study::trial::{Answer, Arm, Exit, Trial, TrialRecord};

use super::summary::Summary;

/// What [`names::PAGE_TABLE_SEEN_BYTES`] was called before version 4, as though it were a peak.
const FORMER_PAGE_TABLES: &str = "page_table_bytes";

type Read<T> = rusqlite::Result<T>;

/// The comparison of that number; `None` where there is none.
pub(super) fn comparison(transaction: &Transaction<'_>, id: i64) -> Read<Option<Comparison>> {
    let header = transaction
        .query_row(
            "SELECT comparisons.*, machines.machine AS machine_json
             FROM comparisons JOIN machines ON machines.hash = comparisons.machine WHERE id = ?1",
            [id],
            header,
        )
        .optional()?;
    let Some(mut comparison) = header else { return Ok(None) };
    for (arm, admission) in rows(transaction, "SELECT * FROM arms WHERE comparison = ?1 ORDER BY arm", [id], arm)? {
        let number = comparison.design.arms.len() as i64;
        comparison.design.arms.push(arm);
        comparison.admissions.extend(admission);
        comparison.adoptions.push(rows(
            transaction,
            "SELECT scope, commands FROM adoptions WHERE comparison = ?1 AND arm = ?2 ORDER BY position",
            [id, number],
            |row| Ok(Adoption { scope: row.get("scope")?, commands: document(row, "commands")? }),
        )?);
    }
    comparison.design.metrics = rows(
        transaction,
        "SELECT name, unit, direction FROM metrics WHERE comparison = ?1 ORDER BY position",
        [id],
        |row| {
            Ok(Metric { name: metric_name(row, "name")?, unit: word(row, "unit")?, direction: word(row, "direction")? })
        },
    )?;
    comparison.trials = trials(transaction, id)?;
    Ok(Some(comparison))
}

/// Every comparison in short, the oldest first.
pub(super) fn summaries(transaction: &Transaction<'_>) -> Read<Vec<Summary>> {
    let mut summaries = rows(
        transaction,
        "SELECT id, started_unix_s, command, ended, ended_message FROM comparisons ORDER BY id",
        [],
        |row| {
            Ok(Summary {
                id: row.get("id")?,
                started_unix_s: row.get("started_unix_s")?,
                command: document(row, "command")?,
                arms: Vec::new(),
                trials: 0,
                ended: ended(row)?,
            })
        },
    )?;
    for summary in &mut summaries {
        let arms = rows(transaction, "SELECT * FROM arms WHERE comparison = ?1 ORDER BY arm", [summary.id], arm)?;
        let query = "SELECT arm, count(*) AS trials FROM trials WHERE comparison = ?1 GROUP BY arm";
        let trials =
            rows(transaction, query, [summary.id], |row| Ok((unsigned(row, "arm")?, unsigned(row, "trials")?)))?;
        let of_arm: HashMap<usize, u64> = trials.into_iter().collect();
        let compared = arms.into_iter().enumerate().filter(|(_, (arm, _))| arm.role == Role::Policy);
        for (index, (arm, _)) in compared {
            summary.trials += of_arm.get(&index).copied().unwrap_or(0);
            summary.arms.push(arm.label);
        }
    }
    Ok(summaries)
}

fn header(row: &Row<'_>) -> Read<Comparison> {
    Ok(Comparison {
        id: row.get("id")?,
        started_unix_s: row.get("started_unix_s")?,
        invocation: Invocation {
            command: document(row, "command")?,
            client: optional_document(row, "client")?,
            prepare: if_there(optional_document(row, "prepare"), None)?,
            pagelab: document(row, "pagelab")?,
            version: row.get("version")?,
        },
        design: Design {
            arms: Vec::new(),
            baseline: unsigned(row, "baseline")?,
            metrics: Vec::new(),
            primary: metric_name(row, "primary_metric")?,
            min_blocks: row.get("min_blocks")?,
            max_blocks: row.get("max_blocks")?,
            max_time_s: row.get("max_time_s")?,
            trial_time_s: if_there(row.get("trial_time_s"), None)?,
            precision_ratio: row.get("precision_ratio")?,
            band_ratio: row.get("band_ratio")?,
            confidence: row.get("confidence")?,
            seed: parsed(row, "seed", |seed: String| seed.parse::<u64>())?,
            prove_all: if_there(row.get("prove_all"), false)?,
            khugepaged: if_there(word(row, "khugepaged"), Khugepaged::AsIs)?,
            fragmented: if_there(optional_document(row, "fragmented"), None)?,
        },
        machine: document(row, "machine_json")?,
        admissions: Vec::new(),
        trials: Vec::new(),
        analysis: analysis(row)?,
        adoptions: Vec::new(),
        ended: ended(row)?,
    })
}

/// What follows from the trials, with the names that metrics have today.
fn analysis(row: &Row<'_>) -> Read<Option<Analysis>> {
    let (former, today) = (FORMER_PAGE_TABLES, names::PAGE_TABLE_SEEN_BYTES);
    parsed(row, "analysis", |json: Option<String>| {
        json.map(|json| serde_json::from_str(&json.replace(&format!("\"{former}\""), &format!("\"{today}\""))))
            .transpose()
    })
}

/// See [`super::Store::first_warned_of_reporting`].
pub(super) fn first_warned_of_reporting(
    transaction: &Transaction<'_>,
    host_id: Option<&str>,
    before: i64,
) -> Read<Option<i64>> {
    let query = "SELECT min(comparisons.id) FROM comparisons JOIN machines ON machines.hash = comparisons.machine
                 WHERE comparisons.id < ?1 AND json_extract(machines.machine, '$.host_id') IS ?2
                 AND EXISTS (SELECT 1 FROM json_each(comparisons.analysis, '$.warnings')
                             WHERE json_extract(value, '$.warning') = 'free_memory_reported')";
    transaction.query_row(query, params![before, host_id], |row| row.get(0))
}

fn ended(row: &Row<'_>) -> Read<Ended> {
    let message: Option<String> = row.get("ended_message")?;
    parsed(row, "ended", |reason: String| serde_json::from_value(json!({ "reason": reason, "message": message })))
}

fn arm(row: &Row<'_>) -> Read<(Arm, Option<Admission>)> {
    let arm = Arm {
        label: row.get("label")?,
        policy: parsed(row, "policy", |policy: String| policy.parse())?,
        role: if_there(optional_document(row, "role"), None)?.unwrap_or_default(),
    };
    let unsupported = row.get::<_, Option<String>>("reason")?.zip(row.get("remedy")?);
    let admitted = row.get::<_, Option<String>>("mechanism")?.map(|mechanism| Admission::Admitted { mechanism });
    let unsupported = unsupported.map(|(reason, remedy)| Admission::Unsupported(Unsupported { reason, remedy }));
    Ok((arm, admitted.or(unsupported)))
}

fn trials(transaction: &Transaction<'_>, comparison: i64) -> Read<Vec<TrialRecord>> {
    let mut settings = HashMap::new();
    let numbered = rows(transaction, "SELECT * FROM trials WHERE comparison = ?1 ORDER BY id", [comparison], |row| {
        Ok((row.get("id")?, [row.get("state_before")?, row.get("state_after")?], bare_trial(row)?))
    })?;
    numbered
        .into_iter()
        .map(|(id, [before, after], mut record): (i64, [i64; 2], TrialRecord)| {
            record.observations = observations(transaction, id)?;
            record.census = census(transaction, id)?;
            record.verdict = verdict(transaction, id)?;
            record.rejected = rejections(transaction, id)?;
            record.state_before = state(transaction, before, &mut settings)?;
            record.state_after = state(transaction, after, &mut settings)?;
            Ok(record)
        })
        .collect()
}

/// The trial's own columns; what stands in other tables is left empty.
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
            too_slow: if_there(row.get("too_slow"), false)?,
        },
        state_before: State::default(),
        state_after: State::default(),
        rejected: Vec::new(),
    })
}

fn observations(transaction: &Transaction<'_>, trial: i64) -> Read<Vec<Observation>> {
    let query = "SELECT metric, value, provenance FROM observations WHERE trial = ?1 ORDER BY position";
    rows(transaction, query, [trial], |row| {
        Ok(Observation {
            metric: metric_name(row, "metric")?,
            value: row.get("value")?,
            provenance: word(row, "provenance")?,
        })
    })
}

fn census(transaction: &Transaction<'_>, trial: i64) -> Read<Census> {
    let mut census = Census::default();
    let query = "SELECT backing, leaf_bytes, folio, folio_bytes, bytes FROM census WHERE trial = ?1";
    for (mapping, bytes) in rows(transaction, query, [trial], |row| Ok((mapping(row)?, unsigned(row, "bytes")?)))? {
        census.add(mapping, bytes);
    }
    Ok(census)
}

fn mapping(row: &Row<'_>) -> Read<Mapping> {
    let size = |name: &'static str| parsed(row, name, |bytes: i64| PageSize::new(bytes.try_into().unwrap_or(0)));
    let folio = match row.get::<_, String>("folio")?.as_str() {
        "unknown" => Folio::Unknown,
        "whole" => Folio::Whole(size("folio_bytes")?),
        "part" => Folio::Part(size("folio_bytes")?),
        other => return Err(unreadable(row, "folio", format!("there is no view of a folio {other:?}"))),
    };
    Ok(Mapping { backing: word(row, "backing")?, leaf: size("leaf_bytes")?, folio })
}

fn verdict(transaction: &Transaction<'_>, trial: i64) -> Read<Verdict> {
    let mut query = transaction.prepare_cached("SELECT * FROM verdicts WHERE trial = ?1")?;
    let mut verdict = query.query_row([trial], |row| {
        Ok(Verdict {
            holding: word(row, "holding")?,
            concerned_bytes: unsigned(row, "concerned_bytes")?,
            covered_bytes: unsigned(row, "covered_bytes")?,
            peak: peak(row)?,
            causes: Vec::new(),
            answered: Vec::new(),
        })
    })?;
    let causes = "SELECT cause, bytes FROM causes WHERE trial = ?1 ORDER BY position";
    verdict.causes = rows(transaction, causes, [trial], |row| {
        let bytes = row.get::<_, Option<i64>>("bytes")?.map(|_| unsigned(row, "bytes")).transpose()?;
        Ok(CauseShare { cause: document(row, "cause")?, bytes })
    })?;
    let answered = "SELECT call, times FROM answered_calls WHERE trial = ?1 ORDER BY position";
    verdict.answered = rows(transaction, answered, [trial], |row| {
        Ok(AnsweredCall { call: row.get("call")?, times: unsigned(row, "times")? })
    })?;
    Ok(verdict)
}

/// The peak, which files before version 4 do not have.
fn peak(row: &Row<'_>) -> Read<Option<Peak>> {
    if if_there(row.get::<_, Option<i64>>("peak_seen_bytes"), None)?.is_none() {
        return Ok(None);
    }
    let [seen_bytes, least_bytes, most_bytes] =
        ["peak_seen_bytes", "peak_least_bytes", "peak_most_bytes"].map(|column| unsigned(row, column));
    Ok(Some(Peak { seen_bytes: seen_bytes?, least_bytes: least_bytes?, most_bytes: most_bytes? }))
}

/// The name that a metric has today.
fn metric_name(row: &Row<'_>, column: &'static str) -> Read<String> {
    let name: String = row.get(column)?;
    Ok(if name == FORMER_PAGE_TABLES { names::PAGE_TABLE_SEEN_BYTES.to_string() } else { name })
}

fn rejections(transaction: &Transaction<'_>, trial: i64) -> Read<Vec<SettingChange>> {
    let query = "SELECT path, before, after FROM rejections WHERE trial = ?1 ORDER BY position";
    rows(transaction, query, [trial], |row| {
        Ok(SettingChange { path: row.get("path")?, before: row.get("before")?, after: row.get("after")? })
    })
}

fn state(transaction: &Transaction<'_>, id: i64, settings: &mut HashMap<String, Value>) -> Read<State> {
    let mut query = transaction.prepare_cached(
        "SELECT moment, states.settings AS hash, settings.settings
         FROM states JOIN settings ON settings.hash = states.settings WHERE id = ?1",
    )?;
    query.query_row([id], |row| {
        let mut state: Value = document(row, "moment")?;
        let hash: String = row.get("hash")?;
        if !settings.contains_key(&hash) {
            settings.insert(hash.clone(), document(row, "settings")?);
        }
        if let Some(moment) = state.as_object_mut() {
            moment.insert("settings".to_string(), settings[&hash].clone());
        }
        parsed(row, "moment", |_: String| serde_json::from_value(state))
    })
}

fn rows<T>(
    transaction: &Transaction<'_>,
    query: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Read<T>,
) -> Read<Vec<T>> {
    transaction.prepare_cached(query)?.query_map(params, read)?.collect()
}

/// A column by way of a function that can fail.
fn parsed<S: FromSql, T, E: std::fmt::Display>(
    row: &Row<'_>,
    name: &'static str,
    parse: impl FnOnce(S) -> Result<T, E>,
) -> Read<T> {
    parse(row.get(name)?).map_err(|error| unreadable(row, name, error.to_string()))
}

/// What was read from a column that files of earlier versions do not have, and what stands for it there.
fn if_there<T>(found: Read<T>, before: T) -> Read<T> {
    match found {
        Err(rusqlite::Error::InvalidColumnName(_)) => Ok(before),
        found => found,
    }
}

fn unreadable(row: &Row<'_>, name: &'static str, why: String) -> rusqlite::Error {
    let column = row.as_ref().column_index(name).unwrap_or_default();
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, format!("column {name}: {why}").into())
}

fn document<T: DeserializeOwned>(row: &Row<'_>, name: &'static str) -> Read<T> {
    parsed(row, name, |json: String| serde_json::from_str(&json))
}

fn optional_document<T: DeserializeOwned>(row: &Row<'_>, name: &'static str) -> Read<Option<T>> {
    parsed(row, name, |json: Option<String>| json.map(|json| serde_json::from_str(&json)).transpose())
}

fn word<T: DeserializeOwned>(row: &Row<'_>, name: &'static str) -> Read<T> {
    parsed(row, name, |word: String| serde_json::from_value(Value::String(word)))
}

fn unsigned<T: TryFrom<i64>>(row: &Row<'_>, name: &'static str) -> Read<T> {
    parsed(row, name, |value: i64| T::try_from(value).map_err(|_| format!("{value} is out of range")))
}
