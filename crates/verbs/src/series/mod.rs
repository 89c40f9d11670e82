//! `pagelab series`: boots each kernel of a series several times, runs the same programs in every boot, and reports what changed from
//! each kernel to the next.
//!
//! ```text
//! kernels ─► boot by boot, equal in all but the image     Lab::reproducible
//!   a task for each workload ─► Comparison ─► Figures     boots; study: kernel_series
//! ─► Series ─► screen, mail, document                     results: kernel_series
//!    one kernel against a stored series ─► assertions     against
//! ```

mod against;
mod arguments;
mod boots;
mod workloads;

pub use arguments::SeriesArguments;

use results::kernel_series::{Report, document, mail, screen};
use study::kernel_series::{Series, Workload};
use study_files::definition::Boot;

use crate::failure::Failure;
use crate::kernels::config;
use crate::kernels::kernel::Kernel;
use crate::output::{can_be_written, print, terminal_width, write};
use crate::publish::first_failure;
use workloads::Builtin;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs `pagelab series`.
///
/// # Errors
/// The arguments are wrong, a kernel has no result, an assertion does not hold, or an output cannot be written.
pub fn run(arguments: &SeriesArguments) -> Result<(), Failure> {
    if let Some(file) = &arguments.against {
        return against::run(arguments, file);
    }
    can_be_written(arguments.save.as_ref())?;
    let kernels = boots::kernels_of(arguments)?;
    let workloads = workloads_of(arguments)?;
    let (series, failed) = boots::measure(arguments, &kernels, workloads)?;
    if series.kernels.is_empty() {
        return failed;
    }
    first_failure([publish(arguments, &kernels, &series), failed].into_iter().filter_map(Result::err))
}

/// The workloads that the arguments name, the command last.
fn workloads_of(arguments: &SeriesArguments) -> Result<Vec<Workload>, Failure> {
    let builtin = if arguments.workloads.is_empty() { &Builtin::ALL[..] } else { &arguments.workloads };
    let mut all: Vec<Workload> = Vec::new();
    for workload in builtin.iter().filter_map(|builtin| builtin.workload(arguments.quick)) {
        if !all.contains(&workload) {
            all.push(workload);
        }
    }
    if !arguments.command.is_empty() {
        all.push(workloads::of_command(&arguments.command));
    }
    if all.is_empty() {
        return Err(Failure::Input("expected a command or a built-in workload, found neither; give -- COMMAND".into()));
    }
    Ok(all)
}

fn publish(arguments: &SeriesArguments, kernels: &[Kernel], series: &Series) -> Result<(), Failure> {
    let measured: Vec<&Kernel> =
        kernels.iter().filter(|kernel| series.kernels.iter().any(|one| one.name == kernel.name)).collect();
    let boots = |pair: &[&Kernel]| pair.iter().enumerate().map(|(at, kernel)| kernel.boot(at == 0)).collect();
    let differences = |pair: &[&Kernel]| config::differences(&boots(pair) as &Vec<Boot>);
    let report = Report { series, configurations: measured.windows(2).map(differences).collect(), version: VERSION };
    if let Some(file) = &arguments.save {
        let document = document(&report).map_err(Failure::input)?;
        write(file, &|to| writeln!(to, "{document:#}"))?;
    }
    if arguments.json {
        return print(&format!("{:#}", document(&report).map_err(Failure::input)?), true);
    }
    if arguments.mail {
        return print(mail(&report).trim_end(), true);
    }
    print(&screen(&report, terminal_width()), false)
}
