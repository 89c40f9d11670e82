//! Comparisons made in guests: which kernel a comparison ran on, and what the guest's clock means.
//!
//! pagelab passes both to the guest on its kernel's command line, so every comparison made in the guest records them.

use std::collections::{BTreeMap, BTreeSet};

use crate::comparison::Comparison;
use crate::metric::{Direction, Metric, Observation, Unit, names};
use crate::stats;
use crate::trial::TrialRecord;
use policy::census::Backing;
use policy::machine::Machine;
use policy::size::PageSize;
use policy::verdict::Peak;

/// Used in place of a study's name if kernels were named on the command line. No study can have this name.
pub const NO_STUDY: &str = "compare --kernel";

/// Key of the command line word that names the guest's kernel among several.
const KERNEL: &str = "pagelab.kernel";
/// Key of the word that identifies the kernel image.
const IMAGE: &str = "pagelab.image";
/// Key of the word that identifies the system whose files the guest uses.
const SYSTEM: &str = "pagelab.system";
/// Key of the word that gives the version of the emulator.
const EMULATOR: &str = "pagelab.emulator";
/// Key of the word that gives the meaning of the clock.
const CLOCK: &str = "pagelab.clock";

/// The meaning of a machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The clock measures time.
    Real,
    /// The clock advances by one nanosecond per instruction: the machine is emulated, and its "times" count instructions.
    Instructions,
    /// The clock measures nothing: the machine is emulated, and its times say nothing about any other machine.
    Nothing,
}

/// Instructions per second of [`Clock::Instructions`].
const INSTRUCTIONS_IN_A_SECOND: f64 = 1e9;

/// The word of the kernel's command line that names the kernel.
pub fn kernel_word(name: &str) -> String {
    format!("{KERNEL}={name}")
}

/// The name of the kernel that a machine was booted with; `None` if it is not a guest of pagelab.
pub fn kernel_of(machine: &Machine) -> Option<&str> {
    value(machine, KERNEL)
}

/// The command line word that distinguishes images of the same name, by a hash of the file.
pub fn image_word(hash: &str) -> String {
    format!("{IMAGE}={hash}")
}

/// The first digits of the hash of the image that a machine was booted with; `None` if it is not a guest of pagelab.
pub fn image_hash(machine: &Machine) -> Option<&str> {
    value(machine, IMAGE)
}

/// The command line word that distinguishes guests with other files than the host's, by a hash of their pagelab binary.
pub fn system_word(hash: &str) -> String {
    format!("{SYSTEM}={hash}")
}

/// The name of a machine's processor. An emulated processor has none, so this is the emulator: `QEMU 7.2.22`.
pub fn processor_of(machine: &Machine) -> String {
    value(machine, EMULATOR).map_or_else(|| machine.cpu_model.clone(), |emulator| emulator.replacen('-', " ", 1))
}

/// The command line word for the emulator that runs the guest, such as `QEMU-7.2.22`.
pub fn emulator_word(emulator: &str) -> String {
    format!("{EMULATOR}={emulator}")
}

/// Whether a name is valid on a kernel's command line: one word, without quotes.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '=' | '/'))
}

fn value<'a>(machine: &'a Machine, key: &str) -> Option<&'a str> {
    let mut words = machine.kernel_command_line.split_whitespace();
    words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

impl Clock {
    /// The meaning of a machine's clock, from its kernel's command line.
    pub fn of(machine: &Machine) -> Clock {
        match value(machine, CLOCK) {
            Some("instructions") => Clock::Instructions,
            Some("nothing") => Clock::Nothing,
            _ => Clock::Real,
        }
    }

    /// The command line word for this clock.
    pub fn word(self) -> String {
        let value = match self {
            Clock::Real => "real",
            Clock::Instructions => "instructions",
            Clock::Nothing => "nothing",
        };
        format!("{CLOCK}={value}")
    }

    /// What figures of a machine with this clock do not show; `None` for a real clock.
    pub fn limits(self) -> Option<&'static str> {
        match self {
            Clock::Real => None,
            Clock::Instructions => Some(
                "Emulated: no figure is a time, and none says how long anything takes. Instructions are those of the program and of the \
                 kernel for it; the kernel divides them between both, in most configurations by samples at its tick. Faults and \
                 bytes are the kernel's. The emulator counts each step of a string instruction (rep stosb): \
                 clearing a page of 4K by bytes counts 4,096, so faults and zeroing weigh more than on a processor. A figure that a \
                 program prints as a time counts the instructions of all programs meanwhile, those of pagelab's inspection too, \
                 and what the clock skips while the processor is idle; the program's own CPU clock \
                 (CLOCK_PROCESS_CPUTIME_ID) counts only its own.",
            ),
            Clock::Nothing => Some(
                "Emulated: no figure is a time, and none says how long anything takes. Faults and bytes are the kernel's.",
            ),
        }
    }
}

