//! Runs a program once with a setting, and inspects its memory ([`attempt`]).

use std::ffi::OsString;

use census::Observer;
use census::inspect::{Detail, Inspector};
use host::Host;
use platform::{Blame, Once, Session, Settings, Work, run_once};
use policy::Exit;
use policy::census::Backing;
use policy::inspect::Inspection;
use policy::remedy::{Change, pool_path};
use policy::size::PageSize;
use policy::{Granularity, PageSizes, Policy};
use study::advice::Outcome;
use study::trial::{Answer, Stated};
use tracer::Rewriting;
use tracer::environment::Variables;

use super::goal::Goal;
use crate::failure::{Failure, error_chain};
use crate::inspect::at_exit::CommandInspector;

/// What was observed in one run of the program.
pub struct ObservedRun {
    /// The process with the most resident memory, inspected when it had the most.
    pub inspection: Inspection,
    answer: Answer,
    /// Whether that process was executed with the environment variable of the setting.
    has_variable: bool,
}

impl ObservedRun {
    /// Bytes of memory in leaves or folios of a large size.
    pub fn large_bytes(&self, is_large: &dyn Fn(PageSize) -> bool) -> u64 {
        let is_memory = |backing: Backing| matches!(backing, Backing::Anonymous | Backing::Shmem | Backing::Hugetlb);
        let census = self.inspection.census();
        census.bytes_where(|mapping| is_memory(mapping.backing) && is_large(mapping.effective()))
    }

    /// Bytes of transparent pages of the policy's size for which the kernel found no free block while the program ran.
    fn no_block_bytes(&self, policy: &Policy, page_sizes: &PageSizes) -> u64 {
        let is_transparent = matches!(policy.granularity, Granularity::Thp | Granularity::Mthp(_));
        let size = policy.target(page_sizes).filter(|_| is_transparent);
        size.map_or(0, |size| self.inspection.supply.fallbacks(size).no_block.saturating_mul(size.bytes()))
    }
}

/// Runs the program under a policy whose settings are in force, and inspects its memory.
///
/// # Errors
/// The program cannot be run, or it fails.
pub fn observe(work: &Work, policy: &Policy, session: &Session) -> Result<ObservedRun, Failure> {
    match run(work, policy, None, session)? {
        Ok(observed) => Ok(observed),
        Err(how) => Err(Failure::Command(format!("the command failed when it was run again for advice: {how}"))),
    }
}

/// Runs the program with a setting, and compares what was observed with `by_default`, a run without the setting. System
/// settings stay in force until the session changes them.
///
/// # Errors
/// The program cannot be run.
pub fn attempt(
    work: &mut Work,
    changes: &[Change],
    goal: &Goal,
    by_default: &ObservedRun,
    session: &mut Session,
) -> Result<Outcome, Failure> {
    let Some(changes) = SettingChanges::of(changes, session.host()) else {
        return Ok(Outcome::Refused { reason: "only the program itself can make this change".into() });
    };
    if let Err(error) = session.apply_settings(&changes.settings) {
        super::fail_if_stopped()?;
        return Ok(Outcome::Refused { reason: error_chain(&error) });
    }
    let before = changes.add_to(work);
    let variable = changes.variables.first().map(|(name, _)| name.clone());
    let result = run(work, &Policy::DEFAULT, variable.clone(), session);
    undo(work, before);
    Ok(match result? {
        Ok(observed) if !observed.answer.agrees_with(&by_default.answer) => Outcome::OtherAnswer,
        Ok(ObservedRun { has_variable: false, .. }) if let Some(variable) = variable => {
            Outcome::NotReached { variable }
        }
        Ok(observed) => Outcome::Ran {
            large_bytes: observed.large_bytes(&goal.is_large),
            no_block_bytes: observed.no_block_bytes(&goal.policy, session.host().page_sizes()),
        },
        Err(how) => Outcome::Failed { how },
    })
}

/// The changes that make up a setting, by where they are made.
#[derive(Default)]
pub struct SettingChanges {
    /// System settings.
    pub settings: Settings,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Arguments added to the command line.
    pub arguments: Vec<String>,
}

impl SettingChanges {
    /// Sorts changes by where they are made; `None` if a change must be made in the program itself. A hugetlb pool grows from its
    /// current size.
    pub fn of(changes: &[Change], host: &Host) -> Option<SettingChanges> {
        let mut sorted = SettingChanges::default();
        for change in changes {
            match change {
                Change::Setting { path, value } => sorted.settings.push((path.clone(), value.clone())),
                Change::Pool { page_bytes, pages } => {
                    let path = pool_path(*page_bytes);
                    let size = host.value(&path).ok().flatten().and_then(|text| text.parse::<u64>().ok());
                    sorted.settings.push((path, (size.unwrap_or_default() + pages).to_string()));
                }
                Change::Environment { variable, value } => sorted.variables.push((variable.clone(), value.clone())),
                Change::Arguments { arguments, .. } => sorted.arguments.extend(arguments.iter().cloned()),
                // Nothing to do, because each attempt starts the program.
                Change::Restart { .. } => {}
                Change::Trigger { .. }
                | Change::Mount { .. }
                | Change::Collapse
                | Change::Source { .. }
                | Change::Other { .. } => return None,
            }
        }
        Some(sorted)
    }

