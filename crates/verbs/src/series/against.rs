//! `pagelab series --against`: a kernel judged by a stored one, with exit codes for `git bisect run`.

use std::path::Path;

use results::kernel_series::{judged, parse};
use study::kernel_series::assertion::{Assertion, Judged};
use study::kernel_series::{COMMAND, Kernel, Series, Workload};

use super::arguments::SeriesArguments;
use super::boots;
use crate::failure::{Failure, report};
use crate::output::{print, terminal_width};

/// Judges the kernel.
///
/// # Errors
/// [`Failure::Worse`] if an assertion does not hold, [`Failure::Untestable`] if the kernel has no result, and
/// [`Failure::Unusable`] for wrong arguments: `git bisect run` takes most other codes for a bad commit.
pub fn run(arguments: &SeriesArguments, file: &Path) -> Result<(), Failure> {
    let (base, assertions) = checked(arguments, file).map_err(unusable)?;
    let [_] = &arguments.kernels[..] else {
        return Err(unusable(Failure::Input(format!(
            "--against: expected one --kernel, found {}; each is judged by itself",
            arguments.kernels.len()
        ))));
    };
    let no_kernel = || Failure::Unusable(format!("{}: the stored series has no kernel", file.display()));
    let base_kernel = base.kernels.last().ok_or_else(no_kernel)?;
    check_boots(arguments, base_kernel);
    let found = found(arguments, &base, &assertions).map_err(untestable)?;
    let outcomes: Result<Vec<Judged>, _> = assertions.iter().map(|one| one.judge(base_kernel, &found)).collect();
    let outcomes = outcomes.map_err(|error| Failure::Untestable(error.to_string()))?;
    print(&judged(&outcomes, &base_kernel.name, &found.name, terminal_width()), false)?;
    let broken = outcomes.iter().filter(|outcome| !outcome.holds).count();
    match broken {
        0 => Ok(()),
        _ => Err(Failure::Worse(format!("{broken} of {} assertions do not hold", outcomes.len()))),
    }
}

/// The stored series and the assertions about it.
fn checked(arguments: &SeriesArguments, file: &Path) -> Result<(Series, Vec<Assertion>), Failure> {
    let text = host::content(file).map_err(|error| Failure::about(file, error))?;
    let base = parse(&text).map_err(|error| Failure::about(file, error))?;
    let parsed = |text: &String| {
        let assertion: Assertion = text
            .parse()
            .map_err(|error| Failure::Input(format!("--assert: {}", crate::failure::error_chain(&error))))?;
        if let Some(kernel) = base.kernels.last() {
            let about = |error| Failure::Input(format!("--assert: {}: {error}", file.display()));
            assertion.value_in(kernel).map_err(about)?;
        }
        Ok(assertion)
    };
    let assertions = arguments.assertions.iter().map(parsed).collect::<Result<Vec<_>, Failure>>()?;
    let command = base.workloads.iter().find(|workload| workload.name == COMMAND);
    match command {
        _ if arguments.command.is_empty() => {}
        Some(Workload { command, .. }) if *command == arguments.command => {}
        Some(Workload { command, .. }) => {
            return Err(Failure::Input(format!(
                "{}: expected the command of the stored series, {}, found {}; leave the command out, or save the base again",
                file.display(),
                results::command_line(command),
                results::command_line(&arguments.command)
            )));
        }
        None => {
            return Err(Failure::Input(format!(
                "{}: the stored series has no command, found {}; leave the command out, or save the base again with it",
                file.display(),
                results::command_line(&arguments.command)
            )));
        }
    }
    Ok((base, assertions))
}

/// Boots the kernel, with the workloads of the base that the assertions name.
fn found(arguments: &SeriesArguments, base: &Series, assertions: &[Assertion]) -> Result<Kernel, Failure> {
    let kernels = boots::kernels_of(arguments)?;
    let is_named = |workload: &&Workload| assertions.iter().any(|one| one.workload == workload.name);
    let workloads = base.workloads.iter().filter(is_named).cloned().collect();
    let (series, failed) = boots::measure(arguments, &kernels, workloads)?;
    failed?;
    let kernel = series.kernels.into_iter().next();
    kernel.ok_or_else(|| Failure::NoResult("the kernel has no result".into()))
}

/// Warns where the base was booted otherwise: its figures can differ for that reason alone.
fn check_boots(arguments: &SeriesArguments, base: &Kernel) {
    let cmdline = arguments.cmdline.first().map_or("", String::as_str);
    if base.memory_bytes != arguments.memory {
        report(format_args!(
            "pagelab: the base was booted with --memory {}, this kernel with {}",
            policy::size::format_bytes(base.memory_bytes),
            policy::size::format_bytes(arguments.memory)
        ));
    }
    if base.cmdline != cmdline {
        report(format_args!("pagelab: the base was booted with {:?}, this kernel with {cmdline:?}", base.cmdline));
    }
}

fn unusable(failure: Failure) -> Failure {
    match failure {
        failure @ Failure::Interrupted(_) => failure,
        failure => Failure::Unusable(failure.to_string()),
    }
}

fn untestable(failure: Failure) -> Failure {
    match failure {
        failure @ Failure::Interrupted(_) => failure,
        failure => Failure::Untestable(failure.to_string()),
    }
}
