//! `pagelab compare`: from the command line to a design, from the run to the store and the reports.

mod keeper;
pub mod khugepaged;
pub mod pattern;
pub mod progress;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metal::admit;
use metal::host::Host;
use metal::platform::{Awake, Blame, HostPlatform, Server, Session, Work};
use metal::signals::{self, PassOn};
use metal::tracer::{self, Rewriting};
use results::store::Store;
use study::comparison::{Admission, Comparison, Design, Ended, Invocation};
use study::control::Role;
use study::metric::names;
use study::policy::{Granularity, Policy};
use study::runner::{self, Event};
use study::stats::boots::Part;
use study::trial::Arm;

use crate::cli::{Adopt, Compare, Measuring, Output, Stopping};
use crate::failure::{Failure, say};
use crate::merge;
use crate::output::{can_be_written, find_store, folded, open_store, print, terminal_width, write, write_page};
use crate::user;
use crate::words::TrialTime;
use keeper::Keeper;
use progress::Progress;

/// Runs `pagelab compare`.
pub fn run(arguments: Compare) -> Result<(), Failure> {
    if let Some(number) = arguments.stored {
        return show_stored(number, &arguments.output);
    }
    if !arguments.merge.is_empty() {
        return merge::merge(&arguments);
    }
    let host = Host::open("/").map_err(Failure::input)?;
    let design = design(&arguments, &host)?;
    let work = work(&arguments.measuring, arguments.command.clone(), design.trial_time_s)?;
    let store = open_store(arguments.output.store.as_deref())?;
    check_writable(&arguments.output)?;
    if let (None, Some(limit_s)) = (arguments.stopping.trial_time, design.trial_time_s) {
        say(format_args!(
            "pagelab: no terminal, so a trial that takes longer than {limit_s} s will be ended (--trial-time TIME or none)"
        ));
    }
    let runner = if arguments.arm_of_boot { runner::arm_of_boot } else { runner::compare };
    let measured = measure(host, work, design, &store, &arguments.measuring, runner)?;
    let comparison = &measured.comparison;
    let published = match arguments.arm_of_boot {
        true => merge::publish_with(&store, comparison, &arguments.output),
        false => publish(comparison, &arguments.output),
    };
    let failures = [verdict(comparison, measured.blame), published].into_iter().filter_map(Result::err);
    first_of(failures.chain(measured.troubles))
}

/// The first failure decides how pagelab ends; the others are said as well.
fn first_of(mut failures: impl Iterator<Item = Failure>) -> Result<(), Failure> {
    let first = failures.next();
    failures.for_each(|failure| say(format_args!("pagelab: {}", results::printable(&failure.to_string()))));
    first.map_or(Ok(()), Err)
}

/// A comparison that was run.
struct Measured {
    comparison: Comparison,
    /// What is to blame where it failed.
    blame: Blame,
    /// What could not be put back or kept.
    troubles: Vec<Failure>,
}

