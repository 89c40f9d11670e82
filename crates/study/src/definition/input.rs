//! What a workload works on, where that must be made first: once on a machine, by a command, and known by its content's hash.

use super::DefinitionError;
use super::wire::WireInput;

/// Files that are made once and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name, and the placeholder that stands for its place.
    pub name: String,
    /// Where the programs that make it come from.
    pub package: Option<String>,
    /// Programs and files that must be there, beside the command's own.
    pub needs: Vec<String>,
    /// Makes it, in an empty directory.
    pub command: Vec<String>,
    /// The command's standard input, as it is.
    pub script: Option<String>,
    /// The file that its standard output becomes: then the input is this file, and otherwise the directory.
    pub output: Option<String>,
}

/// What stands around the name of an input in a word until it is known where the input is.
const MARK: char = '\u{1}';

impl Input {
    pub(super) fn of(
        wire: &WireInput,
        fill: impl Fn(&String) -> Result<String, DefinitionError>,
    ) -> Result<Input, DefinitionError> {
        let is_file_name = |name: &String| !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        if let Some(output) = wire.output.as_ref().filter(|name| !is_file_name(name)) {
            return Err(DefinitionError::Output { input: wire.name.clone(), found: output.clone() });
        }
        if wire.command.is_empty() {
            return Err(DefinitionError::NothingMakes { input: wire.name.clone() });
        }
        Ok(Input {
            name: wire.name.clone(),
            package: wire.package.clone(),
            needs: wire.needs.clone(),
            command: wire.command.iter().map(fill).collect::<Result<_, _>>()?,
            script: wire.script.clone(),
            output: wire.output.clone(),
        })
    }

    /// What stands for its place in words.
    pub(super) fn mark(name: &str) -> String {
        format!("{MARK}{name}{MARK}")
    }

    /// Whether a word has it.
    pub fn is_in(&self, word: &str) -> bool {
        word.contains(&Input::mark(&self.name))
    }

    /// The word with its place filled in.
    pub fn placed(&self, word: &str, place: &str) -> String {
        word.replace(&Input::mark(&self.name), place)
    }
}
