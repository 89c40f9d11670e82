//! Formats figures for readers: values with units, and changes in percent.

use policy::size::format_bytes;
use study::comparison::{Contention, Design, Khugepaged};
use study::metric::{Direction, Metric, Unit, names};
use study::stats::Effect;

/// Maximum number of blocks that advice names.
pub(crate) const MAX_BLOCKS: u32 = 1000;

/// The display name of a metric.
pub(crate) fn title(metric: &str) -> String {
    let title = match metric {
        names::WALL_S => "wall time",
        names::CPU_S => "CPU time",
        names::USER_S => "user time",
        names::SYSTEM_S => "system time",
        names::MINOR_FAULTS => "minor faults",
        names::MAJOR_FAULTS => "major faults",
        names::PEAK_RESIDENT_BYTES => "peak memory",
        names::PAGE_TABLE_SEEN_BYTES => "page tables",
        names::TRACER_S => "time in stops of the tracer",
        names::LOOKS_S => "looks within the wall time",
        names::OUTLIVED_S => "time for which others outlived the first process",
        names::OUTLIVED_CPU_S => "CPU time of processes that outlived the first",
        names::SHARED_BYTES => "shared memory",
        names::HOST_COLLAPSES => "large pages by khugepaged, on the host",
        names::HOST_COLLAPSE_ALLOCATIONS => "large pages allocated for collapses, on the host",
        names::HOST_FALLBACKS => "faults without a large page, on the host",
        names::HOST_COMPACTIONS => "waits for compaction, on the host",
        names::HOST_COMPACTED => "waits for compaction that gave a large page, on the host",
        names::ADVISED_BYTES => "memory that was advised",
        names::USER_INSTRUCTIONS => "user instructions",
        names::KERNEL_INSTRUCTIONS => "kernel instructions",
        names::LARGE_PAGE_BYTES => "memory in large pages or folios, freed memory included",
        names::DTLB_WALKS => "page walks for data",
        names::ITLB_WALKS => "page walks for instructions",
        names::WALK_CYCLES_RATIO => "cycles with a page walk",
        names::ITERATION_S => "time of an iteration",
        names::FIRST_ITERATION_S => "time of the first iteration",
        "resident_peak_bytes" => "mapped, at most",
        "held_unmapped_peak_bytes" => "held and not mapped, at most",
        "touched_peak_bytes" => "touched, at most",
        "all_table_peak_bytes" => "page tables, at most",
        other => match names::size_of_pages(other) {
            Some(size) => return format!("of that in pages of {size}"),
            None => return crate::text::printable(other),
        },
    };
    title.to_string()
}

/// The metric with this name: that of the design, or else one that every trial can have.
pub(crate) fn metric(metrics: &[Metric], name: &str) -> Metric {
    let known = Metric::of_every_trial();
    let found = metrics.iter().chain(&known).find(|metric| metric.name == name).cloned();
    // The program's own times are in a design only on request.
    found.unwrap_or_else(|| {
        let unit = match name {
            _ if name.ends_with("_per_s") => Unit::Custom,
            _ if name.ends_with("_s") => Unit::Seconds,
            _ if name.ends_with("_bytes") => Unit::Bytes,
            names::INSTRUCTIONS
            | names::USER_INSTRUCTIONS
            | names::KERNEL_INSTRUCTIONS
            | names::HOST_COLLAPSES
            | names::HOST_COLLAPSE_ALLOCATIONS
            | names::HOST_FALLBACKS
            | names::HOST_COMPACTIONS
            | names::HOST_COMPACTED => Unit::Count,
            _ => Unit::Custom,
        };
        Metric::new(name, unit, Direction::Lower)
    })
}

/// How thoroughly a design inspects memory that is given back.
pub(crate) fn proof(design: &Design) -> String {
    let proof = if design.prove_all {
        "all memory is inspected before it is given back; wall times contain that where other tasks ran meanwhile (--prove-all)"
    } else {
        "large ranges are inspected as long as that takes a small share of the time"
    };
    proof.to_owned()
}

/// A precision in the form that `--precision` takes, `0.47%`: two digits, rounded down because a larger value would not
/// suffice.
pub(crate) fn precision(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if !(percent.is_finite() && percent > 0.0) {
        return "0.01%".to_owned();
    }
    let step = 10f64.powi(percent.log10().floor() as i32 - 1);
    format!("{}%", plain((percent / step).floor() * step))
}

