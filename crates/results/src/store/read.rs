//! Reads the rows of the store as the types of `study`.

use std::collections::HashMap;

use policy::machine::Machine;
use policy::{Admission, Unsupported};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde_json::json;
use study::comparison::{Comparison, Design, Ended, Invocation};
use study::control::Role;
use study::guest::kernel_of;
use study::metric::Metric;
use study::trial::Arm;

use super::columns::{Read, document, optional_document, parsed, rows, unsigned, word};
use super::summary::Summary;
use super::trials::trials;

/// The comparison with this id; `None` if there is none.
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
        comparison.design.arms.push(arm);
        comparison.admissions.extend(admission);
    }
    comparison.design.metrics = rows(
        transaction,
        "SELECT name, unit, direction FROM metrics WHERE comparison = ?1 ORDER BY position",
        [id],
        |row| Ok(Metric { name: row.get("name")?, unit: word(row, "unit")?, direction: word(row, "direction")? }),
    )?;
    comparison.trials = trials(transaction, id)?;
    Ok(Some(comparison))
}

/// Summaries of all comparisons, oldest first.
pub(super) fn summaries(transaction: &Transaction<'_>) -> Read<Vec<Summary>> {
    let mut summaries = rows(
        transaction,
        "SELECT id, started_unix_s, command, client, ended, ended_message, machines.machine AS machine_json
         FROM comparisons JOIN machines ON machines.hash = comparisons.machine ORDER BY id",
        [],
        |row| {
            Ok(Summary {
                id: row.get("id")?,
                started_unix_s: row.get("started_unix_s")?,
                command: document(row, "command")?,
                client: optional_document(row, "client")?,
                kernel: kernel_of(&document::<Machine>(row, "machine_json")?).map(str::to_owned),
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
            prepare: optional_document(row, "prepare")?,
            pagelab: document(row, "pagelab")?,
            version: row.get("version")?,
        },
        design: Design {
            arms: Vec::new(),
            baseline: unsigned(row, "baseline")?,
            metrics: Vec::new(),
            primary: row.get("primary_metric")?,
            min_blocks: row.get("min_blocks")?,
            max_blocks: row.get("max_blocks")?,
            max_time_s: row.get("max_time_s")?,
            trial_time_s: row.get("trial_time_s")?,
            precision_ratio: row.get("precision_ratio")?,
            band_ratio: row.get("band_ratio")?,
            confidence: row.get("confidence")?,
            seed: parsed(row, "seed", |seed: String| seed.parse::<u64>())?,
            prove_all: row.get("prove_all")?,
            khugepaged: word(row, "khugepaged")?,
            fragmented: optional_document(row, "fragmented")?,
            own_session: optional_document(row, "own_session")?,
            contention: optional_document(row, "contention")?,
        },
        machine: document(row, "machine_json")?,
        admissions: Vec::new(),
        trials: Vec::new(),
        analysis: optional_document(row, "analysis")?,
        advice: optional_document(row, "advice")?,
        ended: ended(row)?,
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
        role: optional_document(row, "role")?.unwrap_or_default(),
        variant: optional_document(row, "variant")?,
    };
    let unsupported = row.get::<_, Option<String>>("reason")?.zip(row.get("remedy")?);
    let admitted = row.get::<_, Option<String>>("mechanism")?.map(|mechanism| Admission::Admitted { mechanism });
    let unsupported = unsupported.map(|(reason, remedy)| Admission::Unsupported(Unsupported { reason, remedy }));
    Ok((arm, admitted.or(unsupported)))
}
