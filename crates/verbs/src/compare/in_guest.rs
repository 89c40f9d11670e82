//! `compare` inside a guest: it takes the same arguments as on the host, except those that only the host decides.

use std::ffi::OsString;

use host::Host;
use results::store::Store;
use study::comparison::{Comparison, Design};
use study::guest::{Clock, convert_printed};
use study::metric::names;

use super::arguments::Compare;
use super::request::Request;
use super::{design, ending, in_study, measure};
use crate::failure::Failure;
use crate::words::Variable;

/// The result of a comparison in a guest: the measurement and the exit status.
pub type Outcome = (Comparison, Result<(), Failure>);

/// Measures in this guest, with as many blocks as one boot has. `user` is the user who runs pagelab on the host, if not root:
/// the command runs as that user, with the same environment.
///
/// # Errors
/// The comparison cannot begin.
pub fn run(
    words: &[String],
    user: Option<&str>,
    variables: &[(OsString, OsString)],
    seed: u64,
    store: &Store,
) -> Result<Outcome, Failure> {
    let mut compare = in_study::parsed(words)?;
    compare.guests = Default::default();
    // Every boot must have the same primary metric.
    compare.stopping.primary.get_or_insert_with(|| names::WALL_S.to_owned());
    compare.keeping.store = Some(store.path().to_owned());
    (compare.forms.json, compare.forms.html) = (false, None);
    let blocks = compare.stopping.min_blocks.unwrap_or(Design::MIN_BLOCKS.min(compare.stopping.blocks));
    (compare.stopping.blocks, compare.stopping.min_blocks) = (blocks, Some(blocks));
    compare.stopping.seed = Some(seed);
    if let (Some(user), None) = (user, &compare.measuring.user) {
        compare.measuring.user = Some(user.to_owned());
        // Variables from the command line come after these, and so override them.
        let own = variables.iter().map(|(name, _)| name).filter_map(|name| name.clone().into_string().ok());
        let own = own.map(|name| Variable { name, value: None });
        compare.measuring.env = own.chain(std::mem::take(&mut compare.measuring.env)).collect();
    }
    let machine = Host::open("/").and_then(|host| host.machine()).map_err(Failure::input)?;
    // If no time is measured, nothing is saved by leaving memory uninspected.
    compare.measuring.prove_all |= Clock::of(&machine) != Clock::Real;
    let Request { setup, store, .. } = Request::of(compare)?;
    let measured = measure::measure(setup, &store)?;
    let exit = ending::exit(&measured.comparison, measured.blame);
    Ok((measured.comparison, exit))
}

/// Refuses metrics that an emulated guest cannot measure: times that a program prints, and figures that derive from
/// times.
///
/// # Errors
/// Such a metric was requested.
pub fn check(compare: &Compare, clock: Clock) -> Result<(), Failure> {
    if clock == Clock::Real {
        return Ok(());
    }
    let unknown = compare.measuring.metrics.iter().find(|metric| convert_printed(&metric.name, clock).is_none());
    let refused = match (unknown, &compare.measuring.repeat_inside) {
        (Some(metric), _) => format!("--metric {}", metric.name),
        (None, Some(_)) => "--repeat-inside".to_owned(),
        (None, None) => return Ok(()),
    };
    let others = match clock {
        Clock::Instructions => {
            "names that end in _ns, _us, _ms or _s become instructions, and those that end in _bytes, _count, _pages or _faults stay"
        }
        Clock::Real | Clock::Nothing => {
            "names that end in _bytes, _count, _pages or _faults stay; with --icount times become instructions"
        }
    };
    Err(Failure::Input(format!(
        "{refused}: expected a metric that does not depend on time, because the guest is emulated; leave it out, or use a host where \
         KVM works ({others})"
    )))
}

/// Like [`check()`], but takes the arguments of `compare` as words.
///
/// # Errors
/// As [`check()`], or `compare` rejects the arguments.
pub fn check_words(words: &[String], clock: Clock) -> Result<(), Failure> {
    check(&in_study::parsed(words)?, clock)
}

/// The seed to use if none is given.
pub fn seed() -> u64 {
    design::seed_of_clock()
}
