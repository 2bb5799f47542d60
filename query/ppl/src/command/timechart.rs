//! `timechart [options] aggregate [by field] [options]`: aggregates over time.

use super::SeriesOptions;
use crate::ast::{AggregateCall, FieldName, SpanLength};

/// `timechart`: aggregates by buckets of time, and by a field.
#[derive(Clone, Debug, PartialEq)]
pub struct TimechartCommand {
    /// At least one aggregate.
    pub aggregates: Vec<AggregateCall>,
    /// The field behind `by`.
    pub by: Option<FieldName>,
    /// `span`: the length of a bucket (default one minute).
    pub span: Option<SpanLength>,
    /// `timefield`: the field with the time (default `@timestamp`).
    pub timefield: Option<FieldName>,
    /// Options for the values of the field behind `by`.
    pub series: SeriesOptions,
}
