//! Writes the types of `study` as rows of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::Admission;
use policy::Exit;
use policy::census::Folio;
use policy::machine::State;
use policy::verdict::Peak;
use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use study::advice::Advice;
use study::comparison::{Comparison, Ended};
use study::control::Role;
use study::metric::Provenance;
use study::stats::Analysis;
use study::trial::{Arm, Trial, TrialRecord};

/// Why nothing was written.
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    NoSuchComparison(i64),
    Duplicate { comparison: i64, trial: Trial },
    Unstorable { what: String, value: String },
    Foreign,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Sqlite(error)
    }
}

type WriteResult<T = ()> = Result<T, Failure>;

/// Writes a comparison without its trials; returns its id.
pub(super) fn comparison(transaction: &Transaction<'_>, comparison: &Comparison) -> WriteResult<i64> {
    let (design, invocation) = (&comparison.design, &comparison.invocation);
    let machine = content(transaction, "INSERT OR IGNORE INTO machines VALUES (?1, ?2)", &comparison.machine)?;
    let (ended, message) = ended_columns(&comparison.ended)?;
    let max_time_s = design.max_time_s.map(|max| finite("the time limit", max)).transpose()?;
    let trial_time_s = design.trial_time_s.map(|max| finite("the time limit of a trial", max)).transpose()?;
    transaction
        .prepare_cached(
            "INSERT INTO comparisons (started_unix_s, command, client, pagelab, version, machine, baseline,
                 primary_metric, min_blocks, max_blocks, max_time_s, precision_ratio, band_ratio, confidence, seed,
                 prove_all, prepare, trial_time_s, khugepaged, fragmented, own_session, contention, ended, ended_message,
                 analysis, advice)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
                 ?25, ?26)",
        )?
        .execute(params![
            comparison.started_unix_s,
            json(&invocation.command)?,
            invocation.client.as_ref().map(json).transpose()?,
            json(&invocation.pagelab)?,
            invocation.version,
            machine,
            integer("the baseline", design.baseline)?,
            design.primary,
            design.min_blocks,
            design.max_blocks,
            max_time_s,
            finite("the precision", design.precision_ratio)?,
            finite("the band", design.band_ratio)?,
            finite("the confidence", design.confidence)?,
            design.seed.to_string(),
            design.prove_all,
            invocation.prepare.as_ref().map(json).transpose()?,
            trial_time_s,
            word(design.khugepaged)?,
            design.fragmented.as_ref().map(json).transpose()?,
            design.own_session.as_ref().map(json).transpose()?,
            design.contention.as_ref().map(json).transpose()?,
            ended,
            message,
            comparison.analysis.as_ref().map(json).transpose()?,
            comparison.advice.as_ref().map(json).transpose()?,
        ])?;
    let id = transaction.last_insert_rowid();
    (0..design.arms.len()).try_for_each(|arm| write_arm(transaction, id, comparison, arm))?;
    for (position, metric) in design.metrics.iter().enumerate() {
        transaction.prepare_cached("INSERT INTO metrics VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            id,
            integer("a position", position)?,
            metric.name,
            word(metric.unit)?,
            word(metric.direction)?
        ])?;
    }
    Ok(id)
}

fn write_arm(transaction: &Transaction<'_>, id: i64, comparison: &Comparison, arm: usize) -> WriteResult {
    let (mechanism, reason, remedy) = admission_columns(comparison.admissions.get(arm));
    let Arm { label, policy, role, variant } = &comparison.design.arms[arm];
    let role = (*role != Role::Policy).then(|| json(role)).transpose()?;
    let number = integer("an arm", arm)?;
    transaction.prepare_cached("INSERT INTO arms VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?.execute(params![
        id,
        number,
        label,
        policy.to_string(),
        mechanism,
        reason,
        remedy,
        role,
        variant.as_ref().map(json).transpose()?,
    ])?;
    Ok(())
}

/// Replaces the stored list of admitted arms.
pub(super) fn admissions(transaction: &Transaction<'_>, id: i64, admissions: &[Admission]) -> WriteResult {
    let query = "UPDATE arms SET mechanism = ?3, reason = ?4, remedy = ?5 WHERE comparison = ?1 AND arm = ?2";
    for (arm, admission) in admissions.iter().enumerate() {
        let (mechanism, reason, remedy) = admission_columns(Some(admission));
        let values = params![id, integer("an arm", arm)?, mechanism, reason, remedy];
        transaction.prepare_cached(query)?.execute(values)?;
    }
    Ok(())
}

fn admission_columns(admission: Option<&Admission>) -> (Option<&String>, Option<&String>, Option<&String>) {
    match admission {
        Some(Admission::Admitted { mechanism }) => (Some(mechanism), None, None),
        Some(Admission::Unsupported(why)) => (None, Some(&why.reason), Some(&why.remedy)),
        None => (None, None, None),
    }
}

