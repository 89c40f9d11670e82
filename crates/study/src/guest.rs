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
/// The word that says which system's files it has, before `=`.
const SYSTEM: &str = "pagelab.system";
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

/// The word that tells systems of guests apart that have other files than the host, by a hash of the pagelab in it.
pub fn system_word(hash: &str) -> String {
    format!("{SYSTEM}={hash}")
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
                 kernel for it; faults and bytes are the kernel's. A figure that a program prints as a time counts the instructions of \
                 all programs meanwhile, and what the clock skips while the processor waits",
            ),
            Clock::Nothing => Some(
                "Emulated: no figure is a time, and none says how long anything takes. Faults and bytes are the kernel's",
            ),
        }
    }
}

/// Ends of names of figures that programs print and that are no times.
const COUNTS: [&str; 5] = ["_bytes", "_count", "_pages", "_faults", "_instructions"];
/// Ends of names of times, and how many instructions one of that unit is where the clock counts them.
const TIMES: [(&str, f64); 4] = [("_ns", 1.0), ("_us", 1e3), ("_ms", 1e6), ("_s", INSTRUCTIONS_IN_A_SECOND)];

/// What a figure that a program prints is called by a clock, and what it is multiplied by; `None`: the clock cannot tell it. The unit stands at
/// the end of the name.
pub fn printed(name: &str, clock: Clock) -> Option<(String, f64)> {
    if clock == Clock::Real || COUNTS.iter().any(|end| name.ends_with(end)) {
        return Some((name.to_owned(), 1.0));
    }
    let is_rate = |name: &str| name.ends_with("per_s");
    let of_time = TIMES.iter().find_map(|(end, factor)| Some((name.strip_suffix(end)?, *factor)));
    let (stem, factor) = of_time.filter(|_| clock == Clock::Instructions && !is_rate(name))?;
    Some((format!("{stem}_instructions"), factor))
}

/// A comparison without what its machine could not know: where that was emulated no time is left, and where its clock counts instructions
/// they are a metric. So are times that a program prints: they are the instructions that went by, of all programs, and what the clock skips while the processor waits. The metric that decides
/// is then instructions, or page faults, unless it was another one that is left.
pub fn without_times(mut comparison: Comparison) -> Comparison {
    let clock = Clock::of(&comparison.machine);
    if clock == Clock::Real {
        return comparison;
    }
    let design = &mut comparison.design;
    let known = |metric: &Metric| match metric.unit {
        Unit::Seconds => None,
        Unit::Custom => printed(&metric.name, clock),
        Unit::Bytes | Unit::Count | Unit::Ratio => Some((metric.name.clone(), 1.0)),
    };
    let (renamed, times) = told_apart(&design.metrics, known);
    design.metrics.retain_mut(|metric| {
        metric.name = renamed.iter().find(|one| one.from == metric.name).map_or_else(String::new, |one| one.to.clone());
        !metric.name.is_empty() && metric.name != names::INSTRUCTIONS
    });
    if let Some(one) = renamed.iter().find(|one| one.from == design.primary) {
        design.primary = one.to.clone();
    }
    if clock == Clock::Instructions {
        design.metrics.insert(0, Metric::new(names::INSTRUCTIONS, Unit::Count, Direction::Lower));
    }
    if times.contains(&design.primary) {
        let first = if clock == Clock::Instructions { names::INSTRUCTIONS } else { names::MINOR_FAULTS };
        design.primary = first.to_owned();
    }
    comparison.trials.iter_mut().for_each(|record| strip(record, clock, &renamed, &times));
    comparison.analysis = comparison
        .analysis
        .and_then(|_| stats::analyse(&comparison.design, &comparison.trials, &comparison.admissions));
    comparison
}

/// A metric that a clock can tell, and what it is called by it.
struct Renamed {
    from: String,
    to: String,
    factor: f64,
}

/// The metrics that are known, and the names of those that are not.
fn told_apart(metrics: &[Metric], known: impl Fn(&Metric) -> Option<(String, f64)>) -> (Vec<Renamed>, Vec<String>) {
    let (mut renamed, mut unknown) = (Vec::new(), Vec::new());
    for metric in metrics {
        match known(metric) {
            Some((to, factor)) => renamed.push(Renamed { from: metric.name.clone(), to, factor }),
            None => unknown.push(metric.name.clone()),
        }
    }
    (renamed, unknown)
}

/// Takes times off a trial. Those that are no metric of a design end in `_s` like all of pagelab's own.
fn strip(record: &mut TrialRecord, clock: Clock, renamed: &[Renamed], times: &[String]) {
    let instructions = record.value(names::CPU_S).map(|cpu_s| (cpu_s * INSTRUCTIONS_IN_A_SECOND).round());
    for one in &mut record.observations {
        if let Some(renamed) = renamed.iter().find(|renamed| renamed.from == one.metric && renamed.from != renamed.to) {
            (one.metric, one.value) = (renamed.to.clone(), one.value * renamed.factor);
        }
    }
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
    fn a_printed_time_becomes_instructions_where_the_clock_counts_them() {
        let by = |name: &str, clock| printed(name, clock).map(|(name, factor)| format!("{name} {factor}"));
        for (name, counted, emulated) in [
            ("map_ns", Some("map_instructions 1"), None),
            ("wait_ms", Some("wait_instructions 1000000"), None),
            ("boot_s", Some("boot_instructions 1000000000"), None),
            ("get_per_s", None, None),
            ("score", None, None),
            ("used_bytes", Some("used_bytes 1"), Some("used_bytes 1")),
            ("flush_count", Some("flush_count 1"), Some("flush_count 1")),
        ] {
            assert_eq!(by(name, Clock::Instructions).as_deref(), counted, "{name}");
            assert_eq!(by(name, Clock::Nothing).as_deref(), emulated, "{name}");
            assert_eq!(by(name, Clock::Real), Some(format!("{name} 1")));
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
