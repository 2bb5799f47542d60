//! Least and greatest values.

use super::{Ordinals, grow, mapped, slot};
use crate::result::Metric;

/// Least or greatest values by ordinal.
#[derive(Clone, Debug)]
pub(crate) struct MinMaxState {
    states: Vec<f64>,
    greatest: bool,
}

impl MinMaxState {
    pub(super) fn least() -> Self {
        Self { states: Vec::new(), greatest: false }
    }

    pub(super) fn greatest() -> Self {
        Self { states: Vec::new(), greatest: true }
    }

    fn empty(&self) -> f64 {
        if self.greatest { f64::NEG_INFINITY } else { f64::INFINITY }
    }

    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, numbers: &[f64]) {
        let empty = self.empty();
        grow(&mut self.states, ordinals, empty);
        let choose: fn(f64, f64) -> f64 = if self.greatest { f64::max } else { f64::min };
        match ordinals {
            Ordinals::One(ordinal) => {
                if let Some(state) = self.states.get_mut(ordinal as usize) {
                    *state = match self.greatest {
                        true => numbers.iter().fold(*state, |most, number| most.max(*number)),
                        false => numbers.iter().fold(*state, |least, number| least.min(*number)),
                    };
                }
            }
            Ordinals::Each(ordinals) => {
                for (ordinal, number) in ordinals.iter().zip(numbers) {
                    if let Some(state) = self.states.get_mut(*ordinal as usize) {
                        *state = choose(*state, *number);
                    }
                }
            }
        }
    }

    pub(super) fn merge(&mut self, others: &Self, map: Option<&[u32]>) {
        let empty = self.empty();
        for (at, other) in mapped(&others.states, map) {
            let state = slot(&mut self.states, at, empty);
            *state = if self.greatest { state.max(*other) } else { state.min(*other) };
        }
    }

    pub(super) fn reduce(&self, at: usize) -> Metric {
        let value = self.states.get(at).copied().unwrap_or(self.empty());
        if self.greatest { Metric::Max(value) } else { Metric::Min(value) }
    }

    pub(super) fn memory(&self) -> usize {
        self.states.capacity() * size_of::<f64>()
    }
}
