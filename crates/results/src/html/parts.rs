//! Parts shared by the HTML pages.

use study::comparison::Ended;

use crate::figure;
use crate::text::{command_line, escape};

pub const STYLE: &str = include_str!("style.css");

/// Assembles a page from its parts.
pub fn page(title: &str, header: &str, sections: &str, footer: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>pagelab: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{PATTERNS}{header}<main>\n{sections}</main>\n{footer}</body>\n</html>\n",
        escape(title)
    )
}

/// Patterns shared by the figures.
pub const PATTERNS: &str = "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\
    <pattern id=\"hatching\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <line class=\"hatching\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern>\
    <pattern id=\"dots\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
    <circle cx=\"3\" cy=\"3\" r=\"1.5\"/></pattern>\
    <pattern id=\"lines\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
    <path d=\"M2 0V6\"/><path class=\"edge\" d=\"M3 0V6\"/></pattern>\
    <pattern id=\"hatches\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <path d=\"M2 0V6\"/><path class=\"edge\" d=\"M3 0V6\"/></pattern>\
    <pattern id=\"crosses\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <path d=\"M2 0V6M0 2H6\"/><path class=\"edge\" d=\"M3 0V6M0 3H6\"/></pattern></defs></svg>\n";

/// A section with its heading; empty if the body is empty.
pub fn section(title: &str, id: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n{body}</section>\n", escape(title))
}

/// A title with more characters than this is set smaller, so that it fits into two lines.
const LONG_TITLE: usize = 64;

/// The title on the page, which states the answer.
pub fn title(answer: &str) -> String {
    let class = if answer.chars().count() > LONG_TITLE { " class=\"long\"" } else { "" };
    format!("<h1{class}>{}</h1>\n", escape(&typeset(answer)))
}

/// The display name of a metric, with spaces for underscores.
pub fn metric_name(metric: &str) -> String {
    figure::title(metric).replace('_', " ")
}

/// A paragraph below the title; empty if there is no text.
pub fn lead(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>\n", escape(&typeset(text))) }
}

/// Turns the rest of a sentence after its claim into a sentence: ` (a); b.` becomes `A; b.`
pub fn unwrapped(rest: &str) -> String {
    let rest = rest.trim_start_matches([' ', ';']);
    let mut depth = 0;
    let closing = rest.char_indices().find(|(_, c)| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        *c == ')' && depth == 0
    });
    match closing.filter(|_| rest.starts_with('(')) {
        Some((end, _)) => capitalised_first(&format!("{}{}", &rest[1..end], &rest[end + 1..])),
        None => capitalised_first(rest),
    }
}

/// Why the comparison ended, in words.
pub fn ended(ended: &Ended) -> String {
    match ended {
        Ended::NotEnded => "not ended: still running, or killed".to_string(),
        Ended::Precise => "ended when every arm was measured as precisely as asked".to_string(),
        Ended::Blocks => "ended at the greatest number of blocks".to_string(),
        Ended::Time => "ended when the time was up".to_string(),
        Ended::Interrupted => "interrupted".to_string(),
        Ended::TooSlow { message } => format!("ended because {message}"),
        Ended::Failed { message } => format!("failed: {message}"),
        Ended::NothingAdmitted => "ended because there was nothing to compare".to_string(),
    }
}

/// A remedy as a sentence.
pub fn remedy(remedy: &str) -> String {
    // No full stop after a command, because it would be copied with the command.
    let stop = if remedy.starts_with("as root: echo ") { "" } else { "." };
    format!("{}{stop}", capitalised_first(remedy))
}

pub fn capitalised_first(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}

pub fn captioned(picture: &str, caption: &str) -> String {
    format!("<figure>\n<figcaption>{}</figcaption>\n{picture}</figure>\n", escape(&typeset(caption)))
}

/// A list of names and values.
pub fn list(facts: &[(&str, String)]) -> String {
    let fact = |(name, value): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
    format!("<dl>\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
}

/// Escaped text in which text between backticks becomes code.
pub fn marked(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(escape).collect();
    if parts.len().is_multiple_of(2) {
        return parts.join("`"); // A backtick without a partner: nothing is marked.
    }
    let part = |(at, part): (usize, &String)| {
        if at % 2 == 1 { format!("<code>{part}</code>") } else { part.clone() }
    };
    parts.iter().enumerate().map(part).collect()
}

/// Replaces hyphens before digits by minus signs, and keeps percent signs with their numbers.
pub fn typeset(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut set = String::with_capacity(text.len());
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1).copied();
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        match c {
            '-' if digit(after) && before.is_none_or(|c| " (".contains(c)) => set.push('−'),
            ' ' if digit(before) && after == Some('%') => set.push('\u{a0}'),
            c => set.push(*c),
        }
    }
    set
}

/// A command line as it was typed.
pub fn command(what: &str, words: &[String]) -> String {
    format!("<pre class=\"command\" aria-label=\"{what}\"><code>{}</code></pre>\n", escape(&command_line(words)))
}
