//! How good a row must be to be among the first by a key, as far as the scan knows by now.
//!
//! A number becomes a *code*: an unsigned integer whose order is the order of the search, least
//! first. The bar is the greatest code of the best rows met so far, once there are enough of them:
//! what is greater need not be read, page or segment. Rows with the bar's own code stay in, because
//! later keys decide among them.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use datafusion::common::ScalarValue;
use millrace_storage::mapping::ColumnKind;
use millrace_storage::segment::{NumberBounds, PageBounds};
use parking_lot::Mutex;

use crate::dsl::sort::Mode;
use crate::table::keys::{Fill, Key, KeyKind, KeySource, Rescale};

/// Best codes met so far.
#[derive(Debug)]
pub(super) struct Bar {
    limit: usize,
    descending: bool,
    /// Code of the point where the search goes on; rows before it are of no interest.
    after: Option<u64>,
    best: Mutex<BinaryHeap<u64>>,
    /// The greatest of `best` once it is full.
    height: AtomicU64,
}

impl Bar {
    /// Makes a bar that nothing has met yet. `after` is an ascending code.
    pub(super) fn new(limit: usize, descending: bool, after: Option<u64>) -> Self {
        let after = after.map(|code| if descending { !code } else { code });
        Self { limit, descending, after, best: Mutex::default(), height: AtomicU64::new(u64::MAX) }
    }

    /// Whether keys of a kind have codes.
    pub(super) fn supports(kind: KeyKind) -> bool {
        matches!(kind, KeyKind::I64 | KeyKind::U64 | KeyKind::F64)
    }

    /// Counts the rows that are wanted.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a row of this code may be wanted.
    pub(super) fn admits(&self, code: u64) -> bool {
        code <= self.height.load(Ordering::Relaxed) && self.after.is_none_or(|after| code >= after)
    }

    /// Whether a run of rows may have one that is wanted, by its least and greatest code.
    pub(super) fn admits_any(&self, codes: (u64, u64)) -> bool {
        codes.0 <= self.height.load(Ordering::Relaxed) && self.after.is_none_or(|after| codes.1 >= after)
    }

    /// Takes codes of rows into account.
    pub(super) fn meet(&self, codes: &[u64]) {
        let mut best = self.best.lock();
        for code in codes {
            // Whether rows of the point's own code are behind it is not known here.
            if self.after.is_some_and(|after| *code <= after) {
                continue;
            }
            if best.len() < self.limit {
                best.push(*code);
            } else if let Some(mut worst) = best.peek_mut()
                && *code < *worst
            {
                *worst = *code;
            }
        }
        if best.len() == self.limit
            && let Some(worst) = best.peek()
        {
            self.height.store(*worst, Ordering::Relaxed);
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
    fn the_bar_falls_as_better_rows_come() {
        let bar = Bar::new(2, false, None);
        bar.meet(&[9]);
        assert!(bar.admits(1_000));
        bar.meet(&[5, 7]);
        assert!(bar.admits(7) && !bar.admits(8));
        assert!(bar.admits_any((7, 20)) && !bar.admits_any((8, 20)));
    }

    #[test]
    fn rows_before_the_point_are_left_out_and_its_own_do_not_count() {
        let bar = Bar::new(1, true, Some(of_i64(10)));
        let codes = bar
            .codes(
                &(std::sync::Arc::new(datafusion::arrow::array::Int64Array::from(vec![11, 10, 9, 8]))
                    as ArrayRef),
            )
            .unwrap();
        bar.meet(&codes);
        let admitted: Vec<bool> = codes.iter().map(|code| bar.admits(*code)).collect();
        assert_eq!(admitted, [false, true, true, false]);
    }
}
