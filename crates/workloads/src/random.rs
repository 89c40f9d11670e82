//! Reproducible randomness: a hash, a stream and a shuffle.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A 64-bit hash of a number: the finaliser of SplitMix64 (Steele, Lea, Flood 2014), a bijection.
pub fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// `bits` scaled to a number below `bound` (Lemire's multiplication; the bias is below bound / 2^64).
pub fn below(bits: u64, bound: usize) -> usize {
    ((u128::from(bits) * bound as u128) >> 64) as usize
}

/// An endless stream of 64-bit pseudorandom numbers.
pub fn stream(seed: u64) -> impl Iterator<Item = u64> {
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    std::iter::repeat_with(move || generator.next_u64())
}

/// Puts a list in random order (Fisher and Yates).
pub fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut numbers = stream(seed);
    for last in (1..list.len()).rev() {
        let bits = numbers.next().expect("the stream is endless");
        list.swap(last, below(bits, last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // The first outputs of SplitMix64 seeded with 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_its_ends() {
        assert_eq!((below(0, 10), below(u64::MAX, 10), below(u64::MAX, 1)), (0, 9, 0));
    }

    #[test]
    fn a_shuffle_keeps_everything_and_follows_its_seed() {
        let shuffled = |seed| {
            let mut list: Vec<u32> = (0..1000).collect();
            shuffle(&mut list, seed);
            list
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }
}
