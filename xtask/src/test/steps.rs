//! The steps of a run, and their durations ([`Steps`]).

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The steps that have ended, in the order in which they ended. Some run at the same time, so their sum can exceed the duration
/// of the run.
#[derive(Debug)]
pub struct Steps {
    begun: Instant,
    ended: Mutex<Vec<(&'static str, Duration)>>,
}

impl Steps {
    /// Starts the clock of a run.
    pub fn begin() -> Steps {
        Steps { begun: Instant::now(), ended: Mutex::default() }
    }

    /// Runs a step. Prints its name before it and its duration after it.
    pub fn take<R>(&self, name: &'static str, step: impl FnOnce() -> R) -> R {
        println!("==> {name}");
        let start = Instant::now();
        let result = step();
        let took = start.elapsed();
        println!("==> {name} took {:.1} s", took.as_secs_f64());
        self.ended().push((name, took));
        result
    }

    /// The time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The steps that have ended, with their durations.
    pub fn ended(&self) -> MutexGuard<'_, Vec<(&'static str, Duration)>> {
        self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_listed_in_the_order_in_which_they_ended() {
        let steps = Steps::begin();
        let inner = steps.take("all", || steps.take("part", || 7));
        let names: Vec<&str> = steps.ended().iter().map(|(name, _)| *name).collect();
        assert_eq!((inner, names), (7, vec!["part", "all"]));
    }
}
