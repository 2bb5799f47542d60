//! [`FeatureTable`]: the rows that a detector is trained on.

use crate::error::{Error, Result};
use crate::{MAX_FEATURES, MAX_ROWS};

/// Rows of features, stored by column. `NaN` stands for a missing value.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureTable {
    columns: Vec<Vec<f64>>,
}

impl FeatureTable {
    /// Makes a table without rows.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] without features, [`Error::TooMany`] beyond [`MAX_FEATURES`].
    pub fn new(features: usize) -> Result<Self> {
        if features == 0 {
            let (parameter, allowed) = ("the number of features", "1 or more");
            return Err(Error::InvalidParameter { parameter, allowed, value: "0".to_owned() });
        }
        if features > MAX_FEATURES {
            let (subject, limit) = ("the features of a table", MAX_FEATURES);
            return Err(Error::TooMany { subject, limit, actual: features });
        }
        Ok(Self { columns: vec![Vec::new(); features] })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::WrongWidth`], [`Error::Infinite`], [`Error::TooMany`] beyond [`MAX_ROWS`]. The table is as before then.
    pub fn push(&mut self, row: &[f64]) -> Result<()> {
        check_row(row, self.features())?;
        if self.rows() >= MAX_ROWS {
            let (subject, limit) = ("the rows of a table", MAX_ROWS);
            return Err(Error::TooMany { subject, limit, actual: limit + 1 });
        }
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(*value);
        }
        Ok(())
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    /// Returns the number of features.
    pub fn features(&self) -> usize {
        self.columns.len()
    }

    /// Returns a row.
    ///
    /// # Panics
    /// Panics where the table has no such row.
    pub fn row(&self, index: usize) -> Vec<f64> {
        self.columns.iter().map(|column| column[index]).collect()
    }

    pub(crate) fn column(&self, feature: usize) -> &[f64] {
        &self.columns[feature]
    }

    pub(crate) fn value(&self, row: usize, feature: usize) -> f64 {
        self.columns[feature][row]
    }

    /// Returns at most `limit` row numbers, evenly spaced and in order.
    pub(crate) fn spaced_rows(&self, limit: usize) -> Vec<usize> {
        let (rows, count) = (self.rows(), self.rows().min(limit));
        (0..count).map(|place| (place as u64 * rows as u64 / count.max(1) as u64) as usize).collect()
    }
}

/// Checks the width of a row, and that no value is infinite.
pub(crate) fn check_row(row: &[f64], features: usize) -> Result<()> {
    if row.len() != features {
        return Err(Error::WrongWidth { expected: features, actual: row.len() });
    }
    match row.iter().position(|value| value.is_infinite()) {
        Some(feature) => Err(Error::Infinite { feature }),
        None => Ok(()),
    }
}
