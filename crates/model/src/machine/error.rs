//! Errors of machine files.

use thiserror::Error;

use crate::toml_file::TomlError;

/// Why a machine is not available.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// There is no built-in machine of this name.
    #[error(
        "there is no machine {name:?}; the nearest is {nearest:?} (`pagelab list machines` shows all; or name a FILE.toml)"
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar name.
        nearest: &'static str,
    },
    /// The file is not valid TOML, or has wrong keys.
    #[error("{file}: {error}")]
    Syntax {
        /// The name of the file.
        file: String,
        /// The message of the TOML reader, with the line.
        #[source]
        error: TomlError,
    },
    /// The file has another schema or version.
    #[error("{file}: schema: found {found:?}; expected {expected:?}")]
    Schema {
        /// The name of the file.
        file: String,
        /// The schema that it states.
        found: String,
        /// The schema that this version reads.
        expected: &'static str,
    },
    /// A value is not allowed.
    #[error("{file}: {key}: found {found}; expected {expected}")]
    Value {
        /// The name of the file.
        file: String,
        /// The key of the value.
        key: String,
        /// The value found.
        found: String,
        /// The values expected.
        expected: String,
    },
}
