//! Describes entries, attributes and errors as text.

use std::fmt::LowerHex;

use paging::format::named::Named;
use paging::format::{Format, Kind};
use paging::{Attributes, Error, Flags, InputAddress, Rule, Severity};
use policy::size::format_bytes;
use serde_json::{Value, json};

use super::level::label;

/// A 64-bit number in a JSON document, as a string, because many JSON readers handle integers only up to 53 bits.
pub fn hex(number: impl LowerHex) -> String {
    format!("{number:#x}")
}

/// An address with all 16 digits.
pub fn address(va: InputAddress) -> String {
    format!("{va:#018x}")
}

/// Attributes as text.
pub fn attributes_text(named: Named, attributes: Attributes) -> String {
    let mut words = vec![access(attributes.flags).to_string(), execution(attributes.flags).to_string()];
    for (flag, word) in [
        (Flags::USER, "user"),
        (Flags::GLOBAL, "global"),
        (Flags::ACCESSED, "accessed"),
        (Flags::DIRTY, "dirty"),
        (Flags::GUARDED, "guarded"),
    ] {
        if attributes.flags.contains(flag) {
            words.push(word.to_string());
        }
    }
    words.extend(memory(named, attributes.memory));
    if attributes.key != 0 {
        words.push(format!("key {}", attributes.key));
    }
    words.join(", ")
}

fn access(flags: Flags) -> &'static str {
    match (flags.contains(Flags::READ), flags.contains(Flags::WRITE)) {
        (true, true) => "read and write",
        (true, false) => "read-only",
        (false, true) => "write-only",
        (false, false) => "no data access",
    }
}

fn execution(flags: Flags) -> &'static str {
    match (flags.contains(Flags::KERNEL_EXECUTE), flags.contains(Flags::USER_EXECUTE)) {
        (true, true) => "executable",
        (true, false) => "executable by the kernel",
        (false, true) => "executable by the user",
        (false, false) => "not executable",
    }
}

/// The memory type, named after the field that encodes it, if there is one.
fn memory(named: Named, index: u8) -> Option<String> {
    let pbmt = ["PMA", "NC", "IO", "reserved"];
    Some(match named {
        Named::RiscV(format) if !format.memory_types => return None,
        Named::Software64K(_) => return None,
        Named::X86_64(_) => format!("PAT index {index}"),
        Named::Arm64Stage1(_) => format!("AttrIndx {index}"),
        Named::Arm64Stage2(_) => format!("MemAttr {index:#06b}"),
        Named::RiscV(_) => format!("PBMT {}", pbmt.get(usize::from(index)).unwrap_or(&"?")),
    })
}

/// Attributes as letters, in the syntax of `build --map`.
pub fn letters(named: Named, attributes: Attributes) -> String {
    let flag = |flag, letter| if attributes.flags.contains(flag) { letter } else { "-" };
    let execute = match execution(attributes.flags) {
        "not executable" => "-",
        _ => "x",
    };
    let mut letters =
        [flag(Flags::READ, "r"), flag(Flags::WRITE, "w"), execute, flag(Flags::USER, "u"), flag(Flags::GLOBAL, "g")]
            .concat();
    if attributes.flags.contains(Flags::GUARDED) {
        letters.push('b');
    }
    if !attributes.flags.contains(Flags::ACCESSED) {
        letters.push('o');
    }
    let ordinary = paging::with_format!(named, format => format.normal_memory());
    if attributes.memory != ordinary {
        letters.push_str(&format!(",m={}", attributes.memory));
    }
    if attributes.key != 0 {
        letters.push_str(&format!(",k={}", attributes.key));
    }
    letters
}

/// Attributes as a document.
pub fn attributes_document(attributes: Attributes) -> Value {
    let flags: Vec<String> = attributes.flags.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    json!({ "flags": flags, "memory": attributes.memory, "key": attributes.key })
}

/// The kind of an entry, in one word.
pub fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Hole => "hole",
        Kind::Table => "table",
        Kind::Leaf => "leaf",
        Kind::Illegal => "illegal",
    }
}

/// A severity in one word.
pub fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// The rules that an entry breaks, as far as the entry alone shows it.
pub fn broken(format: &impl Format, level: u8, entry: u64) -> Vec<Rule> {
    let mut broken = Vec::new();
    format.rules(level, entry, &mut |rule| broken.push(rule));
    broken
}

/// A rule as a document.
pub fn rule_document(rule: Rule) -> Value {
    json!({ "rule": rule.name(), "severity": severity_word(rule.severity()), "text": rule.to_string() })
}

/// Text for an error of the `paging` crate. It uses the format's own names of levels, because `level 2` means a
/// different level in each specification.
pub fn explain(format: &impl Format, error: &Error) -> String {
    let at = |level: &u8| label(format, *level);
    match error {
        Error::Overlap { va, level, entry } => {
            format!("{va:#x} is already mapped by the {} entry {entry:#018x}", at(level))
        }
        Error::NotMapped { va, level, entry } => {
            format!("{va:#x} is not mapped: its {} entry is {entry:#018x}", at(level))
        }
        Error::Illegal { va, level, entry, rule } => {
            format!("{va:#x}: the {} entry {entry:#018x} breaks the rule {}: {rule}", at(level), rule.name())
        }
        Error::NoGroup { va, level, why } => format!("{va:#x}, {}: {why}", at(level)),
        Error::OutsideArena { pa, va, level, base, bytes } => format!(
            "the {} table at {pa:#x}, for {va:#x}, is outside the {} of memory at {base:#x}",
            at(level),
            size((*bytes).into())
        ),
        Error::NoTree { pa, va, level } => {
            format!("the {} table at {pa:#x} is reached again for {va:#x}: the tables are not a tree", at(level))
        }
        Error::NoLeafSize { bytes, .. } => {
            format!("there is no leaf of at most {}: this format has {}", format_bytes(*bytes), leaf_sizes(format))
        }
        Error::ArenaFull { limit_bytes, .. } => {
            format!("the tables do not fit in {}; --limit allows more", format_bytes(*limit_bytes))
        }
        error => error.to_string(),
    }
}

/// The leaf sizes of a format, as software sees them.
pub fn leaf_sizes(format: &impl Format) -> String {
    let geometry = format.geometry();
    let levels = (0..geometry.levels()).filter(|level| format.has_leaf(*level));
    let sizes = levels.map(|level| format_bytes(geometry.span(level) << format.run_bits()));
    sizes.collect::<Vec<_>>().join(", ")
}

/// Formats a count with its noun: `1 table`, `2 tables`, `4,096 tables`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats bytes in the largest unit that divides them: `2M`, `2044K`, `511G`, `16 bytes`; rounded if that would take many
/// digits.
pub fn size(bytes: u128) -> String {
    let (letter, shift) = [('T', 40), ('G', 30), ('M', 20), ('K', 10)]
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or((String::new(), 0), |(letter, shift)| (letter.to_string(), shift));
    match (bytes >> shift, u64::try_from(bytes)) {
        (1_000_000.., Ok(bytes)) => format_bytes(bytes),
        (_, Ok(bytes)) if shift == 0 => count(bytes, "byte"),
        (number, _) => format!("{number}{letter}"),
    }
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
