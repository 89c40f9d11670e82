//! The known reasons why cells of the truth table are off ([`Reasons`], `reasons.toml`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::judge::Figure;
use super::programs::Program;
use super::row::Row;

const LIST: &str = include_str!("reasons.toml");

/// Why cells of a program are off.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    pub program: String,
    pub policies: Vec<String>,
    pub figures: Vec<Figure>,
    /// The reason.
    pub because: String,
    /// Whether the cause is random, so that the cells may also agree.
    #[serde(default)]
    pub by_chance: bool,
    /// A variant of the program that lacks the cause. If the reason is right, its cells agree.
    pub without: Option<Without>,
}

/// A variant of a program in the table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Without {
    /// What the variant lacks, in a few words.
    pub what: String,
    /// Environment variables of the variant, in addition to those of the program.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Arguments that replace those of the program.
    pub arguments: Option<Vec<String>>,
}

impl Without {
    /// The name of the variant of a program.
    fn name(&self, program: &str) -> String {
        format!("{program} without {}", self.what)
    }

    /// The variant of a program.
    fn of(&self, program: &Program) -> Program {
        let mut without = Program { name: self.name(&program.name), ..program.clone() };
        without.environment.extend(self.environment.clone());
        without.arguments = self.arguments.clone().unwrap_or(without.arguments);
        without
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    reason: Vec<Reason>,
}

/// A cell that is off: program, policy, figure.
pub type OffCell = (String, String, Figure);

/// The list of reasons.
#[derive(Clone, Debug, Default)]
pub struct Reasons(Vec<Reason>);

impl Reasons {
    /// Reads the list.
    pub fn read() -> Result<Reasons, String> {
        let list: List = toml::from_str(LIST).map_err(|error| format!("reasons.toml: {error}"))?;
        Ok(Reasons(list.reason))
    }

    /// The reason why a cell is off; `None` if the list has none.
    pub fn of(&self, off_cell: &OffCell) -> Option<&str> {
        self.reason(off_cell).map(|reason| reason.because.as_str())
    }

    fn reason(&self, (program, policy, figure): &OffCell) -> Option<&Reason> {
        let concerns = |reason: &&Reason| {
            reason.program == *program && reason.policies.contains(policy) && reason.figures.contains(figure)
        };
        self.0.iter().find(concerns)
    }

    /// The variants that the reasons of these programs name, each once.
    pub fn without(&self, programs: &[Program]) -> Vec<Program> {
        let mut found: Vec<Program> = Vec::new();
        for program in programs {
            let of_program = self.0.iter().filter(|reason| reason.program == program.name);
            for without in of_program.filter_map(|reason| reason.without.as_ref()) {
                if found.iter().all(|other| other.name != without.name(&program.name)) {
                    found.push(without.of(program));
                }
            }
        }
        found
    }

    /// Reasons that the rows of variants do not confirm, because cells are off in the variant too.
    pub fn unconfirmed(&self, rows: &[Row]) -> Vec<String> {
        let mut unconfirmed = Vec::new();
        for row in rows {
            let shows = |reason: &&Reason| {
                reason.without.as_ref().is_some_and(|without| without.name(&reason.program) == row.program)
            };
            if let Some(why) = row.missing() {
                unconfirmed
                    .push(format!("{}: not measured, but should confirm a reason in reasons.toml: {why}", row.program));
            }
            let cells: Vec<(&str, Figure, bool)> = row.cells().collect();
            for reason in self.0.iter().filter(shows) {
                let concerns = |policy: &str, figure| {
                    reason.policies.iter().any(|name| name == policy) && reason.figures.contains(&figure)
                };
                let off = cells.iter().filter(|(policy, figure, agrees)| !agrees && concerns(policy, *figure));
                unconfirmed.extend(off.map(|(policy, figure, _)| {
                    format!(
                        "{} under {policy}, {}: off, but should confirm a reason in reasons.toml",
                        row.program,
                        figure.name()
                    )
                }));
            }
        }
        unconfirmed
    }

