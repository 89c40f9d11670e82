//! `compare` inside a guest: the same words, but for what only the host decides.

use std::ffi::OsString;

use host::Host;
use results::store::Store;
use study::comparison::Comparison;
use study::guest::{Clock, printed};

use super::arguments::Compare;
use super::request::Request;
use super::{design, ending, in_study, measure};
use crate::failure::Failure;
use crate::words::Variable;

/// What a comparison in a guest came to: what it measured, and what it ended with.
pub type Outcome = (Comparison, Result<(), Failure>);

/// Measures in this guest, in as many blocks as a boot has. `user`: who runs pagelab on the host, where that is not root; the command is
/// run as that user, with the same environment.
///
/// # Errors
/// It cannot begin.
pub fn run(
    words: &[String],
    user: Option<&str>,
    variables: &[(OsString, OsString)],
    seed: u64,
    store: &Store,
) -> Result<Outcome, Failure> {
    let mut compare = in_study::parsed(words)?;
    compare.guests = Default::default();
    compare.keeping.store = Some(store.path().to_owned());
    (compare.forms.json, compare.forms.html) = (false, None);
    compare.stopping.blocks = compare.stopping.min_blocks;
    compare.stopping.seed = Some(seed);
    if let (Some(user), None) = (user, &compare.measuring.user) {
        compare.measuring.user = Some(user.to_owned());
        // What the command line says is behind these, and counts.
        let own = variables.iter().map(|(name, _)| name).filter_map(|name| name.clone().into_string().ok());
        let own = own.map(|name| Variable { name, value: None });
        compare.measuring.env = own.chain(std::mem::take(&mut compare.measuring.env)).collect();
    }
    let machine = Host::open("/").and_then(|host| host.machine()).map_err(Failure::input)?;
    // Where no time is measured, none is saved by not looking.
    compare.measuring.prove_all |= Clock::of(&machine) != Clock::Real;
    let Request { setup, store, .. } = Request::of(compare)?;
    let measured = measure::measure(setup, &store)?;
    let exit = ending::exit(&measured.comparison, measured.blame);
    Ok((measured.comparison, exit))
}

/// Refuses what an emulated guest cannot know: figures that a program prints and that are times, or made of times.
///
/// # Errors
/// Such a metric was asked for.
pub fn check(compare: &Compare, clock: Clock) -> Result<(), Failure> {
    if clock == Clock::Real {
        return Ok(());
    }
    let unknown = compare.measuring.metrics.iter().find(|metric| printed(&metric.name, clock).is_none());
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
        "{refused}: an emulated guest has no time, and this depends on times; leave it out, or run this where KVM works ({others})"
    )))
}

/// As [`check`], for the words of `compare`.
///
/// # Errors
/// As [`check`]; words that `compare` does not take.
pub fn check_words(words: &[String], clock: Clock) -> Result<(), Failure> {
    check(&in_study::parsed(words)?, clock)
}

/// A seed where none is given.
pub fn seed() -> u64 {
    design::seed_of_clock()
}
