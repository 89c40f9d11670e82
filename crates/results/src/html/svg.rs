//! The small subset of SVG that the report needs ([`Figure`]).
//!
//! Written by hand, because the figures take their colours from the page's style sheet (light, dark and print), contain
//! a title and a description for screen readers, and show the values of every mark on hover without a script. The
//! plotters crate writes fixed colours and supports none of this.

use crate::text::{escape, printable};

/// Width of every figure, in its own units; the page scales it.
pub(super) const WIDTH: f64 = 560.0;

/// A figure under construction.
pub(super) struct Figure {
    id: String,
    title: String,
    description: String,
    height: f64,
    body: String,
}

/// Alignment of text relative to its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A linear scale from values to coordinates.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    values: (f64, f64),
    coordinates: (f64, f64),
}

/// The end of an axis beyond which a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beyond {
    Low,
    High,
}

impl Scale {
    /// The scale that maps the range `values` to the range `coordinates`. A range of equal values is widened slightly.
    pub fn new(values: (f64, f64), coordinates: (f64, f64)) -> Scale {
        let (low, high) = values;
        let apart = if high > low { high } else { low + low.abs().max(1e-9) };
        Scale { values: (low, apart), coordinates }
    }

    /// Coordinate of a value.
    pub fn at(&self, value: f64) -> f64 {
        let share = (value - self.values.0) / (self.values.1 - self.values.0);
        self.coordinates.0 + share * (self.coordinates.1 - self.coordinates.0)
    }

    /// Coordinate of a value. A value beyond the axis gets the coordinate of the end of the axis, and the side on which
    /// it is beyond.
    pub fn within(&self, value: f64) -> (f64, Option<Beyond>) {
        match value {
            low if low < self.values.0 => (self.coordinates.0, Some(Beyond::Low)),
            high if high > self.values.1 => (self.coordinates.1, Some(Beyond::High)),
            inside => (self.at(inside), None),
        }
    }

    /// About `count` round values to mark on the axis.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let (low, high) = self.values;
        let rough = (high - low) / count.max(1) as f64;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|one| one * magnitude).into_iter().find(|step| *step >= rough);
        every(step.unwrap_or(magnitude), low, high)
    }

    /// Values to mark on an axis of bytes: multiples of a power of two.
    pub fn byte_ticks(&self, count: u64) -> Vec<f64> {
        let (low, high) = self.values;
        let step = (((high - low) as u64) / count.max(1)).max(1).next_power_of_two();
        every(step as f64, low, high)
    }
}

fn every(step: f64, low: f64, high: f64) -> Vec<f64> {
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    // Limits the number of ticks, whatever the values.
    (first..=last.min(first.saturating_add(50))).map(|n| n as f64 * step).collect()
}

impl Figure {
    /// An empty figure; the title and the description are for screen readers.
    pub fn new(id: &str, title: &str, description: &str, height: f64) -> Figure {
        Figure { id: id.into(), title: title.into(), description: description.into(), height, body: String::new() }
    }

    /// Adds elements verbatim.
    pub fn raw(&mut self, svg: &str) {
        self.body.push_str(svg);
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.body.push_str(&format!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            round(from.0),
            round(from.1),
            round(to.0),
            round(to.1)
        ));
    }

    /// A horizontal interval. An end on the axis gets a bar that reaches `cap` to both sides; an end beyond the axis gets
    /// an arrow.
    pub fn whisker(&mut self, class: &str, scale: &Scale, (low, high): (f64, f64), y: f64, cap: f64) {
        let ends = [scale.within(low), scale.within(high)];
        self.line(class, (ends[0].0, y), (ends[1].0, y));
        for (x, beyond) in ends {
            match beyond {
                None if cap > 0.0 => self.line(class, (x, y - cap), (x, y + cap)),
                None => {}
                Some(side) => self.arrow(class, (x, y), side),
            }
        }
    }

    /// An arrow at the end of an axis.
    pub fn arrow(&mut self, class: &str, (x, y): (f64, f64), side: Beyond) {
        let back = if side == Beyond::Low { 5.0 } else { -5.0 };
        self.line(class, (x, y), (x + back, y - 4.0));
        self.line(class, (x, y), (x + back, y + 4.0));
    }

    /// A rectangle from its upper left corner, with text shown on hover.
    pub fn rectangle(&mut self, class: &str, at: (f64, f64), size: (f64, f64), hover: &str) {
        let hover = if hover.is_empty() { String::new() } else { format!("<title>{}</title>", escape(hover)) };
        self.body.push_str(&format!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{hover}</rect>",
            round(at.0),
            round(at.1),
            round(size.0.max(0.0)),
            round(size.1.max(0.0))
        ));
    }

    /// Adds text, which is escaped here.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.body.push_str(&format!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            round(at.0),
            round(at.1),
            escape(text)
        ));
    }

    /// An arm's label at the left. A long label is set smaller; if that is not enough, it is shortened in the middle and shown in
    /// full on hover. The middle, because long labels differ at their ends: in the command, or in the policy under which it ran.
    pub fn label(&mut self, at: (f64, f64), label: &str) {
        const USUAL: usize = 16;
        const LONGEST: usize = 20;
        let safe = printable(label);
        let length = safe.chars().count();
        if length <= LONGEST {
            let class = if length <= USUAL { "label" } else { "label long" };
            return self.text(class, at, Anchor::End, &safe);
        }
        let (kept_before, kept_after) = ((LONGEST - 1) / 2, LONGEST / 2);
        let begin: String = safe.chars().take(kept_before).collect();
        let end: String = safe.chars().skip(length - kept_after).collect();
        self.raw(&format!("<g><title>{}</title>", escape(&safe)));
        self.text("label long", at, Anchor::End, &format!("{begin}…{end}"));
        self.raw("</g>");
    }

    /// The figure as an element.
    pub fn finish(self) -> String {
        let Figure { id, title, description, height, body } = self;
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{body}</svg>\n",
            round(height),
            escape(&title),
            escape(&description)
        )
    }
}

