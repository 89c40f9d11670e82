//! Measures a recommended setting: runs the program with it and without it, untraced, in randomised blocks.

use std::collections::BTreeMap;
use std::time::Duration;

use host::Host;
use policy::Policy;
use study::advice::Attempt;
use study::comparison::{Comparison, Design};
use study::trial::Arm;
use study::variant::Variant;

use super::arguments::Compare;
use super::backend::Backend;
use super::primary::Primary;
use super::request::Setup;
use super::{design, ending, measure, own_session, primary, work};
use crate::advice::attempt::SettingChanges;
use crate::failure::Failure;
use crate::hashed::sha256;
use crate::output::open_store;

/// The name of the variant with the setting.
const NAME: &str = "setting";

/// Measures a setting, and stores the result as a separate comparison. `before` is the comparison that led to the advice; its
/// metrics are used again.
///
/// # Errors
/// The measurement cannot begin, or the program failed in it.
pub fn measure_setting(arguments: &Compare, before: &Comparison, attempt: &Attempt) -> Result<Comparison, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let changes = SettingChanges::of(&attempt.changes, &host)
        .ok_or_else(|| Failure::Input(format!("--measure: no trial can be run with {}", attempt.instruction())))?;
    let limit_s = design::trial_time_s(&arguments.stopping);
    let new_work = || work::work(&arguments.measuring, arguments.command.clone(), limit_s);
    let mut work_with_setting = new_work()?;
    changes.add_to(&mut work_with_setting);
    let command = work_with_setting.server.as_ref().map_or(&work_with_setting.command, |server| &server.command);
    let variant = Variant {
        name: NAME.into(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        variables: changes.variables.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        sha256: command.first().and_then(|first| tracer::resolve(first).ok()).and_then(|path| sha256(&path).ok()),
        fragmented: None,
    };
    let plain = Arm::of_policy("default", Policy::DEFAULT);
    let arms = vec![plain.clone(), Arm { label: NAME.into(), variant: Some(variant), ..plain }];
    let own_session = own_session::of(arguments.measuring.own_session, &host)?;
    let mut design = Design { arms, baseline: 0, own_session, contention: None, ..before.design.clone() };
    design::limit(&mut design, &arguments.stopping)?;
    if let Some(name) = &arguments.stopping.primary {
        design.primary = primary::metric(Some(name), &design)?;
    }
    let mut work = new_work()?;
    own_session::give(&design, [&mut work, &mut work_with_setting]);
    let setup = Setup {
        host,
        design,
        primary: Primary::Fixed,
        work,
        variants: BTreeMap::from([(NAME.to_owned(), work_with_setting)]),
        settings: Some(BTreeMap::from([(NAME.to_owned(), changes.settings)])),
        arm_of_boot: false,
        awake: arguments.measuring.awake,
        hugetlb_pool: None,
        patience: Duration::from_secs_f64(arguments.stopping.wait),
        keeps_lease: false,
        backend: Backend::Host,
        in_study: None,
    };
    let store = open_store(arguments.keeping.store.as_deref())?;
    let measured = measure::measure(setup, &store)?;
    ending::exit(&measured.comparison, measured.blame)?;
    measured.troubles.into_iter().next().map_or(Ok(measured.comparison), Err)
}
