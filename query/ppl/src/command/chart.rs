//! `chart [options] aggregate [over row] [by column] [options]`: aggregates for two keys.

use super::BinOptions;
use crate::ast::{AggregateCall, FieldName};
use crate::parser::{Mismatch, Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn chart_command(&mut self) -> Parsing<ChartCommand> {
        let mut series = SeriesOptions::default();
        self.series_options(&mut series)?;
        let aggregate = self.aggregate()?;
        let (mut row, mut column) = (None, None);
        if self.keyword("over") {
            row = Some(self.chart_split()?);
            if self.keyword("by") {
                column = Some(self.chart_split()?);
            }
        } else if self.keyword("by") {
            row = Some(self.chart_split()?);
            let has_comma = self.symbol(",");
            if has_comma || (self.peek_name() && !self.peek_series_option()) {
                column = Some(self.chart_split()?);
            }
        }
        self.series_options(&mut series)?;
        Ok(ChartCommand { aggregate, row, column, series })
    }

    fn chart_split(&mut self) -> Parsing<ChartSplit> {
        Ok(ChartSplit { field: self.field()?, bin: self.bin_options()? })
    }

    fn peek_series_option(&mut self) -> bool {
        self.peek_option().is_some()
    }

    /// Reads one option of a column key; tells whether one was next.
    pub(crate) fn series_option(&mut self, series: &mut SeriesOptions) -> Parsing<bool> {
        if self.option("limit") {
            series.limit = Some(self.series_limit()?);
        } else if self.option("useother") {
            series.useother = Some(self.boolean()?);
        } else if self.option("otherstr") {
            series.otherstr = Some(self.string()?.value);
        } else if self.option("usenull") {
            series.usenull = Some(self.boolean()?);
        } else if self.option("nullstr") {
            series.nullstr = Some(self.string()?.value);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn series_options(&mut self, series: &mut SeriesOptions) -> Parsing<()> {
        while self.series_option(series)? {}
        Ok(())
    }

    fn series_limit(&mut self) -> Parsing<SeriesLimit> {
        let word = self.peek_word().to_ascii_lowercase();
        for (prefix, limit) in
            [("top", SeriesLimit::Top as fn(u64) -> SeriesLimit), ("bottom", SeriesLimit::Bottom)]
        {
            let count = word.strip_prefix(prefix).filter(|digits| !digits.is_empty());
            if let Some(count) = count.and_then(|digits| digits.parse().ok()) {
                return if self.take_word(&word) { Ok(limit(count)) } else { Err(Mismatch) };
            }
        }
        self.count("limit").map(SeriesLimit::Top)
    }
}
