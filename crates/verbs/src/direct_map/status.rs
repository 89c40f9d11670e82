//! `pagelab direct-map status`: which leaves map the kernel's direct map, why, and which leaf sizes it can still have in
//! this boot.

use std::path::PathBuf;

use clap::Args;
use host::Host;
use host::direct_map::{self, Availability, Changes, Feature, Leaves, Marker, Status};
use policy::Unsupported;
use policy::size::{PageSize, format_bytes};
use policy::{DirectMapLeaves, Granularity, Policy};
use results::grid::plain;
use serde_json::{Value, json};
use study::stats::DEMOTED_SHARE;

use crate::failure::Failure;
use crate::output::{print, terminal_width};

/// Arguments of `pagelab direct-map status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
    /// Read /proc and /sys below this directory: a tree that was captured on another host
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    root: PathBuf,
}

/// Runs `pagelab direct-map status`.
pub fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let host = Host::open(&arguments.root).map_err(Failure::input)?;
    let status = direct_map::status(&host).map_err(Failure::input)?;
    let text = if arguments.json { format!("{:#}", document(&status)) } else { text(&status) };
    print(&text, arguments.json)
}

fn text(status: &Status) -> String {
    let parts = [leaves_text(status), marker_text(status), features_text(&status.features), states_text(status)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn leaves_text(status: &Status) -> String {
    let leaves = match &status.leaves {
        Ok(leaves) => leaves,
        Err(why) => {
            return format!("leaves of the direct map: unknown, because {}", results::printable(&why.to_string()));
        }
    };
    let table =
        plain(["leaf", "mapped", "share", "splits", "collapses"], leaf_rows(leaves, &status.changes), terminal_width());
    let source = leaves.source.file();
    let about = format!("from {source}; splits and collapses are counted since boot, for the leaf size of the row");
    let notes = std::iter::once(about).chain(surplus(leaves)).map(|note| results::fold(&note, terminal_width(), 0));
    format!("{table}\n\n{}", notes.collect::<Vec<_>>().join("\n"))
}

/// A note if the kernel's counts add up to more than the memory of the machine.
fn surplus(leaves: &Leaves) -> Option<String> {
    leaves.counted_twice_bytes()?;
    let (counted, total) = (format_bytes(leaves.counted_bytes()), format_bytes(leaves.total_bytes()));
    Some(format!(
        "the leaves add up to {counted}, but memory is {total}: the kernel counts some leaves twice at boot, so shares are bounds"
    ))
}

/// One row per leaf size; `-` in place of what this kernel does not count.
pub fn leaf_rows(leaves: &Leaves, changes: &[Changes]) -> Vec<[String; 5]> {
    let count = |number: Option<u64>| number.map_or("-".to_string(), |number| number.to_string());
    let row = |(leaf, bytes): (&PageSize, &u64)| {
        let changes = changes.iter().find(|changes| changes.leaf == *leaf);
        let runs =
            leaves.contiguous_bytes.get(leaf).map(|bytes| format!(" ({} in contiguous runs)", format_bytes(*bytes)));
        [
            leaf.to_string(),
            format!("{}{}", format_bytes(*bytes), runs.unwrap_or_default()),
            leaves.share(*leaf),
            count(changes.and_then(|changes| changes.splits)),
            count(changes.and_then(|changes| changes.collapses)),
        ]
    };
    leaves.bytes.iter().map(row).collect()
}

fn marker_text(status: &Status) -> String {
    let text = match &status.marker {
        Ok(None) => return String::new(),
        Ok(Some(marker)) => format!(
            "demoted to {} by pagelab since this boot ({} time{}{}){}; every later result of this boot records it, with a warning \
             if that share is {:.0} % or more",
            marker.leaf_bytes,
            marker.demotions,
            if marker.demotions == 1 { "" } else { "s" },
            split_text(marker),
            small_text(status, marker.leaf_bytes),
            DEMOTED_SHARE * 100.0
        ),
        Err(error) => format!("demoted by pagelab: unknown, because {}", results::printable(&error.to_string())),
    };
    results::fold(&text, terminal_width(), 0)
}

/// How much of the direct map is in leaves of at most the demoted size, as the kernel counts it.
fn small_text(status: &Status, leaf: PageSize) -> String {
    let Ok(leaves) = &status.leaves else { return String::new() };
    let small = leaves.of(leaf) + leaves.below(leaf);
    let percent = small as f64 * 100.0 / leaves.counted_bytes().max(1) as f64;
    format!(": {percent:.1} % of the counted memory ({}) is in leaves of this size or smaller", format_bytes(small))
}

/// The bytes that demotions have split, by original leaf size, as pagelab recorded them. They do not depend on the
/// kernel's counters.
fn split_text(marker: &Marker) -> String {
    let split = marker.split_bytes.iter();
    split.map(|(leaf, bytes)| format!(", {} split out of leaves of {leaf}", format_bytes(*bytes))).collect()
}

fn features_text(features: &[Feature]) -> String {
    let rows =
        features.iter().map(|feature| [feature.name.to_string(), feature.value.clone(), feature.meaning.clone()]);
    plain(["feature", "value", "what it means"], rows, terminal_width())
}

fn states_text(status: &Status) -> String {
    let rows = status.availabilities.iter().rev().map(|(leaf, availability)| {
        let (word, how) = words(availability);
        [policy(DirectMapLeaves::Of(*leaf)), word.to_string(), how.map(ToString::to_string).unwrap_or_default()]
    });
    let mixed = is_mixed(status).then(|| [policy(DirectMapLeaves::Mixed), "now".to_string(), String::new()]);
    let rows = rows.chain(mixed);
    plain(["policy", "in this boot", "why, and how to get it"], rows, terminal_width())
}

/// Whether no single leaf size is known to map at least nine tenths of the direct map.
fn is_mixed(status: &Status) -> bool {
    status.leaves.as_ref().is_ok_and(|leaves| leaves.dominant().is_none())
}

fn policy(leaf: DirectMapLeaves) -> String {
    Policy::plain(Granularity::DirectMap(leaf)).to_string()
}

fn words(availability: &Availability) -> (&'static str, Option<&Unsupported>) {
    match availability {
        Availability::Now => ("now", None),
        Availability::ByDemotion(why) => ("by demotion", Some(why)),
        Availability::OtherBoot(why) => ("no", Some(why)),
        Availability::Unknown(why) => ("unknown", Some(why)),
    }
}

fn document(status: &Status) -> Value {
    let memory_bytes = status.leaves.as_ref().ok().and_then(|leaves| leaves.memory_bytes);
    let (leaves, source, unknown) = match &status.leaves {
        Ok(leaves) => (leaf_documents(leaves), Some(leaves.source.file()), None),
        Err(why) => (Vec::new(), None, Some(json!({ "reason": why.reason, "remedy": why.remedy }))),
    };
    let (marker, marker_unreadable) = match &status.marker {
        Ok(marker) => (marker.as_ref().map(marker_document), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let features = status.features.iter();
    let features = features.map(|one| json!({ "name": one.name, "value": one.value, "meaning": one.meaning }));
    let availabilities = status.availabilities.iter().map(|(leaf, availability)| {
        let (word, why) = words(availability);
        json!({
            "policy": policy(DirectMapLeaves::Of(*leaf)),
            "leaf_bytes": leaf.bytes(),
            "state": word.replace(' ', "_"),
            "reason": why.map(|why| &why.reason),
            "remedy": why.map(|why| &why.remedy),
        })
    });
    let mixed = is_mixed(status).then(|| {
        let mixed = policy(DirectMapLeaves::Mixed);
        json!({ "policy": mixed, "leaf_bytes": null, "state": "now", "reason": null, "remedy": null })
    });
    json!({
        "schema": "pagelab.direct-map-status/1",
        "boot_id": status.boot_id,
        "kernel_command_line": status.kernel_command_line,
        "leaves": leaves,
        "source": source,
        "memory_bytes": memory_bytes,
        "unknown": unknown,
        "changes": change_documents(&status.changes),
        "demoted": marker,
        "demoted_unreadable": marker_unreadable,
        "features": features.collect::<Vec<_>>(),
        "policies": availabilities.chain(mixed).collect::<Vec<_>>(),
    })
}

/// The list `leaves` in documents about the direct map.
pub fn leaf_documents(leaves: &Leaves) -> Vec<Value> {
    let leaf = |(leaf, bytes): (&PageSize, &u64)| {
        json!({
            "leaf_bytes": leaf.bytes(),
            "bytes": bytes,
            "least_share_ratio": leaves.ratio(*leaf),
            "certain_bytes": leaves.certain(*leaf),
            "possible_bytes": leaves.possible(*leaf),
            "contiguous_bytes": leaves.contiguous_bytes.get(leaf),
        })
    };
    leaves.bytes.iter().map(leaf).collect()
}

/// The list `changes` in documents about the direct map.
pub fn change_documents(changes: &[Changes]) -> Vec<Value> {
    let change =
        |one: &Changes| json!({ "leaf_bytes": one.leaf.bytes(), "splits": one.splits, "collapses": one.collapses });
    changes.iter().map(change).collect()
}

/// The object `demoted` in documents about the direct map.
pub fn marker_document(marker: &Marker) -> Value {
    let split = marker.split_bytes.iter().map(|(leaf, bytes)| json!({ "leaf_bytes": leaf.bytes(), "bytes": bytes }));
    json!({
        "leaf_bytes": marker.leaf_bytes.bytes(),
        "began_unix_s": marker.began_unix_s,
        "demotions": marker.demotions,
        "split": split.collect::<Vec<_>>(),
    })
}
