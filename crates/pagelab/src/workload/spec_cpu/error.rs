//! Why there is no result of SPEC CPU.

use std::io;
use std::path::PathBuf;

/// Why there is no result of SPEC CPU.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// A raw file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What reading said.
        source: io::Error,
    },
    /// A raw file has no result, for this reason.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<SpecError>,
    },
    /// It has no result at all.
    #[error("it is no raw result file of SPEC CPU (.rsf): no line of it begins with spec.cpu2006.results or the like")]
    NotRaw,
    /// Results of another suite, or of two.
    #[error("line {line}: results of {found:?}; expected those of one suite among {known}")]
    Suite {
        /// The line's number.
        line: usize,
        /// The suite.
        found: String,
        /// Those that are known.
        known: String,
    },
    /// A field of a run that is there again.
    #[error("line {line}: {field} of one run stands there twice")]
    Twice {
        /// The line's number.
        line: usize,
        /// The field.
        field: String,
    },
    /// A field that is not there.
    #[error("{run} has no {field}: the file is cut off, or the run did not come to its end")]
    Lacks {
        /// Benchmark, tune and iteration.
        run: String,
        /// The field.
        field: &'static str,
    },
    /// A run that SPEC calls invalid.
    #[error(
        "SPEC calls the run {run} invalid ({code}; S is success, CE did not compile, RE failed, VE had the wrong output)"
    )]
    Invalid {
        /// Benchmark, tune and iteration.
        run: String,
        /// What the file says.
        code: String,
    },
    /// A figure that is none.
    #[error("line {line}: {field}: expected {}, found {found:?}", if *field == "ratio" { "a number above 0" } else { "seconds" })]
    Number {
        /// The line's number.
        line: usize,
        /// The field.
        field: &'static str,
        /// What stands there.
        found: String,
    },
    /// Neither a file nor a command, or both.
    #[error("expected either --raw FILE or a command: pagelab workload spec-cpu --spec DIR -- runcpu ...")]
    Nothing,
    /// There is no SPEC CPU in the directory.
    #[error("--spec: there is no {}: expected the directory where SPEC CPU is installed", shrc.display())]
    NotInstalled {
        /// What would be there.
        shrc: PathBuf,
    },
    /// The command cannot be started.
    #[error("{program} cannot be run: {source}")]
    NotStarted {
        /// The program.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The command failed.
    #[error("{program} ended with {status}; its last words: {last_words}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The end of what it printed.
        last_words: String,
    },
    /// The command wrote no raw file.
    #[error(
        "{program} names no raw result file (`format: raw -> FILE`): it did not run a benchmark, or its configuration \
         leaves the format out; its last words: {last_words}"
    )]
    NoFile {
        /// The program.
        program: String,
        /// The end of what it printed.
        last_words: String,
    },
}

impl SpecError {
    /// Whether the arguments are to be changed, or the file that they name.
    pub fn is_of_input(&self) -> bool {
        !matches!(self, SpecError::Failed { .. } | SpecError::NoFile { .. } | SpecError::Invalid { .. })
    }
}
