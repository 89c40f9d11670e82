//! A comparison that was asked for, checked: what can be refused before anything is measured is refused here.

use std::collections::BTreeMap;
use std::time::Duration;

use host::Host;
use platform::Work;
use results::store::Store;
use study::comparison::{Comparison, Design};

use super::arguments::Compare;
use super::gone_before::InStudy;
use super::ground::Ground;
use super::{boots, design, variants, work};
use crate::failure::{Failure, say};
use crate::output::open_store;
use crate::publish::{self, Adopt, Forms};

/// A comparison that can be made.
pub struct Request {
    /// What is measured, and how.
    pub setup: Setup,
    /// Where it is kept.
    pub store: Store,
    /// How it is shown.
    pub shown: Shown,
}

/// What is measured, and how.
pub struct Setup {
    /// The host whose settings and page sizes count.
    pub host: Host,
    /// The arms, the metrics, and when to stop.
    pub design: Design,
    /// What is run.
    pub work: Work,
    /// What variants run in its place, by their names.
    pub variants: BTreeMap<String, Work>,
    /// Only the one arm of the design that this boot has.
    pub arm_of_boot: bool,
    /// Idle processors are kept awake.
    pub awake: bool,
    /// Memory for the hugetlb pool, in bytes.
    pub hugetlb_pool: Option<u64>,
    /// How long another pagelab is waited for.
    pub patience: Duration,
    /// What runs the trials.
    pub ground: Ground,
    /// The study that it is of.
    pub in_study: Option<InStudy>,
}

/// How a comparison is shown.
pub struct Shown {
    forms: Forms,
    adopt: Adopt,
    /// With what other boots say.
    with_boots: bool,
}

impl Request {
    /// Checks what was asked for, in the order in which a user would want to know.
    ///
    /// # Errors
    /// The host cannot be read, a design that is none, a command that cannot be run, a store or a file that cannot be
    /// written.
    pub fn of(arguments: Compare) -> Result<Request, Failure> {
        let ground = Ground::of(&arguments)?;
        let host = Host::open(ground.root()).map_err(Failure::input)?;
        let (variants, variant_works) = variants::variants(&arguments)?;
        let design = design::design(&arguments, &host, variants)?;
        let measuring = &arguments.measuring;
        let work = work::work(measuring, arguments.command, design.trial_time_s)?;
        let store = open_store(arguments.keeping.store.as_deref())?;
        arguments.forms.can_be_written()?;
        if let (None, Some(limit_s)) = (arguments.stopping.trial_time, design.trial_time_s) {
            say(format_args!(
                "pagelab: no terminal, so a trial that takes longer than {limit_s} s will be ended (--trial-time TIME or none)"
            ));
        }
        let setup = Setup {
            host,
            design,
            work,
            variants: variant_works,
            arm_of_boot: arguments.arm_of_boot,
            awake: measuring.awake,
            hugetlb_pool: measuring.hugetlb_pool,
            patience: Duration::from_secs_f64(measuring.wait),
            ground,
            in_study: None,
        };
        let shown = Shown { forms: arguments.forms, adopt: arguments.keeping.adopt, with_boots: arguments.arm_of_boot };
        Ok(Request { setup, store, shown })
    }
}

impl Shown {
    /// Prints and writes a comparison.
    ///
    /// # Errors
    /// Something cannot be written, or boots do not agree.
    pub fn publish(&self, comparison: &Comparison, store: &Store) -> Result<(), Failure> {
        if self.with_boots {
            boots::publish_with(store, comparison, &self.forms)
        } else {
            publish::comparison(comparison, &self.forms, self.adopt)
        }
    }
}