/// Suffixes of names of printed figures that are not times.
const COUNTS: [&str; 5] = ["_bytes", "_count", "_pages", "_faults", "_instructions"];
/// Suffixes of names of times, each with the number of instructions per unit if the clock counts instructions.
const TIMES: [(&str, f64); 4] = [("_ns", 1.0), ("_us", 1e3), ("_ms", 1e6), ("_s", INSTRUCTIONS_IN_A_SECOND)];

/// Metrics of a clock that counts instructions, each with the time that it replaces.
const COUNTED: [(&str, &str); 3] = [
    (names::INSTRUCTIONS, names::CPU_S),
    (names::USER_INSTRUCTIONS, names::USER_S),
    (names::KERNEL_INSTRUCTIONS, names::SYSTEM_S),
];

/// Minimum user time and system time of a trial, in seconds of this clock, for counting the instructions of program and kernel
/// separately. The kernel divides CPU time by samples at its tick, every four million instructions at 250 Hz, and fewer than 25 samples
/// say little.
const MIN_DIVIDED_S: f64 = 100e6 / INSTRUCTIONS_IN_A_SECOND;

/// The counted metrics of a comparison, each with the time that it replaces. Program and kernel have separate metrics only if both
/// have enough samples in every trial. A comparison whose times were replaced earlier keeps the metrics that it has.
fn counted(comparison: &Comparison) -> Vec<(&'static str, &'static str)> {
    let is_enough = |record: &TrialRecord| {
        let times = [names::USER_S, names::SYSTEM_S].map(|name| record.value(name));
        times.iter().flatten().all(|time_s| *time_s >= MIN_DIVIDED_S)
    };
    let has_times = comparison.trials.iter().any(|record| record.value(names::USER_S).is_some());
    let was_divided = comparison.design.metrics.iter().any(|metric| metric.name == names::USER_INSTRUCTIONS);
    let is_divided = if has_times { comparison.trials.iter().all(is_enough) } else { was_divided };
    COUNTED.into_iter().filter(|(name, _)| is_divided || *name == names::INSTRUCTIONS).collect()
}

/// The name and the factor that a figure printed by a program gets under this clock; `None` if the clock cannot measure it.
/// The unit is the suffix of the name.
pub fn convert_printed(name: &str, clock: Clock) -> Option<(String, f64)> {
    if clock == Clock::Real || COUNTS.iter().any(|end| name.ends_with(end)) {
        return Some((name.to_owned(), 1.0));
    }
    let of_time = TIMES.iter().find_map(|(end, factor)| Some((name.strip_suffix(end)?, *factor)));
    // A rate such as `requests_per_s` or `bytes_per_ns` is no time.
    let is_rate = |stem: &str| stem == "per" || stem.ends_with("_per");
    let (stem, factor) = of_time.filter(|(stem, _)| clock == Clock::Instructions && !is_rate(stem))?;
    Some((format!("{stem}_instructions"), factor))
}

/// Page sizes with less than 1/N of the memory in large pages have no metric of their own.
const SMALL_PART: u64 = 50;

/// Adds the memory in large pages to each trial, and what each size has of it, as metrics, because a comparison of kernels asks what each kernel gives a program.
pub fn with_large_pages(mut comparison: Comparison) -> Comparison {
    let base = comparison.machine.page_sizes.base;
    // Without the tracer's stops, memory that is given back early is in no census.
    let is_seen = |record: &&mut TrialRecord| {
        let peak_bytes = record.value(names::PEAK_RESIDENT_BYTES).unwrap_or(0.0);
        let seen_bytes = record.census.total_bytes() as f64;
        seen_bytes > 0.0 && seen_bytes >= Peak::MIN_SEEN_RATIO * peak_bytes
    };
    let mut all_sizes: BTreeSet<PageSize> = BTreeSet::new();
    for record in comparison.trials.iter_mut().filter(is_seen) {
        let mut by_size: BTreeMap<PageSize, u64> = BTreeMap::new();
        for (mapping, bytes) in record.census.rows().filter(|(mapping, _)| mapping.backing != Backing::Zero) {
            *by_size.entry(mapping.effective()).or_default() += bytes;
        }
        by_size.retain(|size, _| *size > base);
        let bytes: u64 = by_size.values().sum();
        record.observations.push(Observation::measured(names::LARGE_PAGE_BYTES, bytes as f64));
        for (size, of_size) in by_size.into_iter().filter(|(_, of_size)| *of_size >= bytes / SMALL_PART) {
            record.observations.push(Observation::measured(names::in_pages_of(size), of_size as f64));
            all_sizes.insert(size);
        }
    }
    let metric = |name: String| Metric::new(name, Unit::Bytes, Direction::Higher);
    comparison.design.metrics.push(metric(names::LARGE_PAGE_BYTES.to_owned()));
    comparison.design.metrics.extend(all_sizes.into_iter().map(|size| metric(names::in_pages_of(size))));
    analysed(comparison)
}

