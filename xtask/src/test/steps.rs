//! The steps of a run, and how long each took.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The steps that have ended, in that order. Some run at the same time, so their sum is more than the run.
#[derive(Debug)]
pub struct Steps {
    begun: Instant,
    ended: Mutex<Vec<(&'static str, Duration)>>,
}

impl Steps {
    /// Those of a run that begins now.
    pub fn begin() -> Steps {
        Steps { begun: Instant::now(), ended: Mutex::default() }
    }

    /// Does a step, and prints its name before and its time after it.
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

    /// The steps that have ended, with their times.
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
