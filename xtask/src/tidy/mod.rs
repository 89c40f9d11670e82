//! The rules of the workspace that no compiler checks. Each rule is a function from a tree of files to a list of
//! [`Finding`].

mod arrows;
mod calls;
mod crates;
mod fallbacks;
pub mod links;
mod properties;
mod shape;
mod skips;
mod source;
mod text;
pub mod tree;
mod unsafety;
mod words;
mod writing;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use crates::Workspace;
use tree::Tree;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace.
    path: String,
    /// The line, counted from 1; 0 for the whole file.
    line: usize,
    /// What was expected, what was found, and how to fix it.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// All findings in the workspace at `root`.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let tree = Tree::read(root)?;
    let workspace = Workspace::read(root)?;
    let sources = arrows::read(&workspace, &tree);
    let mut findings = crates::check(&workspace, &tree);
    findings.extend(arrows::check(&sources));
    findings.extend(arrows::check_picture(&tree, &workspace, &sources));
    findings.extend(shape::check(&tree, &sources));
    findings.extend(unsafety::check(&workspace, &tree));
    findings.extend(writing::check(&workspace, &tree));
    findings.extend(calls::check(&tree));
    findings.extend(fallbacks::check(&tree));
    findings.extend(source::check(&tree));
    findings.extend(properties::check(&tree));
    findings.extend(skips::check(&tree));
    findings.extend(text::check(&tree));
    findings.extend(words::check(&tree));
    findings.extend(links::check(&tree));
    findings.sort();
    Ok(findings)
}

/// Writes the diagram of crates and their parts into docs/reference/modules.md.
pub fn draw(root: &Path) -> ExitCode {
    let drawn = || {
        let tree = Tree::read(root)?;
        let workspace = Workspace::read(root)?;
        let sources = arrows::read(&workspace, &tree);
        arrows::write_picture(root, &tree, &workspace, &sources)
    };
    match drawn() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => refuse(&problem),
    }
}

/// Prints the findings; succeeds if there are none.
pub fn run(root: &Path) -> ExitCode {
    match check(root) {
        Ok(findings) => {
            findings.iter().for_each(|finding| println!("{finding}"));
            println!("tidy: {} findings", findings.len());
            if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => refuse(&problem),
    }
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("tidy: {problem}");
    ExitCode::from(2)
}
