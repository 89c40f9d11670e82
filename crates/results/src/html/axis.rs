//! Axis ranges that ignore outliers. Values outside the range are drawn at the edge, with an arrow.

/// The axis ignores the end of an interval that is more than this many times the usual distance from its estimate.
const FAR: f64 = 6.0;
/// The axis ignores an increase that is more than this many times the next largest change.
const FAR_CHANGE: f64 = 8.0;
/// In this comparison, the next largest change counts as at least this many percent.
const MIN_INCREASE: f64 = 10.0;

/// The range of an axis of changes in percent, each with its interval. It contains all estimates, except increases far larger
/// than all other changes. Ends of intervals that are far from their estimate for this axis are cut off: with few intervals, one of them
/// must not decide what is usual, so that is the lower quartile. The range extends to at least `least` on both sides.
pub fn of_changes(changes: &[(f64, Option<(f64, f64)>)], least: f64) -> (f64, f64) {
    let mut estimates: Vec<f64> = changes.iter().map(|(estimate, _)| *estimate).filter(|one| one.is_finite()).collect();
    estimates.sort_by(f64::total_cmp);
    while let [.., next, last] = estimates[..] {
        let others = estimates[0].abs().max(next.abs()).max(MIN_INCREASE);
        if last <= FAR_CHANGE * others {
            break;
        }
        estimates.pop();
    }
    let lengths = changes.iter().filter_map(|(estimate, interval)| {
        let (low, high) = (*interval)?;
        Some([estimate - low, high - estimate])
    });
    let mut lengths: Vec<f64> = lengths.flatten().filter(|length| length.is_finite()).collect();
    lengths.sort_by(f64::total_cmp);
    let longest = FAR * lengths.get(lengths.len().saturating_sub(1) / 4).map_or(least, |usual| usual.max(least));
    let ends = changes.iter().filter(|(estimate, _)| estimates.contains(estimate)).flat_map(|(estimate, interval)| {
        let (low, high) = interval.unwrap_or((*estimate, *estimate));
        [low.max(estimate - longest), high.min(estimate + longest)]
    });
    let ends: Vec<f64> = ends.filter(|end| end.is_finite()).chain([-least, least]).collect();
    with_margin(&ends, 0.04)
}

/// The range of an axis of samples, in groups that may differ in level. It contains, of each group, all samples that are not far
/// outside the group's quartiles.
pub fn of_samples<'a>(groups: impl IntoIterator<Item = &'a [f64]>) -> Option<(f64, f64)> {
    let near: Vec<f64> = groups.into_iter().flat_map(near).collect();
    if near.is_empty() {
        return None;
    }
    Some(with_margin(&near, 0.06))
}

fn near(group: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = group.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return sorted };
    let (low, high) = (sorted[last / 4], sorted[last - last / 4]);
    // Samples that are nearly equal have no spread to compare with, so 1 % of their value is used.
    let far = FAR * (high - low).max(high.abs() * 0.01);
    sorted.retain(|value| (low - far..=high + far).contains(value));
    sorted
}

fn with_margin(values: &[f64], share: f64) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let margin = ((high - low) * share).max(high.abs() * 0.001);
    (low - margin, high + margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_far_above_the_others_does_not_stretch_the_axis() {
        let change = |estimate: f64, half: f64| (estimate, Some((estimate - half, estimate + half)));
        let usual = [change(-30.0, 1.0), change(-10.0, 1.0), change(0.5, 1.0)];
        let (low, high) = of_changes(&usual, 1.5);
        assert!((-33.0..-31.0).contains(&low) && (1.5..3.5).contains(&high), "{low} {high}");
        let with_far = [&usual[..], &[change(900.0, 2.0)]].concat();
        assert_eq!(of_changes(&with_far, 1.5).1, high);
        let with_wide = [&usual[..], &[change(0.0, 400.0)]].concat();
        let (low, high) = of_changes(&with_wide, 1.5);
        assert!(low > -40.0 && high < 15.0, "{low} {high}");
    }

    #[test]
    fn one_wide_interval_of_two_does_not_stretch_the_axis() {
        for changes in [
            vec![(-11.0, Some((-12.0, -10.0))), (20.0, Some((-15.0, 300.0)))],
            vec![(20.0, Some((15.0, 300.0)))],
            vec![(-11.0, Some((-14.0, -8.0))), (5.0, Some((-60.0, 310.0))), (8.0, Some((-50.0, 290.0)))],
        ] {
            let (_, high) = of_changes(&changes, 1.5);
            assert!(high < 60.0, "{high}: {changes:?}");
        }
    }

    #[test]
    fn gains_and_single_values_are_within_the_axis() {
        let (low, _) = of_changes(&[(-60.0, None), (0.1, None), (0.2, None), (0.3, None)], 1.5);
        assert!(low < -60.0, "{low}");
        let (low, high) = of_changes(&[(300.0, Some((100.0, 500.0)))], 1.5);
        assert!(low < 0.0 && high > 500.0, "{low} {high}");
        assert_eq!(of_changes(&[], 1.5).1, of_changes(&[(f64::NAN, None)], 1.5).1);
    }

    #[test]
    fn a_sample_far_from_its_group_does_not_stretch_the_axis() {
        let (fast, slow) = ([1.0, 1.01, 0.99, 1.02, 1.0], [5.0, 5.1, 4.9, 5.05, 60.0]);
        let (low, high) = of_samples([&fast[..], &slow]).unwrap();
        assert!((0.5..0.99).contains(&low) && (5.1..6.0).contains(&high), "{low} {high}");
        assert_eq!(of_samples([&[][..]]), None);
    }
}
