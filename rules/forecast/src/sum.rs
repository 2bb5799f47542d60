//! Sums that lose nothing to rounding on the way (Neumaier 1974).

/// A sum with what its rounding has lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        self.lost += match self.sum.abs() >= value.abs() {
            true => (self.sum - sum) + value,
            false => (value - sum) + self.sum,
        };
        self.sum = sum;
    }

    pub(crate) fn value(self) -> f64 {
        self.sum + self.lost
    }
}

/// Adds up.
pub(crate) fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = Sum::default();
    values.into_iter().for_each(|value| sum.add(value));
    sum.value()
}

/// Returns the mean; of nothing it is 0.
pub(crate) fn mean(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        count => sum(values.iter().copied()) / count as f64,
    }
}