/// What was done with khugepaged during the trials.
pub(crate) fn khugepaged(design: &Design) -> &'static str {
    match design.khugepaged {
        Khugepaged::AsIs => "as it is: it makes large pages when it wakes up, in some trials and not in others",
        Khugepaged::Off => "held still (--khugepaged off)",
    }
}

/// Whether each run has a session of its own.
pub(crate) fn session(design: &Design) -> String {
    match &design.own_session {
        Some(own) => format!("{} (--own-session)", own.describe()),
        None => "the usual one".to_owned(),
    }
}

/// How much processor time other work left, and the advice that follows from it.
pub(crate) fn contention(contention: &Contention, has_client: bool) -> String {
    contention.advice(has_client).unwrap_or_else(|| contention.describe())
}

/// A value in at most seven characters and its unit: `1.234 s`, `12.3k`, `1.34G`.
pub(crate) fn short(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds => seconds(value),
        Unit::Bytes => bytes(value),
        Unit::Ratio => format!("{:.1} %", value * 100.0),
        Unit::Count => count(value),
        Unit::Custom => significant(value, 4),
    }
}

/// A value in full: counts to the last digit, in groups of three.
pub(crate) fn long(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => grouped(value),
        _ => short(value, unit),
    }
}

/// A round value on an axis, without insignificant digits.
pub(crate) fn tick(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds if value.abs() < 1e-3 && value != 0.0 => format!("{} µs", plain(value * 1e6)),
        Unit::Seconds if value.abs() < 1.0 && value != 0.0 => format!("{} ms", plain(value * 1e3)),
        Unit::Seconds => format!("{} s", plain(value)),
        Unit::Ratio => format!("{} %", plain(value * 100.0)),
        Unit::Bytes | Unit::Count => short(value, unit),
        Unit::Custom => plain(value),
    }
}

fn bytes(value: f64) -> String {
    // The cast saturates; no byte counter gives a negative value or one beyond 64 bits.
    format_bytes(value.round() as u64)
}

fn seconds(value: f64) -> String {
    let (scale, unit) = match value.abs() {
        v if v >= 1.0 || v == 0.0 => (1.0, "s"),
        v if v >= 1e-3 => (1e3, "ms"),
        _ => (1e6, "µs"),
    };
    format!("{} {unit}", significant(value * scale, 4))
}

pub(crate) fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let before_point = (value.abs().log10().floor() as i64 + 1).max(1) as usize;
    format!("{value:.*}", digits.saturating_sub(before_point).min(6))
}

/// Decimal thousands: `950`, `12.3k`, `1.23M`. The median of an even number of counts can end in one half.
fn count(value: f64) -> String {
    match value.abs() {
        v if v >= 999.5e6 => format!("{}G", significant(value / 1e9, 3)),
        v if v >= 999.5e3 => format!("{}M", significant(value / 1e6, 3)),
        v if v >= 9_999.5 => format!("{}k", significant(value / 1e3, 3)),
        _ => grouped(value),
    }
}

/// A whole number with a comma after each thousand: `12,345`.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 && digits != "0" { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An increase in percent from which on it is written as a multiple.
const MIN_MULTIPLE_PERCENT: f64 = 900.0;

/// An effect in percent, with as many digits as its interval justifies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The estimate: -10 means a tenth less.
    pub(crate) percent: f64,
    /// Bounds of the interval, in percent.
    pub(crate) interval: Option<(f64, f64)>,
    digits: usize,
}

impl Change {
    pub(crate) fn of(effect: &Effect) -> Change {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let interval = effect.low.zip(effect.high).map(|(low, high)| (percent(low), percent(high)));
        let digits = match interval.map(|(low, high)| (high - low) / 2.0) {
            Some(half) if half < 0.2 => 2,
            Some(half) if half >= 20.0 => 0,
            _ => 1,
        };
        Change { percent: percent(effect.ratio), interval, digits }
    }

    /// `-12.3 %`; `41 times` for a large multiple without an interval, as models give.
    pub(crate) fn estimate(&self) -> String {
        if self.interval.is_none() && self.percent >= MIN_MULTIPLE_PERCENT {
            format!("{:.0} times", 1.0 + self.percent / 100.0)
        } else {
            format!("{} %", self.signed(self.percent))
        }
    }

    /// `-13.5 to -11.0`, in percent.
    pub(crate) fn range(&self) -> Option<String> {
        self.interval.map(|(low, high)| format!("{} to {}", self.signed(low), self.signed(high)))
    }

    /// `12.3 % less`
    pub(crate) fn in_words(&self) -> String {
        let word = if self.percent > 0.0 { "more" } else { "less" };
        format!("{:.*} % {word}", self.digits, self.percent.abs())
    }

