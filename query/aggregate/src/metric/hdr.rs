//! Histograms of high dynamic range, as HdrHistogram's `DoubleHistogram` keeps them: a value counts by its exponent and the first bits of
//! its mantissa, as many as the wanted decimal digits need.

use std::collections::HashMap;

/// Bits of a double's mantissa.
const MANTISSA: u32 = 52;

/// The histogram of a set of numbers, none negative.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hdr {
    /// Counts by the leading bits of values. There are at most `2048 << bits` of them.
    counts: HashMap<u32, u64>,
    total: u64,
    /// Least value but 0, which decides the unit; 0 where there is none.
    least: f64,
}

/// Returns the bits of the mantissa that tell values of so many decimal digits apart.
pub(crate) fn mantissa_bits(significant_digits: u8) -> u32 {
    let distinct = 2 * 10u64.pow(u32::from(significant_digits.min(5)));
    // Half of the sub-buckets of the least power of two that has so many.
    distinct.next_power_of_two().trailing_zeros() - 1
}

impl Hdr {
    /// Adds a number; returns whether it is one that a histogram can hold: finite and not negative.
    pub(crate) fn add(&mut self, number: f64, bits: u32) -> bool {
        if !number.is_finite() || number < 0.0 {
            return false;
        }
        *self.counts.entry(((number + 0.0).to_bits() >> (MANTISSA - bits)) as u32).or_default() += 1;
        self.total += 1;
        if number > 0.0 && (number < self.least || self.least == 0.0) {
            self.least = number;
        }
        true
    }

    /// Adds another histogram.
    pub(crate) fn merge(&mut self, other: Self) {
        for (key, count) in other.counts {
            *self.counts.entry(key).or_default() += count;
        }
        self.total += other.total;
        if other.least > 0.0 && (other.least < self.least || self.least == 0.0) {
            self.least = other.least;
        }
    }

    /// Returns the counts, least value first.
    fn sorted(&self) -> Vec<(u32, u64)> {
        let mut counts: Vec<(u32, u64)> = self.counts.iter().map(|(key, count)| (*key, *count)).collect();
        counts.sort_unstable();
        counts
    }

    /// Returns the greatest values that count as much as those at percents; NaN without values.
    pub(crate) fn percentiles(&self, percents: &[f64], bits: u32) -> Vec<f64> {
        let sorted = self.sorted();
        let unit = self.unit(bits);
        let percentile = |percent: f64| {
            if self.total == 0 {
                return f64::NAN;
            }
            let requested = percent.next_down().clamp(0.0, 100.0);
            let wanted = ((requested / 100.0 * self.total as f64).ceil() as u64).max(1);
            let mut so_far = 0;
            let found = sorted.iter().find(|(_, count)| {
                so_far += count;
                so_far >= wanted
            });
            match found {
                Some((0, _)) | None => 0.0,
                Some((key, _)) => {
                    let least = f64::from_bits(u64::from(*key) << (MANTISSA - bits));
                    if percent == 0.0 {
                        return least;
                    }
                    let next = f64::from_bits(u64::from(*key + 1) << (MANTISSA - bits));
                    next - unit
                }
            }
        };
        percents.iter().map(|percent| percentile(*percent)).collect()
    }

    /// Returns the percents of the values that are not greater; NaN without values.
    pub(crate) fn ranks(&self, values: &[f64], bits: u32) -> Vec<f64> {
        let sorted = self.sorted();
        let rank = |value: f64| {
            if self.total == 0 {
                return f64::NAN;
            }
            if value < 0.0 {
                return 0.0;
            }
            let key = ((value + 0.0).to_bits() >> (MANTISSA - bits)) as u32;
            let below: u64 =
                sorted.iter().take_while(|(other, _)| *other <= key).map(|(_, count)| count).sum();
            100.0 * below as f64 / self.total as f64
        };
        values.iter().map(|value| rank(*value)).collect()
    }

    /// The integer unit of the histogram: the one with which its least value but 0 has all digits.
    fn unit(&self, bits: u32) -> f64 {
        if self.least == 0.0 {
            return 0.0;
        }
        let power = f64::from_bits(self.least.to_bits() >> MANTISSA << MANTISSA);
        power / f64::from(1u32 << bits)
    }

    /// Returns about how many bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        self.counts.capacity() * (size_of::<(u32, u64)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_by_their_digits() {
        let bits = mantissa_bits(3);
        assert_eq!(bits, 10);
        let mut histogram = Hdr::default();
        for number in [1.0, 51.0, 101.0, 151.0] {
            assert!(histogram.add(number, bits));
        }
        assert!(!histogram.add(-1.0, bits));
        let percents = histogram.percentiles(&[1.0, 25.0, 50.0, 75.0, 95.0], bits);
        assert_eq!(percents, [1.0, 1.0, 51.0302734375, 101.0615234375, 151.1240234375]);
        assert_eq!(histogram.ranks(&[50.0, 51.0, 200.0], bits), [25.0, 50.0, 100.0]);
    }
}
