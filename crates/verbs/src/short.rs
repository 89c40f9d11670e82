//! Formats figures so that they take few columns.

/// A rate: `0/s`, `2.5/s`, `12.3k/s`; `-` if unknown.
pub fn rate(per_s: Option<f64>) -> String {
    per_s.map_or_else(|| "-".to_string(), |per_s| format!("{}/s", count(per_s)))
}

/// A number in at most five characters: `0`, `2.5`, `950`, `12.3k`, `1.23M`.
pub fn count(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        v if v < 0.05 => "<0.1".to_string(),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 9.995e3 => format!("{:.2}k", v / 1e3),
        v if v < 99.95e3 => format!("{:.1}k", v / 1e3),
        v if v < 999.5e3 => format!("{:.0}k", v / 1e3),
        v if v < 9.995e6 => format!("{:.2}M", v / 1e6),
        v => format!("{:.0}M", v / 1e6),
    }
}

/// A share in at most four characters: `97%`. It rounds neither up to 100% nor down to 0%.
pub fn share(ratio: f64) -> String {
    match ratio {
        r if r < 1.0 && r > 0.995 => ">99%".to_string(),
        r if r > 0.0 && r < 0.005 => "<1%".to_string(),
        r => format!("{:.0}%", r * 100.0),
    }
}

/// Seconds: `250 ms`, `2 s`, `6.3 s`, `90 s`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 9.95 => format!("{} s", (s * 10.0).round() / 10.0),
        s => format!("{s:.0} s"),
    }
}

/// The text in exactly `width` columns, truncated with `…` if longer, aligned left or right.
pub fn fitted(text: &str, width: usize, right: bool) -> String {
    let length = text.chars().count();
    if length > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        return if width == 0 { String::new() } else { format!("{kept}…") };
    }
    if right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        let counts = [0.0, 0.01, 2.54, 9.96, 950.2, 999.6, 12_345.0, 123_456.0, 1.2345e6, 3e9].map(count);
        assert_eq!(counts, ["0", "<0.1", "2.5", "10", "950", "1.00k", "12.3k", "123k", "1.23M", "3000M"]);
        assert_eq!(rate(None), "-");
        assert_eq!([1.0, 0.999, 0.97, 0.001, 0.0].map(share), ["100%", ">99%", "97%", "<1%", "0%"]);
        assert_eq!([0.25, 2.0, 6.34, 90.4].map(seconds), ["250 ms", "2 s", "6.3 s", "90 s"]);
        assert_eq!([fitted("größe", 4, false), fitted("ab", 4, true), fitted("ab", 0, true)], ["grö…", "  ab", ""]);
    }
}
