//! What changed from one kernel to the next.

use super::{Kernel, Value, Workload};

/// A figure of two kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub workload: String,
    pub figure: String,
    pub old: Value,
    pub new: Value,
}

/// Two kernels that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair<'a> {
    pub old: &'a Kernel,
    pub new: &'a Kernel,
    /// Figures that changed by more than their bound.
    pub changes: Vec<Change>,
    /// The other figures that both have.
    pub same: Vec<Change>,
    /// Figures that only one of the two has, by workload.
    pub one_sided: Vec<(String, String)>,
}

impl Change {
    /// What boots of one image differ by: the spreads of both kernels, added.
    pub fn bound(&self) -> f64 {
        self.old.spread + self.new.spread
    }

    pub fn difference(&self) -> f64 {
        self.new.median - self.old.median
    }

    /// The difference as a share of the old value; `None` if that is 0.
    pub fn ratio(&self) -> Option<f64> {
        (self.old.median != 0.0).then(|| self.difference() / self.old.median)
    }

    /// The bound as a share of the old value; `None` if that is 0.
    pub fn bound_ratio(&self) -> Option<f64> {
        (self.old.median != 0.0).then(|| self.bound() / self.old.median)
    }

    /// Whether it differs by more than boots of one image do. With a bound of 0, any difference counts.
    pub fn is_above_bound(&self) -> bool {
        self.difference().abs() > self.bound()
    }
}

impl<'a> Pair<'a> {
    /// Compares the figures of two kernels.
    pub fn of(old: &'a Kernel, new: &'a Kernel, workloads: &[Workload]) -> Pair<'a> {
        let mut pair = Pair { old, new, changes: Vec::new(), same: Vec::new(), one_sided: Vec::new() };
        for Workload { name: workload, .. } in workloads {
            let (in_old, in_new) = (old.figures(workload), new.figures(workload));
            let others = in_new.iter().filter(|name| !in_old.contains(name));
            for figure in in_old.iter().chain(others) {
                match (old.value(workload, figure), new.value(workload, figure)) {
                    (Some(old), Some(new)) => {
                        let change = Change { workload: workload.clone(), figure: (*figure).into(), old, new };
                        let list = if change.is_above_bound() { &mut pair.changes } else { &mut pair.same };
                        list.push(change);
                    }
                    (old, new) if old.is_some() || new.is_some() => {
                        pair.one_sided.push((workload.clone(), (*figure).to_owned()));
                    }
                    _ => {}
                }
            }
        }
        pair
    }

    /// The largest bound of a figure, as a share of its value, and that figure; `None` if all are 0.
    pub fn largest_bound(&self) -> Option<(f64, &Change)> {
        let all = self.changes.iter().chain(&self.same);
        let bounds = all.filter_map(|change| Some((change.bound_ratio()?, change)));
        bounds.filter(|(ratio, _)| *ratio > 0.0).max_by(|one, other| one.0.total_cmp(&other.0))
    }
}

/// Each kernel compared with the one before it.
pub fn compared<'a>(kernels: &'a [Kernel], workloads: &[Workload]) -> Vec<Pair<'a>> {
    kernels.windows(2).map(|two| Pair::of(&two[0], &two[1], workloads)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{COMMAND, sample};
    use super::*;

    fn pair_of(old: &[f64], new: &[f64]) -> (usize, usize) {
        let (old, new) = (sample::kernel("old", old), sample::kernel("new", new));
        let workloads = [Workload { name: COMMAND.into(), command: Vec::new() }];
        let pair = Pair::of(&old, &new, &workloads);
        (pair.changes.len(), pair.same.len())
    }

    #[test]
    fn a_change_is_larger_than_both_spreads() {
        assert_eq!(pair_of(&[100.0, 102.0], &[104.0, 105.0]), (1, 1));
        assert_eq!(pair_of(&[100.0, 102.0], &[103.0, 104.0]), (0, 2));
    }

    #[test]
    fn equal_boots_have_a_bound_of_zero() {
        assert_eq!(pair_of(&[100.0, 100.0], &[101.0, 101.0]), (1, 1));
        assert_eq!(pair_of(&[100.0, 100.0], &[100.0, 100.0]), (0, 2));
    }

    #[test]
    fn each_kernel_is_compared_with_the_one_before_it() {
        let kernels = [sample::kernel("a", &[1.0]), sample::kernel("b", &[1.0]), sample::kernel("c", &[2.0])];
        let workloads = [Workload { name: COMMAND.into(), command: Vec::new() }];
        let changed: Vec<usize> = compared(&kernels, &workloads).iter().map(|pair| pair.changes.len()).collect();
        assert_eq!(changed, [0, 1]);
    }
}
