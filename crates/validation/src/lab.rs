//! Runs a program on the running kernel and simulates its recorded trace ([`Lab`]). The measured figures come from
//! `pagelab compare --prove-all`, the simulated ones from `pagelab record` and `pagelab sim`.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::alone::Alone;
use crate::launch::Launch;

/// The machine to simulate. Its caches do not affect any figure used here.
const MACHINE: &str = "cascade-lake";

/// What a program did to memory under a policy. All counts are sums over its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Minor faults. The measured number includes the faults of launching the program, which do not occur in a recorded
    /// program.
    pub faults: u64,
    /// Bytes of memory that the policy applies to, sampled just before memory is unmapped, and at the end.
    pub concerned_bytes: u64,
    /// The part of `concerned_bytes` that was mapped as the policy asks, sampled at the same moments.
    pub covered_bytes: u64,
    /// Bytes of page tables without the root table: the sum of the peaks of all processes.
    pub table_bytes: u64,
    /// Whether the policy held: `held`, `partly`, `not_held`, `unknown`.
    pub holding: String,
}

/// The figures of each counted trial of a policy.
pub type Trials = Result<Vec<Figures>, NoTrials>;

/// Why a policy has no trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoTrials {
    /// The machine does not support the policy; the string is the reason.
    Unsupported(String),
    /// The program behaved differently under this policy; the strings are the outcome and its message.
    Wrong(String, String),
    /// The document has no counted trial of the policy.
    Absent,
}

impl fmt::Display for NoTrials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoTrials::Unsupported(reason) => write!(f, "unsupported: {reason}"),
            NoTrials::Wrong(outcome, message) => write!(f, "{outcome}: {message}"),
            NoTrials::Absent => write!(f, "no trial counts"),
        }
    }
}

impl std::error::Error for NoTrials {}

