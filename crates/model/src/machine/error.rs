//! What can be wrong with a machine file.

use thiserror::Error;

use crate::toml_file::TomlError;

/// A machine that cannot be had: each says which file, which key, what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// No machine of this name comes with the program.
    #[error(
        "there is no machine {name:?}; the nearest is {nearest:?} (`pagelab list machines` shows all, and a FILE.toml is read)"
    )]
    Unknown {
        /// What was given.
        name: String,
        /// The most similar name.
        nearest: &'static str,
    },
    /// It is no TOML, or its keys are not those of a machine.
    #[error("{file}: {error}")]
    Syntax {
        /// The file.
        file: String,
        /// What the reader says, with the line.
        #[source]
        error: TomlError,
    },
    /// Another kind of file, or another version of it.
    #[error("{file}: schema: found {found:?}; expected {expected:?}")]
    Schema {
        /// The file.
        file: String,
        /// What it says.
        found: String,
        /// What this version reads.
        expected: &'static str,
    },
    /// A value that no processor can have.
    #[error("{file}: {key}: found {found}; expected {expected}")]
    Value {
        /// The file.
        file: String,
        /// Where in it.
        key: String,
        /// What stands there.
        found: String,
        /// What could.
        expected: String,
    },
}