    /// Which changes the list needs: cells that are off and have no reason, and reasons for none of whose cells in
    /// `measured_cells` is off.
    pub fn needed_changes(&self, off_cells: &BTreeSet<OffCell>, measured_cells: &BTreeSet<OffCell>) -> Vec<String> {
        let cell = |(program, policy, figure): &OffCell| format!("{program} under {policy}, {}", figure.name());
        let without = off_cells.iter().filter(|off_cell| self.of(off_cell).is_none());
        let without = without.map(|off_cell| format!("{}: off without a reason in reasons.toml", cell(off_cell)));
        let is_always_off =
            |measured_cells: &&OffCell| self.reason(measured_cells).is_some_and(|reason| !reason.by_chance);
        let agreed =
            measured_cells.iter().filter(|measured_cells| !off_cells.contains(*measured_cells)).filter(is_always_off);
        let agreed = agreed
            .map(|measured_cells| format!("{}: agrees, but reasons.toml says why it is off", cell(measured_cells)));
        without.chain(agreed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::judge::{Cell, Spread};

    #[test]
    fn reports_misses_without_reasons_and_reasons_without_misses() {
        let reason = Reason {
            program: "a".into(),
            policies: vec!["thp".into()],
            figures: vec![Figure::Faults, Figure::TableBytes],
            because: "its addresses".into(),
            by_chance: false,
            without: None,
        };
        let cell = |policy: &str, figure| ("a".to_owned(), policy.to_owned(), figure);
        let off_cells = BTreeSet::from([cell("thp", Figure::Faults), cell("base", Figure::Faults)]);
        let measured_cells = BTreeSet::from([cell("thp", Figure::TableBytes), cell("thp", Figure::Faults)]);
        let problems = Reasons(vec![reason]).needed_changes(&off_cells, &measured_cells);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("a under base, faults: off without a reason"), "{problems:?}");
        assert!(problems[1].contains("a under thp, table_bytes: agrees"), "{problems:?}");
    }

    #[test]
    fn a_program_without_the_cause_has_its_arguments_and_shows_the_reason_or_not() {
        let without = Without {
            what: "chance".into(),
            environment: BTreeMap::from([("SEED".into(), "1".into())]),
            arguments: Some(vec!["--predictable".into()]),
        };
        let reason = Reason {
            program: "sort".into(),
            policies: vec!["base".into()],
            figures: vec![Figure::Faults],
            because: "chance".into(),
            by_chance: true,
            without: Some(without),
        };
        let reasons = Reasons(vec![reason.clone(), reason]);
        let programs = crate::truth::programs::named(&["sort".to_owned()]).unwrap();
        let without = reasons.without(&programs);
        assert_eq!(without.len(), 1, "it is measured once");
        assert_eq!((without[0].name.as_str(), without[0].environment["SEED"].as_str()), ("sort without chance", "1"));
        assert_eq!(without[0].arguments, ["--predictable"]);
        let made_with = (String::new(), String::new());
        let row = |simulated| {
            let cell = Cell::Number { measured: Spread::of([1000.0]), simulated: Spread::of([simulated]) };
            let policies = vec![("base".to_owned(), Ok(vec![(Figure::Faults, cell)]))];
            Row { policies, ..Row::without("sort without chance", "C", &made_with, &[], "") }
        };
        let measured_cells = BTreeSet::from([("sort".to_owned(), "base".to_owned(), Figure::Faults)]);
        assert_eq!(
            reasons.needed_changes(&BTreeSet::new(), &measured_cells),
            Vec::<String>::new(),
            "by chance it agrees"
        );
        assert_eq!(reasons.unconfirmed(&[row(1001.0)]), Vec::<String>::new());
        assert!(reasons.unconfirmed(&[row(1100.0)])[0].contains("sort without chance under base, faults: off"));
    }

    #[test]
    fn every_reason_is_of_a_program_of_the_table() {
        for reason in Reasons::read().unwrap().0 {
            assert!(crate::truth::programs::named(std::slice::from_ref(&reason.program)).is_ok(), "{}", reason.program);
            assert!(!reason.because.is_empty() && !reason.policies.is_empty() && !reason.figures.is_empty());
        }
    }
}
