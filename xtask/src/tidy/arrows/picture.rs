//! The diagram in docs/reference/modules.md: which crate uses which, and within each crate, which file or directory uses which.

use std::path::Path;

use super::super::Finding;
use super::super::crates::Workspace;
use super::super::tree::Tree;
use super::Source;
use super::graph::Graph;

/// The document with the diagram.
const DOCUMENT: &str = "docs/reference/modules.md";
/// The lines before and after the diagram in the document.
const BEGIN: &str = "<!-- drawn by cargo xtask tidy --draw -->";
const END: &str = "<!-- end of what is drawn -->";
/// Reserved words of mermaid, which cannot be names of nodes.
const RESERVED: [&str; 7] = ["class", "click", "default", "end", "graph", "style", "subgraph"];

/// A finding if the diagram does not match the source.
pub fn check(tree: &Tree, workspace: &Workspace, sources: &[Source]) -> Option<Finding> {
    let document = tree.get(DOCUMENT)?;
    let message = match replaced(&document.text, &draw(workspace, sources)) {
        None => format!("expected a picture of the crates between the lines {BEGIN:?} and {END:?}"),
        Some(text) if text != document.text => {
            "the picture does not match the source; run cargo xtask tidy --draw".to_string()
        }
        Some(_) => return None,
    };
    Some(Finding::new(DOCUMENT, 0, message))
}

/// Writes the diagram into the document.
pub fn write(root: &Path, tree: &Tree, workspace: &Workspace, sources: &[Source]) -> Result<(), String> {
    let text = tree.get(DOCUMENT).map_or("", |document| document.text.as_str());
    let text = replaced(text, &draw(workspace, sources));
    let text = text.ok_or_else(|| format!("{DOCUMENT} has no lines {BEGIN:?} and {END:?}"))?;
    std::fs::write(root.join(DOCUMENT), text).map_err(|error| format!("cannot write {DOCUMENT}: {error}"))
}

/// The document with this diagram; `None` if the document has no place for a diagram.
fn replaced(document: &str, picture: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{picture}{END}{after}"))
}

fn draw(workspace: &Workspace, sources: &[Source]) -> String {
    let mut picture = section("the crates", &crates(workspace));
    for source in sources {
        let parts = source.parts();
        if !parts.reduced().values().all(Vec::is_empty) {
            picture += &section(&format!("`{}`", source.package), &parts);
        }
    }
    picture
}

/// The crates of the workspace, without dependencies that only tests use.
fn crates(workspace: &Workspace) -> Graph {
    let names = || workspace.members.iter().map(|member| &member.name);
    let uses = workspace.members.iter().flat_map(|member| {
        let of_program = member.dependencies.iter().filter(|dependency| !dependency.only_tests);
        of_program.map(|dependency| (member.name.clone(), dependency.package.clone()))
    });
    Graph::new(names().cloned(), uses.filter(|(_, to)| names().any(|name| name == to)))
}

/// A graph in the syntax of mermaid, readable as text: one line for each node that uses others, or that is not used.
fn section(title: &str, graph: &Graph) -> String {
    let mut text = format!("\n{title}\n\n```mermaid\ngraph LR\n");
    let reduced = graph.reduced();
    for (from, to) in &reduced {
        let to: Vec<String> = to.iter().map(|name| node(name)).collect();
        if !to.is_empty() {
            text += &format!("  {} --> {}\n", node(from), to.join(" & "));
        } else if !reduced.values().flatten().any(|name| name == from) {
            text += &format!("  {}\n", node(from));
        }
    }
    text + "```\n"
}

fn node(name: &str) -> String {
    if RESERVED.contains(&name) { format!("{name}_[{name}]") } else { name.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::super::crates::{Dependency, Member};
    use super::*;

    fn member(name: &str, uses: &[(&str, bool)]) -> Member {
        let dependency = |(name, only_tests): &(&str, bool)| Dependency {
            package: name.to_string(),
            extern_name: name.to_string(),
            only_tests: *only_tests,
        };
        Member {
            name: name.into(),
            directory: format!("crates/{name}"),
            roots: vec![format!("crates/{name}/src/lib.rs")],
            dependencies: uses.iter().map(dependency).collect(),
        }
    }

    fn picture(document: &str) -> (Tree, Workspace, Vec<Source>) {
        let tree = Tree::of(&[
            (DOCUMENT, document),
            ("crates/a/src/lib.rs", "mod end;\nmod one;\nmod two;"),
            ("crates/a/src/end.rs", "pub struct End;"),
            ("crates/a/src/one/mod.rs", "mod inner;"),
            ("crates/a/src/one/inner.rs", "use crate::{end::End, two::Two};"),
            ("crates/a/src/two.rs", "pub use crate::end::End;\npub struct Two(End);"),
            ("crates/b/src/lib.rs", ""),
        ]);
        let members = vec![member("a", &[("b", false), ("libc", false)]), member("b", &[("a", true)])];
        let workspace = Workspace { members };
        let sources = super::super::read(&workspace, &tree);
        (tree, workspace, sources)
    }

    #[test]
    fn the_crates_and_their_parts_are_drawn() {
        let (_, workspace, sources) = picture("");
        let expected = "\nthe crates\n\n```mermaid\ngraph LR\n  a --> b\n```\n\
                        \n`a`\n\n```mermaid\ngraph LR\n  one --> two\n  two --> end_[end]\n```\n";
        assert_eq!(draw(&workspace, &sources), expected);
    }

    #[test]
    fn a_picture_that_is_not_current_is_found() {
        let found = |document: &str| {
            let (tree, workspace, sources) = picture(document);
            check(&tree, &workspace, &sources).map(|finding| finding.message)
        };
        assert!(found("# Text\n").is_some_and(|message| message.contains("expected a picture")));
        let old = format!("# Text\n{BEGIN}\nold\n{END}\nmore\n");
        assert!(found(&old).is_some_and(|message| message.contains("--draw")));
        let (_, workspace, sources) = picture("");
        assert_eq!(found(&replaced(&old, &draw(&workspace, &sources)).unwrap()), None);
    }
}
