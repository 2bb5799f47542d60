//! `bin field [span=…] [bins=n] [minspan=…] [aligntime=…] [start=n] [end=n] [as alias]`: values to buckets.

use crate::ast::{Expression, FieldName, SpanLength};

/// `bin`: replaces the values of a field by their buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct BinCommand {
    /// The field.
    pub field: FieldName,
    /// The size of buckets.
    pub options: BinOptions,
    /// The name behind `as`; the field stays then.
    pub alias: Option<FieldName>,
}

/// Options of buckets, for `bin` and the splits of `chart`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BinOptions {
    /// `span`: the length of a bucket.
    pub span: Option<BinSpan>,
    /// `bins`: the most buckets there may be.
    pub bins: Option<u64>,
    /// `minspan`: the least length of a bucket.
    pub minspan: Option<SpanLength>,
    /// `aligntime`: a start of a bucket, for times.
    pub aligntime: Option<AlignTime>,
    /// `start`: the lower end of the range that `bins` divides.
    pub start: Option<f64>,
    /// `end`: the upper end of that range.
    pub end: Option<f64>,
}

impl BinOptions {
    /// Returns whether no option was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The length of a bucket.
#[derive(Clone, Debug, PartialEq)]
pub enum BinSpan {
    /// A number, or a length of time.
    Length(SpanLength),
    /// `2log10`: buckets between `coefficient * base^n`.
    Log {
        /// The number in front (default 1).
        coefficient: f64,
        /// The number behind.
        base: f64,
    },
}

/// The start of buckets of time.
#[derive(Clone, Debug, PartialEq)]
pub enum AlignTime {
    /// `earliest`: the least time of the input.
    Earliest,
    /// `latest`: the greatest time of the input.
    Latest,
    /// A literal: seconds since 1970, a date, or steps such as `@d`.
    At(Expression),
}
