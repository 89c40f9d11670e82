//! `pagelab limits`: finds, for each policy, the smallest memory limit under which a command still ends as it does
//! without a limit. For a trace, models how much memory a limit must allow.

mod document;
mod modelled;
mod report;
mod run;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use host::Host;
use model::policy::ModelPolicy;
use platform::Session;
use policy::Admission;
use policy::Exit;
use policy::size::format_bytes;
use policy::{Modifier, Policy};
use results::printable;
use study::memory_limit::{CONFIRMED_RUNS, SearchResult, SearchStart, smallest_limit};
use tracer::Rewriting;
use tracer::signals::{self, Forward};

use crate::failure::{Failure, report};
use crate::output::{print, terminal_width};
use crate::progress_line::ProgressLine;
use crate::sim;
use crate::user;
use crate::waiting;
use crate::words::{Variable, parse_duration, parse_percent, parse_size, parse_variable};
use run::{Program, Run, run};

/// The default of `--precision`.
const PRECISION_RATIO: f64 = 0.02;
/// The default of `--wait`.
const PATIENCE: Duration = Duration::from_secs(600);
/// A run with a limit may take this many times as long as the run without one, plus [`EXTRA_TIME_S`].
const MAX_TIME_RATIO: f64 = 4.0;
/// In seconds; see [`MAX_TIME_RATIO`].
const EXTRA_TIME_S: f64 = 5.0;

/// Arguments of `pagelab limits`.
#[derive(Debug, Args)]
pub struct Limits {
    /// Policies. Separate several by commas, or repeat the option; default: default,base,thp. With a trace also those of `pagelab sim`
    #[arg(short, long = "policy", value_name = "POLICY", value_delimiter = ',', value_parser = sim::parse_policy)]
    policies: Vec<ModelPolicy>,
    /// With a trace: a machine of `pagelab list machines`, or a FILE.toml; default: one of the architecture of the trace
    #[arg(short, long = "machine", value_name = "MACHINE", value_delimiter = ',')]
    machines: Vec<String>,
    /// With a trace: settings of Linux other than the policy, as for `pagelab sim`
    #[arg(long, value_name = "FILE.toml")]
    linux: Option<PathBuf>,
    /// The largest gap between the limit that suffices and the one that does not. Default: 2%
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    precision: Option<f64>,
    /// Run the command as this user. Default under sudo: the user who called it
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Give the command this environment variable too. Without a value, pagelab passes on its own. Repeat it for more
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(parse_variable))]
    env: Vec<Variable>,
    /// Memory for the hugetlb pool
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    hugetlb_pool: Option<u64>,
    /// How long to wait for another pagelab that has changed system settings. Default: 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<f64>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// The command, whose output is discarded. Or a trace that `pagelab record` wrote: then nothing runs, and the memory that a limit
    /// has to admit is modelled, also for another architecture
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The result for one policy.
pub struct Measured {
    policy: Policy,
    /// The run without a limit; `None` if the policy could not be applied, or if that run ruled out a search.
    unlimited: Option<Run>,
    /// The smallest limit, or why none was found.
    limit: Result<Limit, String>,
}

impl Measured {
    /// The result for a policy for which no limit was found.
    fn none(policy: &Policy, unlimited: Option<Run>, why: String) -> Measured {
        Measured { policy: policy.clone(), unlimited, limit: Err(why) }
    }

    /// The policy, and why no limit was found for it; `None` if one was found.
    fn failure(&self) -> Option<String> {
        self.limit.as_ref().err().map(|why| format!("{}: {why}", self.policy))
    }
}

/// The smallest limit under a policy.
pub struct Limit {
    /// The limit, and what else the search found.
    found: SearchResult,
    /// The run with the largest limit that was too small.
    failed: Option<Run>,
}

/// Runs `pagelab limits`.
///
/// # Errors
/// An option does not fit the command, no control group can be made, or no limit is found under any policy.
pub fn run_limits(mut arguments: Limits) -> Result<(), Failure> {
    if arguments.policies.is_empty() {
        arguments.policies = ["default", "base", "thp"].iter().map(|name| name.parse().expect("a policy")).collect();
    }
    if let Some(trace) = modelled::trace(&arguments.command) {
        let Limits { precision, user, env, hugetlb_pool, wait, .. } = &arguments;
        let needs_run = precision.or(*wait).is_some() || user.is_some() || !env.is_empty() || hugetlb_pool.is_some();
        if needs_run {
            return Err(Failure::Input(format!(
                "--precision, --user, --env, --hugetlb-pool and --wait are for a command that runs, and {} is a trace",
                trace.display()
            )));
        }
        return modelled::run(&trace, &arguments);
    }
    if !arguments.machines.is_empty() || arguments.linux.is_some() {
        let word = arguments.command[0].display();
        return Err(Failure::Input(format!(
            "--machine and --linux need one trace (pagelab record -o FILE -- COMMAND), and {word} is not one"
        )));
    }
    measure(arguments)
}

