//! `stats` and `extended_stats`: count, extremes, sum, and the sum of squares.

use super::sum::CompensatedSum;
use super::{Ordinals, grow, mapped, slot};
use crate::result::{ExtendedStats, Metric, Stats};

#[derive(Clone, Copy, Debug)]
struct State {
    count: u64,
    min: f64,
    max: f64,
    sum: CompensatedSum,
    squares: CompensatedSum,
}

impl Default for State {
    fn default() -> Self {
        Self {
            count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: CompensatedSum::default(),
            squares: CompensatedSum::default(),
        }
    }
}

impl State {
    fn add(&mut self, number: f64, squared: bool) {
        self.count += 1;
        self.min = self.min.min(number);
        self.max = self.max.max(number);
        self.sum.add(number);
        if squared {
            self.squares.add(number * number);
        }
    }
}

/// Statistics by ordinal.
#[derive(Clone, Debug)]
pub(crate) struct MomentState {
    states: Vec<State>,
    /// Present where squares are summed too.
    sigma: Option<f64>,
}

impl MomentState {
    pub(super) fn new(sigma: Option<f64>) -> Self {
        Self { states: Vec::new(), sigma }
    }

    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, numbers: &[f64]) {
        grow(&mut self.states, ordinals, State::default());
        let squared = self.sigma.is_some();
        match ordinals {
            Ordinals::One(ordinal) => {
                let Some(state) = self.states.get_mut(ordinal as usize) else { return };
                state.count += numbers.len() as u64;
                state.min = numbers.iter().fold(state.min, |least, number| least.min(*number));
                state.max = numbers.iter().fold(state.max, |most, number| most.max(*number));
                state.sum.add_all(numbers);
                if squared {
                    numbers.iter().for_each(|number| state.squares.add(number * number));
                }
            }
            Ordinals::Each(ordinals) => {
                for (ordinal, number) in ordinals.iter().zip(numbers) {
                    if let Some(state) = self.states.get_mut(*ordinal as usize) {
                        state.add(*number, squared);
                    }
                }
            }
        }
    }

    pub(super) fn merge(&mut self, others: &Self, map: Option<&[u32]>) {
        for (at, other) in mapped(&others.states, map) {
            let state = slot(&mut self.states, at, State::default());
            state.count += other.count;
            state.min = state.min.min(other.min);
            state.max = state.max.max(other.max);
            state.sum.merge(other.sum);
            state.squares.merge(other.squares);
        }
    }

    pub(super) fn reduce(&self, at: usize) -> Metric {
        let state = self.states.get(at).copied().unwrap_or_default();
        let stats = Stats { count: state.count, min: state.min, max: state.max, sum: state.sum.value() };
        match self.sigma {
            None => Metric::Stats(Box::new(stats)),
            Some(sigma) => Metric::ExtendedStats(Box::new(ExtendedStats {
                stats,
                squares: state.squares.value(),
                sigma,
            })),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.states.capacity() * size_of::<State>()
    }
}
