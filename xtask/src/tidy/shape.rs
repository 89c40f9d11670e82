//! Checks the style of source: the length of files, imports by name, and error types.

use super::Finding;
use super::arrows::{Module, Source};
use super::tree::{File, Tree};

/// Maximum number of lines of a file. 400 are the guidance, which no tool enforces.
const MAX_LINES: usize = 800;

/// Findings about the style of source.
pub fn check(tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.files.iter().filter_map(too_long).collect();
    for source in sources {
        findings.extend(globs(source));
        findings.extend(text_errors(source));
    }
    findings
}

fn too_long(file: &File) -> Option<Finding> {
    let lines = file.text.lines().count();
    let is_too_long = file.is_rust() && lines > MAX_LINES;
    let message = format!("{lines} lines, at most {MAX_LINES} are allowed; split it where it holds two ideas");
    is_too_long.then(|| Finding::new(&file.path, 0, message))
}

fn globs(source: &Source) -> Vec<Finding> {
    let message = "use super::* hides what is used; import by name";
    lines(source, message, |module| &module.contents.super_globs)
}

/// Findings for errors in libraries that are text. The errors of a library must be types; those of a program may be
/// text.
fn text_errors(source: &Source) -> Vec<Finding> {
    if !source.is_library() {
        return Vec::new();
    }
    let message = "Result<_, String> in a library; give the error a type that says its source";
    lines(source, message, |module| &module.contents.text_errors)
}

/// For each module of a crate, a finding for each line that `of` gives.
fn lines(source: &Source, message: &str, of: impl Fn(&Module) -> &Vec<usize>) -> Vec<Finding> {
    let places = source.modules().flat_map(|module| of(module).iter().map(move |line| (module, *line)));
    places.map(|(module, line)| Finding::new(&module.file, line, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::crates::{Member, Workspace};
    use super::*;

    fn found(root: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(root, text)]);
        let member =
            Member { name: "c".into(), directory: "c".into(), roots: vec![root.into()], dependencies: Vec::new() };
        let sources = super::super::arrows::read(&Workspace { members: vec![member] }, &tree);
        check(&tree, &sources).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_file_has_a_maximum_of_lines() {
        let code = "fn f() {}\n".repeat(MAX_LINES);
        assert_eq!(found("c/src/lib.rs", &code), [""; 0]);
        let long = format!("//! A table.\n{code}");
        assert!(found("c/src/lib.rs", &long)[0].starts_with("c/src/lib.rs: 801 lines, at most 800"));
    }

    #[test]
    fn imports_are_by_name_outside_of_tests() {
        assert_eq!(found("c/src/lib.rs", "mod a { use super::*; }").len(), 1);
        assert_eq!(found("c/src/lib.rs", "#[cfg(test)]\nmod tests { use super::*; }\npub use a::*;"), [""; 0]);
    }

    #[test]
    fn errors_of_libraries_are_types() {
        let text = "fn f() -> Result<(), String> { Ok(()) }";
        assert_eq!(found("c/src/lib.rs", text).len(), 1);
        assert_eq!(found("c/src/main.rs", text), [""; 0]);
    }
}
