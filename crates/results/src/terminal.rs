//! Captured terminal text as a picture, for pages that cannot show it as text.

use crate::text::escape;

const COLUMN: f64 = 8.4;
const LINE: f64 = 19.0;
const MARGIN: f64 = 18.0;

/// The text as an SVG whose columns have equal width in any font. A line that begins with `$ ` is a command.
pub fn picture(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let (width, height) = (columns as f64 * COLUMN + 2.0 * MARGIN, lines.len() as f64 * LINE + 2.0 * MARGIN);
    let line = |(at, line): (usize, &&str)| {
        if line.is_empty() {
            return String::new();
        }
        let class = if line.starts_with("$ ") { " class=\"command\"" } else { "" };
        format!(
            "<text{class} x=\"{MARGIN}\" y=\"{:.1}\" textLength=\"{:.1}\" xml:space=\"preserve\">{}</text>\n",
            MARGIN + LINE * (at as f64 + 0.75),
            line.chars().count() as f64 * COLUMN,
            escape(line)
        )
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\">\n\
         <style>rect {{ fill: #15181c }} text {{ fill: #d6dce2; font: 14px ui-monospace, \"DejaVu Sans Mono\", Consolas, \
         monospace }} .command {{ fill: #7cc4ff }}</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\"/>\n{}</svg>\n",
        lines.iter().enumerate().map(line).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_as_wide_as_its_columns() {
        let svg = picture("$ a <b>\n\n\u{1b}[1m──");
        assert!(svg.contains("class=\"command\" x=\"18\" y=\"32.2\" textLength=\"58.8\""), "{svg}");
        assert!(svg.contains(">$ a &lt;b&gt;<") && svg.contains("\\x1b[1m──"), "{svg}");
        assert_eq!(svg.matches("<text").count(), 2, "an empty line is none");
    }
}