/// The settings that this transaction wrote last, and their hash: settings are long and rarely change from trial to
/// trial, so they are not written again.
#[derive(Default)]
pub(super) struct LastSettings {
    settings: Option<(Arc<BTreeMap<String, String>>, String)>,
}

/// Writes a trial with its rows in all tables. `known`: the settings that this transaction wrote last.
pub(super) fn trial(
    transaction: &Transaction<'_>,
    comparison: i64,
    record: &TrialRecord,
    known: &mut LastSettings,
) -> WriteResult {
    refuse_misplaced(transaction, comparison, record.trial)?;
    let Trial { arm, block, position, attempt } = record.trial;
    let (code, signal) = match record.answer.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let states = [state(transaction, &record.state_before, known)?, state(transaction, &record.state_after, known)?];
    transaction
        .prepare_cached(
            "INSERT INTO trials (comparison, arm, block, position, attempt, started_s, exit_code, exit_signal,
                 stdout_sha256, state_before, state_after, too_slow, stated)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            comparison,
            integer("an arm", arm)?,
            block,
            position,
            attempt,
            finite("the start of a trial", record.started_s)?,
            code,
            signal,
            record.answer.stdout_sha256,
            states[0],
            states[1],
            record.answer.too_slow,
            (!record.answer.stated.is_nothing()).then(|| json(&record.answer.stated)).transpose()?,
        ])?;
    let id = transaction.last_insert_rowid();
    observations(transaction, id, record)?;
    census(transaction, id, record)?;
    verdict(transaction, id, record)?;
    for (position, change) in record.rejected.iter().enumerate() {
        transaction.prepare_cached("INSERT INTO rejections VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            id,
            integer("a position", position)?,
            change.path,
            change.before,
            change.after
        ])?;
    }
    Ok(())
}

fn refuse_misplaced(transaction: &Transaction<'_>, comparison: i64, trial: Trial) -> WriteResult {
    let arm = integer("an arm", trial.arm)?;
    let arms: i64 = transaction
        .prepare_cached("SELECT count(*) FROM arms WHERE comparison = ?1")?
        .query_row([comparison], |row| row.get(0))?;
    if arms == 0 {
        return Err(Failure::NoSuchComparison(comparison));
    }
    if arm >= arms {
        return Err(Failure::Unstorable {
            what: format!("a trial of arm {arm}"),
            value: format!("one of {arms} arms"),
        });
    }
    let there = transaction
        .prepare_cached("SELECT 1 FROM trials WHERE comparison = ?1 AND block = ?2 AND arm = ?3 AND attempt = ?4")?
        .query_row(params![comparison, trial.block, arm, trial.attempt], |_| Ok(()))
        .optional()?;
    there.map_or(Ok(()), |()| Err(Failure::Duplicate { comparison, trial }))
}

fn observations(transaction: &Transaction<'_>, id: i64, record: &TrialRecord) -> WriteResult {
    let mut insert = transaction.prepare_cached("INSERT INTO observations VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut provenance: Option<(Provenance, String)> = None;
    for (position, observation) in record.observations.iter().enumerate() {
        let value = finite(&observation.metric, observation.value)?;
        let text = match &provenance {
            Some((known, text)) if *known == observation.provenance => text,
            _ => &provenance.insert((observation.provenance, word(observation.provenance)?)).1,
        };
        insert.execute(params![id, integer("a position", position)?, observation.metric, value, text])?;
    }
    Ok(())
}

fn census(transaction: &Transaction<'_>, id: i64, record: &TrialRecord) -> WriteResult {
    let mut insert = transaction.prepare_cached("INSERT INTO census VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (mapping, bytes) in record.census.rows() {
        let (folio, folio_bytes) = match mapping.folio {
            Folio::Unknown => ("unknown", 0),
            Folio::Whole(size) => ("whole", size.bytes()),
            Folio::Part(size) => ("part", size.bytes()),
        };
        insert.execute(params![
            id,
            word(mapping.backing)?,
            integer("a leaf", mapping.leaf.bytes())?,
            folio,
            integer("a folio", folio_bytes)?,
            integer("bytes of the census", bytes)?,
        ])?;
    }
    Ok(())
}

fn verdict(transaction: &Transaction<'_>, id: i64, record: &TrialRecord) -> WriteResult {
    let verdict = &record.verdict;
    let of_peak =
        |bytes: fn(Peak) -> u64| verdict.peak.map(|peak| integer("the bytes of the peak", bytes(peak))).transpose();
    transaction.prepare_cached("INSERT INTO verdicts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?.execute(params![
        id,
        word(verdict.holding)?,
        integer("the concerned bytes", verdict.concerned_bytes)?,
        integer("the covered bytes", verdict.covered_bytes)?,
        of_peak(|peak| peak.seen_bytes)?,
        of_peak(|peak| peak.least_bytes)?,
        of_peak(|peak| peak.most_bytes)?,
    ])?;
    for (position, share) in verdict.causes.iter().enumerate() {
        let cause = value(&share.cause)?;
        let code = cause.get("code").and_then(Value::as_str).unwrap_or_default().to_string();
        let bytes = share.bytes.map(|bytes| integer("the bytes of a cause", bytes)).transpose()?;
        transaction.prepare_cached("INSERT INTO causes VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            id,
            integer("a position", position)?,
            code,
            cause.to_string(),
            bytes
        ])?;
    }
    for (position, answered) in verdict.answered.iter().enumerate() {
        transaction.prepare_cached("INSERT INTO answered_calls VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            id,
            integer("a position", position)?,
            answered.call,
            integer("the number of calls", answered.times)?
        ])?;
    }
    Ok(())
}

