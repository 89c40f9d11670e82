//! Student's distribution.

/// Quantile `p` of Student's distribution, for `0.5 < p < 1`, by bisection.
pub fn quantile(p: f64, degrees: u32) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if cumulative(middle, degrees) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Cumulative probability at `t`, for `t` above 0 (Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
fn cumulative(t: f64, degrees: u32) -> f64 {
    let angle = (t / f64::from(degrees).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    let (mut term, mut sum) = (if is_odd { cosine } else { 1.0 }, 0.0);
    for k in 1..=degrees / 2 {
        sum += term;
        let of = f64::from(2 * k);
        term *= cosine * cosine * if is_odd { of / (of + 1.0) } else { (of - 1.0) / of };
    }
    let within = if is_odd { 2.0 / std::f64::consts::PI * (angle + sine * sum) } else { sine * sum };
    (1.0 + within) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cumulative probability at `t` by summing the density.
    fn slow(t: f64, degrees: u32) -> f64 {
        let n = f64::from(degrees);
        let density = |x: f64| (1.0 + x * x / n).powf(-(n + 1.0) / 2.0);
        let steps = 200_000;
        let sum =
            |to: f64| (0..steps).map(|at| density((f64::from(at) + 0.5) / f64::from(steps) * to)).sum::<f64>() * to;
        // The tail falls as a power of `t`. With three or more degrees of freedom, values beyond 4000 are negligible.
        0.5 + 0.5 * sum(t) / sum(4000.0)
    }

    #[test]
    fn quantiles_are_the_published_ones() {
        // Handbook of Mathematical Functions, table 26.10, 97.5 %.
        for (degrees, t) in [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)] {
            assert!((quantile(0.975, degrees) - t).abs() < 6e-4, "{degrees}");
        }
        for degrees in [3, 4, 9, 16] {
            assert!((cumulative(1.7, degrees) - slow(1.7, degrees)).abs() < 1e-3, "{degrees}");
        }
    }
}
