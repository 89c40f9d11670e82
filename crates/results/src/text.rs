//! Makes text from outside safe for its destination.

use std::borrow::Cow;

/// Characters that change how a terminal or a reader displays the text around them: controls, and invisible marks that
/// reorder or break lines (Unicode Bidi_Control, line and paragraph separator).
fn disturbs(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Escapes text from outside: everything that would move a terminal's cursor or reorder the displayed text (`\n`,
/// `\x1b`, `\u202e`).
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            c if disturbs(c) && (c as u32) < 0x80 => safe.push_str(&format!("\\x{:02x}", c as u32)),
            c if disturbs(c) => safe.push_str(&format!("\\u{:04x}", c as u32)),
            c => safe.push(c),
        }
    }
    safe
}

/// Same as [`printable`], but keeps line breaks and tabs: for the final output to a terminal. Text from outside within
/// a line must already have been escaped by [`printable`].
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| disturbs(c) && !matches!(c, '\n' | '\t')) {
        return text.into();
    }
    let part = |part: &str| part.split('\t').map(printable).collect::<Vec<_>>().join("\t");
    text.split('\n').map(part).collect::<Vec<_>>().join("\n").into()
}

/// Escapes the characters of a JSON document that a terminal would act on, as `\u009b`, which means the same in JSON.
/// Serde escapes only those below U+0020.
pub fn printable_json(document: &str) -> Cow<'_, str> {
    if !document.chars().any(|c| disturbs(c) && c != '\n') {
        return document.into();
    }
    let escaped = |c: char| if disturbs(c) && c != '\n' { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    document.chars().map(escaped).collect::<String>().into()
}

/// Converts text to ASCII, for terminals that show nothing else. Characters with which tables and figures are drawn are
/// replaced by characters of the same width, so that columns stay aligned; any other character is escaped (`\\u00e9`).
pub fn ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        let substitute = match c {
            c if c.is_ascii() => c,
            '─' | '–' | '−' => '-',
            '│' => '|',
            '├' => '+',
            '└' => '`',
            '…' => '~',
            'µ' => 'u',
            '→' => '>',
            '·' | '░' => '.',
            '▒' => ':',
            '▓' => '+',
            '█' => '#',
            '±' => '~',
            other => {
                plain.push_str(&format!("\\u{:04x}", other as u32));
                continue;
            }
        };
        plain.push(substitute);
    }
    plain.into()
}

/// Escapes text for HTML and SVG, in elements and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Words as a shell command line that can be copied: quoted only if necessary.
pub fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-+=./:,@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else if word.chars().any(disturbs) {
        // A `\` of the word itself must be distinguishable from those that `printable` adds.
        format!("$'{}'", printable(&word.replace('\\', "\\\\").replace('\'', "\\'")))
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Folds words into lines of at most `width` characters, with continuation lines indented. A word longer than a line is
/// kept whole on a line of its own, so that paths and commands can be copied. A percent sign stays with its number.
pub fn fold(text: &str, width: usize, indent: usize) -> String {
    let body = text.trim_start_matches(' ');
    let margin = text.len() - body.len();
    let mut lines = vec![" ".repeat(margin)];
    let mut length = margin;
    let bound = body.replace(" %", "\u{a0}%");
    for (at, word) in bound.split(' ').enumerate() {
        let wide = word.chars().count();
        if at > 0 && length + 1 + wide > width {
            lines.push(" ".repeat(indent));
            length = indent;
        } else if at > 0 {
            lines.last_mut().expect("never empty").push(' ');
            length += 1;
        }
        lines.last_mut().expect("never empty").push_str(word);
        length += wide;
    }
    let unbound = lines.iter().map(|line| line.replace("\u{a0}%", " %"));
    unbound.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// `once`, `3 times`.
pub fn times(times: u64) -> String {
    if times == 1 { "once".to_string() } else { format!("{times} times") }
}

/// `a`, `a and b`, `a, b and c`.
pub fn enumerate(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// UTC date and time of seconds since 1970, as `2026-03-21 14:05 UTC`.
///
/// The calendar is the proleptic Gregorian one. Days are counted in eras of 400 years that begin on 1 March, so that a
/// leap day is the last day of its year.
pub(crate) fn date_time(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let since_march_0 = days + 719_468;
    let (era, day_of_era) = (since_march_0.div_euclid(146_097), since_march_0.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3_600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_are_kept_and_other_controls_are_escaped() {
        assert_eq!(printable_lines("one\n\ttwo\x1b[31m\r\n\u{9b}2J\n"), "one\n\ttwo\\x1b[31m\\r\n\\u009b2J\n");
        assert!(matches!(printable_lines("plain\ttext\n─ é"), Cow::Borrowed(_)));
        let document = serde_json::json!({ "a\u{9b}": "\u{1b}[31m\u{7f}\u{202e}\n é" });
        let text = printable_json(&format!("{document:#}")).into_owned();
        assert!(text.chars().all(|c| !disturbs(c) || c == '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), document);
    }

    #[test]
    fn escapes_what_moves_the_cursor_or_changes_the_reading_order() {
        assert_eq!(printable("a\x1b[2J\u{9b}\n\u{202e}b"), "a\\x1b[2J\\u009b\\n\\u202eb");
        assert_eq!(printable("größe ≤ 5 µs"), "größe ≤ 5 µs");
    }

    #[test]
    fn text_in_ascii_keeps_its_columns() {
        let table = "policy  median\n───────────────\nthp     1.2 µs  p99…y_ms ±3 ██▒";
        let plain = ascii(table);
        assert!(plain.is_ascii() && plain.contains("---------------") && plain.contains("1.2 us  p99~y_ms"), "{plain}");
        let columns = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
        assert_eq!(columns(&plain), columns(table));
        assert_eq!(ascii("größe"), "gr\\u00f6\\u00dfe");
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("<b a='\"'>&\0"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\\x00");
    }

    #[test]
    fn quoted_words_come_back_from_a_shell() {
        let words: Vec<String> =
            ["plain", "", "two words", "it's", "$(x) `y` \"z\" \\", "a\nb\\n'c\x1b"].map(String::from).into();
        let script = format!("printf '%s\\0' {}", command_line(&words));
        let output = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash");
        let back: Vec<String> = String::from_utf8(output.stdout).unwrap().split('\0').map(String::from).collect();
        assert_eq!(back[..words.len()], words[..]);
    }

    #[test]
    fn folded_text_keeps_its_words() {
        let text = "echo madvise > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled and then more";
        let folded = fold(text, 30, 2);
        assert_eq!(folded.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        let long = |line: &&str| line.chars().count() > 30 && line.trim().contains(' ');
        assert_eq!(folded.lines().find(long), None);
        assert_eq!(fold("  - one two", 8, 4), "  - one\n    two");
        assert_eq!(fold("held on 100 % of it", 12, 0), "held on\n100 % of it");
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date_time(0), "1970-01-01 00:00 UTC");
        assert_eq!(date_time(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date_time(1_767_225_599), "2025-12-31 23:59 UTC");
        assert_eq!(date_time(-1), "1969-12-31 23:59 UTC");
    }
}
