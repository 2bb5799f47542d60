//! What an aggregation reads: a field, with a value for documents without one, and the form of keys.

use serde_json::Value;

use super::zone::Zone;

/// The members that aggregations over values share.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ValuesSource {
    /// Field path.
    pub field: Option<String>,
    /// Value that documents without one are taken to have, a JSON scalar.
    pub missing: Option<Value>,
    /// How keys and values are written: a number pattern or a date format.
    pub format: Option<String>,
    /// Type that a field is taken to have where it is not mapped.
    pub value_type: Option<ValueType>,
    /// Time zone of dates, for rounding and writing.
    pub time_zone: Option<Zone>,
}

/// Types of `value_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum ValueType {
    Boolean,
    Date,
    Double,
    Ip,
    Long,
    Numeric,
    String,
    UnsignedLong,
}
