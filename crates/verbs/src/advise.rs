//! `pagelab advise`: finds the one setting to adopt for a program, and shows that it works.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args, Parser};
use host::Host;
use policy::Policy;
use study::advice::{Advice, Attempt};
use study::comparison::Comparison;

use crate::advice::attempt::SettingChanges;
use crate::advice::{Waiting, advice, persistent, process};
use crate::compare::{self, Compare, Measuring, Program, Stopping};
use crate::failure::Failure;
use crate::output::{find_store, folded, print};
use crate::separator;
use crate::words::{parse_pid, parse_policy};

/// Arguments of `pagelab advise`.
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("of").args(["show", "process", "command"]).required(true)))]
pub struct Advise {
    /// Advise on this stored comparison (`pagelab list comparisons`), and list all attempts; its command is run again, once for
    /// each setting, after waiting --wait for other pagelabs. With --measure, --max-time, --blocks and the other options of stopping
    /// limit the measurement
    #[arg(long, value_name = "NUMBER", conflicts_with = "Measuring")]
    show: Option<i64>,
    /// List what would be tried for this running process, which cannot be restarted
    #[arg(value_name = "PID", value_parser = parse_pid, conflicts_with_all = ["policies", "write", "measure", "Stopping", "Measuring"])]
    process: Option<u32>,
    /// Ask the kernel to collapse the memory of the process, and show the result
    #[arg(long, conflicts_with_all = ["show", "command"])]
    collapse: bool,
    /// Measure the setting that holds: run the program with it and without it, untraced, in randomised blocks. The result is
    /// stored as a separate comparison
    #[arg(long)]
    measure: bool,
    /// Write files below this directory that apply the setting that holds: a wrapper, a systemd drop-in, lines for tmpfiles.d
    /// and sysctl.d. Nothing else is changed
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Where results are kept; default: pagelab/results.sqlite in the XDG data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Compare these policies; default: every policy that makes sense here. With --show: find the setting that gives the pages of
    /// this policy, whether it won or not
    #[arg(short, long = "policy", value_name = "POLICY", value_delimiter = ',', value_parser = parse_policy)]
    policies: Vec<Policy>,
    #[command(flatten)]
    stopping: Stopping,
    #[command(flatten)]
    measuring: Measuring,
    /// The command, or the client that drives --server: it is compared under the policies, settings are tried, and all attempts
    /// are listed
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Parses the arguments of `pagelab advise` without the name of the program.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    advise: Advise,
}

/// Runs `pagelab advise`.
///
/// # Errors
/// The comparison cannot be read or made, or its command cannot be run.
pub fn run(arguments: Advise) -> Result<(), Failure> {
    if let Some(pid) = arguments.process {
        return print(&process::text(pid, arguments.collapse)?, false);
    }
    let (is_measured, write) = (arguments.measure, arguments.write.clone());
    let (compared, comparison) = match arguments.show {
        Some(number) => {
            let chosen = chosen(&arguments.policies)?;
            let defaults = compare::parsed(["--", "true"])?.stopping;
            let only_waits = arguments.stopping == Stopping { wait: arguments.stopping.wait, ..defaults.clone() };
            if !is_measured && !only_waits {
                return Err(Failure::Input(
                    "--show: options such as --max-time and --blocks limit the measurement of the setting: give --measure too"
                        .into(),
                ));
            }
            let given = (&arguments.stopping, &defaults);
            advise_on_stored(number, arguments.store, chosen.as_ref(), given)?
        }
        None => {
            let compared = arguments.clone().comparison()?;
            if compared.measuring.fragmented.is_some() {
                return Err(Failure::Input(
                    "--fragmented: settings are tried without fragmenting memory; leave it out".into(),
                ));
            }
            (compared, compare::run_with(arguments.comparison()?, true)?)
        }
    };
    let holding = comparison.advice.as_ref().and_then(Advice::holding);
    let Some((tried, attempt, _)) = holding.filter(|_| is_measured || write.is_some()) else {
        if is_measured || write.is_some() {
            let why = match &comparison.advice {
                Some(Advice::Tried(_)) => "no setting holds",
                _ => "no setting was tried",
            };
            return Err(Failure::NoResult(format!("{why}, so none is measured or written")));
        }
        return Ok(());
    };
    // The files are written first, because the measurement takes minutes and may be interrupted.
    if let Some(directory) = write {
        write_files(&directory, attempt, &comparison.invocation.command)?;
    }
    if is_measured {
        let measured = compare::measure_setting(&compared, &comparison, attempt)?;
        let sentence = results::sentence::conclude(&measured);
        let before = results::sentence::of_policy(&comparison, &tried.policy).map(|change| {
            format!(
                " With the tracer, comparison {}: {} with {change}; these were other runs at another time, so the setting's own figures count.",
                comparison.id, tried.policy
            )
        });
        let text = format!(
            "measured without the tracer, comparison {}: {sentence} The setting: {}. Which pages its memory had was not inspected in these runs.{}",
            measured.id,
            attempt.instruction(),
            before.unwrap_or_default()
        );
        print(&folded(text), false)?;
    }
    Ok(())
}

