//! Correction for many workloads: limits the expected share of false discoveries among the changes that are called real
//! (Benjamini and Hochberg, J. R. Statist. Soc. B 57, 1995; valid for tests that are independent or positively dependent).

/// The q value of each p value, in the same order: the smallest false discovery rate at which the p value is a discovery.
pub fn q_values(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    let mut q_values = vec![1.0; p_values.len()];
    let mut min = 1.0f64;
    for (rank, index) in order.into_iter().enumerate().rev() {
        min = min.min(p_values[index] * p_values.len() as f64 / (rank + 1) as f64);
        q_values[index] = min;
    }
    q_values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes a q value by definition: the minimum, over every threshold that would make the p value a discovery, of the
    /// expected share of false discoveries.
    fn slow(p_values: &[f64]) -> Vec<f64> {
        let called = |threshold: f64| p_values.iter().filter(|p| **p <= threshold).count() as f64;
        let share = |threshold: &f64| threshold * p_values.len() as f64 / called(*threshold);
        let min = |p: &f64| p_values.iter().filter(|other| *other >= p).map(share).fold(1.0, f64::min);
        p_values.iter().map(min).collect()
    }

    #[test]
    fn the_example_of_the_paper_has_four_discoveries() {
        // The p values are those of section 3.2 of the paper: 15 of a trial of thrombolysis, of which four are rejected at
        // 0.05.
        let p_values = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        assert_eq!(q_values(&p_values).iter().filter(|q| **q <= 0.05).count(), 4);
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn q_values_are_those_of_the_definition(p_values in prop::collection::vec(0.0..=1.0f64, 0..30)) {
            for (fast, slow) in q_values(&p_values).into_iter().zip(slow(&p_values)) {
                prop_assert!((fast - slow).abs() < 1e-12, "{} {}", fast, slow);
            }
        }
    }
}
