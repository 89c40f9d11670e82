//! A checked request for a comparison ([`Request`]): everything that can be refused before measuring is refused here.

use std::collections::BTreeMap;
use std::time::Duration;

use host::Host;
use platform::{Settings, Work};
use results::store::Store;
use study::comparison::{Comparison, Design};

use super::arguments::{Compare, Keeping};
use super::backend::Backend;
use super::primary::Primary;
use super::resumed::InStudy;
use super::{boots, design, ending, own_session, variants, work};
use crate::failure::Failure;
use crate::output::open_store;
use crate::publish::{Forms, check_requirements, publish_comparison};

/// A comparison request that passed all checks.
pub struct Request {
    /// What to measure and how.
    pub setup: Setup,
    /// The store for the result.
    pub store: Store,
    /// The forms of output.
    pub shown: Shown,
}

/// What to measure and how.
pub struct Setup {
    /// The host that supplies settings and page sizes.
    pub host: Host,
    /// The arms, the metrics, and when to stop.
    pub design: Design,
    /// How the metric that decides is chosen.
    pub primary: Primary,
    /// The command and how to run it.
    pub work: Work,
    /// What each variant runs in place of the command, by the variant's name.
    pub variants: BTreeMap<String, Work>,
    /// Run only the one arm of the design that matches this boot.
    pub arm_of_boot: bool,
    /// System settings by variant name, if trials run untraced.
    pub settings: Option<BTreeMap<String, Settings>>,
    /// Keep idle processors awake during the comparison.
    pub awake: bool,
    /// Memory for the hugetlb pool, in bytes.
    pub hugetlb_pool: Option<u64>,
    /// How long to wait for another pagelab to finish.
    pub patience: Duration,
    /// Keep the lease on system settings after the trials, for the advice.
    pub keeps_lease: bool,
    /// The platform that runs the trials.
    pub backend: Backend,
    /// The study to which the comparison belongs, if any.
    pub in_study: Option<InStudy>,
}

/// The forms of output of a comparison.
pub struct Shown {
    forms: Forms,
    /// Whether to merge the comparison with stored results of other boots.
    with_boots: bool,
}

impl Request {
    /// Checks the arguments, first those whose errors help the user most.
    ///
    /// # Errors
    /// The host cannot be read, the design is invalid, the command cannot be run, or the store or an output file cannot be
    /// written.
    pub fn of(arguments: Compare) -> Result<Request, Failure> {
        let backend = Backend::of(&arguments)?;
        let host = Host::open(backend.root()).map_err(Failure::input)?;
        let primary = Primary::of(&arguments)?;
        let (variants, mut variant_works) = variants::variants(&arguments)?;
        let own_session = own_session::of(arguments.measuring.own_session, &host)?;
        let design = design::design(&arguments, &host, variants, own_session)?;
        arguments.keeping.require.iter().try_for_each(|one| one.check(&design)).map_err(Failure::input)?;
        let measuring = &arguments.measuring;
        let mut work = work::work(measuring, arguments.command, design.trial_time_s)?;
        own_session::give(&design, std::iter::once(&mut work).chain(variant_works.values_mut()));
        let store = open_store(arguments.keeping.store.as_deref())?;
        arguments.forms.can_be_written()?;
        let setup = Setup {
            host,
            design,
            primary,
            work,
            variants: variant_works,
            settings: None,
            arm_of_boot: arguments.arm_of_boot,
            awake: measuring.awake,
            hugetlb_pool: measuring.hugetlb_pool,
            patience: Duration::from_secs_f64(arguments.stopping.wait),
            keeps_lease: false,
            backend,
            in_study: None,
        };
        let Keeping { full, store: named_store, require, .. } = arguments.keeping;
        let forms = Forms { is_full: full, store: named_store, require, ..arguments.forms };
        let shown = Shown { forms, with_boots: arguments.arm_of_boot };
        Ok(Request { setup, store, shown })
    }
}

impl Shown {
    /// Prints and writes a comparison.
    ///
    /// # Errors
    /// An output cannot be written, or the answers of boots differ.
    pub fn publish(&self, comparison: &Comparison, store: &Store) -> Result<(), Failure> {
        let forms = Forms { has_failed: !ending::has_results(comparison), ..self.forms.clone() };
        if self.with_boots {
            boots::publish_with(store, comparison, &forms)
        } else {
            publish_comparison(comparison, &forms)
        }
    }

    /// Judges the requirements (`--require`).
    ///
    /// # Errors
    /// [`Failure::Unmet`] unless each arm meets its requirements.
    pub fn meets(&self, comparison: &Comparison) -> Result<(), Failure> {
        check_requirements(comparison, &self.forms)
    }
}
