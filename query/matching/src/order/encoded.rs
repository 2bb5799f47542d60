//! Places of rows in an order as bytes, which compare as the rows do.
//!
//! Whoever keeps the first rows of many lists (groups, buckets, elements of documents) compares bytes instead of keys of
//! several types. Bytes of different batches compare, too.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Array, UInt32Array};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use millrace_work::error::{Error, Result};

use super::{Order, SortKeyKind};

/// A column that rows are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortColumn {
    /// A key, by its number in the order.
    Key(usize),
    /// The score.
    Score,
    /// Number of the segment.
    Segment,
    /// Number of the row.
    Row,
}

/// Makes the bytes of rows.
#[derive(Debug)]
pub struct Encoder {
    columns: Vec<SortColumn>,
    converter: RowConverter,
}

impl Order {
    /// Lists the columns by which rows are compared, one after the other.
    pub(super) fn columns(&self) -> Vec<(SortColumn, SortOptions)> {
        let mut columns = Vec::with_capacity(self.parts.len() + 2);
        let mut of_address = SortOptions { descending: false, nulls_first: false };
        for (part, descending) in &self.parts {
            let mut options = SortOptions { descending: *descending, nulls_first: false };
            match part {
                SortKeyKind::Score => columns.push((SortColumn::Score, options)),
                SortKeyKind::Key(number, _) => {
                    options.nulls_first = self.keys[*number].nulls_first;
                    columns.push((SortColumn::Key(*number), options));
                }
                SortKeyKind::Doc => {
                    // What comes behind it decides nothing.
                    of_address = options;
                    break;
                }
            }
        }
        columns.extend([(SortColumn::Segment, of_address), (SortColumn::Row, of_address)]);
        columns
    }

    /// Makes what encodes the places of rows.
    ///
    /// # Errors
    /// A type that cannot be compared.
    pub fn encoder(&self) -> Result<Encoder> {
        let columns = self.columns();
        let fields = columns.iter().map(|(column, options)| {
            let kind = match column {
                SortColumn::Key(number) => self.keys[*number].kind.data_type(),
                SortColumn::Score => DataType::Float32,
                SortColumn::Segment | SortColumn::Row => DataType::UInt32,
            };
            SortField::new_with_options(kind, *options)
        });
        let converter = RowConverter::new(fields.collect())?;
        Ok(Encoder { columns: columns.into_iter().map(|(column, _)| column).collect(), converter })
    }
}

impl Encoder {
    /// Encodes the places of rows of a segment, which have these keys and scores.
    ///
    /// # Errors
    /// A key that is missing.
    pub fn of_segment(
        &self,
        segment: u32,
        rows: impl Iterator<Item = u32> + Clone,
        keys: &[ArrayRef],
        scores: impl Iterator<Item = f32>,
    ) -> Result<Rows> {
        let mut scores = Some(scores);
        self.of_columns(|column| {
            Ok(match column {
                SortColumn::Key(number) => return keys.get(number).cloned().ok_or_else(missing),
                SortColumn::Score => {
                    Arc::new(Float32Array::from_iter_values(scores.take().into_iter().flatten()))
                }
                SortColumn::Segment => Arc::new(UInt32Array::from_value(segment, rows.clone().count())),
                SortColumn::Row => Arc::new(UInt32Array::from_iter_values(rows.clone())),
            })
        })
    }

    /// Encodes the places of rows, whose columns are asked for.
    ///
    /// # Errors
    /// Those of `column`.
    pub fn of_columns(&self, column: impl FnMut(SortColumn) -> Result<ArrayRef>) -> Result<Rows> {
        let columns = self.columns.iter().copied().map(column).collect::<Result<Vec<_>>>()?;
        Ok(self.converter.convert_columns(&columns)?)
    }
}

fn missing() -> Error {
    Error::Execution("rows lack a sort key".to_owned())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;
    use crate::table::snapshot::TableSnapshot;

    #[test]
    fn bytes_compare_as_rows_do() {
        let sort = millrace_dsl::sort::parse_param("_score,size:desc").unwrap();
        let (order, _) = Order::new(&sort, &TableSnapshot::default(), 0).unwrap();
        let encoder = order.encoder().unwrap();
        let places = |segment: u32, rows: &[u32], sizes: &[i64], scores: &[f32]| {
            let keys: ArrayRef = Arc::new(Int64Array::from(sizes.to_vec()));
            let rows = rows.iter().copied();
            let rows = encoder.of_segment(segment, rows, &[keys], scores.iter().copied()).unwrap();
            rows.iter().map(|row| row.as_ref().to_vec()).collect::<Vec<_>>()
        };
        let first = places(1, &[7, 8, 3], &[5, 5, 9], &[2.0, 2.0, 1.0]);
        let second = places(0, &[9], &[5], &[2.0]);
        let order = [&second[0], &first[0], &first[1], &first[2]];
        assert!(order.is_sorted(), "{order:?}");
    }
}
