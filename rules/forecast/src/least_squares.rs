//! Least squares by Householder reflections, over rows that come one after another.
//!
//! [`Rows`] takes rows of a matrix with what they are to give, and keeps no more than a triangle and a block of them: each full block is
//! reflected into the triangle (as in TSQR; Golub and Van Loan, *Matrix Computations*, 5.2). [`Rows::solve`] then answers
//! for any number of first columns, which is what choosing between nested models needs. A column that those before it make up, but for
//! rounding, gets the coefficient 0.

/// Share of a column's length that has to be left, when the columns before it are taken out, for it to say something of its own.
const INDEPENDENT: f64 = 1e-11;

/// Rows that were taken so far, as a triangle.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// Columns, that of the results included: the last.
    columns: usize,
    /// Column by column: the triangle above, the block below.
    matrix: Vec<f64>,
    /// Height of a column.
    height: usize,
    /// Rows of the block that are taken.
    taken: usize,
    /// Sums of squares of the columns.
    squares: Vec<f64>,
}

impl Rows {
    /// Makes an empty one for so many coefficients.
    pub(crate) fn new(coefficients: usize) -> Self {
        let columns = coefficients + 1;
        let height = columns + (4 * columns).max(64);
        let matrix = vec![0.0; height * columns];
        Self { columns, matrix, height, taken: 0, squares: vec![0.0; columns] }
    }

    /// Takes a row and what it is to give.
    pub(crate) fn push(&mut self, row: impl Iterator<Item = f64>, result: f64) {
        if self.columns + self.taken == self.height {
            self.fold();
        }
        let at = self.columns + self.taken;
        for (column, value) in row.chain([result]).take(self.columns).enumerate() {
            self.matrix[column * self.height + at] = value;
            self.squares[column] += value * value;
        }
        self.taken += 1;
    }

    /// Reflects the block into the triangle.
    fn fold(&mut self) {
        for column in 0..self.columns {
            reflect(&mut self.matrix, self.height, column, column);
        }
        for column in 0..self.columns {
            self.matrix[column * self.height..][column + 1..self.height].fill(0.0);
        }
        self.taken = 0;
    }

    /// Returns the triangle with its dependent columns found: a form that answers for each number of first columns.
    pub(crate) fn solve(mut self) -> FactorizedSystem {
        self.fold();
        let (columns, height) = (self.columns, self.columns);
        let mut matrix = vec![0.0; columns * height];
        for column in 0..columns {
            matrix[column * height..][..height]
                .copy_from_slice(&self.matrix[column * self.height..][..height]);
        }
        let mut pivots = Vec::new();
        for column in 0..columns - 1 {
            let row = pivots.len();
            let rest = length(&matrix[column * height..][row..height]);
            if rest <= INDEPENDENT * self.squares[column].sqrt() {
                continue;
            }
            reflect(&mut matrix, height, row, column);
            pivots.push(column);
        }
        FactorizedSystem { columns, matrix, pivots }
    }
}

/// A system in a form that answers at once.
#[derive(Clone, Debug)]
pub(crate) struct FactorizedSystem {
    columns: usize,
    matrix: Vec<f64>,
    /// For each row of the triangle the column that begins there.
    pivots: Vec<usize>,
}

impl FactorizedSystem {
    /// Returns the coefficients of the least squares over the first columns.
    pub(crate) fn first(&self, columns: usize) -> Vec<f64> {
        let height = self.columns;
        let results = &self.matrix[(self.columns - 1) * height..];
        let mut coefficients = vec![0.0; columns];
        let rows = self.pivots.iter().take_while(|column| **column < columns).count();
        for row in (0..rows).rev() {
            let known: f64 = self.pivots[row + 1..rows]
                .iter()
                .map(|column| self.matrix[column * height + row] * coefficients[*column])
                .sum();
            let pivot = self.pivots[row];
            coefficients[pivot] = (results[row] - known) / self.matrix[pivot * height + row];
        }
        coefficients
    }
}

/// Returns the length of a vector, for numbers of any size.
fn length(vector: &[f64]) -> f64 {
    let largest = vector.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    largest * vector.iter().map(|value| (value / largest).powi(2)).sum::<f64>().sqrt()
}

/// Reflects the rows from `row` on so that `column` has nothing below it, in this column and all behind it.
fn reflect(matrix: &mut [f64], height: usize, row: usize, column: usize) {
    let (before, rest) = matrix.split_at_mut((column + 1) * height);
    let own = &mut before[column * height + row..];
    let norm = length(own);
    if norm == 0.0 {
        return;
    }
    let head = if own[0] > 0.0 { -norm } else { norm };
    // The reflection is 1 − v·vᵀ/scale.
    own[0] -= head;
    let scale = -own[0] * head;
    for other in rest.chunks_exact_mut(height) {
        let other = &mut other[row..];
        let product: f64 = own.iter().zip(other.iter()).map(|(one, other)| one * other).sum();
        let factor = product / scale;
        for (value, own) in other.iter_mut().zip(own.iter()) {
            *value -= factor * own;
        }
    }
    own.fill(0.0);
    own[0] = head;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn drawn(random: &mut Random) -> f64 {
        f64::from(random.below(2_000_001)) / 1e6 - 1.0
    }

    #[test]
    fn coefficients_are_found_whatever_the_number_of_rows() {
        let mut random = Random::new(3);
        for count in [4, 5, 40, 64, 65, 1000] {
            let mut rows = Rows::new(3);
            for _ in 0..count {
                let row = [1.0, drawn(&mut random), drawn(&mut random)];
                rows.push(row.iter().copied(), 5.0 - 2.0 * row[1] + 0.25 * row[2]);
            }
            let found = rows.solve().first(3);
            for (one, other) in found.iter().zip([5.0, -2.0, 0.25]) {
                assert!((one - other).abs() < 1e-10, "{count}: {found:?}");
            }
        }
    }

    #[test]
    fn fewer_columns_are_a_system_of_their_own() {
        let mut random = Random::new(4);
        let (mut wide, mut narrow) = (Rows::new(3), Rows::new(2));
        for _ in 0..200 {
            let row = [1.0, drawn(&mut random), drawn(&mut random)];
            let result = drawn(&mut random);
            wide.push(row.iter().copied(), result);
            narrow.push(row[..2].iter().copied(), result);
        }
        let (one, other) = (wide.solve().first(2), narrow.solve().first(2));
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-12), "{one:?} {other:?}");
    }

    #[test]
    fn columns_that_say_nothing_new_are_left_out() {
        let mut rows = Rows::new(4);
        for place in 0..50 {
            let x = f64::from(place);
            rows.push([1.0, x, 2.0 * x + 3.0, (x * 0.7).sin()].into_iter(), 1.0 + x + (x * 0.7).sin());
        }
        let found = rows.solve().first(4);
        for (one, other) in found.iter().zip([1.0, 1.0, 0.0, 1.0]) {
            assert!((one - other).abs() < 1e-10, "{found:?}");
        }
        // Nothing at all to go by.
        let mut rows = Rows::new(2);
        (0..10).for_each(|_| rows.push([0.0, 0.0].into_iter(), 3.0));
        assert_eq!(rows.solve().first(2), [0.0, 0.0]);
    }
}
