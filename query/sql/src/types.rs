//! Types of values as OpenSearch's SQL names them, and the Arrow types that hold them.

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use millrace_mapping::{Field, FieldType};
use serde_json::Value;

use super::date_types::date_type;

/// Type of a column or an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum SqlType {
    /// Of NULL.
    Undefined,
    Byte,
    Short,
    Integer,
    Long,
    UnsignedLong,
    Float,
    Double,
    Keyword,
    Text,
    Boolean,
    Date,
    Time,
    /// With the resolution in which values are held.
    Timestamp(Resolution),
    Interval,
    Ip,
    GeoPoint,
    Binary,
    /// An object, held as JSON text.
    Object,
    /// Objects in an array of type `nested`, held as JSON text.
    Nested,
    /// Any JSON value, held as text: the value of a path below a nested object.
    Array,
}

/// Resolution of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Resolution {
    Millis,
    Micros,
    Nanos,
}

impl Resolution {
    /// Returns how many nanoseconds a unit has.
    pub(crate) fn nanos(self) -> i128 {
        match self {
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }
}

/// A timestamp as functions and literals make it.
pub(crate) const TIMESTAMP: SqlType = SqlType::Timestamp(Resolution::Micros);

/// A timestamp of nanoseconds, as fields of the type date_nanos hold it.
pub(crate) const NANOS: SqlType = SqlType::Timestamp(Resolution::Nanos);

impl SqlType {
    /// Returns the type of a mapped field: dates without a time of day, and times of day, are such.
    pub(crate) fn of_field(field: &Field) -> Self {
        match &field.field_type {
            FieldType::Date => date_type(field.params.get("format").and_then(Value::as_str)),
            other @ FieldType::DateNanos => {
                match date_type(field.params.get("format").and_then(Value::as_str)) {
                    ty @ (Self::Date | Self::Time) => ty,
                    _ => Self::of_column(other),
                }
            }
            other => Self::of_column(other),
        }
    }

    /// Returns the type of the values that a column of a field holds.
    pub(crate) fn of_column(field: &FieldType) -> Self {
        match field {
            FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => Self::Text,
            FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword => Self::Keyword,
            FieldType::FlatObject | FieldType::RankFeatures | FieldType::Completion | FieldType::Range(_) => {
                Self::Object
            }
            FieldType::Byte => Self::Byte,
            FieldType::Short => Self::Short,
            FieldType::Integer | FieldType::TokenCount => Self::Integer,
            FieldType::Long => Self::Long,
            FieldType::UnsignedLong => Self::UnsignedLong,
            FieldType::HalfFloat | FieldType::Float | FieldType::RankFeature => Self::Float,
            FieldType::Double | FieldType::ScaledFloat { .. } => Self::Double,
            FieldType::Boolean => Self::Boolean,
            FieldType::Date => Self::Timestamp(Resolution::Millis),
            FieldType::DateNanos => Self::Timestamp(Resolution::Nanos),
            FieldType::Ip => Self::Ip,
            FieldType::GeoPoint => Self::GeoPoint,
            FieldType::Binary => Self::Binary,
        }
    }

