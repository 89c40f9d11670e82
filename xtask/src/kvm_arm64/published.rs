//! Reads from the study the published results of the walk, and the costs that the study assumes for events in KVM
//! ([`Published`]).

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The study that assigns costs to counts, and compares the result with published figures.
const STUDY: &str = "studies/stage2-split.toml";

/// The parts of the study that the page shows.
#[derive(Debug, Default, Deserialize)]
pub struct Published {
    published: Vec<Figure>,
    counted: Costs,
}

#[derive(Debug, Deserialize)]
struct Figure {
    what: String,
    counted: Case,
    change: String,
}

#[derive(Debug, Deserialize)]
struct Case {
    phase: String,
    backing: String,
    variant: String,
}

#[derive(Debug, Default, Deserialize)]
struct Costs {
    cost: Vec<Cost>,
}

#[derive(Debug, Deserialize)]
struct Cost {
    event: String,
    instructions: Option<[f64; 2]>,
}

impl Published {
    /// Reads the study.
    pub fn read(root: &Path) -> Result<Published, String> {
        let path = root.join(STUDY);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The published figure of a case, as text.
    pub fn of(&self, phase: Option<&str>, backing: &str, variant: &str) -> String {
        let is_it = |figure: &&Figure| {
            Some(figure.counted.phase.as_str()) == phase
                && figure.counted.backing == backing
                && figure.counted.variant == variant
        };
        let words =
            |figure: &Figure| format!("{} {}", figure.change.trim_start_matches('-').replace('%', " %"), figure.what);
        self.published.iter().filter(is_it).map(words).collect::<Vec<_>>().join("; ")
    }

    /// The cost that the study assumes for a sum of events. Each event has a number by which its cost is multiplied.
    pub fn cost(&self, events: &[(&str, f64)]) -> String {
        let of = |(event, times): &(&str, f64)| {
            let range = self.counted.cost.iter().find(|cost| cost.event == *event)?.instructions?;
            Some(range.map(|instructions| instructions * times))
        };
        let found: Option<Vec<[f64; 2]>> = events.iter().map(of).collect();
        let Some(found) = found.filter(|found| !found.is_empty()) else { return "a time".to_owned() };
        let [least, most] = [0, 1].map(|end| found.iter().map(|range| range[end]).sum::<f64>());
        if least == most { format!("{least}") } else { format!("{least} to {most}") }
    }
}
