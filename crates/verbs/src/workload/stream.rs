//! `stream`: four loops over three arrays, after McCalpin's STREAM, in which address translation is cheap.
//!
//! This is the counterpart of `chase`: as long as the hardware prefetcher works, page sizes should matter little.

use std::time::{Duration, Instant};

use workloads::memory::Anonymous;
use workloads::random::mix;

use super::report::Report;
use super::{WorkloadError, arguments, check};

/// A round multiplies the values by `2 s + s * s`, which is 1 for this `s`, so that values neither overflow nor become
/// denormal over any number of rounds.
const SCALAR: f64 = std::f64::consts::SQRT_2 - 1.0;

/// Arguments of `stream`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Size of the three arrays together, in whole triples of 8-byte numbers
    #[arg(long, default_value = "384M", value_parser = arguments::size)]
    bytes: u64,
    /// Rounds of the four loops; the first one is not timed
    #[arg(long, default_value_t = 12)]
    rounds: u64,
}

/// The three arrays. Arrays of one element each give the expected values; the full arrays are measured.
struct Arrays<'a> {
    a: &'a mut [f64],
    b: &'a mut [f64],
    c: &'a mut [f64],
}

impl Arrays<'_> {
    #[inline(never)]
    fn copy(&mut self) {
        self.c.copy_from_slice(self.a);
    }

    #[inline(never)]
    fn scale(&mut self) {
        self.b.iter_mut().zip(&*self.c).for_each(|(b, c)| *b = SCALAR * c);
    }

    #[inline(never)]
    fn add(&mut self) {
        self.c.iter_mut().zip(&*self.a).zip(&*self.b).for_each(|((c, a), b)| *c = a + b);
    }

    #[inline(never)]
    fn triad(&mut self) {
        self.a.iter_mut().zip(&*self.b).zip(&*self.c).for_each(|((a, b), c)| *a = b + SCALAR * c);
    }
}

/// The name of a loop, its function, and the number of arrays that it reads or writes.
type Kernel = (&'static str, fn(&mut Arrays<'_>), u64);

const KERNELS: [Kernel; 4] = [
    ("copy", |arrays| arrays.copy(), 2),
    ("scale", |arrays| arrays.scale(), 2),
    ("add", |arrays| arrays.add(), 3),
    ("triad", |arrays| arrays.triad(), 3),
];

/// Runs the loops.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let bytes = arguments::multiple("bytes", arguments.bytes, 24, "one number in each of three arrays")? / 3;
    let rounds = arguments::at_least("rounds", 2, arguments.rounds)?;
    arguments::room("bytes", u128::from(arguments.bytes))?;
    let (mut a, mut b, mut c) = (Anonymous::map(bytes)?, Anonymous::map(bytes)?, Anonymous::map(bytes)?);
    let mut arrays = Arrays { a: a.slice_mut(), b: b.slice_mut(), c: c.slice_mut() };
    fill(&mut arrays);
    let times = times(&mut arrays, rounds);
    let checksum = verify(&arrays, rounds)?;
    let report = Report::new("stream", checksum).argument("bytes", arguments.bytes).argument("rounds", rounds);
    Ok(KERNELS.iter().zip(times).fold(report, |report, ((name, _, touched), mut times)| {
        times.sort_unstable();
        let moved = (touched * bytes as u64) as f64;
        let median = times[times.len() / 2].as_secs_f64();
        report
            .figure(format!("{name}_bytes_per_s"), moved / median)
            .figure(format!("{name}_best_bytes_per_s"), moved / times[0].as_secs_f64())
    }))
}

fn fill(arrays: &mut Arrays<'_>) {
    arrays.a.fill(1.0);
    arrays.b.fill(2.0);
    arrays.c.fill(0.0);
}

/// The times of every loop, round by round, without the first round.
fn times(arrays: &mut Arrays<'_>, rounds: u64) -> [Vec<Duration>; 4] {
    let mut times = [(); 4].map(|()| Vec::with_capacity(rounds as usize));
    for round in 0..rounds {
        for ((_, kernel, _), times) in KERNELS.iter().zip(&mut times) {
            let start = Instant::now();
            kernel(arrays);
            let elapsed = start.elapsed();
            if round > 0 {
                times.push(elapsed);
            }
        }
    }
    times
}

/// Verifies that all numbers of an array are equal, bit by bit, to the result of the same loops over arrays of one
/// number.
fn verify(arrays: &Arrays<'_>, rounds: u64) -> Result<u64, WorkloadError> {
    let (mut a, mut b, mut c) = ([0.0], [0.0], [0.0]);
    let mut expected = Arrays { a: &mut a, b: &mut b, c: &mut c };
    fill(&mut expected);
    (0..rounds).for_each(|_| KERNELS.iter().for_each(|(_, kernel, _)| kernel(&mut expected)));
    let pairs = [("a", &arrays.a, expected.a[0]), ("b", &arrays.b, expected.b[0]), ("c", &arrays.c, expected.c[0])];
    for (name, array, expected) in pairs {
        for (index, number) in array.iter().enumerate() {
            if number.to_bits() != expected.to_bits() {
                check(format!("{name}[{index}] as bits"), expected.to_bits(), number.to_bits())?;
            }
        }
    }
    Ok(pairs.iter().fold(arrays.a.len() as u64, |sum, (_, _, expected)| mix(sum ^ expected.to_bits())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_computes_what_stream_says() {
        let (mut a, mut b, mut c) = ([1.0; 5], [2.0; 5], [0.0; 5]);
        let mut arrays = Arrays { a: &mut a, b: &mut b, c: &mut c };
        KERNELS.iter().for_each(|(_, kernel, _)| kernel(&mut arrays));
        // c = a = 1; b = s c; c = a + b; a = b + s c.
        assert_eq!((b, c), ([SCALAR; 5], [1.0 + SCALAR; 5]));
        assert!(a.iter().all(|a| (a - 1.0).abs() < 1e-15), "{a:?}");
    }

    #[test]
    fn one_wrong_number_is_found() {
        let (mut a, mut b, mut c) = (vec![0.0; 99], vec![0.0; 99], vec![0.0; 99]);
        let mut arrays = Arrays { a: &mut a, b: &mut b, c: &mut c };
        fill(&mut arrays);
        times(&mut arrays, 4);
        assert!(verify(&arrays, 4).is_ok());
        assert!(verify(&arrays, 5).is_err());
        arrays.b[98] += f64::EPSILON;
        let error = verify(&arrays, 4).unwrap_err().to_string();
        assert!(error.contains("b[98]"), "{error}");
    }
}
