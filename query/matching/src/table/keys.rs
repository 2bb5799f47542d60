//! Sort keys: the value of a field's column by which a row is ordered.
//!
//! A key has one Arrow type over all indices of a table. Rows without a value get the number that
//! Lucene would give them (greatest or least of the type), so that sort values can be sent back as
//! `search_after`; strings and addresses are null instead.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeBinaryBuilder, Float64Array, Int64Array,
    PrimitiveArray, StringViewBuilder, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use millrace_dsl::sort::Mode;
use millrace_mapping::{ColumnKind, PathId};
use millrace_scoring::lists::{Lists, fits_ignore_above};
use millrace_work::error::Result;

use super::derived_key::DerivedKey;
use super::distance::{Distance, Points};

/// The type in which a key is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum KeyKind {
    I64,
    U64,
    F64,
    Str,
    Ip,
}

impl KeyKind {
    /// Returns the key's Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            Self::I64 => DataType::Int64,
            Self::U64 => DataType::UInt64,
            Self::F64 => DataType::Float64,
            Self::Str => DataType::Utf8View,
            Self::Ip => DataType::FixedSizeBinary(16),
        }
    }

    /// Names the type as OpenSearch's sort fields do.
    pub fn name(self) -> &'static str {
        match self {
            Self::I64 | Self::U64 => "LONG",
            Self::F64 => "DOUBLE",
            Self::Str | Self::Ip => "STRING",
        }
    }
}

/// A key's value where a document has none.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum MissingKey {
    I64(i64),
    U64(u64),
    F64(f64),
    Str(String),
    Ip([u8; 16]),
    Null,
}

/// Scale between dates of different resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Rescale {
    #[default]
    None,
    MillisToNanos,
    NanosToMillis,
}

/// Source of the key's values in one index.
#[derive(Clone, Debug)]
pub struct KeySource {
    /// Column.
    pub column: PathId,
    /// Field whose terms are the column's values, where one is.
    pub terms: Option<PathId>,
    /// Kind of the column.
    pub kind: ColumnKind,
    /// Longest string that counts.
    pub ignore_above: Option<usize>,
    /// Conversion of dates.
    pub rescale: Rescale,
    /// `true` if floating point numbers print at single precision.
    pub single: bool,
    /// Origin of distances, where the key is a distance.
    pub distance: Option<Arc<Distance>>,
    /// Source of the key, where it is not a column of the rows.
    pub derived: Option<DerivedKey>,
}

/// One key of a table.
#[derive(Clone, Debug)]
pub struct Key {
    /// Column name in the table.
    pub name: String,
    /// Compared type.
    pub kind: KeyKind,
    /// `true` if rows without a value come first (strings and addresses).
    pub nulls_first: bool,
    /// Mode that picks one of several values.
    pub mode: Mode,
    /// Key of rows without a value.
    pub fill: MissingKey,
    /// By index of the table; `None` where the index has no such field.
    pub sources: Vec<Option<KeySource>>,
}

