//! What QEMU bears although the architecture refuses it: a list, and a proof of each of its entries.
//!
//! An entry was seen in [`SEEN_IN`] and must be seen there again. A newer QEMU may be strict instead.

use paging::{Format, Rule, Tables};

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
    Translated(Option<u64>),
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

/// Compares what QEMU says of flipped entries with what the tables and the rules say. Returns how many.
pub fn compare<F: Format>(program: Program, tables: &Tables<F>, flips: &[(Flip, Answer)], list: &[Leniency]) -> usize {
    let known = is_known(program);
    let mut seen = vec![false; list.len()];
    let mut compared = 0;
    for (flip, answer) in flips {
        let verdict = verdict(tables, flip.va);
        let place = format!("{:?}: {flip:x?}: {verdict:x?}, QEMU: {answer:x?}", tables.format());
        match verdict {
            Verdict::Outside => continue,
            Verdict::Leaf { pa, .. } => {
                assert!(
                    matches!(*answer, Answer::Translated(found) if found.is_none_or(|found| found == pa)),
                    "{place}"
                );
            }
            Verdict::Hole { .. } | Verdict::NotCanonical => assert_eq!(*answer, Answer::Refused, "{place}"),
            Verdict::Illegal { rule, .. } => {
                let explained = list.iter().position(|leniency| (leniency.explains)(rule, *flip));
                match (explained, *answer) {
                    (None, Answer::Refused) => {}
                    (None, Answer::Translated(_)) => panic!("QEMU bears what no entry of the list explains: {place}"),
                    (Some(index), Answer::Translated(_)) => seen[index] = true,
                    (Some(index), Answer::Refused) => {
                        assert!(!known, "QEMU is strict, not lenient as listed ({}): {place}", list[index].name);
                    }
                }
            }
        }
        compared += 1;
    }
    for (leniency, seen) in list.iter().zip(seen) {
        assert!(seen || !known, "{:?}: no entry shows that {}; take it off the list", tables.format(), leniency.name);
    }
    compared
}
