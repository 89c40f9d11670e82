//! `pagelab exec`: a command under one policy, nothing measured. Its exit status is the command's.

use std::time::Duration;

use metal::host::Host;
use metal::platform::Session;
use metal::signals::{self, PassOn};
use metal::tracer::{self, Launch, Leftovers, Rewriting};
use study::comparison::Admission;
use study::trial::Exit;

use crate::cli::Exec;
use crate::compare;
use crate::failure::Failure;
use crate::user;

/// Runs `pagelab exec`.
pub fn run(arguments: Exec) -> Result<(), Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let rewriting = Rewriting::of(&arguments.policy, host.geometry());
    let launch = Launch {
        command: arguments.command,
        user: user::to_run_as(arguments.user.as_deref())?,
        stdin: None,
        stdout: None,
        stderr: None,
        disable_thp: rewriting.disable_thp,
    };
    let mut session = Session::new(host)
        .with_hugetlb_pool(arguments.hugetlb_pool)
        .with_patience(Duration::from_secs_f64(arguments.wait), compare::say_who_holds_the_lease);
    if let Admission::Unsupported(why) = session.admit(&arguments.policy) {
        return Err(Failure::NothingAdmitted(format!("{}: {why}", arguments.policy)));
    }
    if rewriting.needs_no_tracer() {
        return Err(Failure::input(tracer::replace_self(&launch)));
    }
    signals::catch(PassOn::Same).map_err(Failure::input)?;
    session.apply(&arguments.policy).map_err(Failure::input)?;
    let ended = tracer::run(&launch, &rewriting, None, Leftovers::Follow);
    session.finish().map_err(Failure::input)?;
    match ended.map_err(Failure::input)?.exit {
        Exit::Code(code) => std::process::exit(code),
        Exit::Signal(signal) => std::process::exit(128 + signal),
    }
}