/// Analyses a comparison anew after its metrics have changed.
fn analysed(mut comparison: Comparison) -> Comparison {
    comparison.analysis = comparison
        .analysis
        .and_then(|_| stats::analyse(&comparison.design, &comparison.trials, &comparison.admissions));
    comparison
}

/// Removes from a comparison the figures that its machine could not measure. If the machine was emulated, times are removed. If its
/// clock counts instructions, their number becomes a metric, and times that a program prints become instruction counts: the
/// instructions that all programs executed meanwhile, plus what the clock skips while the processor waits. If the primary metric is
/// removed, instructions or page faults replace it.
pub fn without_times(mut comparison: Comparison) -> Comparison {
    let clock = Clock::of(&comparison.machine);
    if clock == Clock::Real {
        return comparison;
    }
    let counted = counted(&comparison);
    let design = &mut comparison.design;
    let known = |metric: &Metric| match metric.unit {
        Unit::Seconds => None,
        Unit::Custom => convert_printed(&metric.name, clock),
        Unit::Bytes | Unit::Count | Unit::Ratio => Some((metric.name.clone(), 1.0)),
    };
    let (renamed, times) = split_by_clock(&design.metrics, known);
    design.metrics.retain_mut(|metric| {
        metric.name = renamed.iter().find(|one| one.from == metric.name).map_or_else(String::new, |one| one.to.clone());
        !metric.name.is_empty() && COUNTED.iter().all(|(name, _)| metric.name != *name)
    });
    if let Some(one) = renamed.iter().find(|one| one.from == design.primary) {
        design.primary = one.to.clone();
    }
    if clock == Clock::Instructions {
        let metrics = counted.iter().map(|(name, _)| Metric::new(*name, Unit::Count, Direction::Lower));
        design.metrics.splice(0..0, metrics);
    }
    if times.contains(&design.primary) {
        let first = if clock == Clock::Instructions { names::INSTRUCTIONS } else { names::MINOR_FAULTS };
        design.primary = first.to_owned();
    }
    comparison.trials.iter_mut().for_each(|record| strip(record, clock, &renamed, &times, &counted));
    analysed(comparison)
}

/// A metric that the clock can measure, and its new name.
struct Renamed {
    from: String,
    to: String,
    factor: f64,
}

/// Splits metrics into those that can be measured, renamed, and the names of the others.
fn split_by_clock(metrics: &[Metric], known: impl Fn(&Metric) -> Option<(String, f64)>) -> (Vec<Renamed>, Vec<String>) {
    let (mut renamed, mut unknown) = (Vec::new(), Vec::new());
    for metric in metrics {
        match known(metric) {
            Some((to, factor)) => renamed.push(Renamed { from: metric.name.clone(), to, factor }),
            None => unknown.push(metric.name.clone()),
        }
    }
    (renamed, unknown)
}

/// Removes times from a trial. A time that is not a metric of a design is recognised by its suffix `_s`, which all of pagelab's
/// own times have.
fn strip(record: &mut TrialRecord, clock: Clock, renamed: &[Renamed], times: &[String], counted: &[(&str, &str)]) {
    let count = |(name, time): &(&str, &str)| {
        let instructions = (record.value(time)? * INSTRUCTIONS_IN_A_SECOND).round();
        Some(Observation::derived(*name, instructions))
    };
    let counted: Vec<Observation> = counted.iter().filter_map(count).collect();
    for one in &mut record.observations {
        if let Some(renamed) = renamed.iter().find(|renamed| renamed.from == one.metric && renamed.from != renamed.to) {
            (one.metric, one.value) = (renamed.to.clone(), one.value * renamed.factor);
        }
    }
    record.observations.retain(|one| !times.contains(&one.metric) && !one.metric.ends_with("_s"));
    if clock == Clock::Instructions {
        record.observations.splice(0..0, counted);
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
        let by = |name: &str, clock| convert_printed(name, clock).map(|(name, factor)| format!("{name} {factor}"));
        for (name, counted, emulated) in [
            ("map_ns", Some("map_instructions 1"), None),
            ("wait_ms", Some("wait_instructions 1000000"), None),
            ("boot_s", Some("boot_instructions 1000000000"), None),
            ("get_per_s", None, None),
            ("ops_per_ms", None, None),
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
    fn a_guest_reads_its_kernel_and_its_clock_from_its_command_line() {
        for clock in [Clock::Real, Clock::Instructions, Clock::Nothing] {
            let machine = machine(&format!("quiet {} {}", kernel_word("old"), clock.word()));
            assert_eq!((Clock::of(&machine), kernel_of(&machine)), (clock, Some("old")));
            assert_eq!(clock.limits().is_none(), clock == Clock::Real);
        }
        assert_eq!((Clock::of(&machine("quiet")), kernel_of(&machine("quiet"))), (Clock::Real, None));
        assert!(is_name("6.1.0-56-amd64#2") && !is_name("") && !is_name("a b") && !is_name("a/b") && !is_name("a=b"));
    }
}
