//! `pagelab exec`: runs a command under one policy without measuring. It exits with the command's status.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use host::Host;
use platform::Session;
use policy::Admission;
use policy::Exit;
use policy::cause::CauseShare;
use policy::{Granularity, Modifier, Policy};
use tracer::signals::{self, Forward};
use tracer::{Ended, Launch, Leftovers, Rewriting};

use crate::failure::{Failure, report};
use crate::user;
use crate::waiting;
use crate::words::{Variable, parse_duration, parse_policy, parse_size, parse_variable};

/// Arguments of `pagelab exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// The policy under which the command runs
    #[arg(short, long, value_name = "POLICY", value_parser = parse_policy)]
    pub policy: Policy,
    /// Run the command as this user. Default under sudo: the user who called it. Another user's command has its
    /// own terminal, relayed to this one, and a login environment (HOME, USER, LOGNAME, SHELL, PATH,
    /// XDG_RUNTIME_DIR; TERM, LANG, LC_* and TZ are kept). Unless that user is root, it gains no privilege by exec
    /// (sudo, su)
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Give the command this environment variable too. Without a value, pagelab passes on its own. Repeat it for more
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
    if policy.has(Modifier::PteMapped) {
        let why = "only a comparison can split leaves; use pagelab compare --explain, or compare -p";
        return Err(Failure::Input(format!("{policy}: {why} {policy}")));
    }
    let mut launch = Launch {
        command: arguments.command,
        user: user::to_run_as(arguments.user.as_deref())?,
        variables: user::variables(&arguments.env)?,
        stdin: None,
        stdout: None,
        stderr: None,
        disable_thp: policy.granularity == Granularity::Base,
        own_session: None,
        control_group: None,
        limit: None,
    };
    if policy == Policy::DEFAULT || policy == Policy::plain(Granularity::Base) {
        if arguments.hugetlb_pool.is_some() {
            let why = "changes no setting, and a pool is one: fill it yourself";
            return Err(Failure::Input(format!("--hugetlb-pool: exec -p {policy} {why}")));
        }
        // There is nothing to trace or to lease, so pagelab becomes the command by exec. It stays only if another user's
        // session needs it as its parent.
        signals::catch(Forward::Same).map_err(Failure::input)?;
        exit_as(tracer::run_untraced(&launch).map_err(|error| Failure::launch(&error))?);
    }
    let host = Host::open("/").map_err(Failure::input)?;
    let rewriting = Rewriting::of(&policy, host.page_sizes());
    launch.disable_thp = rewriting.disable_thp;
    let mut session = Session::new(host)
        .with_hugetlb_pool(arguments.hugetlb_pool)
        .with_patience(Duration::from_secs_f64(arguments.wait), waiting::report_lease_holder);
    if let Admission::Unsupported(why) = session.admit(&policy) {
        return Err(Failure::NothingAdmitted(format!("{policy}: {why}")));
    }
    signals::catch(Forward::Same).map_err(Failure::input)?;
    let applied = session.apply_alongside_others(&policy).map_err(|error| match signals::arrived() {
        Some(signal) => Failure::Stopped(signal, "nothing was run"),
        None => Failure::input(error),
    });
    if let Some(why) = applied? {
        session.finish().map_err(Failure::input)?;
        return Err(Failure::NothingAdmitted(format!("{policy}: {why}")));
    }
    let ended = tracer::run(&launch, &rewriting, None, Leftovers::Follow);
    session.finish().map_err(Failure::input)?;
    signals::restore_defaults();
    let ended = ended.map_err(|error| match signals::arrived() {
        Some(signal) => Failure::Stopped(signal, "the command was stopped too"),
        None => Failure::launch(&error),
    })?;
    report_causes(&policy, &ended);
    exit_as(ended.exit)
}

/// Exits with the command's exit code, or with 128 plus the number of the signal that killed it.
fn exit_as(exit: Exit) -> ! {
    match exit {
        Exit::Code(code) => std::process::exit(code),
        Exit::Signal(signal) => std::process::exit(128 + signal),
    }
}

/// Prints the causes that a comparison would show in the row of the policy, except causes that only an inspection of memory
/// finds.
fn report_causes(policy: &Policy, ended: &Ended) {
    for (cause, bytes) in ended.all_causes() {
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
