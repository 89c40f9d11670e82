//! Shrinks a script: removes and reduces its operations as long as it still shows the difference.

use crate::script::{MappingKind, Op, Script, Touch};

impl Script {
    /// A minimal script for which `fails` still returns true. First removes operations, then reduces the lengths of the operations
    /// that are left.
    pub fn shrink(&self, mut fails: impl FnMut(&Script) -> bool) -> Script {
        let mut ops = self.0.clone();
        let mut chunk = ops.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < ops.len() {
                let mut fewer = ops.clone();
                fewer.drain(at..(at + chunk).min(ops.len()));
                if fails(&Script(fewer.clone())) { ops = fewer } else { at += chunk }
            }
            if chunk == 1 {
                break;
            }
            chunk = chunk.div_ceil(2);
        }
        for at in 0..ops.len() {
            while let Some(smaller) = smaller(&ops[at]).into_iter().find_map(|smaller| {
                let mut changed = ops.clone();
                changed[at] = smaller;
                fails(&Script(changed.clone())).then_some(changed)
            }) {
                ops = smaller;
            }
        }
        Script(ops)
    }
}

/// Variants of an operation that do less, the smallest first.
fn smaller(op: &Op) -> Vec<Op> {
    let fewer = |pages: usize| [1, pages / 2, pages - pages / 4, pages - pages / 16];
    let lengths = |pages: usize| fewer(pages).into_iter().filter(move |fewer| *fewer > 0 && *fewer < pages);
    match *op {
        Op::Map { slot, pages, protection, kind } => {
            let plain = (kind != MappingKind::Private).then_some(Op::Map {
                slot,
                pages,
                protection,
                kind: MappingKind::Private,
            });
            plain.into_iter().chain(lengths(pages).map(|pages| Op::Map { slot, pages, protection, kind })).collect()
        }
        Op::MapOver { slot, offset, pages, protection, kind } => {
            lengths(pages).map(|pages| Op::MapOver { slot, offset, pages, protection, kind }).collect()
        }
        Op::Unmap { slot, offset, pages } => lengths(pages).map(|pages| Op::Unmap { slot, offset, pages }).collect(),
        Op::Remap { slot, pages } => lengths(pages).map(|pages| Op::Remap { slot, pages }).collect(),
        Op::Protect { slot, offset, pages, protection } => {
            lengths(pages).map(|pages| Op::Protect { slot, offset, pages, protection }).collect()
        }
        Op::Advise { slot, offset, pages, advice } => {
            lengths(pages).map(|pages| Op::Advise { slot, offset, pages, advice }).collect()
        }
        Op::Heap { pages } => lengths(pages).map(|pages| Op::Heap { pages }).collect(),
        Op::Touch { slot, offset, pages, step, touch } => {
            let plain = (touch != Touch::Store && touch != Touch::Load).then_some(Op::Touch {
                slot,
                offset,
                pages,
                step,
                touch: Touch::Store,
            });
            let fewer = lengths(pages).map(|pages| Op::Touch { slot, offset, pages, step, touch });
            plain.into_iter().chain(fewer).collect()
        }
        Op::Fork | Op::End => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(pages: usize) -> Op {
        Op::Touch { slot: 1, offset: 0, pages, step: 1, touch: Touch::Store }
    }

    fn map(pages: usize) -> Op {
        Op::Map { slot: 1, pages, protection: 3, kind: MappingKind::Private }
    }

    #[test]
    fn a_shrunk_script_has_only_what_it_needs() {
        let ops = vec![touch(2), map(40), Op::Fork, Op::End, touch(30), map(7)];
        let fails = |script: &Script| {
            script.text().lines().filter_map(|line| line.strip_prefix("s 1 0 ")).any(|rest| {
                rest.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).is_some_and(|pages| pages >= 5)
            })
        };
        let shrunk = Script(ops).shrink(fails);
        assert_eq!(shrunk.text(), "m 1 5 3 0\ns 1 0 5 1\n");
    }
}
