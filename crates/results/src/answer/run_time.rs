//! [`RunTime`]: the CPU time of a simulated program. The costs of translation are given as shares of it.

use crate::figure;
use crate::simulation::{Cost, Per};
use crate::text::printable;
use study::metric::Unit;
use study::stats::median;

/// The clock that is assumed for every machine, in Hz. The kernel's costs in machine files were measured at this clock.
pub const CLOCK_HZ: f64 = 2.5e9;

/// The CPU time of all threads of a program, for the part of the run that the trace covers.
#[derive(Clone, Debug, PartialEq)]
pub enum RunTime {
    /// The user has given the time.
    Given {
        /// In seconds.
        cpu_s: f64,
    },
    /// The time was measured in runs without the recorder.
    Measured {
        /// Seconds of each run, shortest first. If only a part of the run was recorded, this is the user time, scaled
        /// to that part. System time is left out because faults are not spread evenly over a run.
        runs_s: Vec<f64>,
        /// The processor's display name; empty if unknown.
        processor: String,
        /// The machine files that describe this processor.
        machines: Vec<String>,
        /// The share of the instructions that was recorded, which scales the time. `None` if all were recorded.
        recorded_ratio: Option<f64>,
    },
    /// The time is unknown. Each instruction is assumed to take one cycle.
    Assumed {
        /// Why the time is unknown.
        why: String,
    },
}

impl Default for RunTime {
    fn default() -> RunTime {
        RunTime::Assumed { why: "no time was measured".to_owned() }
    }
}

impl RunTime {
    /// The time in seconds, if it is known. For several runs this is the median.
    pub fn cpu_s(&self) -> Option<f64> {
        match self {
            RunTime::Given { cpu_s } => Some(*cpu_s),
            RunTime::Measured { runs_s, .. } => median(&mut runs_s.clone()),
            RunTime::Assumed { .. } => None,
        }
    }

    /// Where the time comes from, in one word.
    pub fn source(&self) -> &'static str {
        match self {
            RunTime::Given { .. } => "given",
            RunTime::Measured { .. } => "measured",
            RunTime::Assumed { .. } => "assumed",
        }
    }

    /// The time and its source, for a table of facts.
    pub fn in_words(&self) -> String {
        let source = self.source();
        let time = figure::short(self.cpu_s().unwrap_or_default(), Unit::Seconds);
        match self {
            RunTime::Given { .. } => format!("{time}, {source}"),
            RunTime::Measured { runs_s, processor, .. } => {
                format!("{time}, {source} natively ({}) on {}", runs_in_words(runs_s), printable(processor))
            }
            RunTime::Assumed { why } => format!("{source}: {}", printable(why)),
        }
    }

    /// The time in cycles. `cost` provides the kernel's cycles and, if the time must be assumed, the instructions.
    /// `None` if the time is neither known nor can be assumed.
    pub(super) fn cycles(&self, cost: &Cost) -> Option<f64> {
        let kernel = cost.kernel.map_or(0.0, |kernel| kernel.total() as f64);
        let cycles = match (self, cost.per) {
            (RunTime::Measured { recorded_ratio: Some(_), .. }, _) => self.cpu_s()? * CLOCK_HZ + kernel,
            (RunTime::Given { .. } | RunTime::Measured { .. }, _) => self.cpu_s()? * CLOCK_HZ,
            (RunTime::Assumed { .. }, Per::Instructions(instructions)) => {
                instructions as f64 + cost.max_lost_cycles as f64 + kernel
            }
            (RunTime::Assumed { .. }, Per::Runs(_) | Per::Nothing) => return None,
        };
        (cycles > 0.0).then_some(cycles)
    }

    /// A sentence about the time on a machine.
    pub(super) fn sentence(&self, machine: &str, cost: &Cost) -> String {
        let time = || figure::short(self.cpu_s().unwrap_or_default(), Unit::Seconds);
        let clock = format!("cycles are those of {} GHz, which is assumed", figure::plain(CLOCK_HZ / 1e9));
        match self {
            RunTime::Given { .. } => {
                format!("The time is {} of CPU time, which was given (--run-time); {clock}", time())
            }
            RunTime::Measured { runs_s, processor, machines, recorded_ratio } => {
                let which = if machines.iter().any(|name| name == machine) { "such a" } else { "another" };
                let name = if processor.is_empty() { "unknown" } else { &printable(processor) };
                let scaled = recorded_ratio.map_or(String::new(), |ratio| {
                    let percent = figure::significant(ratio * 100.0, 2);
                    format!(
                        ", user time that was scaled by instructions, {percent} % of which are in the trace; the kernel's work at \
                         faults comes on top, as modelled"
                    )
                });
                let runs = runs_in_words(runs_s);
                format!(
                    "The time is {} of CPU time, measured on {which} processor ({name}) with its host's page sizes ({runs}){scaled}; \
                     {clock}",
                    time()
                )
            }
            RunTime::Assumed { why } => match cost.per {
                Per::Instructions(instructions) => format!(
                    "The time is assumed, a cycle for each of {} instructions, plus translation and the kernel's work at \
                     faults: {}",
                    figure::long(instructions as f64, Unit::Count),
                    printable(why)
                ),
                Per::Runs(_) | Per::Nothing => format!(
                    "The share of the program's time is not known: the trace counts no instructions, and {}; give the \
                     program's CPU time with --run-time",
                    printable(why)
                ),
            },
        }
    }
}

/// Minimum ratio of the median run to the shortest one for a note on how much the shares depend on the run.
const MIN_SPREAD_RATIO: f64 = 1.05;

/// For example `median of 5 runs, 350.0 ms to 660.0 ms: with the shortest, shares are 1.29 times as large`.
fn runs_in_words(runs_s: &[f64]) -> String {
    let short = |time_s: f64| figure::short(time_s, Unit::Seconds);
    match runs_s {
        [shortest, .., longest] => {
            let ratio = median(&mut runs_s.to_vec()).unwrap_or_default() / shortest;
            let spread = if ratio >= MIN_SPREAD_RATIO && ratio.is_finite() {
                format!(": with the shortest, shares are {} times as large", figure::significant(ratio, 3))
            } else {
                String::new()
            };
            format!("median of {} runs, {} to {}{spread}", runs_s.len(), short(*shortest), short(*longest))
        }
        _ => "one run".to_owned(),
    }
}
