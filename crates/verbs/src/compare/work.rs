//! Builds what a trial runs: the command, its time limit, and how its output is parsed.

use std::cell::Cell;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use platform::{Extract, Open, Select, Server, Work};
use results::files;
use study::comparison::Invocation;
use tracer::User;
use tracer::environment::Variables;

use super::arguments::Measuring;
use super::pattern;
use crate::failure::{Failure, report};
use crate::user;

/// What each trial runs, its time limit, and how its output is parsed.
///
/// # Errors
/// A command line cannot be split, a program is missing, an input cannot be read, or a user or an environment variable
/// does not exist.
pub fn work(measuring: &Measuring, command: Vec<OsString>, trial_time_s: Option<f64>) -> Result<Work, Failure> {
    let server = match (&measuring.server, &measuring.ready) {
        (Some(server), Some(ready)) => Some(Server {
            command: split("--server", server)?,
            variables: Variables::new(),
            ready: split("--ready", ready)?,
            patience: Duration::from_secs_f64(measuring.ready_time),
        }),
        _ => None,
    };
    let prepare = measuring.prepare.as_deref().map(|prepare| split("--prepare", prepare)).transpose()?;
    let user = user::to_run_as(measuring.user.as_deref())?;
    let input = measuring.input.as_deref().map(|path| input(path, user.as_ref())).transpose()?;
    let programs = server.iter().flat_map(|server| [&server.command, &server.ready]).chain(&prepare).chain([&command]);
    // Another user may be able to execute other programs, so the first trial checks them instead.
    for program in programs.filter_map(|words| words.first()).filter(|_| user.is_none()) {
        tracer::resolve(program).map_err(|error| Failure::launch(&error))?;
    }
    Ok(Work {
        command,
        server,
        prepare,
        user,
        own_session: None,
        variables: user::variables(&measuring.env)?,
        trial_time: trial_time_s.and_then(|limit_s| Duration::try_from_secs_f64(limit_s).ok()),
        input,
        check_output: measuring.check_output,
        select: select(measuring),
        expected: measuring.expected.clone(),
        prove_all: measuring.prove_all,
        reads_frames: measuring.explain,
        extract: extract(measuring),
    })
}

/// Returns a function that parses figures from the command's output; `None` if none are requested.
fn extract(measuring: &Measuring) -> Option<Extract> {
    let patterns = measuring.metrics.clone();
    let repeat_inside = measuring.repeat_inside.clone();
    let is_requested = !patterns.is_empty() || repeat_inside.is_some();
    let extract = move |output: &[u8]| -> Result<_, Box<dyn Error + Send + Sync>> {
        let figures = patterns.iter().map(|pattern| pattern.observe(output));
        let mut observations = figures.collect::<Result<Vec<_>, _>>()?;
        if let Some(regex) = &repeat_inside {
            observations.extend(pattern::iterations(regex, output)?);
        }
        Ok(observations)
    };
    is_requested.then(|| Box::new(extract) as Extract)
}

/// Returns a function that extracts the answer from the output, one line per match of --answer; `None` without --answer.
/// If nothing matches, all of the output is the answer, and a warning is printed once.
fn select(measuring: &Measuring) -> Option<Select> {
    let regex = measuring.answer.clone()?;
    let is_reported = Cell::new(false);
    Some(Box::new(move |output| {
        let groups = regex.captures_iter(output).filter_map(|captures| captures.get(1));
        let lines: Vec<&[u8]> = groups.map(|group| group.as_bytes()).collect();
        if lines.is_empty() && !is_reported.replace(true) {
            let pattern = results::printable(regex.as_str());
            report(format_args!(
                "--answer {pattern}: it matches nothing in the output of a trial; all of that output is compared"
            ));
        }
        (!lines.is_empty()).then(|| lines.join(&b'\n'))
    }))
}

/// Returns a function that opens the input anew for every trial. Refuses a directory, and a FIFO, which can be read
/// only once. If the command runs as another user, does not follow links that belong to others.
fn input(input: &Path, user: Option<&User>) -> Result<Open, Failure> {
    let refused = |what: &dyn std::fmt::Display| Failure::Input(format!("--input {}: {what}", input.display()));
    let kind = std::fs::metadata(input).map_err(|error| refused(&error))?.file_type();
    if kind.is_fifo() || kind.is_dir() {
        let found = if kind.is_dir() { "a directory" } else { "a pipe, which can be read once" };
        return Err(refused(&format_args!("expected a file that every trial can read, found {found}; make it one")));
    }
    let path = input.to_path_buf();
    let open: Open = if user.is_some_and(User::is_another) {
        Box::new(move || files::open_to_read(&path))
    } else {
        Box::new(move || File::open(&path))
    };
    open().map_err(|error| refused(&error))?;
    Ok(open)
}

fn split(option: &str, text: &str) -> Result<Vec<OsString>, Failure> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words.into_iter().map(OsString::from).collect()),
        _ => Err(Failure::Input(format!("{option}: expected a command line as for a shell, found {text:?}"))),
    }
}

/// The invocation as the user wrote it.
pub fn invocation(work: &Work) -> Invocation {
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
