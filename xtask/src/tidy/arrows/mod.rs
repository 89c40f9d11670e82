//! Finds from the source which file of a crate uses which other ([`Source`]). An *arrow* points from a file to the file that
//! defines a name which it uses. A module declaration or a re-export (`pub use`) makes no arrow: a file that uses a re-exported
//! name has an arrow to the file with the definition. Names from the enclosing modules make no arrow either, because the root file
//! of a directory may define what its files share.

mod graph;
mod modules;
mod picture;
mod reader;
mod tokens;

use std::collections::BTreeMap;

use super::Finding;
use super::crates::{Member, Workspace};
use super::tree::Tree;
use graph::Graph;
use modules::Modules;

pub use modules::Module;
pub use picture::{check as check_picture, write as write_picture};

/// Maximum number of names shown for the use of one file by another.
const NAMES_SHOWN: usize = 3;

/// The segments of a path in source: `["super", "host", "State"]`.
pub type Segments = Vec<String>;

/// A path with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub path: Segments,
    /// The line, counted from 1.
    pub line: usize,
}

/// The parsed source of a crate, without its tests.
#[derive(Debug)]
pub struct Source {
    /// The directory of the crate.
    directory: String,
    /// The name of the package.
    package: String,
    /// The modules of each root file: that of the library, and that of the program.
    roots: Vec<Modules>,
    /// The uses between files.
    arrows: Arrows,
}

/// For a pair of files, the names that the first uses from the second, each with the line of its first use.
type Arrows = BTreeMap<(String, String), BTreeMap<String, usize>>;

impl Source {
    /// Reads a crate.
    pub fn read(tree: &Tree, member: &Member) -> Source {
        let roots: Vec<Modules> = member.roots.iter().map(|root| Modules::read(tree, root)).collect();
        let arrows = arrows(&roots);
        Source { directory: member.directory.clone(), package: member.name.clone(), roots, arrows }
    }

    /// The modules of all its roots.
    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.roots.iter().flat_map(|root| &root.all)
    }

    /// Whether other crates use its items, which is so if it has a library. `verbs` is left out: its library is only for
    /// the linker, and has one item for the program.
    pub fn is_library(&self) -> bool {
        self.package != "verbs" && self.modules().any(|module| module.file == format!("{}/src/lib.rs", self.directory))
    }

    fn graph(&self) -> Graph {
        let files = self.modules().map(|module| module.file.clone());
        Graph::new(files, self.arrows.keys().cloned())
    }

    /// The part of the crate that a file belongs to: the file or directory below `src`.
    fn part<'a>(&self, path: &'a str) -> &'a str {
        let first = self.short(path).split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// The parts of the crate, each directory with everything in it. The root file is a node only if it uses others or is used.
    fn parts(&self) -> Graph {
        let part = |path: &String| self.part(path).to_owned();
        let is_root = |part: &String| ["lib", "main"].contains(&part.as_str());
        let all = self.modules().map(|module| part(&module.file)).filter(|part| !is_root(part));
        Graph::new(all, self.arrows.keys().map(|(from, to)| (part(from), part(to))))
    }

    /// A path relative to `src`, for messages.
    fn short<'a>(&self, path: &'a str) -> &'a str {
        let below = path.strip_prefix(self.directory.as_str()).unwrap_or(path);
        below.strip_prefix("/src/").unwrap_or(below)
    }

    /// Every arrow between the `nodes` of a cycle, with the names for which it exists; `node` gives the node of a file.
    fn describe<'a>(&'a self, nodes: &str, cycle: &[String], node: impl Fn(&'a str) -> &'a str) -> String {
        let mut lines =
            format!("{} {nodes} use each other in a cycle; remove arrows until there is no cycle:", cycle.len());
        let within = |file: &'a String| cycle.iter().any(|known| known == node(file));
        let is_of_cycle = |from: &'a String, to: &'a String| node(from) != node(to) && within(from) && within(to);
        for ((from, to), names) in self.arrows.iter().filter(|((from, to), _)| is_of_cycle(from, to)) {
            let line = names.values().min().copied().unwrap_or_default();
            let mut shown: Vec<&str> = names.keys().take(NAMES_SHOWN).map(String::as_str).collect();
            if names.len() > NAMES_SHOWN {
                shown.push("...");
            }
            lines += &format!("\n    {}:{line} ─► {}  {}", self.short(from), self.short(to), shown.join(", "));
        }
        lines
    }
}

/// Reads every crate of the workspace.
pub fn read(workspace: &Workspace, tree: &Tree) -> Vec<Source> {
    workspace.members.iter().map(|member| Source::read(tree, member)).collect()
}

