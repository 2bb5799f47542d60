//! Seeded random numbers that are the same on every machine and in every release.
//!
//! A corpus must not change because a dependency changed its generator, and making it must not be
//! slower than a disk: hence our own small generator (xoshiro256++, Blackman and Vigna 2019, seeded
//! by SplitMix64) and our own [`Zipf`] sampler.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// Starts the stream that belongs to a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        let c = c ^ a;
        let d = d ^ b;
        self.state = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// Returns a number below `bound`, which must not be 0. The bias is below 2^-32.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index into something of the given length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns a number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with the given probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Picks an element of a list that is not empty.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }
}

/// Ranks whose frequency falls as `1 / rank^exponent`: request paths and client addresses do.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Prepares ranks `0..count`.
    pub(crate) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// Draws a rank.
    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        let total = self.cumulative.last().copied().unwrap_or_default();
        let point = random.unit() * total;
        self.cumulative.partition_point(|sum| *sum <= point).min(self.cumulative.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_pinned() {
        let mut random = Random::new(1);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        // xoshiro256++ from the SplitMix64 expansion of 1; a change here changes every corpus.
        assert_eq!(first, [14971601782005023387, 13781649495232077965, 1847458086238483744]);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(9);
        for _ in 0..10_000 {
            assert!(random.below(7) < 7);
            assert!((0.0..1.0).contains(&random.unit()));
        }
    }

    #[test]
    fn low_ranks_are_frequent() {
        let zipf = Zipf::new(1_000, 1.0);
        let mut random = Random::new(2);
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random)] += 1;
        }
        assert!(counts[0] > 10_000 && counts[0] < 17_000, "{}", counts[0]);
        assert!(counts[0] > counts[1] && counts[1] > counts[9] && counts[9] > counts[99]);
    }
}
