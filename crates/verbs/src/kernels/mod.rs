//! `pagelab compare --kernel`: boots kernels in guests in turn, measures all policies in each, and compares over boots.
//!
//! ```text
//! kernels ─► boot by boot, in an order that the seed decides          mod
//!   Lab::measure ─► initramfs, QEMU ─► lines from the port            lab, emulator, guest (the crate)
//!       in the guest: arguments of `compare` ─► Comparison            session, compare::in_guest
//!   ─► without times if the guest was emulated ─► store               study: guest
//! ─► kernels x policies, over boots ─► table, mail, document, page    report; study: matrix::kernels
//! ```

pub mod config;
mod emulator;
pub mod job;
pub mod kernel;
pub mod lab;
pub mod report;
pub mod session;
pub mod stored;

use std::time::Instant;

use policy::Policy;
use study::comparison::Comparison;
use study::guest::kernel_of;
use study::plan::order;
use study::stats::boots::boots_needed;

use crate::compare::design::alone;
use crate::compare::{Compare, Keeping, in_guest, refuse_auto};
use crate::failure::{Failure, report};
use crate::output::open_store;
use crate::publish::{Forms, first_failure};
use crate::short;
use kernel::Kernel;
use lab::{BootResult, Lab};
use report::{ReportContent, command_line_of};

type Exit = Result<(), Failure>;

/// Runs `pagelab compare --kernel`.
pub fn run(arguments: &Compare) -> Result<(), Failure> {
    refuse_auto(arguments, "with --kernel")?;
    if !arguments.keeping.require.is_empty() {
        return Err(Failure::Input("--require judges the trials of this host; leave it out with --kernel".into()));
    }
    let guests = &arguments.guests;
    let is_default_alone = arguments.policies == [Policy::DEFAULT] && arguments.variants.is_empty() && !arguments.aa;
    if is_default_alone && guests.kernels.len() == 1 {
        return Err(alone("one kernel under default"));
    }
    let kernels = kernel::from_arguments(guests)?;
    let words = compare_words()?;
    arguments.forms.can_be_written()?;
    // Another user may have access to other programs than this one, so the check is left to the first guest.
    let is_of_this_host = arguments.measuring.user.is_none() && guests.sysroot.is_none();
    if let Some(program) = arguments.command.first().filter(|_| is_of_this_host) {
        tracer::resolve(program).map_err(|error| Failure::launch(&error))?;
    }
    let store = open_store(arguments.keeping.store.as_deref())?;
    let lab = Lab::open(&kernels, guests.icount, guests.guest_time.unwrap_or(lab::GUEST_TIME_S), store.path())?;
    in_guest::check(arguments, lab.clock())?;
    let boots = guests.boots.unwrap_or_else(|| boots_needed(kernels.len()));
    if boots < boots_needed(kernels.len()) {
        let needed = boots_needed(kernels.len());
        report(format_args!(
            "pagelab: with --boots {boots} no change has an interval; --boots {needed} would be enough"
        ));
    }
    let seed = arguments.stopping.seed.unwrap_or_else(in_guest::seed);
    let mut measured = Vec::new();
    let outcome = measure(&lab, &kernels, &vec![boots; kernels.len()], seed, &mut |kernel, seed| {
        let BootResult { mut comparison, exit } = lab.measure(kernel, &words, seed)?;
        comparison.id = store.begin(&comparison).map_err(Failure::input)?;
        let exit = ended(&comparison, exit)?;
        measured.push(comparison);
        Ok(exit)
    });
    let is_measured =
        |kernel: &&Kernel| measured.iter().any(|one: &Comparison| kernel_of(&one.machine) == Some(&kernel.name));
    let Keeping { full, store: named_store, .. } = &arguments.keeping;
    let forms = Forms { is_full: *full, store: named_store.clone(), ..arguments.forms.clone() };
    let Some(first) = measured.first() else { return outcome };
    // Kernels without a result are left out here; the error names them.
    let shown_kernels: Vec<&Kernel> = kernels.iter().filter(is_measured).collect();
    let shown = ReportContent {
        boots: shown_kernels.iter().enumerate().map(|(at, kernel)| kernel.boot(at == 0)).collect(),
        planned_boots: boots,
        command: command_line_of(first),
        forms: &forms,
        mail: guests.mail,
    };
    let published = shown.publish(&measured);
    first_failure([outcome, published].into_iter().filter_map(Result::err))
}

/// Boots each kernel as often as `boots` says, in rounds, each in a different order. A kernel that gives no result in a boot is not
/// booted again. The series ends early when fewer than two of several kernels are left. Errors are returned when all boots are
/// done.
///
/// # Errors
/// A boot failed, or had a result in spite of an error. An error that concerns all kernels ends the series at once.
pub fn measure(
    lab: &Lab,
    kernels: &[Kernel],
    boots: &[u32],
    seed: u64,
    boot: &mut dyn FnMut(&Kernel, u64) -> Result<Exit, Failure>,
) -> Result<(), Failure> {
    let all: u32 = boots.iter().sum();
    let mut left: Vec<usize> = (0..kernels.len()).collect();
    let (mut failures, mut outcome, mut number) = (Vec::new(), Ok(()), 0u64);
    let started = Instant::now();
    for round in 0..boots.iter().copied().max().unwrap_or(0) {
        let planned = order(seed, round, kernels.len()).into_iter().filter(|place| round < boots[*place]);
        for place in planned.filter(|place| left.contains(place)).collect::<Vec<usize>>() {
            let kernel = &kernels[place];
            number += 1;
            let ended = number - 1;
            let rest = started.elapsed().as_secs_f64() / ended.max(1) as f64 * (u64::from(all) - ended) as f64;
            let left_in_words =
                if ended == 0 { String::new() } else { format!(", about {} left", short::seconds(rest)) };
            let (name, accelerator) = (&kernel.name, lab.accelerator_name());
            report(format_args!("pagelab: boot {number} of {all}: {name} ({accelerator}){left_in_words}"));
            match boot(kernel, seed.wrapping_add(number)) {
                Ok(exit) => outcome = outcome.and(exit),
                Err(failure) if failure.concerns_one_kernel() => {
                    left.retain(|one| *one != place);
                    failures.push(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        if left.len() < kernels.len().min(2) {
            break;
        }
    }
    first_failure(failures.into_iter().chain(outcome.err()))
}

/// Decides whether a boot has a result. A wrong answer under a policy is a result, which becomes a row of the table.
///
/// # Errors
/// The boot has no result.
pub fn ended(comparison: &Comparison, exit: Exit) -> Result<Exit, Failure> {
    match (comparison.ended.has_result(), exit) {
        (true, exit) => Ok(exit),
        (false, Err(failure)) => Err(failure),
        (false, Ok(())) => Err(Failure::NoResult("a guest ended its comparison without a result".into())),
    }
}

/// The arguments after `compare`, which are passed to pagelab in the guest.
fn compare_words() -> Result<Vec<String>, Failure> {
    let text = |word: std::ffi::OsString| {
        word.into_string()
            .map_err(|word| Failure::Input(format!("{word:?}: expected UTF-8, because a guest gets this argument")))
    };
    std::env::args_os().skip(2).map(text).collect()
}
