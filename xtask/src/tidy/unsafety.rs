//! Checks that unsafe code is only in crates that may contain it. Clippy demands the comment that says why it is sound.

use super::Finding;
use super::crates::Workspace;
use super::tree::Tree;

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
    findings
}

#[cfg(test)]
mod tests {
    use super::super::crates::Member;
    use super::*;

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
