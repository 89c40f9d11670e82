//! Names of page-table levels.
//!
//! Internally, level 0 holds pages in every format. Arm counts in the opposite direction (level 3 holds pages), RISC-V in the
//! same direction (VPN\[0\]), Intel does not number levels, and Linux has names that fold if a format has fewer levels. So
//! pagelab shows a level by its name in the specification and by Linux's name, and takes a plain number as the
//! specification's.

use std::fmt::Write;

use paging::Format;
use paging::format::named::Named;
use paging::with_format;

/// Linux's names, from the leaf table up.
const LINUX: [&str; 5] = ["pte", "pmd", "pud", "p4d", "pgd"];

/// A level that a format does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no level {found:?} in this format; expected {expected}")]
pub struct LevelError {
    found: String,
    expected: String,
}

/// Linux's name of a level. The root is `pgd`; names of levels that the format does not have are folded into it.
pub fn linux_name(format: &impl Format, level: u8) -> &'static str {
    let root = format.geometry().root_level();
    if level >= root { "pgd" } else { LINUX.get(usize::from(level)).copied().unwrap_or("?") }
}

/// Both names of a level: `PD (pmd)`, `level 2 (pmd)`, `VPN[1] (megapage, pmd)`.
pub fn label(format: &impl Format, level: u8) -> String {
    let (name, linux) = (format.level_name(level), linux_name(format, level));
    match name.strip_suffix(')') {
        _ if name == linux => name,
        Some(open) => format!("{open}, {linux})"),
        None => format!("{name} ({linux})"),
    }
}

/// The specification's name in short: `PD`, `L2`, `VPN[1]`.
pub fn short_name(format: &impl Format, level: u8) -> String {
    let name = format.level_name(level);
    match name.strip_prefix("level ") {
        Some(number) => format!("L{number}"),
        None => name.split(' ').next().unwrap_or_default().to_string(),
    }
}

/// Whether an argument is the name of a level, so that it is not taken for an entry.
pub fn is_name(word: &str) -> bool {
    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
    !is_number
        && ["x86-64-la57", "arm64-4k-52", "sv57", "sv57-64k"]
            .iter()
            .any(|format| format.parse::<Named>().is_ok_and(|named| parse(named, word).is_ok()))
}

/// Parses a level by name (`PD`, `level 2`, `L2`, `VPN[1]`, `megapage`, or Linux's `pmd`), or by the specification's number,
/// if it has one.
pub fn parse(named: Named, text: &str) -> Result<u8, LevelError> {
    with_format!(named, format => parse_in(&format, text))
}

fn parse_in(format: &impl Format, text: &str) -> Result<u8, LevelError> {
    let word = plain(text);
    let root = format.geometry().root_level();
    let linux = LINUX.iter().position(|name| *name == word);
    if let Some(at) = linux {
        return Ok(if word == "pgd" { root } else { (at as u8).min(root) });
    }
    let found = (0..=root).find(|level| names(format, *level).contains(&word));
    found.ok_or_else(|| LevelError { found: text.to_string(), expected: expected(format) })
}

/// All names of a level except Linux's.
fn names(format: &impl Format, level: u8) -> Vec<String> {
    let name = plain(&format.level_name(level));
    let mut names: Vec<String> = name.split(['(', ')']).filter(|part| !part.is_empty()).map(String::from).collect();
    match name.strip_prefix("level") {
        Some(number) => names.extend([format!("l{number}"), number.to_string()]),
        None if name.starts_with("vpn") => names.extend([format!("level{level}"), level.to_string()]),
        None if format.run_bits() != 0 => names.push(format!("vpn[{level}]")),
        None => {}
    }
    // Entry names are derived from table names: `pte`, `pde`.
    if ["pt", "pd", "pdpt", "pml4", "pml5"].contains(&name.as_str()) {
        names.push(format!("{name}e"));
    }
    names
}

fn plain(text: &str) -> String {
    text.to_ascii_lowercase().replace(' ', "")
}

fn expected(format: &impl Format) -> String {
    let mut expected = String::new();
    for level in (0..format.geometry().levels()).rev() {
        let comma = if level == 0 { " or " } else { ", " };
        let _ = write!(expected, "{}{}", if expected.is_empty() { "" } else { comma }, label(format, level));
    }
    expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(format: &str, text: &str) -> Result<u8, LevelError> {
        parse(format.parse().unwrap(), text)
    }

    #[test]
    fn a_number_is_that_of_the_specification() {
        assert_eq!(level("arm64-4k-48", "3"), Ok(0));
        assert_eq!(level("arm64-4k-48", "level 0"), Ok(3));
        assert_eq!(level("arm64-4k-52", "L-1"), Ok(4));
        assert_eq!(level("sv39", "2"), Ok(2));
        assert_eq!(level("sv39", "VPN[0]"), Ok(0));
        let message = level("x86-64", "1").unwrap_err().to_string();
        assert!(message.contains("PML4 (pgd), PDPT (pud), PD (pmd) or PT (pte)"), "{message}");
        assert!(level("arm64-16k-47", "0").is_err());
    }

    #[test]
    fn names_are_those_of_the_specification_and_of_linux() {
        for (format, text, expected) in [
            ("x86-64", "pd", 1),
            ("x86-64", "PDPTE", 2),
            ("x86-64", "p4d", 3),
            ("x86-64-la57", "p4d", 3),
            ("x86-64-la57", "PML5", 4),
            ("arm64-64k-42", "pmd", 1),
            ("arm64-64k-42", "pud", 1),
            ("sv48", "gigapage", 2),
            ("sv39-64k", "pgd", 2),
            ("sv39-64k", "vpn[1]", 1),
        ] {
            assert_eq!(level(format, text), Ok(expected), "{format} {text}");
        }
        assert!(is_name("PGD") && is_name("l3") && is_name("pml4") && !is_name("0") && !is_name("100e067"));
    }

    #[test]
    fn labels_have_both_names() {
        let of = |format: &str, level| with_format!(format.parse::<Named>().unwrap(), format => (label(&format, level), short_name(&format, level)));
        assert_eq!(of("x86-64", 1), ("PD (pmd)".to_string(), "PD".to_string()));
        assert_eq!(of("arm64-4k-48", 1), ("level 2 (pmd)".to_string(), "L2".to_string()));
        assert_eq!(of("sv39", 1), ("VPN[1] (megapage, pmd)".to_string(), "VPN[1]".to_string()));
        assert_eq!(of("sv39-64k", 1), ("pmd".to_string(), "pmd".to_string()));
    }
}
