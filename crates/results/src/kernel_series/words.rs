//! Figures in words.

use policy::size::format_bytes;
use study::kernel_series::{Change, Pair};

use crate::figure::grouped;

/// A figure in its unit: `12,345`, `64K`.
pub fn value(figure: &str, value: f64) -> String {
    let whole = value.round();
    if figure.ends_with("_bytes") && whole == value && whole >= 0.0 {
        return format_bytes(whole as u64);
    }
    grouped(value)
}

/// `+1.25 %`, `from 0` where the old value is 0.
pub fn percent(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) => format!("{}{} %", if ratio > 0.0 { "+" } else { "" }, digits(ratio * 100.0, 3)),
        None => "from 0".to_owned(),
    }
}

/// A number with as many digits, from the first that is not 0 on, but with all digits before the point.
fn digits(value: f64, count: i32) -> String {
    const MAX_DECIMALS: i32 = 5;
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let decimals = (count - 1 - value.abs().log10().floor() as i32).clamp(0, MAX_DECIMALS);
    format!("{value:.*}", decimals as usize)
}

/// The bound of a change, in its unit and as a share.
pub fn bound(change: &Change) -> String {
    match change.bound() {
        0.0 => "0".to_owned(),
        bound => {
            let share = change.bound_ratio().map(|ratio| format!(" ({} %)", digits(ratio * 100.0, 2)));
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
            digits(ratio * 100.0, 2),
            change.figure,
            change.workload
        ),
    };
    format!("{count}, {equal} of them exactly equal in all boots; {bound}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_keep_their_digits() {
        assert_eq!(percent(Some(0.0125)), "+1.25 %");
        assert_eq!(percent(Some(-0.000_234_5)), "-0.0235 %");
        assert_eq!(percent(Some(3.5)), "+350 %");
        assert_eq!((percent(Some(0.0)), percent(None)), ("0 %".to_owned(), "from 0".to_owned()));
    }

    #[test]
    fn bytes_have_units_and_counts_have_commas() {
        assert_eq!((value("leaf_4K_bytes", 65536.0), value("faults", 12345.0)), ("64K".into(), "12,345".into()));
        assert_eq!(value("leaf_4K_bytes", 0.5), "0");
    }
}