    /// Returns the name in an answer's schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Byte => "byte",
            Self::Short => "short",
            Self::Integer => "integer",
            Self::Long => "long",
            Self::UnsignedLong => "unsigned_long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Keyword => "keyword",
            Self::Text => "text",
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::Time => "time",
            Self::Timestamp(_) => "timestamp",
            Self::Interval => "interval",
            Self::Ip => "ip",
            Self::GeoPoint => "geo_point",
            Self::Binary => "binary",
            Self::Object => "object",
            Self::Nested | Self::Array => "nested",
        }
    }

    /// Returns the name in messages and of `typeof`, where strings are strings.
    pub fn general_name(self) -> &'static str {
        match self {
            Self::Undefined => "UNDEFINED",
            Self::Byte => "BYTE",
            Self::Short => "SHORT",
            Self::Integer => "INTEGER",
            Self::Long => "LONG",
            Self::UnsignedLong => "UNSIGNED_LONG",
            Self::Float => "FLOAT",
            Self::Double => "DOUBLE",
            Self::Keyword => "KEYWORD",
            Self::Text => "TEXT",
            Self::Boolean => "BOOLEAN",
            Self::Date => "DATE",
            Self::Time => "TIME",
            Self::Timestamp(_) => "TIMESTAMP",
            Self::Interval => "INTERVAL",
            Self::Ip => "IP",
            Self::GeoPoint => "GEO_POINT",
            Self::Binary => "BINARY",
            Self::Object => "OBJECT",
            Self::Nested | Self::Array => "ARRAY",
        }
    }

    /// Returns the Arrow type of single values.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Undefined => DataType::Null,
            Self::Byte => DataType::Int8,
            Self::Short => DataType::Int16,
            Self::Integer => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::UnsignedLong => DataType::UInt64,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Boolean => DataType::Boolean,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Nanosecond),
            Self::Timestamp(Resolution::Millis) => DataType::Timestamp(TimeUnit::Millisecond, None),
            Self::Timestamp(Resolution::Micros) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamp(Resolution::Nanos) => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Keyword
            | Self::Text
            | Self::Ip
            | Self::GeoPoint
            | Self::Binary
            | Self::Object
            | Self::Nested
            | Self::Array => DataType::Utf8View,
        }
    }

    /// Returns whether values are integers.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::Byte | Self::Short | Self::Integer | Self::Long | Self::UnsignedLong)
    }

    /// Returns whether values are numbers.
    pub fn is_number(self) -> bool {
        self.is_integer() || matches!(self, Self::Float | Self::Double)
    }

    /// Returns whether values are strings that can be compared as such.
    pub fn is_string(self) -> bool {
        matches!(self, Self::Keyword | Self::Text)
    }

    /// Returns whether values are dates, times or timestamps.
    pub fn is_temporal(self) -> bool {
        matches!(self, Self::Date | Self::Time | Self::Timestamp(_))
    }

    /// Returns whether values are held as the text of a JSON value.
    pub fn is_json(self) -> bool {
        matches!(self, Self::Object | Self::Nested | Self::Array | Self::GeoPoint)
    }

    /// Returns the type that holds the values of both, as CASE, IN and comparisons need it.
    pub(crate) fn common(self, other: Self) -> Option<Self> {
        use SqlType::{Boolean, Date, Double, Float, Integer, Keyword, Long, Time, Undefined, UnsignedLong};
        Some(match (self, other) {
            (one, other) if one == other => one,
            (Undefined, other) | (other, Undefined) => other,
            (UnsignedLong, other) | (other, UnsignedLong) if other.is_integer() => Double,
            (one, other) if one.is_integer() && other.is_integer() => one.wider(other),
            (Float, Float) => Float,
            (one, other) if one.is_number() && other.is_number() => Double,
            (one, other) if one.is_string() && other.is_string() => Keyword,
            (Boolean, other) | (other, Boolean) if other.is_number() => other,
            (Boolean, other) | (other, Boolean) if other.is_string() => Boolean,
            (Date | Time | Self::Timestamp(_), Date | Time | Self::Timestamp(_)) => {
                if self == NANOS {
                    NANOS
                } else {
                    other.finest()
                }
            }
            (temporal, string) | (string, temporal) if temporal.is_temporal() && string.is_string() => {
                match temporal {
                    Self::Timestamp(_) => temporal.finest(),
                    other => other,
                }
            }
            (number, string) | (string, number) if number.is_number() && string.is_string() => match number {
                Integer | Long | Self::Byte | Self::Short | Float => Double,
                other => other,
            },
            (Self::Ip, string) | (string, Self::Ip) if string.is_string() => Self::Ip,
            (Self::Binary, string) | (string, Self::Binary) if string.is_string() => Keyword,
            _ => return None,
        })
    }

    /// Returns the type of a timestamp that a function makes of a value: it keeps nanoseconds.
    pub(crate) fn finest(self) -> Self {
        if self == NANOS { NANOS } else { TIMESTAMP }
    }

    fn wider(self, other: Self) -> Self {
        let rank = |of: Self| match of {
            Self::Byte => 0,
            Self::Short => 1,
            Self::Integer => 2,
            _ => 3,
        };
        if rank(self) >= rank(other) { self } else { other }
    }
}
