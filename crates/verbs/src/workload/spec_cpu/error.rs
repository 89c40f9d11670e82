//! Errors of SPEC CPU runs and of their result files ([`SpecError`]).

use std::io;
use std::path::PathBuf;

/// Why there is no result of SPEC CPU.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    #[error("{}: {source}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        source: io::Error,
    },
    /// A raw file has no result, for this reason.
    #[error("{}: {error}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error in the file.
        error: Box<SpecError>,
    },
    #[error("not a raw result file of SPEC CPU (.rsf): no line begins with spec.cpu2006.results or the like")]
    NotRaw,
    /// The file has results of an unknown suite, or of two suites.
    #[error("line {line}: results of {found:?}; expected those of one suite among {known}")]
    Suite {
        line: usize,
        /// The suite in the file.
        found: String,
        /// The known suites.
        known: String,
    },
    #[error("line {line}: duplicate {field} of a run")]
    Duplicate { line: usize, field: String },
    #[error("{run} has no {field}: the file is cut off, or the run did not finish")]
    Missing {
        /// Benchmark, tune and iteration.
        run: String,
        field: &'static str,
    },
    /// SPEC marks a run as invalid.
    #[error(
        "SPEC calls the run {run} invalid ({code}; S is success, CE did not compile, RE failed, VE had the wrong output)"
    )]
    Invalid {
        /// Benchmark, tune and iteration.
        run: String,
        /// SPEC's code in the file.
        code: String,
    },
    #[error("line {line}: {field}: expected {}, found {found:?}", if *field == "ratio" { "a number above 0" } else { "seconds" })]
    Number {
        line: usize,
        field: &'static str,
        /// The text in the file.
        found: String,
    },
    /// The arguments name neither a file nor a command, or both.
    #[error("expected either --raw FILE or a command: pagelab workload spec-cpu --spec DIR -- runcpu ...")]
    FileOrCommand,
    /// SPEC CPU is not installed in the directory.
    #[error("--spec: there is no {}: expected the directory where SPEC CPU is installed", shrc.display())]
    NotInstalled {
        /// The expected file.
        shrc: PathBuf,
    },
    #[error("{program} cannot be run: {source}")]
    NotStarted {
        /// The name of the program.
        program: String,
        source: io::Error,
    },
    #[error("{program} ended with {status}; its last words: {last_words}")]
    Failed {
        /// The name of the program.
        program: String,
        status: std::process::ExitStatus,
        /// The end of its output.
        last_words: String,
    },
    /// The command's output names no raw file.
    #[error(
        "{program} names no raw result file (`format: raw -> FILE`): it did not run a benchmark, or its configuration \
         leaves the format out; its last words: {last_words}"
    )]
    NoRawFile {
        /// The name of the program.
        program: String,
        /// The end of its output.
        last_words: String,
    },
}

impl SpecError {
    /// Whether the error is in the arguments or in the file that they name.
    pub fn is_input_error(&self) -> bool {
        !matches!(self, SpecError::Failed { .. } | SpecError::NoRawFile { .. } | SpecError::Invalid { .. })
    }
}
