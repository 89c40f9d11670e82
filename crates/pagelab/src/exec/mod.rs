//! `pagelab exec`: runs a command under one policy without measuring. It exits with the command's status.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use host::Host;
use platform::Session;
use policy::cause::CauseShare;
use policy::{Granularity, Policy};
use study::comparison::Admission;
use study::trial::Exit;
use tracer::signals::{self, PassOn};
use tracer::{Ended, Launch, Leftovers, Rewriting};

use crate::failure::{Failure, report};
use crate::user;
use crate::waiting;
use crate::words::{Variable, parse_duration, parse_policy, parse_size, parse_variable};

/// Arguments of `pagelab exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// The policy
    #[arg(short, long, value_name = "POLICY", value_parser = parse_policy)]
    pub policy: Policy,
    /// Run the command as this user. Default under sudo: the user who called it. Another user's command has a
    /// terminal of its own, relayed to this one, and the environment of a login (HOME, USER, LOGNAME, SHELL, PATH,
    /// XDG_RUNTIME_DIR; TERM, LANG, LC_* and TZ are kept). Unless that user is root, it gains no privilege by exec
    /// (sudo, su)
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Give it this environment variable too. Without a value it is pagelab's own. Repeat it for more
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(parse_variable))]
    pub env: Vec<Variable>,
    /// Memory for the hugetlb pool
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub hugetlb_pool: Option<u64>,
    /// How long to wait for another pagelab that has changed system settings
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub wait: f64,
    /// The command
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

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
        // Nothing has to be traced or leased, so pagelab execs the command and does not stay as its parent, except for
        // another user's session.
        signals::catch(PassOn::Same).map_err(Failure::input)?;
        end_as(tracer::run_untraced(&launch).map_err(|error| Failure::launch(&error))?);
    }
    let host = Host::open("/").map_err(Failure::input)?;
    let rewriting = Rewriting::of(&policy, host.page_sizes());
    launch.disable_thp = rewriting.disable_thp;
    let mut session = Session::new(host)
        .with_hugetlb_pool(arguments.hugetlb_pool)
        .with_patience(Duration::from_secs_f64(arguments.wait), waiting::say_who_holds_the_lease);
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
    signals::release();
    let ended = ended.map_err(|error| match signals::arrived() {
        Some(signal) => Failure::Stopped(signal, "the command with it"),
        None => Failure::launch(&error),
    })?;
    say_what_stood_out(&policy, &ended);
    end_as(ended.exit)
}

/// Exits with the command's status or dies from the same signal.
fn end_as(exit: Exit) -> ! {
    match exit {
        Exit::Code(code) => std::process::exit(code),
        Exit::Signal(signal) => std::process::exit(128 + signal),
    }
}

/// Prints what a comparison would report in the policy's row, as far as it is known without inspecting memory.
fn say_what_stood_out(policy: &Policy, ended: &Ended) {
    for (cause, bytes) in ended.noted() {
        let share = CauseShare { cause, bytes: (bytes > 0).then_some(bytes) };
        report(format_args!("pagelab: {policy}: {}", results::cause_clause(&share, " of mappings")));
    }
    for (call, times) in &ended.answered {
        let call = results::printable(call);
        report(format_args!(
            "pagelab: {policy}: answered by the tracer, not the kernel: {call} ({})",
            results::times(*times)
        ));
    }
}
