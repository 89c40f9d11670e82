//! Finds tests that do not run and report that without `testing::skip`. The tally would count them as passed.

use super::Finding;
use super::tree::{File, Tree};

/// Macros that print.
const PRINTS: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];
/// Words with which a test reports that it does not run.
const WORDS: [&str; 4] = ["skipped", "skipping", "not tested", "not run"];
/// The directory of the helper `testing::skip`, which prints these words for all tests.
const HELPER: &str = "crates/testing/src/";
/// Maximum number of lines that are read of a printing statement.
const STATEMENT_LINES: usize = 6;

/// Findings about tests, and about manifests that make the helper a dependency of a program.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let tests = tree.files.iter().filter(|file| file.is_rust() && !file.path.starts_with(HELPER));
    let manifests = tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    tests.flat_map(check_tests).chain(manifests.filter_map(check_manifest)).collect()
}

fn check_tests(file: &File) -> Vec<Finding> {
    let Some(first) = first_test_line(file) else { return Vec::new() };
    let (text, code): (Vec<&str>, Vec<&str>) = (file.text.lines().collect(), file.code.lines().collect());
    let prints = |line: &usize| PRINTS.into_iter().any(|name| has_macro(code[*line], name));
    let finding = |line: usize| Some(Finding::new(&file.path, line + 1, problem(&text, &code, line)?));
    (first..code.len()).filter(prints).filter_map(finding).collect()
}

/// The first line that belongs to tests: the first line of a file in `tests/`, or the line of `#[cfg(test)]`.
fn first_test_line(file: &File) -> Option<usize> {
    let is_of_tests = |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs");
    if file.path.split('/').any(is_of_tests) {
        return Some(0);
    }
    file.code.lines().position(|line| line.trim() == "#[cfg(test)]")
}

/// Whether a line uses this macro: `print!` must not match in `eprint!`.
fn has_macro(line: &str, name: &str) -> bool {
    line.match_indices(name)
        .any(|(at, _)| !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

/// What is wrong with the printing statement that starts in a line; `None` if nothing is.
fn problem(text: &[&str], code: &[&str], line: usize) -> Option<&'static str> {
    let end =
        (line..text.len()).take(STATEMENT_LINES).find(|at| code[*at].trim_end().ends_with([';', ','])).unwrap_or(line);
    let printed = text[line..=end].join(" ").to_lowercase();
    if WORDS.into_iter().any(|word| printed.contains(word)) {
        return Some("a test that does not run must call testing::skip, so that it is counted");
    }
    let next = code.get(end + 1).map_or("", |line| line.trim());
    let returns =
        code[line].contains("return println!") || code[line].contains("return eprintln!") || next == "return;";
    returns.then_some("a test that prints and returns counts as passed; report what it needs with testing::skip")
}

/// A finding if a manifest makes the helper a dependency of more than tests.
fn check_manifest(file: &File) -> Option<Finding> {
    let (mut section, mut lines) = ("", file.text.lines().zip(1..));
    let (_, number) = lines.find(|(line, _)| {
        if line.starts_with('[') {
            section = line;
        }
        section != "[dev-dependencies]" && line.starts_with("testing ")
    })?;
    Some(Finding::new(&file.path, number, "testing is for tests; expected it in [dev-dependencies]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, source: &str) -> usize {
        check(&Tree::of(&[(path, source)])).len()
    }

    /// A printing statement. It is assembled from two parts, so that this file does not contain the macro.
    fn printing(what: &str) -> String {
        format!("fn test() {{\n    {}\n}}\n", what.replace("PRINT", concat!("print", "ln!")))
    }

    #[test]
    fn a_test_that_prints_its_skip_is_found() {
        for what in [
            "PRINT(\"skipped: needs root\");",
            "ePRINT(\"{name}: Skipped, no chromium\");",
            "PRINT(\"not tested: needs root\");\n    return;",
            "return PRINT(\"needs root\");",
            "PRINT(\n        \"it was {} and\n not tested\",\n        name,\n    );",
            "PRINT(\"no root here\");\n    return;",
            "None => ePRINT(\"skipping {name}\"),",
        ] {
            for path in ["crates/a/tests/b.rs", "crates/a/src/tests.rs"] {
                assert_eq!(found(path, &printing(what)), 1, "{what}");
            }
            assert_eq!(found("crates/a/src/b.rs", &printing(what)), 0, "{what}: no test");
            let behind = format!("fn before() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", printing(what));
            assert_eq!(found("crates/a/src/b.rs", &behind), 1, "{what}");
            assert_eq!(found("crates/testing/src/tests.rs", &printing(what)), 0, "the helper itself");
        }
    }

    #[test]
    fn a_test_that_uses_the_helper_or_prints_figures_is_not() {
        for what in [
            "return testing::skip(\"root\");",
            "skip(format!(\"root and {path}\"));\n    return;",
            "PRINT(\"{with_lease} of 50 kills met the lease\");\n    assert!(true);",
            "// skipped: PRINT(\"skipped\")\n    let skipped = 1;",
            "PRINT(\"one\");\n    if done {\n        return;\n    }",
        ] {
            assert_eq!(found("crates/a/tests/b.rs", &printing(what)), 0, "{what}");
        }
    }

    #[test]
    fn no_program_depends_on_the_helper() {
        let manifest =
            |section: &str| format!("[package]\nname = \"a\"\n\n[{section}]\ntesting = {{ workspace = true }}\n");
        assert_eq!(found("crates/a/Cargo.toml", &manifest("dependencies")), 1);
        assert_eq!(found("crates/a/Cargo.toml", &manifest("dev-dependencies")), 0);
    }
}
