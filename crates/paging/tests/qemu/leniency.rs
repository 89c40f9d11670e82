//! The list of architecture violations that QEMU tolerates, with a test of each entry.
//!
//! An entry was seen in [`SEEN_IN`] and must be seen there again. A newer QEMU may be strict instead.

use paging::{Format, OutputAddress, Rule, Tables};

use crate::flips::Flip;
use crate::machine::Program;
use crate::verdict::{Verdict, verdict};

/// The QEMU version that the lists describe.
const SEEN_IN: (u32, u32) = (7, 2);

/// A violation that QEMU tolerates.
#[derive(Clone, Copy)]
pub struct Leniency {
    /// A description.
    pub name: &'static str,
    /// Whether it explains that an entry which breaks this rule is not refused.
    pub explains: fn(Rule, Flip) -> bool,
}

/// QEMU's result for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is translated, to this address if the machine reports it.
    Translated(Option<OutputAddress>),
    /// It is not translated.
    Refused,
}

impl Answer {
    /// The result of a strict machine.
    pub fn expected(verdict: Verdict) -> Answer {
        match verdict {
            Verdict::Leaf { pa, .. } => Answer::Translated(Some(pa)),
            _ => Answer::Refused,
        }
    }
}

/// Whether this QEMU must behave as the lists describe.
pub fn is_known(program: Program) -> bool {
    program.version() == SEEN_IN
}

/// The tolerated violations of a QEMU program, and which of them were seen.
pub struct List<'a> {
    is_known: bool,
    leniencies: &'a [Leniency],
    seen: Vec<bool>,
}

impl<'a> List<'a> {
    /// A list of `leniencies`, none of which was seen yet.
    pub fn new(program: Program, leniencies: &'a [Leniency]) -> List<'a> {
        List { is_known: is_known(program), leniencies, seen: vec![false; leniencies.len()] }
    }

    /// Compares QEMU's results for flipped entries with the tables and the rules. Returns how many were compared.
    pub fn compare<F: Format>(&mut self, tables: &Tables<F>, flips: &[(Flip, Answer)]) -> usize {
        let known = flips.iter().filter(|(flip, _)| verdict(tables, flip.va) != Verdict::Outside);
        known.map(|(flip, answer)| self.compare_one(tables, *flip, *answer)).count()
    }

    fn compare_one<F: Format>(&mut self, tables: &Tables<F>, flip: Flip, answer: Answer) {
        let verdict = verdict(tables, flip.va);
        let place = || format!("{:?}: {flip:x?}: {verdict:x?}, QEMU: {answer:x?}", tables.format());
        match (verdict, answer) {
            (Verdict::Illegal { rule, .. }, _) => match (self.explanation(rule, flip), answer) {
                (None, Answer::Refused) => {}
                (None, Answer::Translated(_)) => {
                    panic!("QEMU accepts an entry that the list does not explain: {}", place())
                }
                (Some(index), Answer::Translated(_)) => self.seen[index] = true,
                (Some(index), Answer::Refused) => {
                    let name = self.leniencies[index].name;
                    assert!(!self.is_known, "QEMU is strict, not lenient as listed ({name}): {}", place());
                }
            },
            // The machine does not report the address.
            (Verdict::Leaf { .. }, Answer::Translated(None)) => {}
            _ => assert_eq!(answer, Answer::expected(verdict), "{}", place()),
        }
    }

    fn explanation(&self, rule: Rule, flip: Flip) -> Option<usize> {
        self.leniencies.iter().position(|leniency| (leniency.explains)(rule, flip))
    }

    /// Checks that each leniency was seen, unless QEMU has another version than the list describes.
    pub fn finish(self) {
        for (leniency, seen) in self.leniencies.iter().zip(self.seen) {
            assert!(seen || !self.is_known, "no entry shows that {}; remove it from the list", leniency.name);
        }
    }
}
