//! `trendline [sort field] sma(n, field) [as alias] …`: moving averages.

use super::SortTerm;
use crate::ast::{FieldName, TextSpan};
use crate::parser::{Mismatch, Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn trendline_command(&mut self) -> Parsing<TrendlineCommand> {
        let sort = if self.keyword("sort") { Some(self.sort_term()?) } else { None };
        let mut averages = vec![self.moving_average()?];
        loop {
            self.symbol(",");
            if !self.peek_name() {
                return Ok(TrendlineCommand { sort, averages });
            }
            let start = self.start();
            averages.push(self.moving_average()?);
            self.check_count(start, averages.len())?;
        }
    }

    fn moving_average(&mut self) -> Parsing<MovingAverage> {
        let start = self.start();
        let is_weighted = self.one_of(&[("sma", false), ("wma", true)]).ok_or(Mismatch)?;
        self.expect_symbol("(")?;
        let points = self.integer()?;
        self.expect_symbol(",")?;
        let field = self.field()?;
        self.expect_symbol(")")?;
        let alias = self.alias()?;
        Ok(MovingAverage { is_weighted, points, field, alias, span: self.span_from(start) })
    }
}