impl Key {
    /// Computes the key of rows of one index. `column` is absent where the index has no such field.
    pub fn compute(&self, index: usize, column: Option<&ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let source = self.sources.get(index).and_then(Option::as_ref);
        let (Some(column), Some(source)) = (column, source) else { return self.filled(rows) };
        let lists = Lists::new(column);
        match self.kind {
            KeyKind::I64 => {
                let values = cast(&lists.values, &DataType::Int64)?;
                let values = values.as_primitive::<Int64Type>();
                let fill = match self.fill {
                    MissingKey::I64(fill) => Some(fill),
                    _ => None,
                };
                let rescaled = |value: i64| match source.rescale {
                    Rescale::None => value,
                    Rescale::MillisToNanos => value.saturating_mul(1_000_000),
                    Rescale::NanosToMillis => value.div_euclid(1_000_000),
                };
                if lists.is_flat() {
                    return Ok(filled_up::<Int64Type>(&values.unary(rescaled), fill));
                }
                let mut own = Vec::new();
                Ok(Arc::new(Int64Array::from_iter((0..rows).map(|row| {
                    own.clear();
                    let here = lists.row(row).filter(|at| values.is_valid(*at));
                    own.extend(here.map(|at| rescaled(values.value(at))));
                    reduce_i64(&mut own, self.mode).or(fill)
                }))))
            }
            KeyKind::U64 => {
                let values = cast(&lists.values, &DataType::UInt64)?;
                let values = values.as_primitive::<UInt64Type>();
                let fill = match self.fill {
                    MissingKey::U64(fill) => Some(fill),
                    _ => None,
                };
                if lists.is_flat() {
                    return Ok(filled_up(values, fill));
                }
                let mut own = Vec::new();
                Ok(Arc::new(UInt64Array::from_iter((0..rows).map(|row| {
                    own.clear();
                    own.extend(lists.row(row).filter(|at| values.is_valid(*at)).map(|at| values.value(at)));
                    pick(&mut own, self.mode).or(fill)
                }))))
            }
            KeyKind::F64 if source.distance.is_some() => self.distances(&lists, source, rows),
            KeyKind::F64 => {
                let values = cast(&lists.values, &DataType::Float64)?;
                let values = values.as_primitive::<Float64Type>();
                let fill = match self.fill {
                    MissingKey::F64(fill) => Some(fill),
                    _ => None,
                };
                if lists.is_flat() {
                    return Ok(filled_up(values, fill));
                }
                let mut own = Vec::new();
                Ok(Arc::new(Float64Array::from_iter((0..rows).map(|row| {
                    own.clear();
                    own.extend(lists.row(row).filter(|at| values.is_valid(*at)).map(|at| values.value(at)));
                    reduce_f64(&mut own, self.mode).or(fill)
                }))))
            }
            KeyKind::Str => {
                let values = cast(&lists.values, &DataType::Utf8View)?;
                let values = values.as_string_view();
                let mut keys = StringViewBuilder::with_capacity(rows);
                for row in 0..rows {
                    let own = lists
                        .row(row)
                        .filter(|at| values.is_valid(*at))
                        .map(|at| values.value(at))
                        .filter(|value| fits_ignore_above(value, source.ignore_above));
                    let best = if self.mode == Mode::Max { own.max() } else { own.min() };
                    match (best, &self.fill) {
                        (Some(value), _) => keys.append_value(value),
                        (None, MissingKey::Str(fill)) => keys.append_value(fill),
                        (None, _) => keys.append_null(),
                    }
                }
                Ok(Arc::new(keys.finish()))
            }
            KeyKind::Ip => {
                let Some(values) = lists.values.as_fixed_size_binary_opt() else {
                    return self.filled(rows);
                };
                let mut keys = FixedSizeBinaryBuilder::with_capacity(rows, 16);
                for row in 0..rows {
                    let own = lists.row(row).filter(|at| values.is_valid(*at)).map(|at| values.value(at));
                    let best = if self.mode == Mode::Max { own.max() } else { own.min() };
                    match (best, &self.fill) {
                        (Some(value), _) => keys.append_value(value)?,
                        (None, MissingKey::Ip(fill)) => keys.append_value(fill)?,
                        (None, _) => keys.append_null(),
                    }
                }
                Ok(Arc::new(keys.finish()))
            }
        }
    }

    /// Computes distances of points.
    fn distances(&self, lists: &Lists, source: &KeySource, rows: usize) -> Result<ArrayRef> {
        let (Some(values), Some(distance), MissingKey::F64(fill)) =
            (lists.values.as_struct_opt(), &source.distance, &self.fill)
        else {
            return self.filled(rows);
        };
        let points = Points::new(values)?;
        let mut own = Vec::new();
        Ok(Arc::new(Float64Array::from_iter_values((0..rows).map(|row| {
            own.clear();
            for at in lists.row(row).filter(|at| values.is_valid(*at)) {
                distance.measure(&points, at, &mut own);
            }
            reduce_f64(&mut own, self.mode).unwrap_or(*fill)
        }))))
    }

    /// Makes the key of rows that all lack the field.
    fn filled(&self, rows: usize) -> Result<ArrayRef> {
        Ok(match &self.fill {
            MissingKey::I64(fill) => Arc::new(Int64Array::from_value(*fill, rows)),
            MissingKey::U64(fill) => Arc::new(UInt64Array::from_value(*fill, rows)),
            MissingKey::F64(fill) => Arc::new(Float64Array::from_value(*fill, rows)),
            MissingKey::Str(fill) => {
                let mut keys = StringViewBuilder::with_capacity(rows);
                (0..rows).for_each(|_| keys.append_value(fill));
                Arc::new(keys.finish())
            }
            MissingKey::Ip(fill) => {
                let mut keys = FixedSizeBinaryBuilder::with_capacity(rows, 16);
                for _ in 0..rows {
                    keys.append_value(fill)?;
                }
                Arc::new(keys.finish())
            }
            MissingKey::Null => arrow::array::new_null_array(&self.kind.data_type(), rows),
        })
    }
}

