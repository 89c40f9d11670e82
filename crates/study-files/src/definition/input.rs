//! Input files of a workload that a command must create first. They are created once per machine and identified by a
//! hash of their content.

use super::DefinitionError;
use super::wire::WireInput;

/// Files that are created once and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The name of the input, which is also the placeholder for its path.
    pub name: String,
    /// Package that contains the programs that create it.
    pub package: Option<String>,
    /// Required programs and files, in addition to the command itself.
    pub needs: Vec<String>,
    /// Command that creates the input, run in an empty directory.
    pub command: Vec<String>,
    /// Standard input of the command, verbatim.
    pub script: Option<String>,
    /// File name for the command's standard output. If there is one, the input is this file, otherwise the directory.
    pub output: Option<String>,
}

/// Delimits the name of an input in a word until the input's path is known.
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
            return Err(DefinitionError::InputWithoutCommand { input: wire.name.clone() });
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

    /// The mark that represents an input's path in words.
    pub(super) fn mark(name: &str) -> String {
        format!("{MARK}{name}{MARK}")
    }

    /// Whether a word contains the input's mark.
    pub fn is_in(&self, word: &str) -> bool {
        word.contains(&Input::mark(&self.name))
    }

    /// The word with the mark replaced by its path.
    pub fn with_path(&self, word: &str, path: &str) -> String {
        word.replace(&Input::mark(&self.name), path)
    }
}