/// Runs the trials of a design on the host.
type Runner = fn(&Design, &mut HostPlatform, &mut dyn FnMut(Event<'_>)) -> runner::Run;

/// Runs a comparison and keeps it in the store.
fn measure(
    host: Host,
    work: Work,
    design: Design,
    store: &Store,
    measuring: &Measuring,
    runner: Runner,
) -> Result<Measured, Failure> {
    signals::catch(PassOn::Kill).map_err(Failure::input)?;
    let invocation = invocation(&work);
    let mut comparison = Comparison {
        id: 0,
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64),
        machine: host.machine().map_err(Failure::input)?,
        adoptions: design.arms.iter().map(|arm| admit::adoption(&arm.policy, &host, &invocation.command)).collect(),
        invocation,
        admissions: Vec::new(),
        trials: Vec::new(),
        analysis: None,
        ended: Ended::NotEnded,
        design,
    };
    let _awake = measuring.awake.then(Awake::hold).transpose().map_err(Failure::input)?;
    let progress = Progress::new(&comparison.design);
    let design = comparison.design.clone();
    let session = Session::new(host)
        .with_hugetlb_pool(measuring.hugetlb_pool)
        .with_patience(Duration::from_secs_f64(measuring.wait), say_who_holds_the_lease);
    let session = khugepaged::held(session, design.khugepaged)?;
    let mut platform = HostPlatform::new(session, work);
    let mut keeper = Keeper::new(store, &mut comparison);
    let run = runner(&design, &mut platform, &mut |event| {
        keeper.hear(&event);
        progress.hear(&event);
    });
    let restored = platform.finish().map_err(Failure::input);
    if matches!(run.ended, Ended::Failed { .. }) && !platform.last_words().is_empty() {
        say("the command's last words:");
        platform.last_words().lines().for_each(|line| say(results::printable(line)));
    }
    let lost = keeper.finish(run);
    let rejected = comparison.trials.last().is_some_and(|record| !record.rejected.is_empty());
    let blame = if rejected { Blame::System } else { platform.blame() };
    // Everything is given back and kept: whoever cannot wait for the reports need not.
    signals::release();
    Ok(Measured { comparison, blame, troubles: restored.err().into_iter().chain(lost).collect() })
}

/// Tells the user whom pagelab waits for.
pub fn say_who_holds_the_lease(holder: &str) {
    say(format_args!("pagelab: waiting for the lease on system settings, held {holder}"));
}

/// The arms, the metrics and when to stop.
fn design(arguments: &Compare, host: &Host) -> Result<Design, Failure> {
    let policies = match (arguments.arm_of_boot, arguments.policies.is_empty()) {
        (true, _) => merge::policies(&distinct(&arguments.policies), host)?,
        (false, true) => sensible(host),
        (false, false) => distinct(&arguments.policies),
    };
    let baseline = baseline(&policies, arguments.baseline.as_ref());
    let mut policies = policies;
    if !policies.contains(&baseline) {
        policies.insert(0, baseline.clone());
    }
    let mut arms: Vec<Arm> = policies.into_iter().map(|policy| Arm::of_policy(policy.to_string(), policy)).collect();
    let at = arms.iter().position(|arm| arm.policy == baseline).expect("the baseline is among the arms");
    if arguments.aa {
        arms.insert(at + 1, Arm::of_policy(format!("{baseline} (again)"), baseline));
    }
    // What an arm of a boot is compared with, other boots have.
    if arms.len() < 2 && !arguments.arm_of_boot {
        return Err(Failure::Input(format!(
            "one policy alone ({}) is no comparison; name another one with -p, or add --aa",
            arms[at].label
        )));
    }
    let stopping = &arguments.stopping;
    let mut design = Design::new(arms, at, stopping.seed.unwrap_or_else(seed_of_clock));
    design.min_blocks = stopping.min_blocks.min(stopping.blocks);
    design.max_blocks = stopping.blocks;
    design.max_time_s = Some(stopping.max_time);
    design.trial_time_s = trial_time_s(stopping);
    design.precision_ratio = stopping.precision;
    design.band_ratio = stopping.band;
    for metric in arguments.measuring.metrics.iter().map(pattern::MetricPattern::metric) {
        if design.metrics.iter().any(|other| other.name == metric.name) {
            return Err(Failure::Input(format!(
                "--metric {}: the name is there twice; give each its own",
                metric.name
            )));
        }
        design.metrics.push(metric);
    }
    if arguments.measuring.repeat_inside.is_some() {
        design.metrics.extend(pattern::iteration_metrics());
    }
    design.prove_all = arguments.measuring.prove_all;
    design.khugepaged = arguments.measuring.khugepaged.into();
    design.primary = primary(&stopping.primary, &design)?;
    let geometry = host.geometry();
    Ok(design.with_controls(|policy| !Rewriting::of(policy, geometry).needs_no_tracer()))
}

/// How long a trial may take at least before it is ended unasked, in seconds.
const UNATTENDED_S: f64 = 3600.0;

/// How long a trial may take. Where nobody sits at a terminal, nobody would end one that hangs, and with it the loan of
/// the host's settings.
fn trial_time_s(stopping: &Stopping) -> Option<f64> {
    match stopping.trial_time {
        Some(TrialTime::Limited(limit_s)) => Some(limit_s),
        Some(TrialTime::Unlimited) => None,
        None if std::io::stdin().is_terminal() || std::io::stderr().is_terminal() => None,
        None => Some(stopping.max_time.max(UNATTENDED_S)),
    }
}

/// Without -p: what the kernel does by itself, base pages, and each larger size that this kernel offers
/// once. A hugetlb pool that cannot be filled is a row too: `unsupported`, and why.
fn sensible(host: &Host) -> Vec<Policy> {
    let geometry = host.geometry();
    let telling = |granularity: &Granularity| match granularity {
        Granularity::Default | Granularity::Base | Granularity::Thp => true,
        // 64K is what arm64 and RISC-V can map as one; the others differ from it by little.
        Granularity::Mthp(size) => size.bytes() == 64 << 10,
        Granularity::Hugetlb(size) => Some(*size) == geometry.pmd,
        Granularity::DirectMap(_) => false,
    };
    Policy::granularities(geometry).into_iter().filter(telling).map(Policy::plain).collect()
}

fn baseline(policies: &[Policy], wanted: Option<&Policy>) -> Policy {
    let default = policies.iter().find(|policy| **policy == Policy::DEFAULT);
    wanted.or(default).or(policies.first()).cloned().unwrap_or(Policy::DEFAULT)
}

fn distinct(policies: &[Policy]) -> Vec<Policy> {
    let mut distinct: Vec<Policy> = Vec::new();
    for policy in policies {
        if !distinct.contains(policy) {
            distinct.push(policy.clone());
        }
    }
    distinct
}

fn primary(name: &str, design: &Design) -> Result<String, Failure> {
    let full = match name {
        "wall" => names::WALL_S,
        "cpu" => names::CPU_S,
        other => other,
    };
    if design.metrics.iter().any(|metric| metric.name == full) {
        return Ok(full.to_string());
    }
    let known: Vec<&str> = design.metrics.iter().map(|metric| metric.name.as_str()).collect();
    Err(Failure::Input(format!("--primary: there is no metric {name:?}; there are wall, cpu, {}", known.join(", "))))
}

fn seed_of_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// What is run, for how long at most, and what is read off its output.
pub fn work(measuring: &Measuring, command: Vec<OsString>, trial_time_s: Option<f64>) -> Result<Work, Failure> {
    let server = match (&measuring.server, &measuring.ready) {
        (Some(server), Some(ready)) => Some(Server {
            command: split("--server", server)?,
            ready: split("--ready", ready)?,
            patience: Duration::from_secs_f64(measuring.ready_time),
        }),
        _ => None,
    };
    let prepare = measuring.prepare.as_deref().map(|prepare| split("--prepare", prepare)).transpose()?;
    let patterns = measuring.metrics.clone();
    let repeat_inside = measuring.repeat_inside.clone();
    let reads = !patterns.is_empty() || repeat_inside.is_some();
    let extract = move |output: &[u8]| {
        let mut observations = Vec::new();
        for pattern in &patterns {
            observations.push(pattern.observe(output).map_err(|error| error.to_string())?);
        }
        if let Some(regex) = &repeat_inside {
            observations.extend(pattern::iterations(regex, output).map_err(|error| error.to_string())?);
        }
        Ok(observations)
    };
    if let Some(input) = &measuring.input {
        check_input(input)?;
    }
    let user = user::to_run_as(measuring.user.as_deref())?;
    let programs = server.iter().flat_map(|server| [&server.command, &server.ready]).chain(&prepare).chain([&command]);
    // Another user may find what this one does not, and the other way round: then the first trial tells.
    for program in programs.filter_map(|words| words.first()).filter(|_| user.is_none()) {
        tracer::resolve(program).map_err(|error| Failure::launch(&error))?;
    }
    Ok(Work {
        command,
        server,
        prepare,
        user,
        variables: user::variables(&measuring.env)?,
        trial_time: trial_time_s.and_then(|limit_s| Duration::try_from_secs_f64(limit_s).ok()),
        input: measuring.input.clone(),
        check_output: measuring.check_output,
        prove_all: measuring.prove_all,
        extract: reads.then(|| Box::new(extract) as metal::platform::Extract),
    })
}

/// A file that can be opened for every trial anew. Opening a pipe waits for whoever writes into it.
fn check_input(input: &Path) -> Result<(), Failure> {
    let refused = |what: &dyn std::fmt::Display| Failure::Input(format!("--input {}: {what}", input.display()));
    let kind = std::fs::metadata(input).map_err(|error| refused(&error))?.file_type();
    if kind.is_fifo() || kind.is_dir() {
        let found = if kind.is_dir() { "a directory" } else { "a pipe, which can be read once" };
        return Err(refused(&format_args!("expected a file that every trial can read, found {found}; make it one")));
    }
    std::fs::File::open(input).map(drop).map_err(|error| refused(&error))
}

fn split(option: &str, text: &str) -> Result<Vec<OsString>, Failure> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words.into_iter().map(OsString::from).collect()),
        _ => Err(Failure::Input(format!("{option}: expected a command line as for a shell, found {text:?}"))),
    }
}

