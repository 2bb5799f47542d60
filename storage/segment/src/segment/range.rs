//! Ranges over a column's values: how one compares with the bounds of a page and with the values
//! of an array.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMillisecondType, TimestampNanosecondType, UInt64Type,
};
use serde_json::Value;

use super::rows::to_hex;

/// Bounds of a range over a column's values; the variant fits the column.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueRange {
    /// Integers, dates (epoch milliseconds) and date_nanos (epoch nanoseconds), inclusive.
    I64(i64, i64),
    /// unsigned_long, inclusive.
    U64(u64, u64),
    /// Floating point, inclusive; use infinities for open ends.
    F64(f64, f64),
    /// Booleans (false < true), inclusive.
    Bool(bool, bool),
    /// Addresses as 16 big-endian bytes, inclusive.
    Ip([u8; 16], [u8; 16]),
    /// Strings in byte order: bound and whether it is included; `None` is open.
    Str(Option<(String, bool)>, Option<(String, bool)>),
}

/// Least and greatest number of a column over a run of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberBounds {
    /// Integers and dates.
    I64(i64, i64),
    /// unsigned_long.
    U64(u64, u64),
    /// Floating point.
    F64(f64, f64),
    /// No row has a value.
    Empty,
    /// The column has no numbers, or nothing is known of them.
    Unknown,
}

impl NumberBounds {
    /// Reads the catalog's bounds of a column.
    pub(crate) fn of_record(min: &Value, max: &Value) -> Self {
        match (min, max) {
            (Value::Number(min), Value::Number(max)) => {
                if let (Some(min), Some(max)) = (min.as_i64(), max.as_i64()) {
                    Self::I64(min, max)
                } else if let (Some(min), Some(max)) = (min.as_u64(), max.as_u64()) {
                    Self::U64(min, max)
                } else if let (Some(min), Some(max)) = (min.as_f64(), max.as_f64()) {
                    Self::F64(min, max)
                } else {
                    Self::Unknown
                }
            }
            _ => Self::Unknown,
        }
    }
}

impl From<&Bounds<'_>> for NumberBounds {
    fn from(bounds: &Bounds<'_>) -> Self {
        match bounds {
            Bounds::I64(min, max) => Self::I64(*min, *max),
            Bounds::U64(min, max) => Self::U64(*min, *max),
            Bounds::F64(min, max) => Self::F64(*min, *max),
            Bounds::Empty => Self::Empty,
            Bounds::Bytes(..) | Bounds::Unknown => Self::Unknown,
        }
    }
}

/// Bounds of a column over a run of rows, without decoding it.
#[derive(Clone, Debug, PartialEq)]
pub struct PageBounds {
    /// The rows.
    pub rows: std::ops::Range<u32>,
    /// Least and greatest of all their values.
    pub values: NumberBounds,
    /// `true` if every row is known to have a value.
    pub full: bool,
}

/// Relation of a range to an interval of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// No value of the interval is in the range.
    Disjoint,
    /// Every value of the interval is in the range.
    Covers,
    /// Some may be.
    Overlaps,
}

/// Least and greatest value of a run of rows, in the form that its statistics keep.
#[derive(Clone, Debug)]
pub(crate) enum Bounds<'a> {
    I64(i64, i64),
    U64(u64, u64),
    F64(f64, f64),
    Bytes(&'a [u8], &'a [u8]),
    /// There are no values.
    Empty,
    Unknown,
}

