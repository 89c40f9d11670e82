//! Why cells are off that are known to be (`reasons.toml`).

use std::collections::BTreeSet;

use serde::Deserialize;

use super::judge::Figure;

/// The list.
const LIST: &str = include_str!("reasons.toml");

/// Why cells of a program are off.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The program.
    pub program: String,
    /// The policies.
    pub policies: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The reason.
    pub because: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    reason: Vec<Reason>,
}

/// A cell that is off: program, policy, figure.
pub type Miss = (String, String, Figure);

/// Reasons, and what was found.
#[derive(Clone, Debug, Default)]
pub struct Reasons(Vec<Reason>);

impl Reasons {
    /// Those that are known.
    ///
    /// # Errors
    /// A list that does not parse.
    pub fn read() -> Result<Reasons, String> {
        let list: List = toml::from_str(LIST).map_err(|error| format!("reasons.toml: {error}"))?;
        Ok(Reasons(list.reason))
    }

    /// Why a cell is off.
    pub fn of(&self, (program, policy, figure): &Miss) -> Option<&str> {
        let concerns = |reason: &&Reason| {
            reason.program == *program && reason.policies.contains(policy) && reason.figures.contains(figure)
        };
        self.0.iter().find(concerns).map(|reason| reason.because.as_str())
    }

    /// What must change in the list: misses without a reason, and reasons without a miss among the cells that were `looked`
    /// at.
    pub fn unsettled(&self, misses: &BTreeSet<Miss>, looked: &BTreeSet<Miss>) -> Vec<String> {
        let cell = |(program, policy, figure): &Miss| format!("{program} under {policy}, {}", figure.name());
        let without = misses.iter().filter(|miss| self.of(miss).is_none());
        let without = without.map(|miss| format!("{}: off without a reason in reasons.toml", cell(miss)));
        let agreed = looked.iter().filter(|looked| !misses.contains(*looked) && self.of(looked).is_some());
        let agreed = agreed.map(|looked| format!("{}: agrees, and reasons.toml says why it is off", cell(looked)));
        without.chain(agreed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_without_a_reason_and_a_reason_without_a_miss_are_told() {
        let reason = Reason {
            program: "a".into(),
            policies: vec!["thp".into()],
            figures: vec![Figure::Faults, Figure::TableBytes],
            because: "its addresses".into(),
        };
        let cell = |policy: &str, figure| ("a".to_owned(), policy.to_owned(), figure);
        let misses = BTreeSet::from([cell("thp", Figure::Faults), cell("base", Figure::Faults)]);
        let looked = BTreeSet::from([cell("thp", Figure::TableBytes), cell("thp", Figure::Faults)]);
        let told = Reasons(vec![reason]).unsettled(&misses, &looked);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("a under base, faults: off without a reason"), "{told:?}");
        assert!(told[1].contains("a under thp, table_bytes: agrees"), "{told:?}");
    }

    #[test]
    fn every_reason_is_of_a_program_of_the_table() {
        for reason in Reasons::read().unwrap().0 {
            assert!(crate::truth::programs::named(std::slice::from_ref(&reason.program)).is_ok(), "{}", reason.program);
            assert!(!reason.because.is_empty() && !reason.policies.is_empty() && !reason.figures.is_empty());
        }
    }
}
