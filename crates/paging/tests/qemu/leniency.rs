//! What QEMU bears although the architecture refuses it: a list, and a proof of each of its entries.
//!
//! An entry was seen in [`SEEN_IN`] and must be seen there again. A newer QEMU may be strict instead.

use paging::{Format, OutputAddress, Rule, Tables};

use crate::flips::Flip;
use crate::machine::Program;
use crate::verdict::{Verdict, verdict};

/// The version that the lists describe.
const SEEN_IN: (u32, u32) = (7, 2);

/// Something that QEMU bears.
#[derive(Clone, Copy)]
pub struct Leniency {
    /// What, in words.
    pub name: &'static str,
    /// Whether it explains that an entry which breaks this rule is not refused.
    pub explains: fn(Rule, Flip) -> bool,
}

/// What QEMU says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is translated, to this address where the machine tells it.
    Translated(Option<OutputAddress>),
    /// It is not.
    Refused,
}

impl Answer {
    /// What a strict machine says.
    pub fn expected(verdict: Verdict) -> Answer {
        match verdict {
            Verdict::Leaf { pa, .. } => Answer::Translated(Some(pa)),
            _ => Answer::Refused,
        }
    }
}

/// Whether this QEMU must behave as the lists say.
pub fn is_known(program: Program) -> bool {
    program.version() == SEEN_IN
}

/// What a program of QEMU bears, and which of it was seen.
pub struct List<'a> {
    is_known: bool,
    leniencies: &'a [Leniency],
    seen: Vec<bool>,
}

impl<'a> List<'a> {
    /// None of `leniencies` was seen yet.
    pub fn new(program: Program, leniencies: &'a [Leniency]) -> List<'a> {
        List { is_known: is_known(program), leniencies, seen: vec![false; leniencies.len()] }
    }

    /// Compares what QEMU says of flipped entries with what the tables and the rules say. Returns how many.
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
                (None, Answer::Translated(_)) => panic!("QEMU bears what no entry of the list explains: {}", place()),
                (Some(index), Answer::Translated(_)) => self.seen[index] = true,
                (Some(index), Answer::Refused) => {
                    let name = self.leniencies[index].name;
                    assert!(!self.is_known, "QEMU is strict, not lenient as listed ({name}): {}", place());
                }
            },
            // The machine does not tell the address.
            (Verdict::Leaf { .. }, Answer::Translated(None)) => {}
            _ => assert_eq!(answer, Answer::expected(verdict), "{}", place()),
        }
    }

    fn explanation(&self, rule: Rule, flip: Flip) -> Option<usize> {
        self.leniencies.iter().position(|leniency| (leniency.explains)(rule, flip))
    }

    /// Each of the leniencies was seen, or QEMU is another than the list describes.
    pub fn finish(self) {
        for (leniency, seen) in self.leniencies.iter().zip(self.seen) {
            assert!(seen || !self.is_known, "no entry shows that {}; take it off the list", leniency.name);
        }
    }
}