/// The policy that the user chose for the advice on a stored comparison, instead of the one that won.
fn chosen(policies: &[Policy]) -> Result<Option<Policy>, Failure> {
    match policies {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => Err(Failure::Input(format!(
            "--show with -p: expected one policy, whose pages a setting is to give; found {}",
            several.len()
        ))),
    }
}

/// Advises on a stored comparison, and stores the advice with it. Returns the arguments of that comparison, and the comparison.
fn advise_on_stored(
    number: i64,
    store: Option<PathBuf>,
    chosen: Option<&Policy>,
    (given, defaults): (&Stopping, &Stopping),
) -> Result<(Compare, Comparison), Failure> {
    let found = find_store(store.as_deref())?
        .map_err(|path| Failure::Input(format!("there is no store {}; --store FILE names another", path.display())))?;
    let mut comparison = found.load(number).map_err(Failure::input)?;
    let (mut compared, Program { mut work, .. }) = program_of(&comparison, store)?;
    compared.stopping = compared.stopping.changed_by(given, defaults);
    let patience = Duration::from_secs_f64(compared.stopping.wait);
    let advice = advice(&comparison, &mut work, Waiting { patience, lease: None }, true, chosen)?;
    found.advise(number, &advice).map_err(Failure::input)?;
    comparison.advice = Some(advice);
    // If the user chose the policy, the advice does not mention its gain, so the comparison's result is printed too.
    let result = chosen.map(|_| format!("comparison {number}: {}", results::sentence::headline(&comparison)));
    let attempts = results::advice::attempts(&comparison);
    // If there was one attempt and it holds, the advice already says everything about it.
    let is_known = attempts.len() == 1 && comparison.advice.as_ref().is_some_and(|advice| advice.holding().is_some());
    let attempts = if is_known { Vec::new() } else { attempts };
    let lines = result.into_iter().chain([results::advice::short(&comparison)]).chain(attempts);
    print(&lines.map(folded).collect::<Vec<_>>().join("\n"), false)?;
    Ok((compared, comparison))
}

/// Writes the files that apply a setting, and lists them.
fn write_files(directory: &Path, attempt: &Attempt, command: &[String]) -> Result<(), Failure> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut() {
        let path = tracer::resolve(program.as_ref()).and_then(|path| Ok(std::path::absolute(path)?));
        *program = path.map_err(|error| Failure::launch(&error))?.to_string_lossy().into_owned();
    }
    let host = Host::open("/").map_err(Failure::input)?;
    let changes = SettingChanges::of(&attempt.changes, &host)
        .ok_or_else(|| Failure::Input(format!("--write: no file can make this change: {}", attempt.instruction())))?;
    let lines = persistent::write(directory, &changes, &command)?;
    print(&lines.into_iter().map(folded).collect::<Vec<_>>().join("\n"), false)
}

impl Advise {
    /// The arguments of the comparison that precedes the advice.
    fn comparison(self) -> Result<Compare, Failure> {
        let words = std::iter::once("--".into()).chain(self.command);
        let mut compare = compare::parsed(words)?;
        compare.policies = self.policies;
        compare.stopping = self.stopping;
        compare.measuring = self.measuring;
        compare.keeping.store = self.store;
        Ok(compare)
    }
}

/// The arguments of a stored comparison, and its program with its user and its variables.
fn program_of(comparison: &Comparison, store: Option<PathBuf>) -> Result<(Compare, Program), Failure> {
    let invocation = &comparison.invocation;
    let has_variants = comparison.design.arms.iter().any(|arm| arm.variant.is_some());
    let words: Vec<OsString> = invocation.pagelab.iter().skip(2).map(OsString::from).collect();
    let arguments = match invocation.pagelab.get(1).map(String::as_str) {
        // A measured setting is a variant too, and no policy.
        _ if has_variants => None,
        // A comparison that was measured in a guest is refused: its program may need the guest's kernel.
        Some("compare") => Some(compare::parsed(words)?).filter(|compare| compare.guests.kernels.is_empty()),
        Some("advise") => {
            let line = Line::try_parse_from(separator::inserted::<Advise>(words)?)
                .map_err(|error| Failure::Input(error.to_string()))?;
            Some(line.advise.comparison()?)
        }
        Some("demo") => {
            let command = invocation.command.iter().map(String::as_str);
            Some(compare::parsed(std::iter::once("--").chain(command))?)
        }
        _ => None,
    };
    let with_program = |mut arguments: Compare| {
        arguments.keeping.store = store;
        Ok(compare::program(&arguments)?.map(|program| (arguments, program)))
    };
    arguments.map(with_program).transpose()?.flatten().ok_or_else(|| {
        let words = results::printable(&invocation.pagelab.join(" "));
        Failure::Input(format!(
            "--show: expected a comparison of policies for a single command or server, without --variant, --arm-of-boot, --fragmented and \
             --kernel, and not the measurement of a setting (--measure); comparison {} was made by {words}",
            comparison.id
        ))
    })
}
