//! The result that hardware must give for an address, from the tables and the rules of each entry on the path.

use paging::format::Kind;
use paging::{Attributes, Error, Format, InputAddress, Log, OutputAddress, Rule, Severity, Tables};

/// The result that hardware must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The address is translated.
    Leaf { pa: OutputAddress, level: u8, attributes: Attributes },
    /// Nothing is mapped: the walk ends at this level.
    Hole { level: u8 },
    /// An entry at this level breaks a rule.
    Illegal { level: u8, rule: Rule },
    /// The tables cannot translate such an address.
    NotCanonical,
    /// An entry points outside the known memory.
    Outside,
}

/// The required result for `va`.
pub fn verdict<F: Format, L: Log>(tables: &Tables<F, L>, va: InputAddress) -> Verdict {
    let broken = path(tables, va).into_iter().find_map(|(level, entry)| Some((level, broken(tables, level, entry)?)));
    match tables.translate(va) {
        Err(Error::NotCanonical { .. }) => Verdict::NotCanonical,
        Err(Error::OutsideArena { .. }) => Verdict::Outside,
        Err(Error::Illegal { level, rule, .. }) => {
            let (broken_level, _) = broken.expect("what translate refuses breaks a rule");
            assert!(broken_level >= level);
            broken.map(|(level, rule)| Verdict::Illegal { level, rule }).unwrap_or(Verdict::Illegal { level, rule })
        }
        translated => match (broken, translated) {
            (Some((level, rule)), _) => Verdict::Illegal { level, rule },
            (None, Err(Error::NotMapped { level, .. })) => Verdict::Hole { level },
            (None, Ok(leaf)) => {
                let attributes = tables.attributes(va).expect("what is translated has attributes");
                Verdict::Leaf { pa: leaf.pa, level: leaf.level, attributes }
            }
            (None, Err(error)) => panic!("{va:#x}: {error}"),
        },
    }
}

/// The first rule that an entry breaks for which hardware may refuse it.
fn broken<F: Format, L: Log>(tables: &Tables<F, L>, level: u8, entry: u64) -> Option<Rule> {
    let mut first = None;
    tables.format().rules(level, entry, &mut |rule| {
        if rule.severity() == Severity::Error {
            first.get_or_insert(rule);
        }
    });
    first
}

/// The entries of a walk, with their levels.
fn path<F: Format, L: Log>(tables: &Tables<F, L>, va: InputAddress) -> Vec<(u8, u64)> {
    let (format, geometry) = (tables.format(), tables.geometry());
    let mut table = tables.root();
    let mut path = Vec::new();
    for level in (0..geometry.levels()).rev() {
        let Some(entry) = tables.arena().read(geometry.entry_address(table, level, va)) else { break };
        path.push((level, entry));
        if format.kind(level, entry) != Kind::Table {
            break;
        }
        table = format.table_address(entry);
    }
    path
}
