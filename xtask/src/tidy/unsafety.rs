//! Checks that unsafe code is only in crates that may contain it, and always has a comment that says why it is sound.

use super::Finding;
use super::crates::{Workspace, has_word};
use super::tree::{File, Tree};

/// The crates that may contain unsafe code.
const MAY_BE_UNSAFE: [&str; 10] = [
    "host",
    "lease",
    "census",
    "tracer",
    "platform",
    "workloads",
    "kvm-split",
    "code-buffers",
    "direct-map",
    "qemu-plugin",
];

/// Findings about unsafe code.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in workspace.members.iter().filter(|member| !MAY_BE_UNSAFE.contains(&member.name.as_str())) {
        for root in member.roots.iter().filter_map(|root| tree.get(root)) {
            if !root.code.contains("#![forbid(unsafe_code)]") {
                findings.push(Finding::new(
                    &root.path,
                    1,
                    format!(
                        "expected #![forbid(unsafe_code)]: only {} may contain unsafe code",
                        MAY_BE_UNSAFE.join(", ")
                    ),
                ));
            }
        }
    }
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        findings.extend(unexplained(file));
    }
    findings
}

/// The unsafe blocks, impls and functions of a file without such a comment.
fn unexplained(file: &File) -> Vec<Finding> {
    let (code, text): (Vec<&str>, Vec<&str>) = (file.code.lines().collect(), file.text.lines().collect());
    let mut findings = Vec::new();
    for (index, line) in code.iter().enumerate().filter(|(_, line)| has_word(line, "unsafe")) {
        let declares = has_word(line, "fn") || has_word(line, "trait");
        let word = if declares && !line.contains("unsafe {") { "# Safety" } else { "SAFETY:" };
        // A bare function type (`unsafe extern "C" fn(...)`) needs no such comment.
        let is_type = line.contains("fn(") && !line.contains('{');
        if !is_type && !comments_above(&code, &text, index).any(|line| line.contains(word)) {
            findings.push(Finding::new(
                &file.path,
                index + 1,
                format!("unsafe without a comment `{word}` that says why it is sound"),
            ));
        }
    }
    findings
}

/// The line, and the lines above that belong to it: comments, attributes, and the start of its statement.
fn comments_above<'a>(code: &'a [&'a str], text: &'a [&'a str], index: usize) -> impl Iterator<Item = &'a str> {
    let belongs = |above: &usize| {
        let (code, text) = (code[*above].trim(), text[*above].trim());
        let ends_statement = code.ends_with([';', '{', '}', ',']);
        (!text.is_empty() && code.is_empty()) || (!code.is_empty() && !ends_statement)
    };
    std::iter::once(text[index]).chain((0..index).rev().take_while(belongs).map(|above| text[above]))
}

#[cfg(test)]
mod tests {
    use super::super::crates::Member;
    use super::*;

    fn lines(source: &str) -> Vec<usize> {
        unexplained(&File::new("a.rs", source)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_unsafe_block_needs_its_reason_right_above() {
        assert_eq!(lines("// SAFETY: it is.\nlet a = unsafe { f() };"), [0usize; 0]);
        assert_eq!(lines("// SAFETY: it is,\n// really.\nlet a =\n    g(unsafe { f() });"), [0usize; 0]);
        assert_eq!(lines("let a = unsafe { f() };"), [1]);
        assert_eq!(lines("// SAFETY: of b.\nlet b = 1;\nlet a = unsafe { f() };"), [3]);
        assert_eq!(lines("// SAFETY: x.\n\nunsafe impl Send for A {}"), [3]);
        assert_eq!(lines("// unsafe { }\nlet a = \"unsafe {\";"), [0usize; 0]);
    }

    #[test]
    fn an_unsafe_function_says_what_its_caller_must_keep() {
        assert_eq!(lines("/// # Safety\n/// Never.\nunsafe fn f() {}"), [0usize; 0]);
        assert_eq!(lines("/// Does.\nunsafe fn f() {}"), [2]);
        assert_eq!(lines("type F = unsafe extern \"C\" fn(i32);"), [0usize; 0]);
    }

    #[test]
    fn a_crate_root_that_does_not_forbid_unsafe_code_is_found() {
        let member = |name: &str| Member {
            name: name.into(),
            directory: "c".into(),
            roots: vec!["c/src/lib.rs".into()],
            dependencies: Vec::new(),
        };
        let findings = |name, source| {
            check(&Workspace { members: vec![member(name)] }, &Tree::of(&[("c/src/lib.rs", source)])).len()
        };
        assert_eq!(findings("study", "//! Study."), 1);
        assert_eq!(findings("study", "// #![forbid(unsafe_code)]"), 1);
        assert_eq!(findings("study", "//! Study.\n#![forbid(unsafe_code)]"), 0);
        assert_eq!(findings("host", "//! Host."), 0);
    }
}
