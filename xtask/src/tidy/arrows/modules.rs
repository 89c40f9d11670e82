//! The modules of a crate ([`Modules`]), and the resolution of paths in them.

use std::collections::BTreeMap;

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta, Token};

use super::super::Finding;
use super::super::tree::Tree;
use super::Segments;
use super::reader::{self, ModuleContents};

/// The modules of the crate with one root file. The first module is that of the root file.
#[derive(Debug, Default)]
pub struct Modules {
    /// All modules, which refer to each other by index.
    pub all: Vec<Module>,
    /// Findings about files that could not be read.
    pub problems: Vec<Finding>,
}

#[derive(Debug)]
pub struct Module {
    /// The file that contains the module, relative to the workspace.
    pub file: String,
    /// The definitions, imports and uses in the module.
    pub contents: ModuleContents,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
}

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathTarget {
    /// A module, by index.
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// One step of a name search: the module, the name and the flag `is_last`. A search ends if it would repeat a step that
/// it is within.
type Step = (usize, String, bool);

impl Modules {
    /// Reads the modules of the crate with this root file.
    pub fn read(tree: &Tree, root: &str) -> Modules {
        let mut modules = Modules::default();
        let directory = root.rsplit_once('/').map_or("", |(directory, _)| directory);
        modules.read_file(tree, None, root, directory);
        modules
    }

    /// The module that defines the item of a path; `None` for items of other crates, and for modules themselves.
    pub fn definer(&self, module: usize, path: &[String]) -> Option<usize> {
        match self.resolve(module, path, &mut Vec::new())? {
            PathTarget::Item(definer) => Some(definer),
            PathTarget::Module(_) => None,
        }
    }

    /// Whether a module is `outer` or inside it.
    pub fn is_within(&self, module: usize, outer: usize) -> bool {
        module == outer || self.all[module].parent.is_some_and(|parent| self.is_within(parent, outer))
    }

    fn read_file(&mut self, tree: &Tree, parent: Option<usize>, path: &str, directory: &str) -> Option<usize> {
        match syn::parse_file(&tree.get(path)?.text) {
            Ok(file) => Some(self.read_items(tree, parent, path, directory, &file.items)),
            Err(error) => {
                let line = error.span().start().line;
                self.problems.push(Finding::new(path, line, format!("cannot read the modules it uses: {error}")));
                None
            }
        }
    }

    fn read_items(&mut self, tree: &Tree, parent: Option<usize>, file: &str, directory: &str, items: &[Item]) -> usize {
        let (contents, declared) = reader::read(items);
        let module = self.all.len();
        self.all.push(Module { file: file.to_string(), contents, parent, children: BTreeMap::new() });
        for child in declared {
            if let Some(index) = self.read_declared(tree, module, directory, child) {
                self.all[module].children.insert(child.ident.to_string(), index);
            }
        }
        module
    }

    /// Reads a module that is in braces, or in a file of its own below the directory of the module that declares it. If there is a
    /// file for each architecture, all are read, and paths resolve to the first.
    fn read_declared(&mut self, tree: &Tree, parent: usize, directory: &str, declared: &ItemMod) -> Option<usize> {
        let file = self.all[parent].file.clone();
        let below = format!("{directory}/{}", declared.ident);
        if let Some((_, items)) = &declared.content {
            return Some(self.read_items(tree, Some(parent), &file, &below, items));
        }
        let parent_directory = file.rsplit_once('/').map_or("", |(above, _)| above);
        let given = given_paths(&declared.attrs).into_iter().map(|path| format!("{parent_directory}/{path}"));
        let mut paths: Vec<String> = given.filter(|path| tree.get(path).is_some()).collect();
        if paths.is_empty() {
            let usual = [format!("{below}.rs"), format!("{below}/mod.rs")];
            paths.extend(usual.into_iter().find(|path| tree.get(path).is_some()));
        }
        if paths.is_empty() {
            let line = declared.ident.span().start().line;
            self.problems.push(Finding::new(&file, line, format!("the module {} has no file", declared.ident)));
        }
        let read: Vec<usize> =
            paths.iter().filter_map(|path| self.read_file(tree, Some(parent), path, &below)).collect();
        read.first().copied()
    }

    fn resolve(&self, module: usize, path: &[String], above: &mut Vec<Step>) -> Option<PathTarget> {
        let (mut found, mut rest) = match path.first()?.as_str() {
            "crate" => (PathTarget::Module(0), &path[1..]),
            "self" => (PathTarget::Module(module), &path[1..]),
            "super" => (PathTarget::Module(self.all[module].parent?), &path[1..]),
            name => (self.look_up(module, name, path.len() == 1, above)?, &path[1..]),
        };
        while let (PathTarget::Module(within), Some((name, after))) = (found, rest.split_first()) {
            found = match name.as_str() {
                "super" => PathTarget::Module(self.all[within].parent?),
                name => self.look_up(within, name, after.is_empty(), above)?,
            };
            rest = after;
        }
        Some(found)
    }

    /// Looks up a name in a module. `is_last`: no segments follow. If segments follow, the name must be a module, not a
    /// function with the same name.
    fn look_up(&self, module: usize, name: &str, is_last: bool, above: &mut Vec<Step>) -> Option<PathTarget> {
        let step = (module, name.to_string(), is_last);
        if above.contains(&step) {
            return None;
        }
        above.push(step);
        let found = self.look_up_once(module, name, is_last, above);
        above.pop();
        found
    }

    fn look_up_once(&self, module: usize, name: &str, is_last: bool, above: &mut Vec<Step>) -> Option<PathTarget> {
        let Module { contents, children, .. } = &self.all[module];
        let item = contents.items.contains(name).then_some(PathTarget::Item(module));
        let child = children.get(name).map(|child| PathTarget::Module(*child));
        let none: &[Segments] = &[];
        let imports = contents.names.get(name).map_or(none, Vec::as_slice);
        let mut imported = || imports.iter().find_map(|path| self.resolve(module, path, above));
        let direct =
            if is_last { item.or_else(&mut imported).or(child) } else { child.or_else(&mut imported).or(item) };
        direct.or_else(|| {
            contents.globs.iter().find_map(|path| match self.resolve(module, path, above)? {
                PathTarget::Module(within) => self.look_up(within, name, is_last, above),
                PathTarget::Item(_) => None,
            })
        })
    }
}

/// The paths that attributes give for a module: `#[path = "..."]` and `#[cfg_attr(..., path = "...")]`.
fn given_paths(attributes: &[Attribute]) -> Vec<String> {
    let text = |expression: &Expr| match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    };
    let path = |meta: &Meta| match meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => text(&pair.value),
        _ => None,
    };
    let given = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg_attr") => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
            parts.iter().find_map(path)
        }
        meta => path(meta),
    };
    attributes.iter().filter_map(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let modules = Modules::read(&Tree::of(files), "c/src/lib.rs");
        assert_eq!(modules.problems, []);
        modules
    }

    /// The file that defines the item of `path`, seen from the root.
    fn file<'a>(modules: &'a Modules, path: &str) -> Option<&'a str> {
        let path: Segments = path.split("::").map(str::to_string).collect();
        modules.definer(0, &path).map(|definer| modules.all[definer].file.as_str())
    }

    #[test]
    fn files_of_modules_are_found_as_the_compiler_finds_them() {
        let modules = modules(&[
            ("c/src/lib.rs", "mod a;\nmod b;\nmod c { pub mod d; }"),
            ("c/src/a.rs", "pub mod e;"),
            ("c/src/a/e.rs", "pub struct E;"),
            ("c/src/b/mod.rs", "pub mod f;"),
            ("c/src/b/f.rs", "pub struct F;"),
            ("c/src/c/d.rs", "pub struct D;"),
        ]);
        assert_eq!(file(&modules, "a::e::E"), Some("c/src/a/e.rs"));
        assert_eq!(file(&modules, "crate::b::f::F::new"), Some("c/src/b/f.rs"));
        assert_eq!(file(&modules, "self::c::d::D"), Some("c/src/c/d.rs"));
        assert_eq!(file(&modules, "a::e"), None, "a module");
        assert_eq!(file(&modules, "std::fs::File"), None);
    }

    #[test]
    fn all_files_of_a_module_with_one_for_each_architecture_are_read() {
        let declared =
            "#[cfg_attr(target_arch = \"x86_64\", path = \"x.rs\")]\n#[cfg_attr(not(any()), path = \"y.rs\")]\nmod a;";
        let modules =
            modules(&[("c/src/lib.rs", declared), ("c/src/x.rs", "pub struct A;"), ("c/src/y.rs", "use super::a::A;")]);
        assert_eq!(modules.all.len(), 3);
        assert_eq!(file(&modules, "a::A"), Some("c/src/x.rs"));
    }

    #[test]
    fn re_exported_names_lead_to_the_definition() {
        let modules = modules(&[
            ("c/src/lib.rs", "mod a;\nmod b;\nuse b::Renamed;\nuse a::plan;"),
            ("c/src/a.rs", "mod d;\npub use d::plan;\npub mod plan {}"),
            ("c/src/a/d.rs", "pub fn plan() {}\npub struct D;"),
            (
                "c/src/b.rs",
                "pub use super::a::*;\npub use crate::b::all::*;\npub mod all { pub use crate::c::D as Renamed; }",
            ),
        ]);
        assert_eq!(file(&modules, "plan"), Some("c/src/a/d.rs"), "the function, not the module");
        assert_eq!(file(&modules, "b::plan"), Some("c/src/a/d.rs"), "through a glob");
        assert_eq!(file(&modules, "Renamed"), None, "c is of another crate");
    }

    #[test]
    fn cycles_of_imports_end() {
        let modules = modules(&[
            ("c/src/lib.rs", "mod a;\nmod b;"),
            ("c/src/a.rs", "pub use super::b::*;\npub use crate::b::X;"),
            ("c/src/b.rs", "pub use super::a::*;\npub use crate::a::X;\npub struct Y;"),
        ]);
        assert_eq!(file(&modules, "a::X"), None);
        assert_eq!(file(&modules, "a::Y"), Some("c/src/b.rs"));
    }

    #[test]
    fn reports_modules_without_a_file_and_files_that_are_no_rust() {
        let modules =
            Modules::read(&Tree::of(&[("c/src/lib.rs", "mod a;\nmod b;"), ("c/src/b.rs", "fn {")]), "c/src/lib.rs");
        let problems: Vec<String> = modules.problems.iter().map(Finding::to_string).collect();
        assert_eq!(problems[0], "c/src/lib.rs:1: the module a has no file");
        assert!(problems[1].starts_with("c/src/b.rs:1: cannot read the modules it uses: "), "{problems:?}");
    }
}
