//! [`Work`]: the measured work, with the checks of its output.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::time::Duration;

use study::metric::Observation;
use tracer::SessionWeight;
use tracer::User;
use tracer::environment::Variables;

use crate::server::Server;

/// Reads figures from a command's output.
pub type Extract = Box<dyn Fn(&[u8]) -> Result<Vec<Observation>, Box<dyn Error + Send + Sync>>>;

/// Selects the answer from a command's output; `None`: the output does not contain it.
pub type Select = Box<dyn Fn(&[u8]) -> Option<Vec<u8>>>;

/// Opens a file for reading.
pub type Open = Box<dyn Fn() -> io::Result<File>>;

/// The measured work: its commands and the checks of their output.
pub struct Work {
    /// The command; with a server, the client that drives it.
    pub command: Vec<OsString>,
    /// The server that the policy applies to, if there is one.
    pub server: Option<Server>,
    /// A command to run before each trial, without a policy in force; nothing of it is measured.
    pub prepare: Option<Vec<OsString>>,
    /// The user to run as; `None`: the user who runs pagelab.
    pub user: Option<User>,
    /// Gives the command a session of its own, with this autogroup weight; with a server, also the server, each probe and the
    /// client. `None`: pagelab's session, unless `user` is another user.
    pub own_session: Option<SessionWeight>,
    /// Variables added to the environment of each of these commands ([`environment::of`](tracer::environment::of)).
    pub variables: Variables,
    /// Opens standard input anew for every trial; `None`: /dev/null.
    pub input: Option<Open>,
    /// Whether the hash of standard output is part of the answer.
    pub check_output: bool,
    /// Selects the part of standard output to hash instead; `None`: all of it. An output without such a part is hashed as a
    /// whole, so that a trial without an answer does not match the others.
    pub select: Option<Select>,
    /// The expected answer, compared exactly except for line breaks at its end: the selected part, or all of standard output.
    /// `None`: it is not stated.
    pub expected: Option<String>,
    /// The time limit of a trial, and of the command before it; a trial that exceeds it is ended with all its processes. `None`:
    /// no limit.
    pub trial_time: Option<Duration>,
    /// Whether all memory is examined before it is given back ([`study::comparison::Design::prove_all`]).
    pub prove_all: bool,
    /// Whether the scatter of physical frames is read when memory is examined.
    pub reads_frames: bool,
    /// Reads figures from standard output; `None`: none are read.
    pub extract: Option<Extract>,
}
