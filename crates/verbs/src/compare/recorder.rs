//! Stores a comparison while it runs ([`Recorder`]): in the store, or, once that fails, in a substitute store.

use results::store::{Error, OfStudy, Resumption, Store};
use study::comparison::{Comparison, Ended};
use study::runner::{Event, Run};
use study::stats::Warning;

use crate::failure::{Failure, error_chain, report};

/// Where a comparison is stored.
pub struct Destination<'a> {
    pub store: &'a Store,
    /// The row of a study that the comparison fills, if any.
    pub of: Option<OfStudy>,
    /// Where the comparison resumes, if an earlier part of it is already stored.
    pub resumption: Option<Resumption>,
}

/// Stores trials as they finish. If that fails, measuring continues: the trials go to a substitute store, whose path is shown at
/// the end.
pub struct Recorder<'a> {
    store: &'a Store,
    of: Option<OfStudy>,
    /// Where the comparison resumes, if an earlier part of it is already stored.
    resumption: Option<Resumption>,
    comparison: &'a mut Comparison,
    /// The substitute store, once the first one has failed.
    aside: Option<Store>,
    /// The first error of the store.
    trouble: Option<Error>,
    /// Whether a part of the comparison could not be stored anywhere.
    is_lost: bool,
}

impl<'a> Recorder<'a> {
    /// Begins with a comparison that has no trials yet, or that is already stored.
    pub fn new(destination: Destination<'a>, comparison: &'a mut Comparison) -> Recorder<'a> {
        let Destination { store, of, resumption } = destination;
        Recorder { store, of, resumption, comparison, aside: None, trouble: None, is_lost: false }
    }

    /// Stores the content of an event.
    pub fn on_event(&mut self, event: &Event) {
        match event {
            Event::Admitted(admissions) => {
                self.comparison.admissions = admissions.to_vec();
                let stored = match &self.resumption {
                    Some(resumption) => self.store.resume(self.comparison.id, admissions, resumption),
                    None => self.begin_in(self.store).map(|id| self.comparison.id = id),
                };
                self.set_aside_after(stored);
            }
            Event::Finished(record) => {
                self.comparison.trials.push((*record).clone());
                if !self.is_lost {
                    self.set_aside_after(self.current().append(self.comparison.id, record));
                }
            }
            _ => {}
        }
    }

    /// Stores how the comparison ended. If the comparison is not in the store, reports where it is.
    pub fn finish(mut self, run: Run) -> Option<Failure> {
        self.comparison.admissions = run.admissions;
        self.comparison.trials = run.trials;
        self.comparison.analysis = run.analysis;
        self.comparison.ended = run.ended;
        say_reporting_once(self.aside.as_ref().unwrap_or(self.store), self.comparison);
        if self.is_lost && self.trouble.as_ref().is_some_and(is_of_the_store) {
            // Tries to store again, because there may be space by now.
            self.set_aside();
        } else if self.comparison.id != 0 {
            let (id, ended) = (self.comparison.id, &self.comparison.ended);
            self.set_aside_after(self.current().finish(id, self.comparison.analysis.as_ref(), ended));
        }
        let trouble = error_chain(&self.trouble.take()?);
        Some(Failure::Input(match &self.aside {
            Some(aside) if !self.is_lost => format!(
                "this comparison is stored as number {} of {}, not in the requested store: {trouble}",
                self.comparison.id,
                aside.path().display()
            ),
            _ => format!("this comparison is not completely stored: {trouble}"),
        }))
    }

    fn begin_in(&self, store: &Store) -> Result<i64, Error> {
        match &self.of {
            Some(of) => store.begin_of_study(self.comparison, of),
            None => store.begin(self.comparison),
        }
    }

    fn current(&self) -> &Store {
        self.aside.as_ref().unwrap_or(self.store)
    }

    fn set_aside_after(&mut self, stored: Result<(), Error>) {
        let Err(error) = stored else { return };
        report(format_args!("pagelab: {}", results::printable(&error_chain(&error))));
        let is_of_the_store = is_of_the_store(&error);
        self.trouble.get_or_insert(error);
        self.is_lost = true;
        if is_of_the_store {
            self.set_aside();
        }
    }

    /// Copies the comparison, with its trials so far, into a new store.
    fn set_aside(&mut self) {
        let set = self.current().set_aside().and_then(|aside| {
            let id = self.begin_in(&aside)?;
            Ok((aside, id))
        });
        match set {
            Ok((aside, id)) => {
                let path = aside.path().display().to_string();
                report(format_args!(
                    "pagelab: its results are set aside, and continue as comparison {id} of {}",
                    results::printable(&path)
                ));
                (self.comparison.id, self.aside, self.is_lost) = (id, Some(aside), false);
            }
            Err(error) if self.comparison.ended == Ended::NotEnded => report(format_args!(
                "pagelab: its results cannot be set aside: {}; they are shown at the end",
                results::printable(&error_chain(&error))
            )),
            Err(_) => {}
        }
    }
}

/// Free page reporting is explained in full only in the first comparison of a host; later comparisons in the store refer
/// to that one.
fn say_reporting_once(store: &Store, comparison: &mut Comparison) {
    let warnings = comparison.analysis.iter_mut().flat_map(|analysis| &mut analysis.warnings);
    for warning in warnings {
        if let Warning::FreeMemoryReported { explained_by, .. } = warning {
            // If the store cannot be searched, the full text is printed.
            *explained_by =
                store.first_warned_of_reporting(comparison.machine.host_id.as_deref(), comparison.id).ok().flatten();
        }
    }
}

/// Whether the error is due to the store, so that another store may succeed.
fn is_of_the_store(error: &Error) -> bool {
    !matches!(error, Error::Unstorable { .. } | Error::Duplicate { .. })
}