    /// `11.0 to 13.5 %`, in the direction of [`Change::in_words`]; signed if the bounds differ in sign.
    pub(crate) fn range_in_words(&self) -> Option<String> {
        let (low, high) = self.interval?;
        if low.signum() != high.signum() {
            return Some(format!("{} to {} %", self.signed(low), self.signed(high)));
        }
        let (near, far) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
        Some(format!("{near:.*} to {far:.*} %", self.digits, self.digits))
    }

    fn signed(&self, percent: f64) -> String {
        let text = format!("{percent:+.*}", self.digits);
        // Zero never gets a sign.
        if text.trim_start_matches(['+', '-']).chars().all(|c| c == '0' || c == '.') {
            text.trim_start_matches(['+', '-']).to_string()
        } else {
            text
        }
    }
}

/// `95 %`
pub(crate) fn confidence(confidence: f64) -> String {
    format!("{} %", (confidence * 1000.0).round() / 10.0)
}

/// A number without insignificant digits: `1`, `0.5`.
pub(crate) fn plain(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// A share of a gain with its interval: `62 % (48 to 79 %)`.
pub(crate) fn gain_share((ratio, low, high): (f64, f64, f64)) -> String {
    let [ratio, low, high] = [ratio, low, high].map(|share| format!("{:.0}", share * 100.0));
    format!("{ratio} % ({low} to {high} %)")
}

/// `97 %`; never 100 if anything is missing, never 0 if anything is present.
pub(crate) fn share(ratio: f64) -> String {
    match ratio {
        r if r < 1.0 && r > 0.995 => ">99 %".to_string(),
        r if r > 0.0 && r < 0.005 => "<1 %".to_string(),
        r => format!("{:.0} %", r * 100.0),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_precision_is_rounded_down_and_can_be_typed() {
        for (ratio, text) in
            [(0.004_79, "0.47%"), (0.01, "1%"), (0.0123, "1.2%"), (0.000_312, "0.031%"), (0.0, "0.01%")]
        {
            assert_eq!(super::precision(ratio), text);
        }
    }

    use super::*;

    #[test]
    fn values_keep_their_digits() {
        for (value, unit, text) in [
            (1.23449, Unit::Seconds, "1.234 s"),
            (0.0123449, Unit::Seconds, "12.34 ms"),
            (0.000_012_3, Unit::Seconds, "12.30 µs"),
            (1234.4, Unit::Seconds, "1234 s"),
            (0.0, Unit::Seconds, "0 s"),
            (9_999.0, Unit::Count, "9,999"),
            (12_345.0, Unit::Count, "12.3k"),
            (999_600.0, Unit::Count, "1.00M"),
            (1_438_814_044.0, Unit::Bytes, "1.34G"),
            (0.0415, Unit::Ratio, "4.2 %"),
            (123_456.7, Unit::Custom, "123457"),
        ] {
            assert_eq!(short(value, unit), text);
        }
        assert_eq!(long(1_234_567.0, Unit::Count), "1,234,567");
    }

    #[test]
    fn a_change_reads_from_near_to_far() {
        let effect = |ratio, low, high| Effect { blocks: 14, ratio, low, high, p_adjusted: None };
        let less = Change::of(&effect(0.877, Some(0.865), Some(0.89)));
        assert_eq!(less.estimate(), "-12.3 %");
        assert_eq!(Change::of(&effect(40.78, None, None)).estimate(), "41 times");
        assert_eq!(Change::of(&effect(40.78, Some(38.0), Some(44.0))).estimate(), "+3978 %");
        assert_eq!(less.range().unwrap(), "-13.5 to -11.0");
        assert_eq!(format!("{} ({})", less.in_words(), less.range_in_words().unwrap()), "12.3 % less (11.0 to 13.5 %)");
        let both = Change::of(&effect(1.006, Some(0.979), Some(1.009)));
        assert_eq!(both.range_in_words().unwrap(), "-2.1 to +0.9 %");
        assert_eq!(Change::of(&effect(0.99999, Some(0.999), Some(1.001))).estimate(), "0.00 %");
        assert_eq!(Change::of(&effect(1.1, None, None)).range(), None);
    }

    #[test]
    fn shares_do_not_round_to_all_or_nothing() {
        assert_eq!([1.0, 0.9999, 0.97, 0.001, 0.0].map(share), ["100 %", ">99 %", "97 %", "<1 %", "0 %"]);
    }
}
