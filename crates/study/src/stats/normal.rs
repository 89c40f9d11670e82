//! The standard normal distribution, for samples that are too large to enumerate.

/// Cumulative probability at `z`; the error is below 1e-14.
pub(crate) fn cumulative(z: f64) -> f64 {
    let upper = |z: f64| if z < 3.0 { 0.5 - half(z) } else { tail(z) };
    if z < 0.0 { upper(-z) } else { 1.0 - upper(z) }
}

/// Quantile `p`, for `0 < p < 1`, by bisection.
pub fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if cumulative(middle) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Probability between 0 and `z`: the series z + z^3/3 + z^5/(3*5) + ... times the density.
fn half(z: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (z, z, 1.0);
    while term > sum * 1e-17 {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    density(z) * sum
}

/// Probability above `z`, for large `z`: Laplace's continued fraction 1/(z + 1/(z + 2/(z + 3/...))).
fn tail(z: f64) -> f64 {
    density(z) / (1..=60).rev().fold(z, |fraction, k| z + f64::from(k) / fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_published_values() {
        // Handbook of Mathematical Functions, table 26.1.
        for (z, p) in [(0.0, 0.5), (1.0, 0.841344746068543), (2.5, 0.993790334674224), (4.0, 0.999968328758167)] {
            assert!((cumulative(z) - p).abs() < 1e-14, "{z}");
            assert!((cumulative(-z) - (1.0 - p)).abs() < 1e-14, "{z}");
        }
        assert!((cumulative(2.999999) - cumulative(3.000001)).abs() < 1e-8);
        assert!((quantile(0.975) - 1.959963984540054).abs() < 1e-12);
        assert!((quantile(0.75) - 0.674_489_750_196_081_7).abs() < 1e-12);
        assert!((quantile(0.1) + 1.281_551_565_544_6).abs() < 1e-12);
    }
}
