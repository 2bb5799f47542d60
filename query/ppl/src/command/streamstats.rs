//! `streamstats [options] function, … [by keys]`: aggregates of the rows so far.

use crate::ast::{AggregateCall, Expression, Grouping};
use crate::parser::{Parser, Parsing};

/// `streamstats`: adds aggregates of the rows up to this one to each row.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamStatsCommand {
    /// At least one aggregate or window function.
    pub functions: Vec<AggregateCall>,
    /// The keys behind `by`.
    pub by: Option<Grouping>,
    /// `bucket_nullable`: whether rows without a key form a group; `None` takes the setting.
    pub bucket_nullable: Option<bool>,
    /// `current`: whether the row itself counts (default true).
    pub current: bool,
    /// `window`: how many rows count; 0 means all (default 0). Negative numbers are errors of the planner.
    pub window: i64,
    /// `global`: whether the window spans all groups (default true).
    pub global: bool,
    /// `reset_before`: a condition that starts anew before the row.
    pub reset_before: Option<Expression>,
    /// `reset_after`: a condition that starts anew behind the row.
    pub reset_after: Option<Expression>,
}

impl Parser<'_> {
    pub(crate) fn streamstats_command(&mut self) -> Parsing<StreamStatsCommand> {
        let mut command = StreamStatsCommand {
            functions: Vec::new(),
            by: None,
            bucket_nullable: None,
            current: true,
            window: 0,
            global: true,
            reset_before: None,
            reset_after: None,
        };
        loop {
            if self.option("current") {
                command.current = self.boolean()?;
            } else if self.option("window") {
                command.window = self.integer()?;
            } else if self.option("global") {
                command.global = self.boolean()?;
            } else if self.option("reset_before") {
                command.reset_before = Some(self.expression()?);
            } else if self.option("reset_after") {
                command.reset_after = Some(self.expression()?);
            } else if self.option("bucket_nullable") {
                command.bucket_nullable = Some(self.boolean()?);
            } else {
                break;
            }
        }
        command.functions = self.aggregates()?;
        command.by = self.grouping()?;
        Ok(command)
    }
}