/// Why a program could not be compared with its simulation.
#[derive(Debug)]
pub enum Problem {
    /// A command could not be started.
    Start(String, std::io::Error),
    /// The page cache of the files in a directory could not be kept as it is.
    Cache(PathBuf, std::io::Error),
    /// A command failed. The fields are its name, its exit code if it has one, and the last lines of its standard
    /// error.
    Failed(String, Option<i32>, String),
    /// The output of a command lacks an expected field. The strings are the command and the problem.
    Unread(String, String),
    /// A policy has no trial.
    NoTrials(NoTrials),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Start(command, error) => write!(f, "cannot run {command}: {error}"),
            Problem::Cache(directory, error) => {
                write!(f, "cannot write the programs of {} again and lock the page cache: {error}", directory.display())
            }
            Problem::Failed(command, Some(code), errors) => {
                write!(f, "{command} ended with exit code {code}: {errors}")
            }
            Problem::Failed(command, None, errors) => write!(f, "{command} failed: {errors}"),
            Problem::Unread(command, what) => write!(f, "the output of {command} has no {what}"),
            Problem::NoTrials(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Problem {}

/// The setup in which programs are measured and simulated. Needs root, to fill hugetlb pools and to read page mappings.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The pagelab program to use.
    pub pagelab: PathBuf,
    /// The recorder plugin of that program.
    pub plugin: PathBuf,
    /// A directory in tmpfs for traces and for the store of comparisons.
    pub directory: PathBuf,
    /// The timeout of one command, in seconds.
    pub limit_s: u64,
    /// The user that runs the program; root if `None`.
    pub user: Option<String>,
    /// The file used as standard input; no input if `None`.
    pub input: Option<PathBuf>,
    /// A command line, split as a shell does, that runs before each run of the program.
    pub prepare: Option<String>,
}

impl Lab {
    /// The path of a file in the directory, as a command-line argument.
    pub fn argument(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Records a program and simulates it under these policies. Returns one set of figures for each policy, in their order.
    pub fn simulated(&self, launch: &Launch, command: &[String], policies: &[&str]) -> Result<Vec<Figures>, Problem> {
        let trace = self.argument("trace");
        self.record(launch, command, &trace)?;
        let mut sim = Command::new(&self.pagelab);
        sim.args(["sim", &trace, "-m", MACHINE, "-p", &policies.join(","), "--json"]);
        let document = self.document("pagelab sim", &mut sim)?;
        let simulations = document["traces"][0]["simulations"].as_array().cloned().unwrap_or_default();
        let of = |policy: &&str| {
            let simulation = simulations.iter().find(|simulation| simulation["policy"] == **policy);
            let figures = simulation.and_then(Figures::simulated);
            figures.ok_or_else(|| Problem::Unread("pagelab sim".to_owned(), format!("figures under {policy}")))
        };
        policies.iter().map(of).collect()
    }

    /// Records a program and the processes that it forks. Replaces the traces of an earlier recording.
    fn record(&self, launch: &Launch, command: &[String], trace: &str) -> Result<(), Problem> {
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("trace") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        if let Some(prepare) = &self.prepare {
            self.output("the preparation", Command::new("sh").args(["-c", prepare]))?;
        }
        let user = self.user.iter().flat_map(|user| ["setpriv", "--init-groups", "--reuid", user, "--regid", user]);
        let pagelab = self.pagelab.display().to_string();
        let plugin = self.plugin.display().to_string();
        let arguments =
            user.chain([pagelab.as_str(), "record", "--no-native-run", "-o", trace, "--plugin", &plugin, "--"]);
        let arguments: Vec<&str> = arguments.chain(command.iter().map(String::as_str)).collect();
        let mut record = Command::new(arguments[0]);
        record.args(&arguments[1..]);
        self.output("pagelab record", launch.in_environment(&mut record)).map(drop)
    }

    /// Runs a program under these policies: one warm-up trial that does not count, then `runs` trials of each. Returns the trials
    /// of each policy. A policy that this machine does not support is no error.
    pub fn measured(
        &self,
        launch: &Launch,
        command: &[String],
        policies: &[&str],
        runs: usize,
    ) -> Result<Vec<Trials>, Problem> {
        let store = self.argument("results.sqlite");
        // A comparison needs at least two policies.
        let other = ["base", "thp"].into_iter().filter(|other| policies.len() == 1 && policies != [*other]).take(1);
        let compared: Vec<&str> = policies.iter().copied().chain(other).collect();
        let (compared, runs) = (compared.join(","), runs.to_string());
        let mut arguments: Vec<&str> = vec!["compare", "--store", &store, "--json", "--prove-all", "--check-output"];
        // khugepaged would wake up in random trials, and the model's khugepaged runs on a different clock, so it is
        // switched off.
        arguments.extend(["--khugepaged", "off", "--blocks", &runs, "--min-blocks", &runs, "-p", &compared]);
        let limit = format!("{}s", self.limit_s);
        arguments.extend(["--trial-time", &limit]);
        arguments.extend(self.user.iter().flat_map(|user| ["--user", user.as_str()]));
        let variables: Vec<String> = match self.user {
            Some(_) => launch.environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            None => Vec::new(),
        };
        arguments.extend(variables.iter().flat_map(|variable| ["--env", variable.as_str()]));
        let input = self.input.as_ref().map(|input| input.display().to_string());
        arguments.extend(input.iter().flat_map(|input| ["--input", input.as_str()]));
        arguments.extend(self.prepare.iter().flat_map(|prepare| ["--prepare", prepare.as_str()]));
        arguments.push("--");
        arguments.extend(command.iter().map(String::as_str));
        let arguments = std::iter::once(self.pagelab.as_os_str()).chain(arguments.iter().map(AsRef::as_ref));
        let document = {
            let _alone = Alone::wait();
            self.document("pagelab compare", &mut launch.natively(arguments))?
        };
        let _ = std::fs::remove_file(store);
        Ok(policies.iter().map(|policy| trials(&document, policy)).collect())
    }

    fn document(&self, name: &str, command: &mut Command) -> Result<Value, Problem> {
        let printed = self.output(name, command)?;
        serde_json::from_slice(&printed).map_err(|error| Problem::Unread(name.to_owned(), format!("JSON: {error}")))
    }

    /// The standard output of a command that succeeds.
    fn output(&self, name: &str, command: &mut Command) -> Result<Vec<u8>, Problem> {
        let start = |error| Problem::Start(name.to_owned(), error);
        let input = self.input.as_ref().map(File::open).transpose().map_err(start)?;
        let output = self.limited(command).stdin(input.map_or(Stdio::null(), Stdio::from)).output().map_err(start)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors = errors.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("; ");
        Err(Problem::Failed(name.to_owned(), output.status.code(), errors))
    }

    /// The command under a timeout that is long enough for many trials.
    fn limited(&self, command: &Command) -> Command {
        let mut limited = Command::new("timeout");
        limited.args(["--kill-after=20", &(self.limit_s * 40).to_string()]);
        limited.arg(command.get_program()).args(command.get_args()).current_dir(&self.directory);
        if command.get_envs().next().is_some() {
            limited.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        }
        limited
    }
}

impl Figures {
    /// The figures of a simulation, as `pagelab sim --json` prints it; `None` if it was stopped or the document is not a
    /// simulation.
    pub fn simulated(simulation: &Value) -> Option<Figures> {
        if !simulation["stopped"].is_null() {
            return None;
        }
        Some(Figures {
            faults: simulation["faults"].as_u64()?,
            table_bytes: simulation["process_table_bytes"].as_u64()?,
            ..Figures::judged(&simulation["verdict"])?
        })
    }

