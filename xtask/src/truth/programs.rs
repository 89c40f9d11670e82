//! The programs of the truth table ([`Program`], `programs.toml`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::inputs::Content;

const LIST: &str = include_str!("programs.toml");
/// The placeholder for the directory of a program's files in its arguments.
pub const DIRECTORY: &str = "{dir}";

/// A program of the table. The comment at the start of `programs.toml` explains the keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The name of the program in the table.
    pub name: String,
    /// The kind of program.
    pub kind: String,
    /// Debian's package.
    pub package: String,
    /// The program file.
    pub run: String,
    /// Whether the program is not copied, because it finds its own files relative to its path.
    #[serde(default)]
    pub in_place: bool,
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The input files, by name.
    #[serde(default)]
    pub files: BTreeMap<String, Content>,
    /// Commands that make the input files or the program.
    #[serde(default)]
    pub make: Vec<Vec<String>>,
    /// A command that runs before every run.
    pub prepare: Option<String>,
    /// The file that is used as standard input.
    pub input: Option<String>,
    /// Environment variables in addition to `PATH` and `HOME`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The user that runs it.
    pub user: Option<String>,
    /// Whether the program's allocations depend on its addresses.
    #[serde(default)]
    pub addresses: bool,
    /// The timeout of a native run, in seconds.
    #[serde(default = "usual_limit_s")]
    pub limit_s: u64,
}

fn usual_limit_s() -> u64 {
    20
}

impl Program {
    /// A program that only exits, with which the faults of launching a program are measured.
    pub fn only_exits(user: Option<String>) -> Program {
        Program {
            name: "true".to_owned(),
            kind: "C".to_owned(),
            package: "coreutils".to_owned(),
            run: "/usr/bin/true".to_owned(),
            in_place: false,
            arguments: Vec::new(),
            files: BTreeMap::new(),
            make: Vec::new(),
            prepare: None,
            input: None,
            environment: BTreeMap::new(),
            user,
            addresses: false,
            limit_s: usual_limit_s(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    program: Vec<Program>,
}

/// All programs, or those with these names.
pub fn named(names: &[String]) -> Result<Vec<Program>, String> {
    let list: List = toml::from_str(LIST).map_err(|error| format!("programs.toml: {error}"))?;
    let known = |name: &&String| list.program.iter().any(|program| program.name == **name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let known: Vec<&str> = list.program.iter().map(|program| program.name.as_str()).collect();
        return Err(format!("unknown program {unknown:?}; expected one of {}", known.join(", ")));
    }
    let wanted = |program: &Program| names.is_empty() || names.contains(&program.name);
    Ok(list.program.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_25_programs_and_more_each_once() {
        let all = named(&[]).unwrap();
        assert!(all.len() >= 25, "{}", all.len());
        let names: std::collections::BTreeSet<&str> = all.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for program in &all {
            let input = program.input.as_ref();
            assert!(input.is_none_or(|input| program.files.contains_key(input)), "{}", program.name);
            assert!(!program.package.is_empty() && !program.kind.is_empty() && program.limit_s > 0, "{}", program.name);
        }
    }

    #[test]
    fn lists_the_programs_when_a_name_is_unknown() {
        let message = named(&["sqlit".to_owned()]).unwrap_err();
        assert!(message.contains("\"sqlit\"") && message.contains("sqlite, "), "{message}");
        assert_eq!(named(&["sqlite".to_owned()]).unwrap().len(), 1);
    }
}
