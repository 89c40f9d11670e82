//! How to apply the best policy permanently.

use policy::verdict::Holding;
use study::comparison::{Adoption, Comparison};

use crate::rows;
use crate::text::printable;

/// All ways to apply the best policy permanently, ready to be printed and copied, the least intrusive first; empty if no arm is best
/// or nothing needs to be done. Of several policies tied best, the one with the greatest gain is used. None of them was tried.
///
/// If the program itself conflicts with the policy, the text says so.
pub fn adoption(comparison: &Comparison) -> String {
    let Some(arm) = best(comparison).first().copied() else { return String::new() };
    let label = comparison.design.arms.get(arm).map_or_else(String::new, |arm| printable(&arm.label));
    let Adopting { obstacle, recommended, others } = Adopting::of(comparison, arm);
    let mut text = String::new();
    if let Some(obstacle) = &obstacle {
        text.push_str(&format!("To adopt {label}: {}.\n", printable(obstacle)));
    }
    let once = if obstacle.is_some() { ", once the program no longer does that" } else { "" };
    for adoption in recommended.into_iter().chain(others) {
        text.push_str(&format!("To adopt {label} (not tried){once}, {}:\n", printable(&adoption.scope)));
        for line in adoption.commands.iter().flat_map(|command| command.lines()) {
            text.push_str(&format!("    {}\n", printable(line)));
        }
    }
    text
}

/// What the program itself does that conflicts with the policy of an arm, as a sentence without the policy's name.
pub fn obstacle(comparison: &Comparison, arm: usize) -> Option<String> {
    Adopting::of(comparison, arm).obstacle
}

/// How a policy that was in force can be applied permanently.
pub(crate) struct Adopting<'a> {
    /// What the program itself does that conflicts with the policy.
    pub obstacle: Option<String>,
    /// The least intrusive way; `None` if there is an obstacle.
    pub recommended: Option<&'a Adoption>,
    /// The other ways, less intrusive ones first.
    pub others: &'a [Adoption],
}

impl Adopting<'_> {
    /// The instructions for an arm; empty if its policy was not shown to be in force.
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
