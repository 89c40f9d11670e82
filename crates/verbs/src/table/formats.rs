//! `pagelab list formats`: the values that `--format` accepts.

use paging::format::named::FAMILIES;
use paging::{Format, with_format};
use policy::size::format_bytes;
use results::grid::plain;
use serde_json::{Value, json};

use super::format_name::{base_names, parse_format};
use super::level::{label, linux_name, short_name};

/// The formats as text and as a document.
pub fn list(width: usize) -> (String, Value) {
    let families =
        FAMILIES.map(|family| [family.names.to_string(), family.what.to_string(), family.options.to_string()]);
    let documents: Vec<Value> = base_names().iter().filter_map(|name| document(name)).collect();
    let rows = base_names().into_iter().filter(|name| is_shown(name)).filter_map(|name| row(&name));
    let text = format!(
        "{}\n\noptions follow, each after a +, as in x86-64+phys46+no-1g\n\n{}\n\nthe root first; stage 2 has all sizes of IPA \
         from 32 to 48; L is a level of Arm's manual",
        plain(["format", "what it is", "options"], families, width),
        plain(["format", "levels and shifts", "leaves", "contiguous"], rows, width)
    );
    let families =
        FAMILIES.map(|family| json!({ "names": family.names, "what": family.what, "options": family.options }));
    (text, json!({ "schema": "pagelab.list-formats/1", "families": families, "formats": documents }))
}

/// Whether to list a format. Of arm64 stage 2, only the two input sizes that most machines have are listed.
fn is_shown(name: &str) -> bool {
    !name.starts_with("arm64-s2-") || name.ends_with("-40") || name.ends_with("-48")
}

fn row(name: &str) -> Option<[String; 4]> {
    let named = parse_format(name).ok()?.named;
    Some(with_format!(named, format => {
        let levels = (0..format.geometry().levels()).rev();
        let shift = |level| format.geometry().shift(level) + u32::from(format.run_bits());
        let levels = levels.map(|level| format!("{} {}", short_name(&format, level), shift(level)));
        [name.to_string(), levels.collect::<Vec<_>>().join(", "), sizes(&leaves(&format)), groups_text(&format, name)]
    }))
}

fn sizes(sizes: &[u64]) -> String {
    if sizes.is_empty() {
        "-".to_string()
    } else {
        sizes.iter().map(|bytes| format_bytes(*bytes)).collect::<Vec<_>>().join(" ")
    }
}

/// Leaf sizes in bytes, as software writes them.
fn leaves(format: &impl Format) -> Vec<u64> {
    let geometry = format.geometry();
    let levels = (0..geometry.levels()).filter(|level| format.has_leaf(*level));
    levels.map(|level| geometry.span(level) << format.run_bits()).collect()
}

/// Sizes in bytes of contiguous groups, for which software may write several hardware entries as one.
fn groups(format: &impl Format) -> Vec<u64> {
    let geometry = format.geometry();
    let bits = |level: &u8| format.group_bits_at(*level);
    let has_groups = |level: &u8| format.has_leaf(*level) && bits(level) > format.run_bits();
    (0..geometry.levels()).filter(has_groups).map(|level| geometry.span(level) << bits(&level)).collect()
}

fn groups_text(format: &impl Format, name: &str) -> String {
    let with_option = format!("{name}+svnapot");
    match (groups(format), parse_format(&with_option)) {
        (own, Err(_)) => sizes(&own),
        (_, Ok(option)) => match with_format!(option.named, format => groups(&format)) {
            none if none.is_empty() => "-".to_string(),
            some => format!("{} (+svnapot)", sizes(&some)),
        },
    }
}

fn document(name: &str) -> Option<Value> {
    let named = parse_format(name).ok()?.named;
    Some(with_format!(named, format => {
        let geometry = format.geometry();
        let levels = (0..geometry.levels()).map(|level| json!({
            "level": level,
            "level_name": format.level_name(level),
            "linux_name": linux_name(&format, level),
            "text": label(&format, level),
            "shift_bits": geometry.shift(level) + u32::from(format.run_bits()),
            "entries": geometry.entries(level) >> format.run_bits(),
            "span_bytes": geometry.span(level) << format.run_bits(),
            "leaf": format.has_leaf(level),
        }));
        json!({
            "format": name,
            "page_bytes": geometry.page_bytes() << format.run_bits(),
            "hardware_page_bytes": geometry.page_bytes(),
            "input_bits": geometry.input_bits(),
            "output_bits": geometry.output_bits(),
            "levels": levels.collect::<Vec<_>>(),
            "leaf_bytes": leaves(&format),
            "group_bytes": groups(&format),
        })
    }))
}
