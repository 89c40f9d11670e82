//! Lines of text with emphasis, for terminals that have colours.

use crate::text::fold;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emphasis {
    #[default]
    None,
    /// Stronger than the text around it.
    Strong,
    /// Weaker than the text around it.
    Faint,
    /// A gain.
    Good,
    /// A loss, or a failure.
    Bad,
    /// A result to treat with care.
    Doubtful,
}

/// A part of a line with one emphasis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Without line breaks; safe to print.
    pub text: String,
    pub emphasis: Emphasis,
}

/// A line: its spans from left to right.
pub type Line = Vec<Span>;

impl Span {
    pub(crate) fn new(text: impl Into<String>, emphasis: Emphasis) -> Span {
        Span { text: text.into(), emphasis }
    }

    pub fn plain(text: impl Into<String>) -> Span {
        Span::new(text, Emphasis::None)
    }
}

/// The text of the lines, joined by line breaks.
pub fn without_emphasis(lines: &[Line]) -> String {
    let line = |line: &Line| line.iter().map(|span| span.text.as_str()).collect::<String>();
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Folds `lead` and `rest` as one text. Only the lead is emphasised, over several lines if it is folded.
pub(crate) fn folded(lead: Span, rest: &str, width: usize, indent: usize) -> Vec<Line> {
    let is_visible = |c: &char| !c.is_whitespace();
    let mut remaining = lead.text.chars().filter(is_visible).count();
    let text = fold(&format!("{}{rest}", lead.text), width, indent);
    let line = |line: &str| {
        let mut split = 0;
        for (at, c) in line.char_indices() {
            if remaining == 0 {
                break;
            }
            remaining -= usize::from(is_visible(&c));
            split = at + c.len_utf8();
        }
        let (emphasised, plain) = line.split_at(split);
        let spans = [Span::new(emphasised, lead.emphasis), Span::plain(plain)];
        spans.into_iter().filter(|span| !span.text.is_empty()).collect()
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emphasises_a_lead_across_line_breaks() {
        let lines = folded(Span::new("thp is the best of 5", Emphasis::Strong), " (wall time)", 12, 2);
        assert_eq!(without_emphasis(&lines), "thp is the\n  best of 5\n  (wall\n  time)");
        let strong = |line: &Line| line.iter().filter(|span| span.emphasis == Emphasis::Strong).count();
        assert_eq!(lines.iter().map(strong).collect::<Vec<_>>(), [1, 1, 0, 0]);
    }
}