/// Rounds to a tenth of a unit, which is finer than any screen shows.
pub(super) fn round(coordinate: f64) -> f64 {
    if coordinate.is_finite() { (coordinate * 10.0).round() / 10.0 } else { 0.0 }
}

/// The appearance of an arm in every figure. Colour and marker each suffice to distinguish arms.
#[derive(Clone, Copy)]
pub(super) struct ArmStyle {
    colour: usize,
    marker: usize,
}

/// Colours of the style sheet other than the baseline's.
const COLOURS: usize = 6;
/// Markers other than the baseline's. Their number and the number of colours are coprime: 42 arms have distinct looks
/// if one of the two is shifted after each round.
const MARKERS: usize = 7;

impl ArmStyle {
    /// The appearance of an arm; the baseline has its own.
    pub fn of(arm: usize, baseline: usize) -> ArmStyle {
        if arm == baseline {
            return ArmStyle { colour: 0, marker: 0 };
        }
        let place = if arm > baseline { arm - 1 } else { arm };
        ArmStyle { colour: 1 + place % COLOURS, marker: 1 + place % MARKERS }
    }

    /// The CSS class of the colour.
    pub fn class(&self) -> String {
        format!("c{}", self.colour)
    }

    /// The marker as a path around a point.
    pub fn path(&self, (x, y): (f64, f64), radius: f64) -> String {
        let polygon = |corners: usize, turn: f64, radius: f64| {
            let corner = |n: usize| {
                let angle = std::f64::consts::TAU * (n as f64 / corners as f64 + turn);
                format!("{} {}", round(x + radius * angle.sin()), round(y - radius * angle.cos()))
            };
            format!("M{}Z", (0..corners).map(corner).collect::<Vec<_>>().join("L"))
        };
        match self.marker {
            0 => {
                let (left, r) = (round(x - radius), round(radius));
                format!("M{left} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z", round(y), d = round(2.0 * radius))
            }
            1 => polygon(4, 0.125, radius * 1.25),
            2 => polygon(3, 0.0, radius * 1.35),
            3 => polygon(4, 0.0, radius * 1.35),
            4 => polygon(3, 0.5, radius * 1.35),
            5 => polygon(5, 0.0, radius * 1.2),
            6 => bars(x, y, radius, 0.0),
            _ => bars(x, y, radius, std::f64::consts::FRAC_PI_4),
        }
    }

    /// The marker as an element, with text shown on hover.
    pub fn mark(&self, at: (f64, f64), radius: f64, class: &str, hover: &str) -> String {
        let hover = if hover.is_empty() { String::new() } else { format!("<title>{}</title>", escape(hover)) };
        format!("<path class=\"mark {} {class}\" d=\"{}\">{hover}</path>", self.class(), self.path(at, radius))
    }
}

/// A plus sign made of two bars, rotated by an angle.
fn bars(x: f64, y: f64, radius: f64, turn: f64) -> String {
    let (long, short) = (radius * 1.3, radius * 0.42);
    let corners = [
        (short, long),
        (short, short),
        (long, short),
        (long, -short),
        (short, -short),
        (short, -long),
        (-short, -long),
        (-short, -short),
        (-long, -short),
        (-long, short),
        (-short, short),
        (-short, long),
    ];
    let (sin, cos) = turn.sin_cos();
    let turned = corners.map(|(a, b)| format!("{} {}", round(x + a * cos - b * sin), round(y + a * sin + b * cos)));
    format!("M{}Z", turned.join("L"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale::new((-13.1, 2.2), (0.0, 100.0));
        assert_eq!(scale.ticks(5), [-10.0, -5.0, 0.0]);
        assert_eq!(scale.at(-13.1), 0.0);
        assert_eq!(Scale::new((0.0, 1.3 * (1u64 << 30) as f64), (0.0, 1.0)).byte_ticks(4).len(), 3);
        assert!(Scale::new((5.0, 5.0), (0.0, 1.0)).at(5.0).is_finite());
        assert!(Scale::new((0.0, f64::MAX), (0.0, 1.0)).ticks(5).len() <= 51);
    }

    #[test]
    fn arms_look_different() {
        let looks: std::collections::BTreeSet<(usize, usize)> =
            (0..43).map(|arm| ArmStyle::of(arm, 2)).map(|style| (style.colour, style.marker)).collect();
        assert_eq!(looks.len(), 43);
    }
}