/// Writes a state. Its settings, which are long and rarely change, are stored once.
fn state(transaction: &Transaction<'_>, state: &State, known: &mut LastSettings) -> WriteResult<i64> {
    finite("the load", state.load_1min)?;
    let mut moment = value(&State { settings: Arc::default(), ..state.clone() })?;
    moment.as_object_mut().and_then(|moment| moment.remove("settings"));
    let hash = match &known.settings {
        Some((settings, hash)) if *settings == state.settings => hash.clone(),
        _ => {
            let insert = "INSERT OR IGNORE INTO settings VALUES (?1, ?2)";
            let hash = content(transaction, insert, state.settings.as_ref())?;
            known.settings = Some((state.settings.clone(), hash.clone()));
            hash
        }
    };
    transaction
        .prepare_cached("INSERT INTO states (settings, moment) VALUES (?1, ?2)")?
        .execute(params![hash, moment.to_string()])?;
    Ok(transaction.last_insert_rowid())
}

/// Writes why a comparison ended, and its analysis.
pub(super) fn end(transaction: &Transaction<'_>, id: i64, analysis: Option<&Analysis>, ended: &Ended) -> WriteResult {
    let (word, message) = ended_columns(ended)?;
    let changed = transaction
        .prepare_cached("UPDATE comparisons SET analysis = ?2, ended = ?3, ended_message = ?4 WHERE id = ?1")?
        .execute(params![id, analysis.map(json).transpose()?, word, message])?;
    if changed == 0 { Err(Failure::NoSuchComparison(id)) } else { Ok(()) }
}

/// Writes the advice of a comparison.
pub(super) fn advice(transaction: &Transaction<'_>, id: i64, advice: &Advice) -> WriteResult {
    let query = "UPDATE comparisons SET advice = ?2 WHERE id = ?1";
    let changed = transaction.prepare_cached(query)?.execute(params![id, json(advice)?])?;
    if changed == 0 { Err(Failure::NoSuchComparison(id)) } else { Ok(()) }
}

fn ended_columns(ended: &Ended) -> WriteResult<(String, Option<String>)> {
    let ended = value(ended)?;
    let column = |name: &str| ended.get(name).and_then(Value::as_str).map(String::from);
    Ok((column("reason").unwrap_or_default(), column("message")))
}

/// Writes JSON that other rows refer to by its hash; equal content is stored once.
fn content(transaction: &Transaction<'_>, insert: &str, document: &impl Serialize) -> WriteResult<String> {
    let json = json(document)?;
    let hash: String = Sha256::digest(json.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    transaction.prepare_cached(insert)?.execute(params![hash, json])?;
    Ok(hash)
}

fn value(document: &impl Serialize) -> WriteResult<Value> {
    serde_json::to_value(document).map_err(|error| unstorable("a document", error))
}

fn json(document: &impl Serialize) -> WriteResult<String> {
    serde_json::to_string(document).map_err(|error| unstorable("a document", error))
}

/// The word that serde writes for a variant of an enum.
fn word(variant: impl Serialize) -> WriteResult<String> {
    match value(&variant)? {
        Value::String(word) => Ok(word),
        other => Err(unstorable("a word", other)),
    }
}

/// Converts to SQLite's 64-bit signed integers.
fn integer(what: &str, value: impl TryInto<i64> + Copy + std::fmt::Display) -> WriteResult<i64> {
    value.try_into().map_err(|_| unstorable(what, value))
}

fn finite(what: &str, value: f64) -> WriteResult<f64> {
    if value.is_finite() { Ok(value) } else { Err(unstorable(what, value)) }
}

fn unstorable(what: &str, value: impl std::fmt::Display) -> Failure {
    Failure::Unstorable { what: what.to_string(), value: value.to_string() }
}
