//! [`changes`]: the cells in which two matrices differ.

use super::{Cell, Matrix, Outcome};

/// A combination whose outcome is not the same in both matrices.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The cell of the first matrix; `None` where it has none.
    pub before: Option<&'a Cell>,
    /// The cell of the second matrix; `None` where it has none.
    pub after: Option<&'a Cell>,
}

/// The combinations whose outcomes differ, in the order of the first matrix; then those that only the second one has.
///
/// Two outcomes are the same if they name the same pages or the same refusal, even if a counter of the whole system moved by
/// different amounts.
pub fn changes<'a>(before: &'a Matrix, after: &'a Matrix) -> Vec<Change<'a>> {
    let twin = |matrix: &'a Matrix, cell: &Cell| matrix.cell(&cell.memory, cell.way, cell.size);
    let of_first = before.cells.iter().map(|cell| Change { before: Some(cell), after: twin(after, cell) });
    let is_new = |cell: &&Cell| twin(before, cell).is_none();
    let of_second = after.cells.iter().filter(is_new).map(|cell| Change { before: None, after: Some(cell) });
    of_first.chain(of_second).filter(|change| !is_same(change)).collect()
}

fn is_same(change: &Change) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return false };
    match (&before.outcome, &after.outcome) {
        (
            Outcome::Refused { cause: one, refusal: call, .. },
            Outcome::Refused { cause: other, refusal: other_call, .. },
        ) => std::mem::discriminant(one) == std::mem::discriminant(other) && call == other_call,
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{Contiguous, Kind, Memory, SettingsMode, Way};
    use crate::cause::Cause;
    use crate::size::PageSize;

    fn matrix(outcomes: &[(Way, Outcome)]) -> Matrix {
        let cell = |(way, outcome): &(Way, Outcome)| Cell {
            memory: Memory { kind: Kind::Anonymous, mount: None },
            way: *way,
            size: PageSize::M2,
            depends_on_free_memory: false,
            outcome: outcome.clone(),
        };
        Matrix {
            kernel: "6.18".into(),
            architecture: "x86_64".into(),
            base: PageSize::K4,
            pmd: Some(PageSize::M2),
            settings: SettingsMode::Open,
            sees_folios: true,
            contiguous: Contiguous::NotInThisArchitecture,
            cells: outcomes.iter().map(cell).collect(),
        }
    }

    fn fell_back(times: u64) -> Outcome {
        let cause = Cause::AllocationFellBack { counter: "thp_fault_fallback".into(), times };
        Outcome::Refused { cause, refusal: None, setting: None, large_ratio: 0.0 }
    }

    #[test]
    fn a_counter_is_no_change_and_a_missing_cell_is_one() {
        let large = Outcome::Large { leaf: PageSize::M2, folio: Some(PageSize::M2) };
        let before = matrix(&[(Way::Touch, fell_back(1)), (Way::Fork, large.clone())]);
        let after = matrix(&[(Way::Touch, fell_back(7)), (Way::Zeros, large.clone())]);
        let found = changes(&before, &after);
        let ways = found.iter().map(|change| change.before.or(change.after).map(|cell| cell.way));
        assert_eq!(ways.collect::<Vec<_>>(), [Some(Way::Fork), Some(Way::Zeros)]);
        assert_eq!(changes(&before, &matrix(&[(Way::Touch, large.clone()), (Way::Fork, large)])).len(), 1);
    }
}
