//! Runs a program once with a setting, and reads what maps its memory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::time::Duration;

use census::Observer;
use census::inspect::{Detail, Inspector};
use host::Host;
use platform::Session;
use policy::Policy;
use policy::census::Backing;
use policy::inspect::{Inspection, Region, Supply};
use policy::remedy::{Change, Remedy, Runtime, pool_path};
use policy::size::PageSize;
use study::trial::Exit;
use tracer::environment::Variables;
use tracer::signals;
use tracer::user::User;
use tracer::{Ended, Launch, Leftovers, Rewriting, Witness};

use super::ENOUGH_RATIO;
use crate::failure::Failure;

/// How long processes may outlive the command.
const PATIENCE: Duration = Duration::from_secs(1);

/// The program that settings are tried on.
pub struct Program {
    /// The command.
    pub command: Vec<OsString>,
    /// The user that it runs as; `None`: the user who runs pagelab.
    pub user: Option<User>,
    /// Variables that are added to its environment.
    pub variables: Variables,
    /// The time limit of a run.
    pub limit: Option<Duration>,
}

/// What came of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ran, and had these bytes in pages of the size or larger.
    Large {
        /// The bytes.
        bytes: u64,
    },
    /// The program failed under it.
    Failed {
        /// How it ended, as a clause.
        how: String,
    },
    /// It could not be set.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// The memory of a program's processes when they had most of it.
pub struct Looked {
    processes: Vec<Inspection>,
}

impl Looked {
    /// Bytes in leaves or folios of this size or larger.
    pub fn large_bytes(&self, size: PageSize) -> u64 {
        let is_memory = |backing: Backing| matches!(backing, Backing::Anonymous | Backing::Shmem | Backing::Hugetlb);
        let of_one = |one: &Inspection| {
            one.census().bytes_where(|mapping| is_memory(mapping.backing) && mapping.effective() >= size)
        };
        self.processes.iter().map(of_one).sum()
    }

    /// The regions of all processes.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.processes.iter().flat_map(|one| &one.regions)
    }

    /// The settings of the system while it ran.
    pub fn supply(&self) -> Supply {
        self.processes.first().map(|one| one.supply.clone()).unwrap_or_default()
    }

    /// The runtimes of the process with most memory.
    pub fn runtimes(&self) -> &[Runtime] {
        let largest = self.processes.iter().max_by_key(|one| one.resident_bytes());
        largest.map_or(&[], |one| one.runtimes.as_slice())
    }
}

impl Outcome {
    /// Whether it brought nearly as much as the policy does.
    pub fn holds(&self, wanted_bytes: u64) -> bool {
        matches!(self, Outcome::Large { bytes } if *bytes > 0 && *bytes as f64 >= ENOUGH_RATIO * wanted_bytes as f64)
    }
}

/// The most looks at a process before its end.
const MAX_LOOKS: u32 = 16;

/// Looks at every process of a tree when it ends, and before it gives back much of its memory. The look at the most memory counts.
struct Looks {
    inspector: Inspector,
    supply: Supply,
    /// By process: its fullest look, and the number of looks before its end.
    processes: BTreeMap<i32, (Inspection, u32)>,
}

impl Looks {
    fn look(&mut self, task: i32) {
        // A process that cannot be read counts as one without large pages.
        let Ok(now) = self.inspector.process(task as u32, &self.supply) else { return };
        match self.processes.get_mut(&task) {
            Some((before, looks)) => {
                *looks += 1;
                if before.resident_bytes() <= now.resident_bytes() {
                    *before = now;
                }
            }
            None => {
                self.processes.insert(task, (now, 1));
            }
        }
    }

    /// Whether a range is large enough to be looked at before it goes: an eighth of what was seen so far.
    fn is_worth_a_look(&self, task: i32, bytes: u64) -> bool {
        let Some((seen, looks)) = self.processes.get(&task) else { return true };
        *looks < MAX_LOOKS && bytes >= seen.resident_bytes() / 8
    }
}

impl Witness for Looks {
    fn begins(&mut self, _: i32) {}

    fn ends(&mut self, task: i32) {
        self.look(task);
    }

    fn unmaps(&mut self, task: i32, start: u64, end: u64) {
        if self.is_worth_a_look(task, end - start) {
            self.look(task);
        }
    }
}

