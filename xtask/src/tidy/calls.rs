//! Checks operations that only some crates may use: tracing, writing system settings, and reading the page information of other
//! processes. Tests may use them.

use super::Finding;
use super::tree::{File, Tree};

/// The crate that may name ptrace and seccomp.
const TRACER: &str = "crates/tracer/";
/// Prefixes of words that name calls for tracing.
const TRACING: [&str; 7] =
    ["libc::ptrace", "sys::ptrace", "PTRACE_", "SECCOMP_", "SYS_ptrace", "SYS_seccomp", "PR_SET_SECCOMP"];

/// Crates that may only read.
const READERS: [&str; 2] = ["crates/host/", "crates/census/"];
/// The crate that may write system settings.
const LEASE: &str = "crates/lease/";
/// Files that ask the kernel to free or compact memory once. That leaves no value to restore, so it does not count as a
/// setting.
const FREEING_MEMORY: [&str; 2] = ["labs/direct-map/src/demotion/splitting.rs", "crates/validation/src/memory.rs"];
/// Files that run in a guest alone and write its settings, which end with it.
const IN_GUESTS: [&str; 2] = ["crates/guest/src/memory_groups.rs", "crates/guest/src/swap.rs"];
/// Prefixes of words that open files for writing, or that change directories.
const OPENING: [&str; 10] = [
    "fs::write",
    "fs::rename",
    "fs::create_dir",
    "fs::remove_",
    "fs::copy",
    "fs::set_permissions",
    "File::create",
    "File::options",
    "OpenOptions",
    "libc::unlink",
];
/// Calls that write to an open file.
const WRITING: [&str; 3] = ["write_all", "libc::write", "unistd::write"];
/// Prefixes of string literals with paths of system settings.
const SETTINGS: [&str; 2] = ["\"/sys/", "\"/proc/sys/"];

/// The directories that may read the page information of other processes: the census, and the code that finds out whether a single
/// page is present.
const PAGE_READERS: [&str; 2] = ["crates/census/", "crates/host/src/maps/"];
/// Suffixes of format strings that name these files (`/proc/{pid}/smaps`).
const PAGE_FILES: [&str; 3] = ["}/smaps", "}/pagemap", "}/numa_maps"];

/// Findings about such calls in the sources of the crates.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree
        .rust_below("crates/")
        .chain(tree.rust_below("labs/"))
        .filter(|file| file.path.contains("/src/") && !is_of_tests(&file.path));
    sources.flat_map(|file| [tracing(file), writing(file), reading_pages(file)].concat()).collect()
}

fn is_of_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn tracing(file: &File) -> Vec<Finding> {
    if file.path.starts_with(TRACER) {
        return Vec::new();
    }
    named(file, &TRACING, |call| format!("only tracer may use ptrace and seccomp, found {call}"))
}

fn writing(file: &File) -> Vec<Finding> {
    if READERS.iter().any(|reader| file.path.starts_with(reader)) {
        let words = [&OPENING[..], &WRITING[..]].concat();
        return named(file, &words, |call| format!("this crate must not write, found {call}"));
    }
    let knows_settings = SETTINGS.iter().any(|place| without_tests(&file.text).contains(place));
    let is_exempt = FREEING_MEMORY.iter().chain(&IN_GUESTS).any(|path| file.path == *path);
    if !knows_settings || file.path.starts_with(LEASE) || is_exempt {
        return Vec::new();
    }
    let found = |call: &str| format!("only lease may write system settings: this file names some, and uses {call}");
    named(file, &OPENING, found)
}

fn reading_pages(file: &File) -> Vec<Finding> {
    if PAGE_READERS.iter().any(|path| file.path.starts_with(path)) {
        return Vec::new();
    }
    let found =
        |line: &str| PAGE_FILES.iter().find(|name| line.contains(**name)).map(|name| name.trim_start_matches('}'));
    let finding = |(line, number)| {
        let message = format!("only census may read the page information of other processes, found {}", found(line)?);
        Some(Finding::new(&file.path, number, message))
    };
    without_tests(&file.text).lines().zip(1..).filter_map(finding).collect()
}

/// Findings for words with one of these prefixes, outside of tests.
fn named(file: &File, words: &[&str], message: impl Fn(&str) -> String) -> Vec<Finding> {
    let found = |line: &str| words.iter().find(|word| begins_in(line, word)).copied();
    let lines = without_tests(&file.code).lines().zip(1..);
    lines.filter_map(|(line, number)| Some(Finding::new(&file.path, number, message(found(line)?)))).collect()
}

/// Whether a word in the line has this prefix.
fn begins_in(line: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| !line[..at].chars().next_back().is_some_and(part_of_word))
}

/// The part of a file before its tests.
fn without_tests(source: &str) -> &str {
    source.find("#[cfg(test)]\nmod ").map_or(source, |at| &source[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, source: &str) -> Vec<String> {
        check(&Tree::of(&[(path, source)])).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn tracing_outside_of_tracer_is_found_in_every_spelling() {
        for source in [
            "libc::ptrace(request);",
            "use nix::sys::ptrace;",
            "if event == libc::PTRACE_EVENT_EXIT {}",
            "libc::syscall(libc::SYS_seccomp);",
            "libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER);",
        ] {
            assert_eq!(found("crates/platform/src/a.rs", source).len(), 1, "{source}");
            assert_eq!(found("crates/tracer/src/a.rs", source), [""; 0]);
            assert_eq!(found("crates/platform/tests/a.rs", source), [""; 0]);
            assert_eq!(found("crates/platform/src/a.rs", &format!("#[cfg(test)]\nmod tests {{ {source} }}")), [""; 0]);
        }
        let other = "// libc::ptrace\nhost.ptrace_limit(\"PTRACE_TRACEME\");";
        assert_eq!(found("crates/platform/src/a.rs", other), [""; 0]);
    }

    #[test]
    fn a_reader_that_writes_is_found() {
        for source in ["std::fs::write(a, b)", "File::create(a)", "OpenOptions::new()", "file.write_all(b)"] {
            assert_eq!(found("crates/host/src/a.rs", source).len(), 1, "{source}");
            assert_eq!(found("crates/results/src/a.rs", source), [""; 0]);
        }
        assert_eq!(found("crates/census/src/a.rs", "fs::read(a); fmt::write(b); #[allow(x)]"), [""; 0]);
    }

    #[test]
    fn a_look_at_the_pages_of_others_is_found() {
        for name in ["smaps", "pagemap", "numa_maps"] {
            let source = format!("File::open(format!(\"/proc/{{pid}}/{name}\"))");
            assert_eq!(found("crates/tracer/src/a.rs", &source).len(), 1, "{name}");
            assert_eq!(found("crates/census/src/a.rs", &source), [""; 0]);
            assert_eq!(found("crates/tracer/src/a.rs", &format!("read(\"/proc/self/{name}\")")), [""; 0], "its own");
        }
        assert_eq!(found("crates/tracer/src/a.rs", "content(format!(\"/proc/{pid}/maps\"))"), [""; 0]);
    }

    #[test]
    fn a_file_that_names_settings_and_writes_is_found() {
        let source = "const A: &str = \"/sys/kernel/mm/ksm/run\"; std::fs::write(A, b);";
        assert_eq!(found("crates/platform/src/a.rs", source).len(), 1);
        assert_eq!(found("crates/lease/src/a.rs", source), [""; 0]);
        assert_eq!(found(FREEING_MEMORY[0], source), [""; 0]);
        assert_eq!(found("crates/platform/src/a.rs", "const A: &str = \"/sys/kernel/mm/ksm/run\"; read(A);"), [""; 0]);
    }
}