/// Findings about cycles between files, and between the files and directories at the top of a crate.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        findings.extend(source.roots.iter().flat_map(|root| root.problems.iter().cloned()));
        let of_files = source.graph().cycles();
        let of_parts = source.parts().cycles();
        let files = of_files.iter().map(|cycle| source.describe("files", cycle, |file| file));
        let parts = of_parts.iter().map(|cycle| source.describe("parts", cycle, |file| source.part(file)));
        // A cycle of files is often one of parts too.
        let found: Vec<String> = if of_files.is_empty() { parts.collect() } else { files.collect() };
        findings.extend(found.into_iter().map(|found| Finding::new(&source.directory, 0, found)));
    }
    findings
}

fn arrows(roots: &[Modules]) -> Arrows {
    let mut arrows = Arrows::new();
    for modules in roots {
        for (index, module) in modules.all.iter().enumerate() {
            for mention in &module.contents.mentions {
                let definer = modules.definer(index, &mention.path);
                let Some(definer) = definer.filter(|definer| !modules.is_within(index, *definer)) else { continue };
                let to = &modules.all[definer].file;
                if *to == module.file {
                    continue;
                }
                let names = arrows.entry((module.file.clone(), to.clone())).or_default();
                let line = names.entry(mention.path.join("::")).or_insert(mention.line);
                *line = mention.line.min(*line);
            }
        }
    }
    arrows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(files: &[(&str, &str)]) -> Source {
        let member = Member {
            name: "c".into(),
            directory: "c".into(),
            roots: vec!["c/src/lib.rs".into()],
            dependencies: Vec::new(),
        };
        Source::read(&Tree::of(files), &member)
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&[source(files)]).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn files_that_use_each_other_are_a_cycle() {
        let found = found(&[
            ("c/src/lib.rs", "mod a;\nmod b;"),
            ("c/src/a.rs", "use super::b::S;\n\npub fn g() -> crate::b::S { S }"),
            ("c/src/b.rs", "pub struct S;\nfn f() {\n    crate::a::g()\n}"),
        ]);
        let expected = "c: 2 files use each other in a cycle; remove arrows until there is no cycle:\n    \
                        a.rs:1 ─► b.rs  S, crate::b::S, super::b::S\n    b.rs:3 ─► a.rs  crate::a::g";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn folders_that_use_each_other_are_a_cycle() {
        let found = found(&[
            ("c/src/lib.rs", "mod a;\nmod b;"),
            ("c/src/a/mod.rs", "mod one;\npub mod two;"),
            ("c/src/a/one.rs", "use crate::b::S;"),
            ("c/src/a/two.rs", "pub struct T;"),
            ("c/src/b.rs", "pub struct S;\nfn f(_: crate::a::two::T) {}"),
        ]);
        let expected = "c: 2 parts use each other in a cycle; remove arrows until there is no cycle:\n    \
                        a/one.rs:1 ─► b.rs  crate::b::S\n    b.rs:2 ─► a/two.rs  crate::a::two::T";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_folder_may_define_what_its_files_share() {
        let root = ("c/src/lib.rs", "mod a;\npub struct S;\nfn f() { a::b::g() }");
        let folder = ("c/src/a/mod.rs", "pub mod b;\npub struct T;\nfn f() { b::g() }");
        assert_eq!(found(&[root, folder, ("c/src/a/b.rs", "use super::T;\npub fn g() -> crate::S { S }")]), [""; 0]);
    }

    #[test]
    fn a_re_export_is_no_arrow_but_a_use_is() {
        let facade = ("c/src/lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;");
        let a = ("c/src/a.rs", "pub struct A;\nimpl From<crate::B> for A {}");
        assert_eq!(found(&[facade, a, ("c/src/b.rs", "pub struct B;")]), [""; 0]);
        let cycle = found(&[facade, a, ("c/src/b.rs", "use crate::A;\npub struct B(A);")]);
        assert!(cycle[0].contains("a.rs:2 ─► b.rs  crate::B\n    b.rs:1 ─► a.rs  A, crate::A"), "{cycle:?}");
    }

    #[test]
    fn tests_make_no_cycle() {
        let test = "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::*; fn t() { f() } }";
        let files = [("c/src/lib.rs", "mod a;\nmod b;"), ("c/src/a.rs", test)];
        assert_eq!(found(&[files[0], files[1], ("c/src/b.rs", "use crate::a::A;\npub fn f(_: A) {}")]), [""; 0]);
    }
}
