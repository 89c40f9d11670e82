//! The first sentence of the answer: whether page size matters to the program on a machine, and by how much.

use super::words::{at_most, change_in_words, growth, held, less_by, memory};
use super::{BAND_RATIO, Candidates, Entry, Shares, names};
use crate::figure;
use crate::text::enumerate;

impl<'a> Candidates<'a> {
    pub(super) fn shares(&self, reference: Entry<'a>, best: Entry<'a>, cycles: f64) -> Shares {
        let translation = |entry: Entry<'_>| (entry.cost.max_lost_cycles as f64 / cycles).min(1.0);
        let matters = |entry: &Entry<'a>| self.saved(*entry, reference, cycles).abs() >= BAND_RATIO;
        Shares {
            translation: translation(reference),
            best_translation: translation(best),
            kernel: reference.cost.kernel.map(|kernel| kernel.total() as f64 / cycles),
            page_size_matters: self.entries.iter().any(matters),
        }
    }

    /// The share of the time that a policy saves over the reference in translation and, if all costs are known, at faults.
    /// Negative if the policy costs time.
    pub(super) fn saved(&self, entry: Entry<'a>, reference: Entry<'a>, cycles: f64) -> f64 {
        let is_known = self.entries.iter().all(|entry| entry.cost.kernel.is_some());
        let total = |entry: Entry<'a>| {
            let translation = entry.cost.max_lost_cycles as f64;
            if is_known { entry.with_kernel().unwrap_or(translation) } else { translation }
        };
        (total(reference) - total(entry)) / cycles
    }

    /// `translation is at most 0.2 % of this program's time on ice-lake`
    pub(super) fn translation_is(&self, shares: &Shares) -> String {
        format!("translation is at most {} of this program's time on {}", at_most(shares.translation), self.name)
    }

    /// The first sentence: whether page size matters to this program on this machine.
    pub(super) fn lead(&self, best: &[Entry<'a>], reference: Entry<'a>, shares: &Shares, cycles: f64) -> String {
        if leads_with_faults(*shares) {
            return self.matters_with_faults(best, reference, shares, cycles);
        }
        if shares.translation >= BAND_RATIO {
            return self.gain(best, reference, shares);
        }
        let is_known = self.entries.iter().all(|entry| entry.cost.kernel.is_some());
        let what = if is_known { "" } else { " to translation" };
        let winner = best.first().filter(|first| first.policy != reference.policy);
        let memory =
            winner.map_or(String::new(), |winner| format!("; {}", growth(winner.policy, winner.cost, reference.cost)));
        format!("{}, so page size does not matter{what} there{memory}", self.translation_is(shares))
    }

    /// The sentence if no policy saves much translation, but some policy changes the time by the kernel's work at
    /// faults.
    fn matters_with_faults(&self, best: &[Entry<'a>], reference: Entry<'a>, shares: &Shares, cycles: f64) -> String {
        let saved = |entry: &&Entry<'a>| self.saved(**entry, reference, cycles);
        let by_saved = |one: &&Entry<'a>, two: &&Entry<'a>| saved(one).total_cmp(&saved(two));
        let first = best.first().filter(|first| shares.translation >= BAND_RATIO && first.policy != reference.policy);
        let saves = first.map_or(String::new(), |first| {
            let less = less_by(shares.translation, shares.best_translation);
            format!(", of which {} saves at most {less}", first.policy)
        });
        let translation = format!("{}{saves}", self.translation_is(shares));
        let changed = |entry: &Entry<'a>| {
            let change = change_in_words(saved(&entry));
            format!(
                "{} takes {change} time than {}; {}",
                entry.policy,
                reference.policy,
                growth(entry.policy, entry.cost, reference.cost)
            )
        };
        let (best, worst) = (self.entries.iter().max_by(by_saved), self.entries.iter().min_by(by_saved));
        match (best.filter(|best| saved(best) >= BAND_RATIO), worst) {
            (Some(best), _) => format!("{translation}; {}, {}", self.with_faults(), changed(best)),
            (None, Some(worst)) => {
                format!("{translation}, and no policy saves time there; {}, {}", self.with_faults(), changed(worst))
            }
            (None, None) => translation,
        }
    }

    /// The sentence if translation takes a share of the time that matters: an upper bound on the time that the best
    /// policy saves.
    fn gain(&self, best: &[Entry<'a>], reference: Entry<'a>, shares: &Shares) -> String {
        let has_reference = best.iter().any(|entry| entry.policy == reference.policy);
        let names = enumerate(&names(best));
        let equal = || format!("equal within what the model can tell ({})", self.why_equal(best));
        match best {
            [_] if has_reference => {
                format!("{}, and no policy has less than {}", self.translation_is(shares), reference.policy)
            }
            several if has_reference => {
                let others = if several.len() == self.entries.len() { "no policy" } else { "no other policy" };
                format!("{}, and {others} has less: {names} are {}", self.translation_is(shares), equal())
            }
            [first, ..] => {
                let less = shares.translation - shares.best_translation;
                let hardly = if less < BAND_RATIO { ", which is below the 1 % at which page size matters" } else { "" };
                let all = if best.len() > 1 { format!("; {names} are {}", equal()) } else { String::new() };
                let assumed = || format!("{}'s time, which is assumed", reference.policy);
                let short = |cpu_s| figure::short(cpu_s, study::metric::Unit::Seconds);
                let time = self.time.cpu_s().map_or_else(assumed, short);
                format!(
                    "{} saves up to {} of the time on {} in translation (at most {} -> {} of {time}){hardly}{}{}{all}",
                    first.policy,
                    less_by(shares.translation, shares.best_translation),
                    self.name,
                    at_most(shares.translation),
                    at_most(shares.best_translation),
                    memory(first.cost, reference.cost),
                    held(first.cost)
                )
            }
            [] => "no answer".to_owned(),
        }
    }
}

/// Whether the kernel's work at faults changes the time by the practical band or more, although no policy saves that
/// much translation.
pub(super) fn leads_with_faults(shares: Shares) -> bool {
    shares.page_size_matters && shares.translation - shares.best_translation < BAND_RATIO
}
