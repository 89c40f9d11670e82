//! Finds silent fallbacks: code that replaces an error of reading system state by an empty value, without a comment that says why
//! this is correct.

use std::ops::RangeInclusive;

use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall, Ident, ItemMod};

use super::Finding;
use super::tree::{File, Tree};

/// The directories of the code that reads system state.
const READERS: [&str; 8] = [
    "crates/host/src/",
    "crates/census/src/",
    "crates/platform/src/",
    "crates/lease/src/",
    "crates/tracer/src/",
    "crates/workloads/src/",
    "crates/verbs/src/",
    "labs/",
];
/// Functions and methods that read.
const READS: [&str; 11] = [
    "read",
    "read_to_string",
    "read_to_end",
    "read_dir",
    "read_link",
    "metadata",
    "symlink_metadata",
    "content",
    "names",
    "required",
    "if_exists",
];

/// Findings about `unwrap_or_default` after a read.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let is_reader = |file: &&File| file.is_rust() && READERS.iter().any(|place| file.path.starts_with(place));
    tree.files.iter().filter(is_reader).flat_map(unexplained).collect()
}

fn unexplained(file: &File) -> Vec<Finding> {
    let is_of_tests = |part: &str| part == "tests" || part.ends_with("tests.rs");
    if file.path.split('/').any(is_of_tests) {
        return Vec::new();
    }
    // A file that cannot be parsed is not reported here, because the compiler rejects it.
    let Ok(parsed) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut fallbacks = Fallbacks::default();
    fallbacks.visit_file(&parsed);
    let lines: Vec<&str> = file.text.lines().collect();
    // Lines are counted from 1, so the line above the first one has an index that is smaller by two.
    let has_comment = |of: &&RangeInclusive<usize>| {
        let around = of.start().saturating_sub(2)..*of.end();
        lines.get(around).is_some_and(|lines| lines.iter().any(|line| line.contains("//")))
    };
    let message = "unwrap_or_default drops an error of reading the system: report it, or say in a comment why an empty value is correct";
    let bare = fallbacks.0.iter().filter(|of| !has_comment(of));
    bare.map(|of| Finding::new(&file.path, *of.end(), message)).collect()
}

/// The lines of each expression that reads and ends in `unwrap_or_default`.
#[derive(Default)]
struct Fallbacks(Vec<RangeInclusive<usize>>);

impl<'ast> Visit<'ast> for Fallbacks {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let last = call.method.span().start().line;
        let mut reads = Reads { is_found: false, first: last };
        reads.visit_expr(&call.receiver);
        if call.method == "unwrap_or_default" && reads.is_found {
            self.0.push(reads.first..=last);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_of_tests = module.attrs.iter().any(|one| one.path().is_ident("cfg"));
        if !is_of_tests {
            visit::visit_item_mod(self, module);
        }
    }
}

/// Whether an expression reads system state, whether it drops an error, and its first line.
struct Reads {
    is_found: bool,
    first: usize,
}

impl<'ast> Visit<'ast> for Reads {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.is_found |= call.method == "ok" || READS.iter().any(|read| call.method == read);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = call.func.as_ref() {
            let name = function.path.segments.last();
            self.is_found |= name.is_some_and(|name| READS.iter().any(|read| name.ident == read));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_ident(&mut self, word: &'ast Ident) {
        self.first = self.first.min(word.span().start().line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, body: &str) -> Vec<usize> {
        let source = format!("fn f() {{\n{body}\n}}\n");
        check(&Tree::of(&[(path, &source)])).into_iter().map(|finding| finding.line).collect()
    }

    const CENSUS: &str = "crates/census/src/a.rs";

    #[test]
    fn an_error_of_reading_is_not_dropped_without_a_reason() {
        for body in [
            "fs::read_to_string(path).unwrap_or_default();",
            "let a = host::content(format!(\"/proc/{pid}/status\")).unwrap_or_default();",
            "self.text(\"status\").ok().unwrap_or_default();",
            "std::fs::read_dir(path).map(|all| all.count()).unwrap_or_default();",
            "subject.read(\"a\").and_then(parse).ok().flatten().unwrap_or_default();",
        ] {
            assert_eq!(lines(CENSUS, body), [2], "{body}");
            assert_eq!(lines("crates/policy/src/a.rs", body), [0usize; 0], "a crate that reads nothing");
            assert_eq!(lines("crates/census/src/a/tests.rs", body), [0usize; 0]);
            assert_eq!(lines(CENSUS, &format!("// It need not be there.\n{body}")), [0usize; 0]);
            assert_eq!(lines(CENSUS, &format!("{body} // It need not be there.")), [0usize; 0]);
            assert_eq!(lines(CENSUS, &format!("// Of something else.\n\n{body}")), [4]);
        }
    }

    #[test]
    fn values_that_were_not_read_may_have_a_default() {
        for body in ["words.next().unwrap_or_default();", "map.get(&key).copied().unwrap_or_default();"] {
            assert_eq!(lines(CENSUS, body), [0usize; 0], "{body}");
        }
        let tests = "}\n#[cfg(test)]\nmod tests {\nfn g() { fs::read(path).unwrap_or_default(); }";
        assert_eq!(lines(CENSUS, tests), [0usize; 0]);
    }
}