/// Puts a value where there is none.
fn filled_up<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>, fill: Option<T::Native>) -> ArrayRef {
    match fill {
        Some(fill) if values.null_count() > 0 => {
            Arc::new(PrimitiveArray::<T>::from_iter_values(values.iter().map(|value| value.unwrap_or(fill))))
        }
        _ => Arc::new(values.clone()),
    }
}

fn pick<T: Ord + Copy>(values: &mut [T], mode: Mode) -> Option<T> {
    match mode {
        Mode::Max => values.iter().max().copied(),
        _ => values.iter().min().copied(),
    }
}

fn reduce_i64(values: &mut [i64], mode: Mode) -> Option<i64> {
    let count = values.len() as i64;
    match (mode, count) {
        (_, 0) => None,
        (Mode::Sum, _) => Some(values.iter().fold(0, |sum, value| sum.wrapping_add(*value))),
        (Mode::Avg, _) => {
            let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
            Some((sum as f64 / count as f64).round() as i64)
        }
        (Mode::Median, _) => {
            values.sort_unstable();
            let middle = values.len() / 2;
            Some(if values.len() % 2 == 1 {
                values[middle]
            } else {
                ((values[middle - 1] as f64 + values[middle] as f64) / 2.0).round() as i64
            })
        }
        _ => pick(values, mode),
    }
}

fn reduce_f64(values: &mut [f64], mode: Mode) -> Option<f64> {
    let count = values.len();
    match (mode, count) {
        (_, 0) => None,
        (Mode::Sum, _) => Some(values.iter().sum()),
        (Mode::Avg, _) => Some(values.iter().sum::<f64>() / count as f64),
        (Mode::Median, _) => {
            values.sort_unstable_by(f64::total_cmp);
            let middle = count / 2;
            Some(if count % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 })
        }
        (Mode::Max, _) => values.iter().copied().max_by(f64::total_cmp),
        (Mode::Min, _) => values.iter().copied().min_by(f64::total_cmp),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, ListArray, StringViewArray};

    use super::*;

    fn key(kind: KeyKind, mode: Mode, fill: MissingKey, column: ColumnKind) -> Key {
        let source = KeySource {
            column: PathId(1),
            terms: None,
            kind: column,
            ignore_above: None,
            rescale: Rescale::None,
            single: false,
            distance: None,
            derived: None,
        };
        Key { name: "k".into(), kind, nulls_first: false, mode, fill, sources: vec![Some(source), None] }
    }

    #[test]
    fn several_values_give_one_key() {
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>(vec![
                Some(vec![Some(3), Some(1), Some(2)]),
                None,
                Some(vec![Some(7), Some(8)]),
            ]));
        let keys = |mode| {
            let key = key(KeyKind::I64, mode, MissingKey::I64(i64::MAX), ColumnKind::Int(32));
            key.compute(0, Some(&lists), 3).unwrap().as_primitive::<Int64Type>().values().to_vec()
        };
        assert_eq!(keys(Mode::Min), [1, i64::MAX, 7]);
        assert_eq!(keys(Mode::Max), [3, i64::MAX, 8]);
        assert_eq!(keys(Mode::Sum), [6, i64::MAX, 15]);
        assert_eq!(keys(Mode::Median), [2, i64::MAX, 8]);
    }

    #[test]
    fn scalars_and_missing_fields() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(4), None]));
        let key = key(KeyKind::F64, Mode::Min, MissingKey::F64(f64::INFINITY), ColumnKind::Int(32));
        let values = key.compute(0, Some(&column), 2).unwrap();
        assert_eq!(values.as_primitive::<Float64Type>().values().to_vec(), [4.0, f64::INFINITY]);
        let values = key.compute(1, None, 1).unwrap();
        assert_eq!(values.as_primitive::<Float64Type>().values().to_vec(), [f64::INFINITY]);
    }

    #[test]
    fn strings_over_the_limit_are_missing() {
        let column: ArrayRef = Arc::new(StringViewArray::from(vec!["abc", "toolong"]));
        let mut key = key(KeyKind::Str, Mode::Min, MissingKey::Null, ColumnKind::Str);
        key.sources[0].as_mut().unwrap().ignore_above = Some(3);
        let values = key.compute(0, Some(&column), 2).unwrap();
        assert!(values.is_valid(0) && values.is_null(1));
    }
}
