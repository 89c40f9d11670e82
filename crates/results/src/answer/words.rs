//! Figures of a simulation's answer as text.

use policy::size::format_bytes;

use super::Answer;
use crate::figure;
use crate::simulation::{Cost, Per, rate_in_words};
use crate::text::printable;

impl Answer {
    /// `-5.3 %`: the bound on the change of the program's time under a policy. Empty for the reference, or if the time is unknown.
    pub fn change_in_words(&self, policy: &str) -> String {
        let saved = self.saved.iter().find(|(known, _)| known == policy).map(|(_, saved)| *saved);
        saved.map_or(String::new(), |saved| match -saved * 100.0 {
            change if change.abs() < 0.05 => "0 %".to_owned(),
            change => format!("{change:+.1} %"),
        })
    }

    /// `≤ 12.4 %`: the bound on the share of the program's time that lost cycles take. Empty if the time is unknown.
    pub fn share_in_words(&self, lost_cycles: u64) -> String {
        self.time_cycles.map_or(String::new(), |cycles| format!("≤ {}", at_most(lost_cycles as f64 / cycles)))
    }
}

/// `not in force: mappings smaller than one page`. For a program that cannot start, this is the only reason given.
pub(super) fn not_in_force(cost: &Cost) -> String {
    match cost.verdict.causes.first().map(|share| &share.cause) {
        Some(cause) if cause.prevents_start() => printable(&cause.describe()),
        Some(cause) => format!("not in force: {}", printable(&cause.describe())),
        None => "not in force".to_owned(),
    }
}

/// `0.2 %`, `12.4 %`: rounded up, because it is an upper bound.
pub(super) fn at_most(ratio: f64) -> String {
    format!("{} %", figure::plain(tenths_of_percent(ratio) / 10.0))
}

/// `30.1 %`: how much less the second share is. It is the difference of the two shares as [`at_most`] prints them.
pub(super) fn less_by(share: f64, best: f64) -> String {
    format!("{} %", figure::plain((tenths_of_percent(share) - tenths_of_percent(best)) / 10.0))
}

/// A share in tenths of a percent, rounded up. The subtraction keeps a share that is exact in decimal from being
/// rounded up because of its last binary digits.
fn tenths_of_percent(ratio: f64) -> f64 {
    (ratio.min(1.0) * 1000.0 - 1e-6).max(0.0).ceil()
}

/// `up to 3.1 % less`, `5.0 % more`: how a policy changes the time if it saves this share of it. The share of translation is an upper
/// bound, so a saving is one too.
pub(super) fn change_in_words(saved: f64) -> String {
    match saved {
        saved if saved.abs() < 0.0005 => format!("<0.1 % {}", if saved < 0.0 { "more" } else { "less" }),
        more if more < 0.0 => format!("{:.1} % more", more.abs() * 100.0),
        less => format!("up to {:.1} % less", less.min(1.0) * 100.0),
    }
}

/// `memory grows by 3 % under thp`
pub(super) fn growth(policy: &str, cost: &Cost, reference: &Cost) -> String {
    let (peak, before) = (cost.resident_peak_bytes as f64, reference.resident_peak_bytes as f64);
    let unmapped = unmapped(cost);
    let changed = match peak / before {
        ratio if !ratio.is_finite() => "is not known".to_owned(),
        ratio if (0.995..1.005).contains(&ratio) => "stays the same".to_owned(),
        ratio if ratio >= 2.0 => format!("grows to {ratio:.1} times"),
        ratio if ratio > 1.0 => format!("grows by {:.0} %", (ratio - 1.0) * 100.0),
        ratio => format!("shrinks by {:.0} %", (1.0 - ratio) * 100.0),
    };
    format!("memory {changed} under {policy}{unmapped}")
}

/// ` and up to 60K that is held and not mapped`
pub(super) fn unmapped(cost: &Cost) -> String {
    match cost.held_unmapped_peak_bytes {
        0 => String::new(),
        bytes => format!(" and up to {} that is held and not mapped", format_bytes(bytes)),
    }
}

/// `12.3 % less`, `4.5 % more`
pub(super) fn change(of: f64, against: f64) -> String {
    match of / against {
        ratio if !ratio.is_finite() => "more".to_owned(),
        ratio if ratio >= 10.0 => format!("{ratio:.0} times the"),
        ratio if ratio > 1.0 => format!("{:.1} % more", (ratio - 1.0) * 100.0),
        ratio if ratio > 0.0 && ratio < 0.0005 => ">99.9 % less".to_owned(),
        ratio => format!("{:.1} % less", (1.0 - ratio) * 100.0),
    }
}

/// `0.169 cycles per 1000 instructions`
pub(super) fn lost_in_words(cost: &Cost, cycles: u64) -> String {
    match cost.per {
        Per::Nothing => format!("{cycles} cycles"),
        per => format!("{} cycles per 1000 {}", rate_in_words(per.rate(cycles)), per.unit()),
    }
}

/// `, for 1.2 times the peak memory (5.57M against 4.88M)`, followed by memory that is held and not mapped.
pub(super) fn memory(best: &Cost, reference: &Cost) -> String {
    let (peak, before) = (best.resident_peak_bytes, reference.resident_peak_bytes);
    let unmapped = unmapped(best);
    let against = format!("({} against {}){unmapped}", format_bytes(peak), format_bytes(before));
    match peak as f64 / before as f64 {
        ratio if !ratio.is_finite() => String::new(),
        ratio if (0.95..1.05).contains(&ratio) => format!(", for about the same peak memory {against}"),
        ratio => format!(", for {ratio:.1} times the peak memory {against}"),
    }
}

/// `; held on 97 % of the memory`
pub(super) fn held(cost: &Cost) -> String {
    let ratio = cost.verdict.coverage_ratio();
    ratio.map_or(String::new(), |ratio| format!("; held on {} of the memory", figure::share(ratio)))
}
