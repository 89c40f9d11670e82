//! Reads the items of one module: the definitions, the imports, and the paths in the code.
//!
//! Code for tests (`#[cfg(test)]`) is left out. Macros are read token by token, so paths in them count. Calls of methods do not
//! count: only the compiler knows the type that they belong to, and the name of that type is in an import anyway.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, ImplItem, Item, ItemMod, ItemUse, Meta, PatIdent, Path, PathArguments, TypePath, UseTree, Visibility,
};

use super::{Mention, Segments, tokens};

/// The contents of a module.
#[derive(Debug, Default)]
pub struct ModuleContents {
    /// Names of the items that the module defines, including macros.
    pub items: BTreeSet<String>,
    /// Names imported by `use` and `pub use`, with their paths.
    pub names: BTreeMap<String, Vec<Segments>>,
    /// Modules from which all names are imported.
    pub globs: Vec<Segments>,
    /// The paths in the module's code, without those that are only re-exported (`pub use`).
    pub mentions: Vec<Mention>,
    /// Lines of `use super::*`.
    pub super_globs: Vec<usize>,
    /// Lines with errors that are text: `Result<_, String>`.
    pub text_errors: Vec<usize>,
}

/// Reads the items of a module. Returns its contents, and the modules that it declares.
pub fn read(items: &[Item]) -> (ModuleContents, Vec<&ItemMod>) {
    let mut reader = Reader::default();
    for item in items.iter().filter(|item| !attributes(item).iter().any(is_for_tests)) {
        reader.contents.items.extend(defined(item));
        reader.visit_item(item);
    }
    (reader.contents, reader.modules)
}

/// The state of reading.
#[derive(Default)]
struct Reader<'ast> {
    contents: ModuleContents,
    modules: Vec<&'ast ItemMod>,
    /// The names of variables in each enclosing function.
    variables: Vec<BTreeSet<String>>,
}

impl Reader<'_> {
    fn mention(&mut self, path: Segments, line: usize) {
        let is_variable = path.len() == 1 && self.variables.iter().any(|names| names.contains(&path[0]));
        if !is_variable && !path.is_empty() {
            self.contents.mentions.push(Mention { path, line });
        }
    }

    fn import(&mut self, tree: &UseTree, before: &Segments, re_exported: bool) {
        match tree {
            UseTree::Path(part) => self.import(&part.tree, &joined(before, part.ident.to_string()), re_exported),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before, re_exported)),
            UseTree::Glob(glob) => {
                if !before.is_empty() && before.iter().all(|segment| segment == "super") {
                    self.contents.super_globs.push(glob.star_token.spans[0].start().line);
                }
                self.contents.globs.push(before.clone());
            }
            UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                self.bind(last, before.clone(), name.ident.span().start().line, re_exported);
            }
            UseTree::Name(name) => {
                let path = joined(before, name.ident.to_string());
                self.bind(name.ident.to_string(), path, name.ident.span().start().line, re_exported);
            }
            UseTree::Rename(name) => {
                let path = joined(before, name.ident.to_string());
                self.bind(name.rename.to_string(), path, name.ident.span().start().line, re_exported);
            }
        }
    }

    fn bind(&mut self, name: String, path: Segments, line: usize, re_exported: bool) {
        if !re_exported {
            self.mention(path.clone(), line);
        }
        self.contents.names.entry(name).or_default().push(path);
    }

    /// Adds the paths among the tokens of a macro or an attribute.
    fn scan(&mut self, tokens: &TokenStream) {
        tokens::paths(tokens).into_iter().for_each(|mention| self.mention(mention.path, mention.line));
    }

    /// Adds paths that serde takes as text, as in `#[serde(with = "crate::bytes")]`.
    fn scan_text(&mut self, attribute: &Attribute) {
        let Meta::List(list) = &attribute.meta else { return };
        for token in list.tokens.clone() {
            let TokenTree::Literal(literal) = &token else { continue };
            let text = literal.to_string();
            if let Ok(path) = syn::parse_str::<Path>(text.trim_matches('"')) {
                self.mention(segments(&path), literal.span().start().line);
            }
        }
    }

    /// Reads a function. Its variables hide items of the module that have the same names.
    fn within(&mut self, variables: Variables, read: impl FnOnce(&mut Self)) {
        self.variables.push(variables.0);
        read(self);
        self.variables.pop();
    }
}