/// Runs the command to find its smallest limit under each policy.
fn measure(arguments: Limits) -> Result<(), Failure> {
    let kernel_policy = |policy: &ModelPolicy| match policy {
        ModelPolicy::Kernel(policy) => Ok(policy.clone()),
        other => Err(Failure::Input(format!("{other} can only be modelled; give a trace instead of the command"))),
    };
    let precision_ratio = arguments.precision.unwrap_or(PRECISION_RATIO);
    let patience = arguments.wait.map_or(PATIENCE, Duration::from_secs_f64);
    let mut policies = arguments.policies.iter().map(kernel_policy).collect::<Result<Vec<Policy>, Failure>>()?;
    if let Some(policy) = policies.iter().find(|policy| policy.has(Modifier::PteMapped)) {
        return Err(Failure::Input(format!(
            "{policy}: only a comparison can split leaves; use pagelab compare -p {policy}"
        )));
    }
    let program = Program {
        command: arguments.command,
        user: user::to_run_as(arguments.user.as_deref())?,
        variables: user::variables(&arguments.env)?,
    };
    let kernel = Host::open("/").and_then(|host| host.machine()).map_err(Failure::input)?.kernel;
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let mut measured: Vec<Measured> = Vec::new();
    policies = policies
        .iter()
        .enumerate()
        .filter(|(at, one)| !policies[..*at].contains(one))
        .map(|(_, one)| one.clone())
        .collect();
    for policy in policies {
        let host = Host::open("/").map_err(Failure::input)?;
        let session = Session::new(host)
            .with_hugetlb_pool(arguments.hugetlb_pool)
            .with_patience(patience, waiting::report_lease_holder);
        measured.push(measure_policy(&program, &policy, session, precision_ratio)?);
    }
    let failed: Vec<String> = measured.iter().filter_map(Measured::failure).collect();
    if arguments.json {
        print(&format!("{:#}", document::document(&program.command, &kernel, precision_ratio, &measured)), true)?;
    } else if failed.len() < measured.len() {
        print(&report::text(&measured, terminal_width()), false)?;
    }
    if failed.len() < measured.len() {
        Ok(())
    } else {
        Err(Failure::NoResult(format!("there is no limit: {}", failed.join("; "))))
    }
}

/// Applies the settings of a policy, finds its smallest limit, and restores the settings.
fn measure_policy(
    program: &Program,
    policy: &Policy,
    mut session: Session,
    precision_ratio: f64,
) -> Result<Measured, Failure> {
    if let Admission::Unsupported(why) = session.admit(policy) {
        return Ok(Measured::none(policy, None, why.to_string()));
    }
    let rewriting = Rewriting::of(policy, session.host().page_sizes());
    let found = match session.apply_alongside_others(policy).map_err(Failure::input)? {
        Some(why) => Ok(Measured::none(policy, None, why.to_string())),
        None => find(program, policy, &rewriting, precision_ratio),
    };
    let finished = session.finish().map_err(Failure::input);
    if let (Err(_), Err(failure)) = (&found, &finished) {
        report(failure);
    }
    found.and_then(|measured| finished.map(|()| measured))
}

fn find(program: &Program, policy: &Policy, rewriting: &Rewriting, precision_ratio: f64) -> Result<Measured, Failure> {
    let progress = ProgressLine::new();
    progress.set(&format!("{policy}, without a limit"));
    // The first run only fills the page cache.
    run(program, rewriting, None, None)?;
    let unlimited = run(program, rewriting, None, None)?;
    if let Some(why) = search_obstacle(&unlimited) {
        return Ok(Measured::none(policy, None, why));
    }
    let at_peak = unlimited.at_peak;
    let start = SearchStart {
        peak_bytes: unlimited.peak_bytes,
        kept_bytes: at_peak.total_bytes.saturating_sub(at_peak.file_bytes),
        has_large_pages: rewriting.wants_large() || at_peak.huge_bytes > 0,
        precision_ratio,
    };
    let time_limit = Duration::from_secs_f64(unlimited.wall_s * MAX_TIME_RATIO + EXTRA_TIME_S);
    let mut failed: Option<(u64, Run)> = None;
    let found = smallest_limit(start, |limit_bytes| {
        let one = run(program, rewriting, Some(limit_bytes), Some(time_limit))?;
        let suffices = one.ended_like(&unlimited);
        let outcome = if suffices { "ends as without a limit".to_owned() } else { one.outcome() };
        progress.set(&format!("{policy}, limit {}: {}", format_bytes(limit_bytes), printable(&outcome)));
        if !suffices && failed.is_none_or(|(largest, _)| largest <= limit_bytes) {
            failed = Some((limit_bytes, one));
        }
        Ok::<_, Failure>(suffices)
    })?;
    let Some(found) = found else {
        let why = format!(
            "no limit sufficed in {CONFIRMED_RUNS} runs and with each larger one too: what the command needs differs from run to run"
        );
        return Ok(Measured::none(policy, Some(unlimited), why));
    };
    let limit = Limit { found, failed: failed.map(|(_, one)| one) };
    Ok(Measured { policy: policy.clone(), unlimited: Some(unlimited), limit: Ok(limit) })
}

/// Why the run without a limit rules out a search for the smallest one; `None` if it does not.
fn search_obstacle(unlimited: &Run) -> Option<String> {
    if unlimited.oom_kills > 0 {
        return Some("the kernel's OOM killer killed it even without a limit".to_owned());
    }
    if unlimited.limits_reached_above > 0 {
        let bytes = format_bytes(unlimited.peak_bytes);
        return Some(format!(
            "a control group above reached its own limit when this one had {bytes} at most: what the command takes without a limit is not known"
        ));
    }
    if unlimited.has_left {
        return Some("one of its processes left the control group, so its memory is not limited (docker run and systemd-run do that)".to_owned());
    }
    let ended = &unlimited.exit;
    (*ended != Exit::Code(0)).then(|| {
        format!("without a limit it ends with {ended} and not with exit status 0; if that is as it should be, run it in sh -c '...; true'")
    })
}
