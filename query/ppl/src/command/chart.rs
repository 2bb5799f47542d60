//! `chart [options] aggregate [over row] [by column] [options]`: aggregates for two keys.

use super::BinOptions;
use crate::ast::{AggregateCall, FieldName};

/// `chart`: aggregates by a row and a column key. The answer has a row for each pair.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartCommand {
    /// The aggregate.
    pub aggregate: AggregateCall,
    /// The key behind `over`, or the first one behind `by` where there are two, or the only one.
    pub row: Option<ChartSplit>,
    /// The key whose values are limited: the one behind `by` beside `over`, or the second.
    pub column: Option<ChartSplit>,
    /// Options for the column key.
    pub series: SeriesOptions,
}

/// A key of `chart`, with its buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartSplit {
    /// The field.
    pub field: FieldName,
    /// Its buckets.
    pub bin: BinOptions,
}

/// Options for the values of a column key, for `chart` and `timechart`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesOptions {
    /// `limit`: how many values stay (default 10); 0 lifts the limit.
    pub limit: Option<SeriesLimit>,
    /// `useother`: whether the rest becomes one value (default true).
    pub useother: Option<bool>,
    /// `otherstr`: the name of the rest (default `OTHER`).
    pub otherstr: Option<String>,
    /// `usenull`: whether rows without the key count (default true).
    pub usenull: Option<bool>,
    /// `nullstr`: the name of rows without the key (default `NULL`).
    pub nullstr: Option<String>,
}

/// Values of a column key that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesLimit {
    /// The values with the largest totals: `limit=5`, `limit=top5`.
    Top(u64),
    /// The values with the smallest totals: `limit=bottom5`.
    Bottom(u64),
}