impl<'ast> Visit<'ast> for Reader<'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.modules.push(module);
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        if import.leading_colon.is_none() {
            let re_exported = !matches!(import.vis, Visibility::Inherited);
            self.import(&import.tree, &Segments::new(), re_exported);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.within(Variables::of(|names| names.visit_item_fn(function)), |reader| {
            visit::visit_item_fn(reader, function)
        });
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        let variables = Variables::of(|names| names.visit_impl_item_fn(function));
        self.within(variables, |reader| visit::visit_impl_item_fn(reader, function));
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        let variables = Variables::of(|names| names.visit_trait_item_fn(function));
        self.within(variables, |reader| visit::visit_trait_item_fn(reader, function));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if let (None, Some(first)) = (&path.leading_colon, path.segments.first()) {
            self.mention(segments(path), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_type_path(&mut self, path: &'ast TypePath) {
        if is_text_error(path)
            && let Some(last) = path.path.segments.last()
        {
            self.contents.text_errors.push(last.ident.span().start().line);
        }
        visit::visit_type_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("serde") {
            self.scan_text(attribute);
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.scan(tokens);
    }

    /// A visibility such as `pub(in a::b)` does not use `a::b`, so it is skipped.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// The names bound by the patterns of a function.
#[derive(Default)]
struct Variables(BTreeSet<String>);

impl Variables {
    fn of(visit: impl FnOnce(&mut Variables)) -> Variables {
        let mut variables = Variables::default();
        visit(&mut variables);
        variables
    }
}

impl<'ast> Visit<'ast> for Variables {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        self.0.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }
}

fn joined(before: &Segments, last: String) -> Segments {
    before.iter().cloned().chain([last]).collect()
}

fn segments(path: &Path) -> Segments {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Whether an attribute is `#[cfg(test)]`, or `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
}

fn is_text_error(path: &TypePath) -> bool {
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result") else { return false };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    let is_text = |argument: &syn::GenericArgument| matches!(argument, syn::GenericArgument::Type(syn::Type::Path(path)) if path.path.is_ident("String"));
    arguments.args.len() == 2 && arguments.args.last().is_some_and(is_text)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The names that an item defines. Modules and imports are handled elsewhere.
fn defined(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => match &item.ident {
            Some(name) => name,
            None => return Vec::new(),
        },
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::ForeignMod(block) => return block.items.iter().filter_map(foreign).collect(),
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}

fn foreign(item: &syn::ForeignItem) -> Option<String> {
    match item {
        syn::ForeignItem::Fn(item) => Some(item.sig.ident.to_string()),
        syn::ForeignItem::Static(item) => Some(item.ident.to_string()),
        syn::ForeignItem::Type(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(source: &str) -> ModuleContents {
        read(&syn::parse_file(source).unwrap().items).0
    }

    fn mentions(source: &str) -> Vec<String> {
        contents(source).mentions.iter().map(|mention| mention.path.join("::")).collect()
    }

    #[test]
    fn imports_are_mentions_and_names_and_re_exports_are_names_only() {
        let contents =
            contents("use a::{b::C, d as e, f::{self, g}};\npub use h::I;\npub(crate) use j::*;\nuse super::super::*;");
        let paths: Vec<String> = contents.mentions.iter().map(|mention| mention.path.join("::")).collect();
        assert_eq!(paths, ["a::b::C", "a::d", "a::f", "a::f::g"]);
        assert_eq!(contents.names.keys().collect::<Vec<_>>(), ["C", "I", "e", "f", "g"]);
        assert_eq!((contents.globs.len(), contents.super_globs), (2, vec![4]));
    }

    #[test]
    fn code_for_tests_is_ignored() {
        for source in [
            "#[cfg(test)] use a::B;",
            "#[cfg(test)] mod tests { use a::B; }",
            "#[cfg(all(test, unix))] fn f() { a::b() }",
            "impl S { #[cfg(test)] fn f() { a::b() } }",
        ] {
            assert!(mentions(source).iter().all(|path| path == "S"), "{source}");
        }
        assert_eq!(mentions("#[cfg(not(test))] use a::B;"), ["a::B"]);
    }

    #[test]
    fn paths_in_macros_attributes_and_texts_of_serde_count() {
        assert_eq!(mentions("fn f() { g!(\"{}\", crate::a::b(x.c, 0..D), 'e'); }"), ["g", "crate::a::b", "x", "D"]);
        assert!(mentions("macro_rules! m { ($a:ident) => { $crate::b::$a() }; }").contains(&"crate::b".to_string()));
        assert!(mentions("#[serde(with = \"super::a\")] struct S;").contains(&"super::a".to_string()));
        assert!(mentions("struct S { #[arg(value_parser = a::b)] c: u8 }").contains(&"a::b".to_string()));
    }

    #[test]
    fn variables_are_no_paths_and_neither_is_a_visibility() {
        assert_eq!(mentions("pub(in a::b) fn f(c: u8) -> u8 { let d = c; g(d) }"), ["u8", "u8", "g"]);
        assert_eq!(mentions("fn f() -> ::std::io::Error { h::i::<j::K>() }"), ["h::i", "j::K"]);
    }

    #[test]
    fn lists_the_names_of_definitions() {
        let contents = contents(
            "const A: u8 = 1; enum B {} fn c() {} macro_rules! d { () => {} } extern \"C\" { fn e(); } mod f {}",
        );
        assert_eq!(contents.items.into_iter().collect::<Vec<_>>(), ["A", "B", "c", "d", "e"]);
    }

    #[test]
    fn errors_that_are_text_are_found_where_they_are_the_error() {
        let lines = |source| contents(source).text_errors;
        assert_eq!(lines("fn f() -> Result<u8, String> { g }"), [1]);
        assert_eq!(lines("fn f() -> std::result::Result<u8, String> { g }"), [1]);
        assert_eq!(lines("fn f() -> Result<String, Error> { g }\nfn g() -> io::Result<String> { h }"), [0usize; 0]);
    }
}
