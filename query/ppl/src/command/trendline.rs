//! `trendline [sort field] sma(n, field) [as alias] …`: moving averages.

use super::SortTerm;
use crate::ast::{FieldName, TextSpan};

/// `trendline`: adds moving averages.
#[derive(Clone, Debug, PartialEq)]
pub struct TrendlineCommand {
    /// The order behind `sort`; `None` takes that of the input.
    pub sort: Option<SortTerm>,
    /// At least one average.
    pub averages: Vec<MovingAverage>,
}

/// A moving average.
#[derive(Clone, Debug, PartialEq)]
pub struct MovingAverage {
    /// `true` for `wma`: later rows weigh more.
    pub is_weighted: bool,
    /// The number of rows that it covers. Numbers below one are errors of the planner.
    pub points: i64,
    /// The field.
    pub field: FieldName,
    /// The name behind `as` (default `field_trendline`).
    pub alias: Option<FieldName>,
    /// The text of the average.
    pub span: TextSpan,
}
