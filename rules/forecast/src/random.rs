//! Numbers drawn from a seed: xoshiro256** (Blackman, Vigna 2018), filled by splitmix64. Written here, so that a model is the same
//! whatever becomes of libraries.

/// Mixes the bits of a number (the finalizer of splitmix64).
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the seed of a model with an id: the FNV-1a hash of its bytes, mixed.
pub fn seed(id: &str) -> u64 {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(hash)
}

/// Stream of numbers of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random([u64; 4]);

impl Random {
    /// Starts the stream of a seed.
    pub fn new(seed: u64) -> Self {
        let place = |at: u64| mix(seed.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Self([place(0), place(1), place(2), place(3)])
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let drawn = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// Draws a number below a bound, which is not 0 (Lemire's multiplication; the bias is below 2⁻³² for such bounds).
    pub fn below(&mut self, bound: u32) -> u32 {
        let wide = u128::from(self.next()) * u128::from(bound);
        (wide >> 64) as u32
    }

    /// Draws a number in [0, 1) with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Returns the state, from which [`Random::from_state`] goes on.
    pub fn state(&self) -> [u64; 4] {
        self.0
    }

    /// Goes on from a state. All zeros is no state of a stream, and becomes the stream of seed 0.
    pub fn from_state(state: [u64; 4]) -> Self {
        if state == [0; 4] { Self::new(0) } else { Self(state) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_those_of_their_seeds() {
        // As published: splitmix64 from the seed 1234567 begins so.
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.below(1000), random.below(1000), random.below(1000)]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(seed("a"), seed("b"));
        let mut random = Random::new(7);
        let mut counts = [0_u32; 10];
        (0..10_000).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
