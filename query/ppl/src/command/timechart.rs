//! `timechart [options] aggregate [by field] [options]`: aggregates over time.

use super::SeriesOptions;
use crate::ast::{AggregateCall, FieldName, SpanLength};
use crate::parser::{Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn timechart_command(&mut self) -> Parsing<TimechartCommand> {
        let mut command = TimechartCommand {
            aggregates: Vec::new(),
            by: None,
            span: None,
            timefield: None,
            series: SeriesOptions::default(),
        };
        self.timechart_options(&mut command)?;
        command.aggregates = self.aggregates()?;
        if self.keyword("by") {
            command.by = Some(self.field()?);
        }
        self.timechart_options(&mut command)?;
        Ok(command)
    }

    fn timechart_options(&mut self, command: &mut TimechartCommand) -> Parsing<()> {
        loop {
            if self.option("span") {
                command.span = Some(self.span_length()?);
            } else if self.option("timefield") {
                command.timefield = Some(self.new_name()?);
            } else if !self.series_option(&mut command.series)? {
                return Ok(());
            }
        }
    }
}
