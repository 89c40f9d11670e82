//! Determines which of the arms that are better than the baseline are best.
//!
//! Candidates are the arms that are better than the baseline. Their rivals are all arms with valid figures: with right answers, not
//! within the tracer's cost, and not the A/A arm. A rival beats a candidate if the signed-rank test between the two, block by
//! block, rejects at the design's level divided by the number of rivals. So the probability that the truly best arm is called
//! beaten by any of its rivals, and another arm called the winner, is at most the design's level. A difference that the tracer's
//! stops could have caused does not count.

use super::blocks::Blocks;
use super::outcome;
use super::signed_rank::SignedRank;
use super::tracer_cost::{self, StandIns};
use crate::comparison::Design;
use crate::result::{ArmAnalysis, Effect, Outcome};

/// Marks the candidates that no rival beats, and records with which rivals they are tied.
pub(crate) fn mark(
    design: &Design,
    blocks: &Blocks<'_>,
    stand_ins: &StandIns<'_>,
    arms: &mut [ArmAnalysis],
    signed_rank: &mut SignedRank,
) {
    let running: Vec<usize> = (0..arms.len()).filter(|arm| !design.is_aa(*arm) && has_claim(&arms[*arm])).collect();
    let better = |arm: &usize| matches!(arms[*arm].outcome, Outcome::Better { .. });
    let candidates: Vec<usize> = running.iter().copied().filter(better).collect();
    for candidate in candidates {
        let rivals: Vec<usize> = running.iter().copied().filter(|arm| *arm != candidate).collect();
        let mut duel = |rival: &usize| duel(design, blocks, stand_ins, signed_rank, (candidate, *rival), rivals.len());
        let results: Vec<Duel> = rivals.iter().map(&mut duel).collect();
        if !results.contains(&Duel::Lost) {
            let tied = rivals.iter().zip(&results).filter(|(_, result)| **result == Duel::Tied);
            arms[candidate].tied = tied.map(|(rival, _)| *rival).collect();
            arms[candidate].outcome = Outcome::Better { best: true };
        }
    }
}

fn has_claim(arm: &ArmAnalysis) -> bool {
    matches!(arm.outcome, Outcome::Better { .. } | Outcome::Worse | Outcome::Equivalent | Outcome::Undecided { .. })
}

#[derive(Clone, Copy, PartialEq)]
enum Duel {
    Won,
    Lost,
    Tied,
}

fn duel(
    design: &Design,
    blocks: &Blocks<'_>,
    stand_ins: &StandIns<'_>,
    signed_rank: &mut SignedRank,
    (one, two): (usize, usize),
    rivals: usize,
) -> Duel {
    let ratios: Vec<f64> =
        blocks.log_ratios(one, two, &design.primary).unwrap_or_default().into_iter().flatten().collect();
    match signed_rank.cautious_test(&ratios, design.level()) {
        Some(centre) if centre.p * rivals as f64 <= design.level() => {
            let change = Effect::of(ratios.len(), &centre);
            let bound = stand_ins.between((one, two), &design.primary, signed_rank);
            match outcome::improves(design, change.ratio) {
                _ if bound.is_some_and(|bound| tracer_cost::explains(design, &bound, &change)) => Duel::Tied,
                true => Duel::Won,
                false => Duel::Lost,
            }
        }
        _ => Duel::Tied,
    }
}