impl ValueRange {
    /// Returns whether no value can be in the range.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::I64(low, high) => low > high,
            Self::U64(low, high) => low > high,
            Self::F64(low, high) => low.partial_cmp(high).is_none_or(Ordering::is_gt),
            Self::Bool(low, high) => low & !high,
            Self::Ip(low, high) => low > high,
            Self::Str(Some((low, a)), Some((high, b))) => low > high || (low == high && !(*a && *b)),
            Self::Str(..) => false,
        }
    }

    /// Compares with the bounds of a run of rows.
    pub(crate) fn relation(&self, bounds: &Bounds<'_>) -> Relation {
        fn of<T: PartialOrd>(low: &T, high: &T, min: &T, max: &T) -> Relation {
            if max < low || min > high {
                Relation::Disjoint
            } else if low <= min && max <= high {
                Relation::Covers
            } else {
                Relation::Overlaps
            }
        }
        match (self, bounds) {
            (_, Bounds::Empty) => Relation::Disjoint,
            (Self::I64(low, high), Bounds::I64(min, max)) => of(low, high, min, max),
            (Self::U64(low, high), Bounds::U64(min, max)) => of(low, high, min, max),
            // Statistics of floating point leave out NaN, which no range contains.
            (Self::F64(low, high), Bounds::F64(min, max)) => match of(low, high, min, max) {
                Relation::Covers => Relation::Overlaps,
                other => other,
            },
            (Self::Ip(low, high), Bounds::Bytes(min, max)) => of(&low.as_slice(), &high.as_slice(), min, max),
            (Self::Str(low, high), Bounds::Bytes(min, max)) => {
                // Bounds may be truncated, so they exclude but never prove.
                let below = low.as_ref().is_some_and(|(low, _)| *max < low.as_bytes());
                let above = high.as_ref().is_some_and(|(high, _)| *min > high.as_bytes());
                if below || above { Relation::Disjoint } else { Relation::Overlaps }
            }
            _ => Relation::Overlaps,
        }
    }

    /// Compares with the catalog's bounds of a column.
    pub(crate) fn relation_to_record(&self, min: &Value, max: &Value) -> Relation {
        match self {
            Self::I64(..) => match (min.as_i64(), max.as_i64()) {
                (Some(min), Some(max)) => self.relation(&Bounds::I64(min, max)),
                _ => Relation::Overlaps,
            },
            Self::U64(..) => match (min.as_u64(), max.as_u64()) {
                (Some(min), Some(max)) => self.relation(&Bounds::U64(min, max)),
                _ => Relation::Overlaps,
            },
            Self::F64(..) => match (min.as_f64(), max.as_f64()) {
                (Some(min), Some(max)) => self.relation(&Bounds::F64(min, max)),
                _ => Relation::Overlaps,
            },
            Self::Ip(low, high) => match (min.as_str(), max.as_str()) {
                (Some(min), Some(max)) => {
                    let (low, high) = (to_hex(low), to_hex(high));
                    if max < low.as_str() || min > high.as_str() {
                        Relation::Disjoint
                    } else {
                        Relation::Overlaps
                    }
                }
                _ => Relation::Overlaps,
            },
            Self::Str(..) => match (min.as_str(), max.as_str()) {
                (Some(min), Some(max)) => self.relation(&Bounds::Bytes(min.as_bytes(), max.as_bytes())),
                _ => Relation::Overlaps,
            },
            Self::Bool(..) => Relation::Overlaps,
        }
    }

    /// Returns whether a string is in a range of strings.
    fn has_str(low: Option<&(String, bool)>, high: Option<&(String, bool)>, value: &str) -> bool {
        low.is_none_or(|(low, included)| match value.cmp(low.as_str()) {
            Ordering::Less => false,
            Ordering::Equal => *included,
            Ordering::Greater => true,
        }) && high.is_none_or(|(high, included)| match value.cmp(high.as_str()) {
            Ordering::Less => true,
            Ordering::Equal => *included,
            Ordering::Greater => false,
        })
    }

    /// Feeds the positions of an array's elements that have any value in the range.
    pub(crate) fn matches(&self, array: &ArrayRef, hit: &mut dyn FnMut(usize)) {
        if let DataType::List(_) = array.data_type() {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            let mut element = 0;
            let mut last = None;
            self.matches(list.values(), &mut |value| {
                while offsets
                    .get(element + 1)
                    .is_some_and(|&end| usize::try_from(end).is_ok_and(|end| end <= value))
                {
                    element += 1;
                }
                if last != Some(element) && list.is_valid(element) {
                    last = Some(element);
                    hit(element);
                }
            });
            return;
        }
        macro_rules! primitive {
            ($t:ty, $cast:expr, $low:expr, $high:expr) => {{
                let array = array.as_primitive::<$t>();
                let values = array.values();
                match array.nulls() {
                    None => {
                        for (i, value) in values.iter().enumerate() {
                            let value = $cast(*value);
                            if value >= *$low && value <= *$high {
                                hit(i);
                            }
                        }
                    }
                    Some(nulls) => {
                        for i in nulls.valid_indices() {
                            let value = $cast(values[i]);
                            if value >= *$low && value <= *$high {
                                hit(i);
                            }
                        }
                    }
                }
            }};
        }
        match (self, array.data_type()) {
            (Self::I64(low, high), DataType::Int8) => primitive!(Int8Type, i64::from, low, high),
            (Self::I64(low, high), DataType::Int16) => primitive!(Int16Type, i64::from, low, high),
            (Self::I64(low, high), DataType::Int32) => primitive!(Int32Type, i64::from, low, high),
            (Self::I64(low, high), DataType::Int64) => primitive!(Int64Type, i64::from, low, high),
            (Self::I64(low, high), DataType::Timestamp(TimeUnit::Millisecond, _)) => {
                primitive!(TimestampMillisecondType, i64::from, low, high);
            }
            (Self::I64(low, high), DataType::Timestamp(TimeUnit::Nanosecond, _)) => {
                primitive!(TimestampNanosecondType, i64::from, low, high);
            }
            (Self::U64(low, high), DataType::UInt64) => primitive!(UInt64Type, u64::from, low, high),
            (Self::F64(low, high), DataType::Float32) => primitive!(Float32Type, f64::from, low, high),
            (Self::F64(low, high), DataType::Float64) => primitive!(Float64Type, f64::from, low, high),
            (Self::Bool(low, high), DataType::Boolean) => {
                for (i, value) in array.as_boolean().iter().enumerate() {
                    if value.is_some_and(|value| value >= *low && value <= *high) {
                        hit(i);
                    }
                }
            }
            (Self::Ip(low, high), DataType::FixedSizeBinary(16)) => {
                for (i, value) in array.as_fixed_size_binary().iter().enumerate() {
                    if value.is_some_and(|value| value >= low.as_slice() && value <= high.as_slice()) {
                        hit(i);
                    }
                }
            }
            (Self::Str(low, high), DataType::Utf8View) => {
                for (i, value) in array.as_string_view().iter().enumerate() {
                    if value.is_some_and(|value| Self::has_str(low.as_ref(), high.as_ref(), value)) {
                        hit(i);
                    }
                }
            }
            _ => {}
        }
    }
}
