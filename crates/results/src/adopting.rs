//! How to have the best policy for good.

use policy::verdict::Holding;
use study::comparison::{Adoption, Comparison};

use crate::rows;
use crate::text::printable;

/// How to have the best policy permanently, ready to be printed and copied; empty where no arm is best
/// or nothing needs to be done. Of policies that are tied best it is the one with the greatest gain.
///
/// It is one way, the least intrusive; with `all` the others too. Where the program itself stands against the policy
/// that is said instead.
pub fn adoption(comparison: &Comparison, all: bool) -> String {
    let Some(arm) = best(comparison).first().copied() else { return String::new() };
    let label = comparison.design.arms.get(arm).map_or_else(String::new, |arm| printable(&arm.label));
    let Adopting { obstacle, recommended, others } = Adopting::of(comparison, arm);
    let mut text = String::new();
    if let Some(obstacle) = &obstacle {
        text.push_str(&format!("To adopt {label}: {}.\n", printable(obstacle)));
    }
    let shown = recommended.into_iter().chain(if all { others } else { &[] });
    let once = if obstacle.is_some() { ", once the program no longer does that" } else { "" };
    for adoption in shown {
        text.push_str(&format!("To adopt {label}{once}, {}:\n", printable(&adoption.scope)));
        for line in adoption.commands.iter().flat_map(|command| command.lines()) {
            text.push_str(&format!("    {}\n", printable(line)));
        }
    }
    if !all && !others.is_empty() {
        let (count, more) = (others.len(), if recommended.is_some() { "other " } else { "" });
        let ways = if count == 1 { "way" } else { "ways" };
        let stored = if comparison.id > 0 { format!("pagelab show {} ", comparison.id) } else { String::new() };
        text.push_str(&format!("{count} {more}{ways}: {stored}--adopt all\n"));
    }
    text
}

/// How a policy that was in force can be had for good.
pub(crate) struct Adopting<'a> {
    /// What the program itself does against it.
    pub obstacle: Option<String>,
    /// The least intrusive way; none where there is an obstacle.
    pub recommended: Option<&'a Adoption>,
    /// The others, the less intrusive first.
    pub others: &'a [Adoption],
}

impl Adopting<'_> {
    /// That of an arm; nothing for one that was not shown to be in force.
    pub fn of(comparison: &Comparison, arm: usize) -> Adopting<'_> {
        let rows = rows::rows(comparison);
        let row = rows.get(arm).filter(|row| row.holding() == Some(Holding::Held));
        let ways = comparison.adoptions.get(arm).map_or(&[][..], Vec::as_slice);
        let Some(row) = row else { return Adopting { obstacle: None, recommended: None, others: &[] } };
        let command = &comparison.invocation.command;
        match (study::adoption::obstacle(command, &row.arm.policy, &row.answered()), ways) {
            (None, [first, others @ ..]) => Adopting { obstacle: None, recommended: Some(first), others },
            (obstacle, ways) => Adopting { obstacle, recommended: None, others: ways },
        }
    }
}

/// The arms that may be called best, the greatest gain first.
pub(crate) fn best(comparison: &Comparison) -> Vec<usize> {
    let Some(analysis) = &comparison.analysis else { return Vec::new() };
    let mut best = analysis.best();
    let gain = |arm: &usize| {
        let effect = analysis.arms[*arm].effects.get(&analysis.primary);
        effect.map_or(0.0, |effect| effect.ratio.ln().abs())
    };
    best.sort_by(|one, two| gain(two).total_cmp(&gain(one)));
    best
}
