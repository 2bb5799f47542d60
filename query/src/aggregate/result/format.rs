//! How keys and values are written.

use std::sync::Arc;

use millrace_storage::mapping::DateFormat;

use crate::dsl::aggs::Zone;
use crate::fetch::decimal::DecimalFormat;

/// How the keys and values of an aggregation are written.
#[derive(Clone, Debug, Default)]
pub(crate) enum Format {
    /// As JSON has them, without `key_as_string` and `value_as_string`.
    #[default]
    Raw,
    /// By a number pattern.
    Decimal(Arc<DecimalFormat>),
    /// Milliseconds, by a date format in a zone.
    Date(Arc<DateFormat>, Zone),
    /// `true` and `false`.
    Boolean,
    /// Addresses.
    Ip,
}
