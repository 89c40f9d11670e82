//! Formats how much memory page tables map, by leaf size, and how much they use themselves.

use paging::{Census, Format};
use results::grid::plain;
use serde_json::{Value, json};

use super::describe::{grouped, size};
use super::level::{label, linux_name};

/// A table of the page tables by level.
pub fn tables_text(format: &impl Format, census: &Census, allocated_bytes: u64, width: usize) -> String {
    let mut rows: Vec<[String; 3]> = census
        .tables
        .iter()
        .rev()
        .map(|(level, tables)| {
            let bytes = tables * format.geometry().table_bytes(*level);
            [label(format, *level), grouped(*tables), exact(bytes)]
        })
        .collect();
    let all: u64 = census.tables.values().sum();
    let more = allocated_bytes - census.table_bytes.min(allocated_bytes);
    let more = if more > 0 { format!(" of {} allocated", exact(allocated_bytes)) } else { String::new() };
    rows.push(["all".to_string(), grouped(all), format!("{}{more}", exact(census.table_bytes))]);
    plain(["level", "tables", "memory"], rows, width)
}

/// A table of the mapped bytes by leaf size and contiguity.
pub fn mapped_text(format: &impl Format, census: &Census, width: usize) -> String {
    let total = census.total_bytes();
    if total == 0 {
        return "nothing is mapped".to_string();
    }
    let percent = |bytes: u64| percent(bytes, total);
    let rows = census.mapped_bytes.iter().rev().map(|(size, bytes)| {
        let groups = if size.group_bytes == size.leaf_bytes {
            "alone".to_string()
        } else {
            format!("in groups of {}", exact(size.group_bytes))
        };
        let leaves = grouped(bytes / size.leaf_bytes);
        [exact(size.leaf_bytes), groups, leaves, exact(*bytes), percent(*bytes)]
    });
    let rows: Vec<_> = rows.collect();
    let table = plain(["leaf", "contiguity", "leaves", "mapped", "of all"], rows, width);
    let runs = match format.run_bits() {
        0 => String::new(),
        bits => format!("; software writes {} hardware entries as one", 1u64 << bits),
    };
    format!(
        "{table}\n\n{} mapped; the tables take {}, {} of that{runs}",
        exact(total),
        exact(census.table_bytes),
        percent(census.table_bytes)
    )
}

fn exact(bytes: u64) -> String {
    size(u128::from(bytes))
}

fn percent(part: u64, total: u64) -> String {
    match 100.0 * part as f64 / total as f64 {
        percent if percent == 0.0 || percent >= 0.1 => format!("{percent:.1} %"),
        percent if percent >= 0.001 => format!("{percent:.3} %"),
        _ => "<0.001 %".to_string(),
    }
}

/// The census as a JSON value.
pub fn document(format: &impl Format, census: &Census) -> Value {
    let tables = census.tables.iter().map(|(level, tables)| {
        json!({
            "level": level,
            "level_name": format.level_name(*level),
            "linux_name": linux_name(format, *level),
            "tables": tables,
            "table_bytes": tables * format.geometry().table_bytes(*level),
        })
    });
    let mapped = census.mapped_bytes.iter().map(|(size, bytes)| {
        json!({ "leaf_bytes": size.leaf_bytes, "group_bytes": size.group_bytes, "mapped_bytes": bytes })
    });
    json!({
        "mapped_bytes": census.total_bytes(),
        "by_size": mapped.collect::<Vec<_>>(),
        "tables": tables.collect::<Vec<_>>(),
        "table_bytes": census.table_bytes,
        "illegal_entries": census.illegal,
    })
}
