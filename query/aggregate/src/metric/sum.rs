//! Sums compensated for rounding as Kahan's summation does, as OpenSearch's are.

use super::{Ordinals, grow, mapped, slot};
use crate::result::Metric;

/// A sum with what rounding has lost of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CompensatedSum {
    value: f64,
    lost: f64,
}

impl CompensatedSum {
    /// Adds a number. What is not finite makes the sum not finite.
    pub(crate) fn add(&mut self, number: f64) {
        self.add_compensated(number, 0.0);
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: Self) {
        self.add_compensated(other.value, other.lost);
    }

    fn add_compensated(&mut self, number: f64, lost: f64) {
        if !number.is_finite() {
            self.value += number;
        }
        if self.value.is_finite() {
            let corrected = number + (self.lost + lost);
            let updated = self.value + corrected;
            self.lost = corrected - (updated - self.value);
            self.value = updated;
        }
    }

    /// Returns the sum.
    pub(crate) fn value(self) -> f64 {
        self.value
    }

    /// Sums a batch in four interleaved sums, which do not wait for each other.
    pub(super) fn add_all(&mut self, numbers: &[f64]) {
        let mut lanes = [Self::default(); 4];
        let mut chunks = numbers.chunks_exact(4);
        for chunk in &mut chunks {
            for (lane, number) in lanes.iter_mut().zip(chunk) {
                lane.add(*number);
            }
        }
        for lane in lanes {
            self.merge(lane);
        }
        for number in chunks.remainder() {
            self.add(*number);
        }
    }
}

/// Sums and counts by ordinal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums(Vec<(CompensatedSum, u64)>);

impl Sums {
    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, numbers: &[f64]) {
        grow(&mut self.0, ordinals, Default::default());
        match ordinals {
            Ordinals::One(ordinal) => {
                if let Some((sum, count)) = self.0.get_mut(ordinal as usize) {
                    sum.add_all(numbers);
                    *count += numbers.len() as u64;
                }
            }
            Ordinals::Each(ordinals) => {
                for (ordinal, number) in ordinals.iter().zip(numbers) {
                    if let Some((sum, count)) = self.0.get_mut(*ordinal as usize) {
                        sum.add(*number);
                        *count += 1;
                    }
                }
            }
        }
    }

    pub(super) fn merge(&mut self, others: &Self, map: Option<&[u32]>) {
        for (at, (other, number)) in mapped(&others.0, map) {
            let (sum, count) = slot(&mut self.0, at, Default::default());
            sum.merge(*other);
            *count += number;
        }
    }

    pub(super) fn sum(&self, at: usize) -> f64 {
        self.0.get(at).map_or(0.0, |(sum, _)| sum.value())
    }

    pub(super) fn count(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |(_, count)| *count)
    }

    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<(CompensatedSum, u64)>()
    }
}

/// Sums of weighted values and of weights by ordinal.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeightedSums(Vec<(CompensatedSum, CompensatedSum)>);

impl WeightedSums {
    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, values: &[f64], weights: &[f64]) {
        grow(&mut self.0, ordinals, Default::default());
        for (at, (value, weight)) in values.iter().zip(weights).enumerate() {
            let ordinal = match ordinals {
                Ordinals::One(ordinal) => Some(ordinal),
                Ordinals::Each(ordinals) => ordinals.get(at).copied(),
            };
            if let Some((sum, total)) = ordinal.and_then(|ordinal| self.0.get_mut(ordinal as usize)) {
                sum.add(value * weight);
                total.add(*weight);
            }
        }
    }

    pub(super) fn merge(&mut self, others: &Self, map: Option<&[u32]>) {
        for (at, (sum, weight)) in mapped(&others.0, map) {
            let own = slot(&mut self.0, at, Default::default());
            own.0.merge(*sum);
            own.1.merge(*weight);
        }
    }

    pub(super) fn reduce(&self, at: usize) -> Metric {
        let (sum, weight) = self.0.get(at).copied().unwrap_or_default();
        Metric::WeightedAvg { sum: sum.value(), weight: weight.value() }
    }

    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<(CompensatedSum, CompensatedSum)>()
    }
}

/// Counts values by ordinal.
pub(super) fn count(counts: &mut Vec<u64>, ordinals: Ordinals<'_>, number: usize) {
    grow(counts, ordinals, 0);
    match ordinals {
        Ordinals::One(ordinal) => {
            if let Some(count) = counts.get_mut(ordinal as usize) {
                *count += number as u64;
            }
        }
        Ordinals::Each(ordinals) => {
            debug_assert_eq!(ordinals.len(), number);
            for ordinal in ordinals {
                if let Some(count) = counts.get_mut(*ordinal as usize) {
                    *count += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_lose_small_numbers() {
        let numbers: Vec<f64> = (0..1000).map(|_| 0.1).collect();
        let mut sum = CompensatedSum::default();
        numbers.iter().for_each(|number| sum.add(*number));
        assert_eq!(sum.value(), 100.0);
        let mut lanes = CompensatedSum::default();
        lanes.add_all(&numbers);
        assert_eq!(lanes.value(), 100.0);
        sum.add(f64::INFINITY);
        sum.add(1.0);
        assert_eq!(sum.value(), f64::INFINITY);
        sum.add(f64::NEG_INFINITY);
        assert!(sum.value().is_nan());
    }
}
