//! What is measured.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::time::Duration;

use study::metric::Observation;
use tracer::User;
use tracer::environment::Variables;

use crate::server::Server;

/// Reads figures off what a command printed.
pub type Extract = Box<dyn Fn(&[u8]) -> Result<Vec<Observation>, Box<dyn Error + Send + Sync>>>;

/// Takes the answer out of what a command printed; `None`: it is not there.
pub type Select = Box<dyn Fn(&[u8]) -> Option<Vec<u8>>>;

/// Opens a file to read it.
pub type Open = Box<dyn Fn() -> io::Result<File>>;

/// What is measured.
pub struct Work {
    /// The command; with a server, the client that drives it.
    pub command: Vec<OsString>,
    /// The server that the policy applies to, if there is one.
    pub server: Option<Server>,
    /// Run before each trial, with no policy in force; nothing of it is measured.
    pub prepare: Option<Vec<OsString>>,
    /// The user to run as; `None`: the one who runs pagelab.
    pub user: Option<User>,
    /// Variables on top of what the environment of each of these commands is ([`environment::of`](tracer::environment::of)).
    pub variables: Variables,
    /// Opens standard input anew for every trial; `None`: /dev/null.
    pub input: Option<Open>,
    /// Whether the hash of standard output is part of the answer.
    pub check_output: bool,
    /// The part of standard output whose hash that is instead; `None`: all of it. Where an output has no such part, it is all
    /// of that output, so that a trial without an answer has none of the others' answers.
    pub select: Option<Select>,
    /// What the answer must be, word for word, but for line breaks at its end: the selected part, or all of standard output.
    /// `None`: it is not stated.
    pub expected: Option<String>,
    /// How long a trial may take, and what is run before it; then it is ended with all that it started. `None`: as long as
    /// it likes.
    pub trial_time: Option<Duration>,
    /// Whether all memory is looked at before it goes ([`study::comparison::Design::prove_all`]).
    pub prove_all: bool,
    /// Reads figures off standard output; `None`: nothing is read.
    pub extract: Option<Extract>,
}
