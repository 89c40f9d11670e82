//! `pagelab exec`: a command under one policy, nothing measured. Its exit status is the command's.

use std::time::Duration;

use metal::host::Host;
use metal::platform::Session;
use metal::signals::{self, PassOn};
use metal::tracer::{self, Ended, Launch, Leftovers, Rewriting};
use study::cause::CauseShare;
use study::comparison::Admission;
use study::policy::{Granularity, Policy};
use study::trial::Exit;

use crate::cli::Exec;
use crate::compare;
use crate::failure::{Failure, say};
use crate::user;

/// Runs `pagelab exec`.
pub fn run(arguments: Exec) -> Result<(), Failure> {
    let policy = arguments.policy;
    let mut launch = Launch {
        command: arguments.command,
        user: user::to_run_as(arguments.user.as_deref())?,
        variables: user::variables(&arguments.env)?,
        stdin: None,
        stdout: None,
        stderr: None,
        disable_thp: policy.granularity == Granularity::Base,
        limit: None,
    };
    if policy == Policy::DEFAULT || policy == Policy::plain(Granularity::Base) {
        // Nothing has to be traced or leased, so pagelab does not stay, but for another user's session.
        signals::catch(PassOn::Same).map_err(Failure::input)?;
        end_as(tracer::run_untraced(&launch).map_err(|error| Failure::launch(&error))?);
    }
    let host = Host::open("/").map_err(Failure::input)?;
    let rewriting = Rewriting::of(&policy, host.geometry());
    launch.disable_thp = rewriting.disable_thp;
    let mut session = Session::new(host)
        .with_hugetlb_pool(arguments.hugetlb_pool)
        .with_patience(Duration::from_secs_f64(arguments.wait), compare::say_who_holds_the_lease);
    if let Admission::Unsupported(why) = session.admit(&policy) {
        return Err(Failure::NothingAdmitted(format!("{policy}: {why}")));
    }
    signals::catch(PassOn::Same).map_err(Failure::input)?;
    let applied = session.apply_beside_others(&policy).map_err(|error| match signals::arrived() {
        Some(signal) => Failure::Stopped(signal, "nothing was run"),
        None => Failure::input(error),
    });
    if let Some(why) = applied? {
        session.finish().map_err(Failure::input)?;
        return Err(Failure::NothingAdmitted(format!("{policy}: {why}")));
    }
    let ended = tracer::run(&launch, &rewriting, None, Leftovers::Follow);
    session.finish().map_err(Failure::input)?;
    let ended = ended.map_err(|error| match signals::arrived() {
        Some(signal) => Failure::Stopped(signal, "the command with it"),
        None => Failure::launch(&error),
    })?;
    say_what_stood_out(&policy, &ended);
    end_as(ended.exit)
}

/// Ends as the command did.
fn end_as(exit: Exit) -> ! {
    match exit {
        Exit::Code(code) => std::process::exit(code),
        Exit::Signal(signal) => std::process::exit(128 + signal),
    }
}

/// What a comparison would say in the row of the policy, as far as it is known without a look at the memory.
fn say_what_stood_out(policy: &Policy, ended: &Ended) {
    for (cause, bytes) in &ended.causes {
        let share = CauseShare { cause: cause.clone(), bytes: (*bytes > 0).then_some(*bytes) };
        say(format_args!("pagelab: {policy}: {}", results::cause_clause(&share, " of mappings")));
    }
    for (call, times) in &ended.answered {
        let call = results::printable(call);
        say(format_args!(
            "pagelab: {policy}: answered by the tracer, not the kernel: {call} ({})",
            results::times(*times)
        ));
    }
}
