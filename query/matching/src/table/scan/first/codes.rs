//! Keys as codes: unsigned integers whose order is that of the search, the best least.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use datafusion::common::ScalarValue;
use millrace_dsl::sort::Mode;
use millrace_mapping::ColumnKind;
use millrace_segment::{NumberBounds, PageBounds};

use crate::table::keys::{Key, KeyKind, KeySource, MissingKey, Rescale};

/// Least and greatest code of rows of which nothing is known.
pub(super) const ANY: (u64, u64) = (0, u64::MAX);

/// Returns the code of a score: the greatest comes first.
pub(super) fn of_score(score: f32) -> u64 {
    let bits = score.to_bits();
    u64::from(!if bits >> 31 == 1 { !bits } else { bits | (1 << 31) })
}

/// Returns the score of a code.
pub(super) fn score_of(code: u64) -> f32 {
    let bits = !(code as u32);
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}

/// Returns the codes of a key's values; `None` where they are no numbers, or one has none.
pub(super) fn of_keys(keys: &ArrayRef, descending: bool) -> Option<Vec<u64>> {
    let mut codes: Vec<u64> = if keys.null_count() > 0 {
        return None;
    } else if let Some(keys) = keys.as_primitive_opt::<Int64Type>() {
        keys.values().iter().map(|key| of_i64(*key)).collect()
    } else if let Some(keys) = keys.as_primitive_opt::<UInt64Type>() {
        keys.values().to_vec()
    } else {
        keys.as_primitive_opt::<Float64Type>()?.values().iter().map(|key| of_f64(*key)).collect()
    };
    if descending {
        codes.iter_mut().for_each(|code| *code = !*code);
    }
    Some(codes)
}

/// Returns the code of a sort value.
pub(super) fn of_scalar(value: &ScalarValue, descending: bool) -> Option<u64> {
    let code = match value {
        ScalarValue::Int64(Some(value)) => of_i64(*value),
        ScalarValue::UInt64(Some(value)) => *value,
        ScalarValue::Float64(Some(value)) => of_f64(*value),
        _ => return None,
    };
    Some(if descending { !code } else { code })
}

/// Returns the code of a key that has the value of a term of an integer.
pub(super) fn of_term(kind: KeyKind, term: &[u8], descending: bool) -> Option<u64> {
    // A term has the bytes of an integer's code.
    let code = u64::from_be_bytes(term.try_into().ok()?);
    let code = match kind {
        KeyKind::I64 => code,
        KeyKind::F64 => of_f64((code ^ (1 << 63)).cast_signed() as f64),
        KeyKind::U64 | KeyKind::Str | KeyKind::Ip => return None,
    };
    Some(if descending { !code } else { code })
}

/// Bounds the codes of a run of rows of an index: least and greatest.
pub(super) fn bounds(
    key: &Key,
    source: Option<&KeySource>,
    page: &PageBounds,
    descending: bool,
) -> (u64, u64) {
    let Some(fill) = of_fill(&key.fill) else { return ANY };
    let known = match source {
        None => Some((fill, fill)),
        // What the column has tells nothing of what is made of it.
        Some(source) if source.derived.is_some() || source.distance.is_some() => None,
        Some(_) if page.values == NumberBounds::Empty => Some((fill, fill)),
        Some(source) if matches!(key.mode, Mode::Min | Mode::Max) => range(key.kind, source, page.values)
            .map(|(low, high)| match page.full {
                true => (low, high),
                false => (low.min(fill), high.max(fill)),
            }),
        Some(_) => None,
    };
    match known {
        None => ANY,
        Some((low, high)) if descending => (!high, !low),
        Some(range) => range,
    }
}

/// Bounds ascending codes; none where the key is not a monotone function of the column.
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

fn of_fill(fill: &MissingKey) -> Option<u64> {
    match fill {
        MissingKey::I64(value) => Some(of_i64(*value)),
        MissingKey::U64(value) => Some(*value),
        MissingKey::F64(value) => Some(of_f64(*value)),
        MissingKey::Str(_) | MissingKey::Ip(_) | MissingKey::Null => None,
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
        let scores = [f32::INFINITY, 7.5, 0.25, 0.0, -1.0];
        assert!(scores.map(of_score).is_sorted());
        assert_eq!(scores.map(|score| score_of(of_score(score))), scores);
        let term = of_i64(-3).to_be_bytes();
        assert_eq!(of_term(KeyKind::I64, &term, false), Some(of_i64(-3)));
        assert_eq!(of_term(KeyKind::F64, &term, true), Some(!of_f64(-3.0)));
    }
}
