//! Checks names that the source code of a crate must not use: I/O and clocks in pure crates, unfinished code anywhere.

use super::Finding;
use super::crates::has_word;
use super::tree::{File, Tree};

/// Macros for unfinished code.
const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
/// Modules of the standard library that do I/O.
const INPUT_OUTPUT: [&str; 5] = ["fs", "process", "net", "env", "os"];
/// Types that read a clock.
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];
/// The directories in which neither I/O nor clocks are allowed.
const PURE: [&str; 4] = ["crates/policy/src/", "crates/study/src/", "crates/study-files/src/", "crates/paging/src/"];

/// Findings about source code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        findings.extend(unfinished(file));
    }
    for file in PURE.into_iter().flat_map(|below| tree.rust_below(below)) {
        findings.extend(names_modules(file, &INPUT_OUTPUT));
        findings.extend(names_clocks(file));
    }
    for file in tree.rust_below("crates/model/src/") {
        findings.extend(names_clocks(file));
    }
    if let Some(root) = tree.get("crates/paging/src/lib.rs").filter(|root| !root.code.contains("no_std")) {
        findings.push(Finding::new(&root.path, 1, "expected #![no_std]: paging depends on nothing"));
    }
    findings
}

fn unfinished(file: &File) -> Vec<Finding> {
    let unfinished = |line: &str| UNFINISHED.into_iter().find(|name| has_word(line, name));
    let finding = |(line, number)| {
        let message = format!("{} is unfinished code; finish it or remove it", unfinished(line)?);
        Some(Finding::new(&file.path, number, message))
    };
    file.code.lines().zip(1..).filter_map(finding).collect()
}

fn names_clocks(file: &File) -> Vec<Finding> {
    let clock = |line: &str| CLOCKS.into_iter().find(|name| has_word(line, name));
    let finding = |(line, number)| {
        Some(Finding::new(&file.path, number, format!("this crate must not read a clock, found {}", clock(line)?)))
    };
    file.code.lines().zip(1..).filter_map(finding).collect()
}

/// Findings for paths such as `std::fs` and groups such as `std::{fmt, fs::File}`.
fn names_modules(file: &File, modules: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, _) in file.code.match_indices("std::") {
        let rest = &file.code[at + "std::".len()..];
        let named = if rest.starts_with('{') { group(rest) } else { vec![first_word(rest)] };
        for module in named.into_iter().filter(|name| modules.contains(name)) {
            let line = file.code[..at].matches('\n').count() + 1;
            findings.push(Finding::new(&file.path, line, format!("this crate must not do I/O, found std::{module}")));
        }
    }
    findings
}

/// The first segments of the members of a group in braces, without nested groups.
fn group(rest: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut start = 0;
    let mut words = Vec::new();
    for (at, character) in rest.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (character == '{' || character == ',') && depth == 1 {
            start = at + 1;
            words.push(first_word(rest[start..].trim_start()));
        }
        if depth == 0 {
            break;
        }
    }
    debug_assert!(start > 0);
    words
}

fn first_word(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, source: &str) -> Vec<String> {
        check(&Tree::of(&[(path, source)])).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn io_in_a_pure_crate_is_found_in_every_spelling() {
        for source in [
            "use std::fs;",
            "use std::fs::File;",
            "let a = std::fs::read(b);",
            "use std::{fmt, fs};",
            "use std::{\n    collections::{BTreeMap, HashMap},\n    process::Command,\n};",
            "use std::net::TcpStream;",
        ] {
            assert_eq!(found("crates/study/src/a.rs", source).len(), 1, "{source}");
            assert_eq!(found("crates/host/src/a.rs", source), [""; 0]);
        }
        assert_eq!(
            found("crates/study/src/a.rs", "use std::fmt; // std::fs\nuse std::{collections::{fs_like}, io};"),
            [""; 0]
        );
    }

    #[test]
    fn clocks_are_found_in_study_and_model() {
        for path in ["crates/study/src/a.rs", "crates/policy/src/a.rs", "crates/model/src/a.rs"] {
            assert_eq!(found(path, "use std::time::Instant;").len(), 1);
            assert_eq!(found(path, "use std::time::Duration;\nstruct Instantly;"), [""; 0]);
        }
    }

    #[test]
    fn unfinished_code_is_found_in_code_only() {
        for name in UNFINISHED {
            let word = name.trim_end_matches('!');
            assert_eq!(found("a.rs", &format!("fn f() {{ {name}(1) }}\n{name}();")).len(), 2, "{name}");
            let other = format!("// {name}()\nlet a = \"{name}\"; let {word} = !a; not_{name}();");
            assert_eq!(found("a.rs", &other), [""; 0], "{name}");
        }
    }

    #[test]
    fn paging_without_no_std_is_found() {
        assert_eq!(found("crates/paging/src/lib.rs", "//! Paging.").len(), 1);
        assert_eq!(found("crates/paging/src/lib.rs", "#![no_std]"), [""; 0]);
    }
}