    /// Adds the variables and arguments to the program. Returns what [`undo`] needs.
    pub fn add_to(&self, work: &mut Work) -> (usize, Variables) {
        let own = work.variables.clone();
        let (command, variables) = program(work);
        let before = (command.len(), variables.clone());
        command.extend(self.arguments.iter().map(Into::into));
        variables.extend(joined(&own, &self.variables));
        before
    }
}

/// Undoes [`SettingChanges::add_to`].
fn undo(work: &mut Work, (command_words, variables_before): (usize, Variables)) {
    let (command, variables) = program(work);
    command.truncate(command_words);
    *variables = variables_before;
}

/// The command line and the variables of the program, which is the server if there is one.
fn program(work: &mut Work) -> (&mut Vec<OsString>, &mut Variables) {
    match &mut work.server {
        Some(server) => (&mut server.command, &mut server.variables),
        None => (&mut work.command, &mut work.variables),
    }
}

/// The separator between options in the value of this variable; `None` for a variable with a single value.
pub fn separator(variable: &str) -> Option<&'static str> {
    match variable {
        "GLIBC_TUNABLES" => Some(":"),
        "MALLOC_CONF" => Some(","),
        "JAVA_TOOL_OPTIONS" | "NODE_OPTIONS" => Some(" "),
        _ => None,
    }
}

/// The variables of a setting. A list of options is appended to the program's own list.
fn joined(own: &Variables, added: &[(String, String)]) -> Variables {
    let join = |(name, value): &(String, String)| {
        let before = own.iter().find(|(other, _)| other == name.as_str()).map(|(_, before)| before);
        let mut list = OsString::new();
        if let (Some(before), Some(separator)) = (before, separator(name)) {
            list.push(before);
            list.push(separator);
        }
        list.push(value);
        (name.into(), list)
    };
    added.iter().map(join).collect()
}

/// Runs the program once, and returns what was observed, or how the program failed. `variable`: an environment variable to look
/// for in its processes.
fn run(
    work: &Work,
    policy: &Policy,
    variable: Option<String>,
    session: &Session,
) -> Result<Result<ObservedRun, String>, Failure> {
    let rewriting = Rewriting::of(policy, session.host().page_sizes());
    let mut witness = CommandInspector::new(inspector()?, inspector()?, None, None)?.looking_for(variable);
    let result = run_once(work, &rewriting, &mut witness);
    let memory = witness.finish()?;
    super::fail_if_stopped()?;
    let Once { answer, refused_requests } = match result {
        Ok(once) => once,
        Err(error) if error.blame() == Blame::Command => return Ok(Err(error_chain(&error))),
        Err(error) => return Err(Failure::input(error)),
    };
    if let Some(how) = failure(&answer) {
        return Ok(Err(how));
    }
    let why = memory.unseen.first().map(|(process, error)| format!(": process {process}: {error}")).unwrap_or_default();
    let with_requests = |inspection| Inspection { refused_requests: Some(refused_requests), ..inspection };
    let has_variable = memory.has_variable;
    let largest = memory.into_largest().map(with_requests);
    let observed = largest.map(|inspection| ObservedRun { inspection, answer, has_variable });
    observed
        .map(Ok)
        .ok_or_else(|| Failure::NoResult(format!("no process of the command could be inspected when it exited{why}")))
}

fn inspector() -> Result<Inspector, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    Ok(Inspector::new(host, Observer::open().map_err(Failure::input)?, Detail::default()))
}

/// How a run failed, as a clause; `None` if it succeeded.
fn failure(answer: &Answer) -> Option<String> {
    match (&answer.exit, &answer.stated) {
        _ if answer.too_slow => Some("it took longer than --trial-time".into()),
        (Exit::Code(0), Stated::Missed { found, .. }) => Some(format!("its answer was {found:?}")),
        (Exit::Code(0), _) => None,
        (exit, _) => Some(format!("it ended with {exit}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_options_to_the_list_of_the_program() {
        let own: Variables = vec![("GLIBC_TUNABLES".into(), "a=1".into()), ("X".into(), "1".into())];
        let added = [("GLIBC_TUNABLES", "b=2"), ("MALLOC_CONF", "thp:always")];
        let added = added.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let expected: Variables =
            vec![("GLIBC_TUNABLES".into(), "a=1:b=2".into()), ("MALLOC_CONF".into(), "thp:always".into())];
        assert_eq!(joined(&own, &added), expected);
    }
}
