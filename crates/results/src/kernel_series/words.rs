//! Figures in words.

use policy::size::format_bytes;
use study::kernel_series::{Change, Pair};

use crate::figure::{grouped, significant};

/// A figure in its unit: `12,345`, `64K`.
pub fn value(figure: &str, value: f64) -> String {
    let whole = value.round();
    if figure.ends_with("_bytes") && whole == value && whole >= 0.0 {
        return format_bytes(whole as u64);
    }
    grouped(value)
}

/// `+1.25 %`, `new` where the old value is 0.
pub fn percent(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) => format!("{}{} %", if ratio > 0.0 { "+" } else { "" }, significant(ratio * 100.0, 3)),
        None => "from 0".to_owned(),
    }
}

/// The bound of a change, in its unit and as a share.
pub fn bound(change: &Change) -> String {
    match change.bound() {
        0.0 => "0".to_owned(),
        bound => {
            let share = change.bound_ratio().map(|ratio| format!(" ({} %)", significant(ratio * 100.0, 2)));
            format!("{}{}", value(&change.figure, bound), share.unwrap_or_default())
        }
    }
}

/// What did not change, and what boots of one image differ by.
pub fn unchanged(pair: &Pair<'_>) -> String {
    let equal = pair.same.iter().filter(|change| change.difference() == 0.0 && change.bound() == 0.0).count();
    let count = match pair.same.len() {
        1 => "not changed: 1 figure".to_owned(),
        same => format!("not changed: {same} figures"),
    };
    let bound = match pair.largest_bound() {
        _ if pair.old.boots.len() < 2 || pair.new.boots.len() < 2 => {
            "one boot of a kernel has no spread, so every difference is listed".to_owned()
        }
        None => "boots of one image were equal in every figure".to_owned(),
        Some((ratio, change)) => format!(
            "boots of one image differ by up to {} % ({} of {})",
            significant(ratio * 100.0, 2),
            change.figure,
            change.workload
        ),
    };
    format!("{count}, {equal} of them exactly equal in all boots; {bound}")
}
