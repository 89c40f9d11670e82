//! What the steps of a run took, said as each of them ends, and of all in one line.

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The steps that have ended, in that order. Some run beside others, so they take more than the run together.
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

    /// Does a step, and says when it begins and what it took.
    pub fn take<R>(&self, name: &'static str, step: impl FnOnce() -> R) -> R {
        println!("==> {name}");
        let start = Instant::now();
        let result = step();
        let took = start.elapsed();
        println!("==> {name} took {:.1} s", took.as_secs_f64());
        self.ended().push((name, took));
        result
    }

    fn ended(&self) -> MutexGuard<'_, Vec<(&'static str, Duration)>> {
        self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "took {:.0} s", self.begun.elapsed().as_secs_f64())?;
        for (place, (name, took)) in self.ended().iter().enumerate() {
            write!(f, "{} {name} {:.1} s", if place == 0 { ":" } else { "," }, took.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_listed_in_the_order_in_which_they_ended() {
        let steps = Steps::begin();
        assert_eq!(steps.to_string(), "took 0 s");
        let inner = steps.take("all", || steps.take("part", || 7));
        assert_eq!((inner, steps.to_string().as_str()), (7, "took 0 s: part 0.0 s, all 0.0 s"));
    }
}
