//! Watches the state of the host while tests run ([`Watch`]), so that a failure can be shown with the state before it.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime};

use super::host_state::HostState;

/// The interval between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<(SystemTime, HostState)>>,
}

/// The states of the host, at least one, in order of time.
#[derive(Debug)]
pub struct Watched {
    states: Vec<(SystemTime, HostState)>,
}

impl Watch {
    /// Starts watching this host.
    pub fn begin() -> Result<Watch, String> {
        let (stop, stopped) = channel();
        let look = || (SystemTime::now(), HostState::read(Path::new("/")));
        let thread = Builder::new().name("watch".to_owned()).spawn(move || {
            let mut states = vec![look()];
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                states.push(look());
            }
            states
        });
        let thread = thread.map_err(|error| format!("cannot create a thread to watch the host: {error}"))?;
        Ok(Watch { stop, thread })
    }

    /// Stops watching and returns the states.
    pub fn end(self) -> Watched {
        drop(self.stop);
        match self.thread.join() {
            Ok(states) => Watched { states },
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Watched {
    /// The last state before a moment, as lines of text.
    pub fn before(&self, moment: SystemTime) -> String {
        let (first_time, first) = &self.states[0];
        let (time, state) = self.states.iter().rfind(|(time, _)| *time <= moment).unwrap_or(&self.states[0]);
        let into_run_s = time.duration_since(*first_time).unwrap_or_default().as_secs();
        format!("{into_run_s} s into the run: {}", state.describe(first))
    }

    /// The share of the time during which a process held the lease of the settings, as a ratio.
    pub fn lease_held_ratio(&self) -> f64 {
        let held = self.states.iter().filter(|(_, state)| state.is_lease_held()).count();
        held as f64 / self.states.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_before_a_moment_is_the_last_one_that_is_not_later() {
        let watched = Watch::begin().unwrap().end();
        let (time, _) = watched.states[0];
        for moment in [time, time + Duration::from_secs(60), time - Duration::from_secs(60)] {
            assert!(watched.before(moment).starts_with("0 s into the run: load "), "{}", watched.before(moment));
        }
        assert!((0.0..=1.0).contains(&watched.lease_held_ratio()));
    }
}