fn invocation(work: &Work) -> Invocation {
    let text = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let (command, client) = match &work.server {
        Some(server) => (text(&server.command), Some(text(&work.command))),
        None => (text(&work.command), None),
    };
    Invocation {
        command,
        client,
        prepare: work.prepare.as_deref().map(text),
        pagelab: text(&std::env::args_os().collect::<Vec<_>>()),
        version: env!("CARGO_PKG_VERSION").to_string(),
    }
}

/// Files that are written at the end are opened at the start: nobody measures for an hour in vain.
pub fn check_writable(output: &Output) -> Result<(), Failure> {
    can_be_written([&output.html, &output.csv].into_iter().flatten())
}

/// Prints and writes a comparison in the forms that were asked for.
pub fn publish(comparison: &Comparison, output: &Output) -> Result<(), Failure> {
    let text = if output.json {
        format!("{:#}", results::json::document(comparison))
    } else {
        let table = results::table::render(comparison, terminal_width());
        let sentence = folded(results::sentence::conclude(comparison));
        let adoption = results::sentence::adoption(comparison, output.adopt == Adopt::All);
        // Commands stay whole, to be copied.
        let folded_unless_command =
            |line: &str| if line.starts_with(' ') { line.to_owned() } else { folded(line.to_owned()) };
        let adoption = adoption.lines().map(folded_unless_command).collect::<Vec<_>>().join("\n");
        format!("{}\n\n{}", table.trim_end(), [sentence, adoption].join("\n").trim_end())
    };
    let printed = print(&text, output.json);
    // Each of them is written, whatever becomes of the others.
    let csv = output.csv.as_ref().map(|file| write(file, &|to| results::csv::write(comparison, to)));
    let html = output.html.as_ref().map(|file| write_page(file, &results::html::report(comparison)));
    first_of([Some(printed), csv, html].into_iter().flatten().filter_map(Result::err))
}