/// Runs the program under a policy whose settings are in force, and looks at its memory.
///
/// # Errors
/// It cannot be run, or it failed.
pub fn look(program: &Program, policy: &Policy, session: &Session) -> Result<Looked, Failure> {
    let (looked, ended) = run(program, policy, session, &[], &[])?;
    match failure(&ended) {
        None => Ok(looked),
        Some(how) => Err(Failure::Command(format!("the command {how} when it was run again for advice"))),
    }
}

/// Runs the program with a setting. The setting stays in force until the session changes it.
///
/// # Errors
/// The program cannot be run.
pub fn attempt(program: &Program, remedy: &Remedy, size: PageSize, session: &mut Session) -> Result<Outcome, Failure> {
    let (mut settings, mut variables, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
    for change in &remedy.changes {
        match change {
            Change::Setting { path, value } => settings.push((path.clone(), value.clone())),
            Change::Pool { page_bytes, pages } => {
                let path = pool_path(*page_bytes);
                let free = session.host().value(&path).ok().flatten().and_then(|text| text.parse::<u64>().ok());
                settings.push((path, (free.unwrap_or_default() + pages).to_string()));
            }
            Change::Environment { variable, value } => variables.push((variable.clone(), value.clone())),
            Change::Arguments { arguments: words, .. } => arguments.extend(words.iter().cloned()),
            Change::Mount { .. } | Change::Collapse | Change::Source { .. } | Change::Other { .. } => {
                return Ok(Outcome::Refused { reason: "it is not tried".into() });
            }
        }
    }
    if let Err(error) = session.apply_settings(&settings) {
        return Ok(Outcome::Refused { reason: error.to_string() });
    }
    let (looked, ended) = run(program, &Policy::DEFAULT, session, &variables, &arguments)?;
    Ok(match failure(&ended) {
        None => Outcome::Large { bytes: looked.large_bytes(size) },
        Some(how) => Outcome::Failed { how },
    })
}

fn run(
    program: &Program,
    policy: &Policy,
    session: &Session,
    variables: &[(String, String)],
    arguments: &[String],
) -> Result<(Looked, Ended), Failure> {
    let input = File::open("/dev/null").map_err(Failure::input)?;
    let output = nowhere().map_err(Failure::input)?;
    let errors = output.try_clone().map_err(Failure::input)?;
    let rewriting = Rewriting::of(policy, session.host().page_sizes());
    let launch = Launch {
        command: program.command.iter().cloned().chain(arguments.iter().map(OsString::from)).collect(),
        user: program.user.clone(),
        variables: with(&program.variables, variables),
        stdin: Some(input.into()),
        stdout: Some(output.into()),
        stderr: Some(errors.into()),
        disable_thp: rewriting.disable_thp,
        limit: program.limit,
    };
    let inspector = Inspector::new(
        Host::open("/").map_err(Failure::input)?,
        Observer::open().map_err(Failure::input)?,
        Detail::default(),
    );
    let supply = inspector.supply().map_err(Failure::input)?;
    let mut witness = Looks { inspector, supply, processes: BTreeMap::new() };
    let ended = tracer::run(&launch, &rewriting, Some(&mut witness), Leftovers::KillAfter(PATIENCE));
    if let Some(signal) = signals::arrived() {
        return Err(Failure::Stopped(signal, "the command with it"));
    }
    let processes = witness.processes.into_values().map(|(look, _)| look).collect();
    ended.map(|ended| (Looked { processes }, ended)).map_err(|error| Failure::launch(&error))
}

/// The variables of a program and those of a setting. GLIBC_TUNABLES and JAVA_TOOL_OPTIONS of both are joined.
fn with(own: &Variables, added: &[(String, String)]) -> Variables {
    let mut all = own.clone();
    for (name, value) in added {
        let between = if name == "GLIBC_TUNABLES" { ":" } else { " " };
        match all.iter_mut().find(|(other, _)| other.to_str() == Some(name)) {
            Some((_, before)) => before.push(format!("{between}{value}")),
            None => all.push((name.into(), value.into())),
        }
    }
    all
}

/// How a run failed, as a clause; `None` where it did not.
fn failure(ended: &Ended) -> Option<String> {
    match &ended.exit {
        _ if ended.time_was_up => Some("did not end in time".into()),
        Exit::Code(0) => None,
        Exit::Code(code) => Some(format!("ended with exit code {code}")),
        Exit::Signal(signal) => Some(format!("was ended by signal {signal}")),
    }
}

/// What the program prints is discarded.
#[expect(clippy::disallowed_methods, reason = "only root can change /dev")]
fn nowhere() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}
