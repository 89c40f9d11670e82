//! Checks that crates whose code may run as root deny the functions that `clippy.toml` disallows. These functions write by path,
//! and another user may plant a link there.

use super::Finding;
use super::crates::Workspace;
use super::tree::Tree;

/// The attribute in the root file of such a crate. Tests are exempt.
const REFUSED: &str = "#![cfg_attr(not(test), deny(clippy::disallowed_methods))]";
/// Crates with tools for developers and tests, which are exempt.
const TOOLS: [&str; 3] = ["validation", "testing", "xtask"];

/// Findings about crates without the attribute.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let members = workspace.members.iter().filter(|member| !TOOLS.contains(&member.name.as_str()));
    let roots = members.flat_map(|member| &member.roots).filter_map(|root| tree.get(root));
    let open = roots.filter(|root| !root.code.contains(REFUSED));
    open.map(|root| Finding::new(&root.path, 1, format!("expected {REFUSED}: its code may run as root"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::crates::Member;
    use super::*;

    #[test]
    fn a_crate_that_lets_code_write_by_path_is_found() {
        let member = |name: &str| Member {
            name: name.to_owned(),
            directory: format!("crates/{name}"),
            roots: vec![format!("crates/{name}/src/lib.rs")],
            dependencies: Vec::new(),
        };
        let workspace = Workspace { members: ["a", "b", "testing"].map(member).to_vec() };
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", REFUSED),
            ("crates/b/src/lib.rs", "mod c;"),
            ("crates/testing/src/lib.rs", "mod d;"),
        ]);
        let paths: Vec<String> = check(&workspace, &tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["crates/b/src/lib.rs"]);
    }
}