/// The exit code says how the comparison ended.
fn verdict(comparison: &Comparison, blame: Blame) -> Result<(), Failure> {
    match &comparison.ended {
        Ended::Failed { message } => Err(match blame {
            Blame::System => Failure::Input(message.clone()),
            Blame::Unrunnable { exit_code } => Failure::Unrunnable { message: message.clone(), code: exit_code },
            Blame::Command => Failure::Command(message.clone()),
        }),
        Ended::TooSlow { message } => Err(Failure::NoResult(message.clone())),
        Ended::Time if comparison.analysis.is_none() && Part::of(comparison).is_none() => Err(Failure::NoResult(
            "there is no result: the time was up before the first block that counts was complete; give more with --max-time"
                .into(),
        )),
        Ended::Interrupted => Err(Failure::Interrupted(signals::arrived().unwrap_or(signals::CAUGHT[0]))),
        Ended::NothingAdmitted => {
            let reasons: Vec<String> = comparison
                .admissions
                .iter()
                .zip(&comparison.design.arms)
                .filter(|(_, arm)| arm.role == Role::Policy)
                .filter_map(|(admission, arm)| match admission {
                    Admission::Unsupported(why) => Some(format!("{}: {why}", arm.label)),
                    Admission::Admitted { .. } => None,
                })
                .collect();
            if let [reason] = &reasons[..] {
                return Err(Failure::NothingAdmitted(format!("there is nothing to compare: {reason}")));
            }
            reasons.iter().for_each(|reason| say(format_args!("pagelab: {}", results::printable(reason))));
            Err(Failure::NothingAdmitted("so there is nothing to compare".into()))
        }
        _ if comparison.analysis.as_ref().is_some_and(has_wrong_answer) => {
            Err(Failure::Command("a policy changed the answer of the command; see the table".to_string()))
        }
        _ if comparison.trials.iter().any(|record| record.answer.too_slow && record.rejected.is_empty()) => {
            Err(Failure::Command("under a policy the command took longer than --trial-time; see the table".to_string()))
        }
        _ => Ok(()),
    }
}

fn has_wrong_answer(analysis: &study::stats::Analysis) -> bool {
    analysis.arms.iter().any(|arm| matches!(arm.outcome, study::stats::Outcome::WrongAnswer { .. }))
}

fn show_stored(number: i64, output: &Output) -> Result<(), Failure> {
    let store = find_store(output.store.as_deref())?
        .map_err(|path| Failure::Input(format!("there is no store {}; --store FILE names another", path.display())))?;
    let comparison = store.load(number).map_err(Failure::input)?;
    check_writable(output)?;
    if comparison.design.is_over_boots()
        && let Some(part) = Part::of(&comparison)
    {
        return merge::publish(&study::stats::boots::merge(&[part]).map_err(Failure::input)?, output);
    }
    publish(&comparison, output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_default_unless_another_is_named() {
        let policies = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Policy>>();
        assert_eq!(baseline(&policies(&["thp", "default"]), None).to_string(), "default");
        assert_eq!(baseline(&policies(&["thp", "base"]), None).to_string(), "thp");
        let wanted = policies(&["base"]);
        assert_eq!(baseline(&policies(&["thp", "default"]), Some(&wanted[0])).to_string(), "base");
        assert_eq!(distinct(&policies(&["thp", "base", "thp"])).len(), 2);
    }
}
