//! How good a row must be to be among the first by a key, as far as the scan knows by now.
//!
//! A number becomes a *code*: an unsigned integer whose order is the order of the search, least
//! first. The threshold is the greatest code of the best rows met so far, once there are enough of them:
//! what is greater need not be read, page or segment. Rows with the threshold's own code stay in where later
//! keys decide among them; where addresses do, those behind the threshold's row are left out too.

use std::collections::BinaryHeap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use datafusion::common::ScalarValue;
use millrace_dsl::sort::Mode;
use millrace_storage::mapping::ColumnKind;
use millrace_storage::segment::{NumberBounds, PageBounds};
use parking_lot::Mutex;

use crate::table::keys::{Fill, Key, KeyKind, KeySource, Rescale};

/// Best codes met so far.
#[derive(Debug)]
pub(super) struct Threshold {
    limit: usize,
    descending: bool,
    /// Code of the point where the search goes on; rows before it are of no interest.
    after: Option<u64>,
    /// Whether rows of one code are ordered by their addresses alone.
    by_address: bool,
    /// The best places, the worst of them first.
    best: Mutex<BinaryHeap<Place>>,
}

/// Code and address of a row; the address is 0 where it does not decide.
type Place = (u64, u64);

/// Returns the address of a row as one number.
pub(super) fn address(segment: u32, row: u32) -> u64 {
    u64::from(segment) << 32 | u64::from(row)
}

impl Threshold {
    /// Makes a threshold that nothing has met yet. `after` is an ascending code; `by_address` tells that
    /// addresses decide among rows of one code.
    pub(super) fn new(limit: usize, descending: bool, by_address: bool, after: Option<u64>) -> Self {
        let after = after.map(|code| if descending { !code } else { code });
        Self { limit, descending, after, by_address, best: Mutex::default() }
    }

    /// Whether keys of a kind have codes.
    pub(super) fn supports(kind: KeyKind) -> bool {
        matches!(kind, KeyKind::I64 | KeyKind::U64 | KeyKind::F64)
    }

    /// Counts the rows that are wanted.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether addresses alone decide among rows of one code.
    pub(super) fn by_address(&self) -> bool {
        self.by_address
    }

    /// The greatest place that may still be wanted.
    fn height(&self) -> Place {
        let best = self.best.lock();
        match best.peek() {
            Some(worst) if best.len() == self.limit => *worst,
            _ => (u64::MAX, u64::MAX),
        }
    }

    fn place(&self, code: u64, address: u64) -> Place {
        (code, if self.by_address { address } else { 0 })
    }

    /// Tells which rows of a segment may be wanted, by their codes.
    pub(super) fn admits(&self, segment: u32, rows: &[u32], codes: &[u64]) -> Vec<bool> {
        let height = self.height();
        let admits = |(row, code): (&u32, &u64)| {
            self.place(*code, address(segment, *row)) <= height
                && self.after.is_none_or(|after| *code >= after)
        };
        rows.iter().zip(codes).map(admits).collect()
    }

    /// Whether a run of rows may have one that is wanted, by the address of the first, and their least
    /// and greatest code.
    pub(super) fn admits_any(&self, first: u64, codes: (u64, u64)) -> bool {
        self.place(codes.0, first) <= self.height() && self.after.is_none_or(|after| codes.1 >= after)
    }

    /// Takes rows of a segment into account, by their codes.
    pub(super) fn meet(&self, segment: u32, rows: &[u32], codes: &[u64]) {
        let mut best = self.best.lock();
        for (row, code) in rows.iter().zip(codes) {
            // Whether rows of the point's own code are behind it is not known here.
            if self.after.is_some_and(|after| *code <= after) {
                continue;
            }
            let place = self.place(*code, address(segment, *row));
            if best.len() < self.limit {
                best.push(place);
            } else if let Some(mut worst) = best.peek_mut()
                && place < *worst
            {
                *worst = place;
            }
        }
    }

    /// Returns the codes of a key's values.
    pub(super) fn codes(&self, keys: &ArrayRef) -> Option<Vec<u64>> {
        let mut codes: Vec<u64> = if keys.null_count() > 0 {
            return None;
        } else if let Some(keys) = keys.as_primitive_opt::<Int64Type>() {
            keys.values().iter().map(|key| of_i64(*key)).collect()
        } else if let Some(keys) = keys.as_primitive_opt::<UInt64Type>() {
            keys.values().to_vec()
        } else {
            keys.as_primitive_opt::<Float64Type>()?.values().iter().map(|key| of_f64(*key)).collect()
        };
        if self.descending {
            codes.iter_mut().for_each(|code| *code = !*code);
        }
        Some(codes)
    }