    fn measured(trial: &Value) -> Option<Figures> {
        let observed = |metric: &str| {
            let observations = trial["observations"].as_array()?;
            let found = observations.iter().find(|observation| observation["metric"] == metric)?;
            found["value"].as_f64().map(|value| value as u64)
        };
        Some(Figures {
            faults: observed("minor_faults")?,
            table_bytes: observed("page_table_seen_bytes")?,
            ..Figures::judged(&trial["verdict"])?
        })
    }

    fn judged(verdict: &Value) -> Option<Figures> {
        Some(Figures {
            faults: 0,
            table_bytes: 0,
            concerned_bytes: verdict["concerned_bytes"].as_u64()?,
            covered_bytes: verdict["covered_bytes"].as_u64()?,
            holding: verdict["holding"].as_str()?.to_owned(),
        })
    }
}

/// The counted trials of a policy in the output of `pagelab compare --json`. The error is the reason why there are none.
pub fn trials(document: &Value, policy: &str) -> Trials {
    let arm = document["arms"].as_array().and_then(|arms| arms.iter().find(|arm| arm["label"] == policy));
    let arm = arm.ok_or(NoTrials::Absent)?;
    let outcome = &arm["outcome"];
    if let Some(word) = outcome["outcome"].as_str().filter(|word| ["wrong_answer", "too_slow"].contains(word)) {
        return Err(NoTrials::Wrong(word.to_owned(), outcome["message"].as_str().unwrap_or_default().to_owned()));
    }
    if let Some(reason) = arm["admission"]["reason"].as_str() {
        return Err(NoTrials::Unsupported(reason.to_owned()));
    }
    let trials = document["trials"].as_array().into_iter().flatten();
    let counted = trials.filter(|trial| trial["label"] == policy && trial["counted"] == true);
    let figures: Option<Vec<Figures>> = counted.map(Figures::measured).collect();
    figures.filter(|figures| !figures.is_empty()).ok_or(NoTrials::Absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_counted_trials() {
        let trial = |counted: bool, faults: f64| {
            serde_json::json!({
                "label": "thp", "counted": counted,
                "observations": [{"metric": "minor_faults", "value": faults},
                                 {"metric": "page_table_seen_bytes", "value": 8192.0}],
                "verdict": {"holding": "held", "concerned_bytes": 4, "covered_bytes": 3},
            })
        };
        let arm =
            serde_json::json!({"label": "thp", "admission": {"supported": true}, "outcome": {"outcome": "baseline"}});
        let document = serde_json::json!({"arms": [arm], "trials": [trial(false, 9.0), trial(true, 7.0)]});
        let found = trials(&document, "thp").map(|all| all.iter().map(|one| one.faults).collect::<Vec<_>>());
        assert_eq!(found, Ok(vec![7]));
        assert_eq!(trials(&document, "base"), Err(NoTrials::Absent));
    }

    #[test]
    fn an_arm_without_figures_says_why() {
        let outcome = serde_json::json!({"outcome": "wrong_answer", "message": "it printed something else"});
        let wrong = serde_json::json!({"label": "thp", "outcome": outcome});
        let refused = serde_json::json!({"label": "base", "admission": {"reason": "no root"}, "outcome": {}});
        let document = serde_json::json!({"arms": [wrong, refused], "trials": []});
        let trials_of = |policy: &str| trials(&document, policy).map_err(|why| why.to_string());
        assert_eq!(trials_of("thp"), Err("wrong_answer: it printed something else".to_owned()));
        assert_eq!(trials_of("base"), Err("unsupported: no root".to_owned()));
    }
}
