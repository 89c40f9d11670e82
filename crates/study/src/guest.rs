//! Comparisons of guests: which kernel one was made on, and what its clock is worth.
//!
//! A guest is told both on its kernel's command line, so every comparison that was made in it says so.

use crate::comparison::Comparison;
use crate::machine::Machine;
use crate::metric::{Direction, Metric, Observation, Unit, names};
use crate::stats;
use crate::trial::TrialRecord;

/// What stands for a study's name where kernels were named on the command line. No study can have it.
pub const NO_STUDY: &str = "compare --kernel";

/// The word that says which kernel of several it is, before `=`.
const KERNEL: &str = "pagelab.kernel";
/// The word that says which file it was, before `=`.
const IMAGE: &str = "pagelab.image";
/// The word that says what the clock is worth, before `=`.
const CLOCK: &str = "pagelab.clock";

/// What the clock of a machine is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It tells time.
    Real,
    /// It goes on by a nanosecond with each instruction: the machine is emulated, and what it takes for time are instructions.
    Instructions,
    /// Nothing: the machine is emulated, and how long that takes says nothing of any other machine.
    Nothing,
}

/// Instructions for a second of [`Clock::Instructions`].
const INSTRUCTIONS_IN_A_SECOND: f64 = 1e9;

/// The word of the kernel's command line that says which kernel it is.
pub fn kernel_word(name: &str) -> String {
    format!("{KERNEL}={name}")
}

/// The kernel that a machine was booted with, by the name that it has among others; `None` where it is no guest of pagelab's.
pub fn kernel_of(machine: &Machine) -> Option<&str> {
    value(machine, KERNEL)
}

/// The word of the kernel's command line that tells images of one name apart, by a hash of the file.
pub fn image_word(hash: &str) -> String {
    format!("{IMAGE}={hash}")
}

/// Whether a name can stand on a kernel's command line: one word, without quotes.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '=' | '/'))
}

fn value<'a>(machine: &'a Machine, key: &str) -> Option<&'a str> {
    let mut words = machine.kernel_command_line.split_whitespace();
    words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

impl Clock {
    /// What the clock of a machine is worth.
    pub fn of(machine: &Machine) -> Clock {
        match value(machine, CLOCK) {
            Some("instructions") => Clock::Instructions,
            Some("nothing") => Clock::Nothing,
            _ => Clock::Real,
        }
    }

    /// The word of the kernel's command line that says so.
    pub fn word(self) -> String {
        let value = match self {
            Clock::Real => "real",
            Clock::Instructions => "instructions",
            Clock::Nothing => "nothing",
        };
        format!("{CLOCK}={value}")
    }

    /// What must be known of figures of such a machine; `None` where there is nothing.
    pub fn limits(self) -> Option<&'static str> {
        match self {
            Clock::Real => None,
            Clock::Instructions => Some(
                "Emulated: no figure is a time, and none says how long anything takes. Instructions are those of the program and of the \
                 kernel for it; faults and bytes are the kernel's",
            ),
            Clock::Nothing => Some(
                "Emulated: no figure is a time, and none says how long anything takes. Faults and bytes are the kernel's",
            ),
        }
    }
}

/// A comparison without what its machine could not know: where that was emulated no time is left, and where its clock counts instructions
/// they are a metric. The metric that decides is then instructions, or page faults, unless it was another one that is left.
pub fn without_times(mut comparison: Comparison) -> Comparison {
    let clock = Clock::of(&comparison.machine);
    if clock == Clock::Real {
        return comparison;
    }
    let design = &mut comparison.design;
    let is_known = |metric: &Metric| !matches!(metric.unit, Unit::Seconds | Unit::Custom);
    let times: Vec<String> =
        design.metrics.iter().filter(|metric| !is_known(metric)).map(|metric| metric.name.clone()).collect();
    design.metrics.retain(|metric| is_known(metric) && metric.name != names::INSTRUCTIONS);
    if clock == Clock::Instructions {
        design.metrics.insert(0, Metric::new(names::INSTRUCTIONS, Unit::Count, Direction::Lower));
    }
    if times.contains(&design.primary) {
        let first = if clock == Clock::Instructions { names::INSTRUCTIONS } else { names::MINOR_FAULTS };
        design.primary = first.to_owned();
    }
    comparison.trials.iter_mut().for_each(|record| strip(record, clock, &times));
    comparison.analysis = comparison
        .analysis
        .and_then(|_| stats::analyse(&comparison.design, &comparison.trials, &comparison.admissions));
    comparison
}

/// Takes times off a trial. Those that are no metric of a design end in `_s` like all of pagelab's own.
fn strip(record: &mut TrialRecord, clock: Clock, times: &[String]) {
    let instructions = record.value(names::CPU_S).map(|cpu_s| (cpu_s * INSTRUCTIONS_IN_A_SECOND).round());
    record.observations.retain(|one| !times.contains(&one.metric) && !one.metric.ends_with("_s"));
    if let (Clock::Instructions, Some(instructions)) = (clock, instructions) {
        record.observations.insert(0, Observation::derived(names::INSTRUCTIONS, instructions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::PageSizes;
    use policy::size::PageSize;

    fn machine(words: &str) -> Machine {
        Machine {
            name: "host".into(),
            arch: "x86_64".into(),
            kernel: "6.1.0 #1".into(),
            kernel_command_line: words.into(),
            boot_id: "a".into(),
            host_id: None,
            cpu_model: "any".into(),
            cpus: 1,
            memory_bytes: 1 << 30,
            hypervisor: None,
            page_sizes: PageSizes { base: PageSize::K4, pmd: None, mthp: vec![], hugetlb: vec![] },
            direct_map: None,
        }
    }

    #[test]
    fn a_guest_is_told_which_kernel_it_is_and_what_its_clock_is_worth() {
        for clock in [Clock::Real, Clock::Instructions, Clock::Nothing] {
            let machine = machine(&format!("quiet {} {}", kernel_word("old"), clock.word()));
            assert_eq!((Clock::of(&machine), kernel_of(&machine)), (clock, Some("old")));
            assert_eq!(clock.limits().is_none(), clock == Clock::Real);
        }
        assert_eq!((Clock::of(&machine("quiet")), kernel_of(&machine("quiet"))), (Clock::Real, None));
        assert!(is_name("6.1.0-56-amd64#2") && !is_name("") && !is_name("a b") && !is_name("a/b") && !is_name("a=b"));
    }
}