    /// Bounds the codes of a run of rows: least and greatest.
    pub(super) fn bounds(&self, key: &Key, source: Option<&KeySource>, page: &PageBounds) -> (u64, u64) {
        let anything = (0, u64::MAX);
        let Some(fill) = code_of_fill(&key.fill) else { return anything };
        let known = match source {
            None => Some((fill, fill)),
            Some(_) if page.values == NumberBounds::Empty => Some((fill, fill)),
            Some(source) if matches!(key.mode, Mode::Min | Mode::Max) => range(key.kind, source, page.values)
                .map(|(low, high)| match page.full {
                    true => (low, high),
                    false => (low.min(fill), high.max(fill)),
                }),
            Some(_) => None,
        };
        match known {
            None => anything,
            Some((low, high)) if self.descending => (!high, !low),
            Some(range) => range,
        }
    }
}

/// Bounds of ascending codes; none where the key is not a monotone function of the column.
fn range(kind: KeyKind, source: &KeySource, values: NumberBounds) -> Option<(u64, u64)> {
    let both = |code: &dyn Fn(i64) -> u64, (min, max): (i64, i64)| Some((code(min), code(max)));
    match (kind, source.kind, values) {
        (
            KeyKind::I64,
            ColumnKind::Int(_) | ColumnKind::DateMs | ColumnKind::DateNanos,
            NumberBounds::I64(min, max),
        ) => both(
            &|value| {
                of_i64(match source.rescale {
                    Rescale::None => value,
                    Rescale::MillisToNanos => value.saturating_mul(1_000_000),
                    Rescale::NanosToMillis => value.div_euclid(1_000_000),
                })
            },
            (min, max),
        ),
        (KeyKind::U64, ColumnKind::U64, NumberBounds::U64(min, max)) => Some((min, max)),
        // The catalog keeps small unsigned numbers like signed ones.
        (KeyKind::U64, ColumnKind::U64, NumberBounds::I64(min, max)) => {
            Some((u64::try_from(min).ok()?, u64::try_from(max).ok()?))
        }
        (KeyKind::F64, ColumnKind::F32 | ColumnKind::F64, NumberBounds::F64(min, max)) => {
            // Statistics do not tell zero from negative zero.
            let low = if min == 0.0 { -0.0 } else { min };
            let high = if max == 0.0 { 0.0 } else { max };
            Some((of_f64(low), of_f64(high)))
        }
        (KeyKind::F64, ColumnKind::Int(_), NumberBounds::I64(min, max)) => {
            both(&|value| of_f64(value as f64), (min, max))
        }
        _ => None,
    }
}

fn of_i64(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

/// Orders as `f64::total_cmp` does.
fn of_f64(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
}

/// Returns the ascending code of a sort value.
pub(super) fn code_of_scalar(value: &ScalarValue) -> Option<u64> {
    match value {
        ScalarValue::Int64(Some(value)) => Some(of_i64(*value)),
        ScalarValue::UInt64(Some(value)) => Some(*value),
        ScalarValue::Float64(Some(value)) => Some(of_f64(*value)),
        _ => None,
    }
}

fn code_of_fill(fill: &Fill) -> Option<u64> {
    match fill {
        Fill::I64(value) => Some(of_i64(*value)),
        Fill::U64(value) => Some(*value),
        Fill::F64(value) => Some(of_f64(*value)),
        Fill::Str(_) | Fill::Ip(_) | Fill::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_the_order() {
        let numbers = [i64::MIN, -5, 0, 7, i64::MAX];
        assert!(numbers.map(of_i64).is_sorted());
        let floats = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 2.5, f64::INFINITY];
        assert!(floats.map(of_f64).is_sorted());
    }

    #[test]
    fn the_threshold_falls_as_better_rows_come() {
        let threshold = Threshold::new(2, false, false, None);
        threshold.meet(0, &[0], &[9]);
        assert_eq!(threshold.admits(0, &[1], &[1_000]), [true]);
        threshold.meet(0, &[1, 2], &[5, 7]);
        assert_eq!(threshold.admits(0, &[3, 4], &[7, 8]), [true, false]);
        assert!(threshold.admits_any(9, (7, 20)) && !threshold.admits_any(9, (8, 20)));
    }

    #[test]
    fn among_rows_of_one_code_the_first_are_wanted() {
        let threshold = Threshold::new(2, false, true, None);
        threshold.meet(1, &[4, 6, 7], &[5, 5, 5]);
        assert_eq!(threshold.admits(1, &[3, 6, 7], &[5, 5, 5]), [true, true, false]);
        assert!(threshold.admits_any(address(1, 5), (5, 5)) && !threshold.admits_any(address(1, 7), (5, 5)));
        assert!(threshold.admits_any(address(0, 9), (5, 5)) && threshold.admits_any(address(2, 0), (4, 5)));
    }

    #[test]
    fn rows_before_the_point_are_left_out_and_its_own_do_not_count() {
        let threshold = Threshold::new(1, true, false, Some(of_i64(10)));
        let codes = threshold
            .codes(
                &(std::sync::Arc::new(datafusion::arrow::array::Int64Array::from(vec![11, 10, 9, 8]))
                    as ArrayRef),
            )
            .unwrap();
        let rows = [0, 1, 2, 3];
        threshold.meet(0, &rows, &codes);
        assert_eq!(threshold.admits(0, &rows, &codes), [false, true, true, false]);
    }
}
