//! `eventstats [bucket_nullable=bool] function, … [by keys]`: aggregates beside each row.

use crate::ast::{AggregateCall, Grouping};
use crate::parser::{Parser, Parsing};

/// `eventstats`: adds aggregates of the row's group to each row.
#[derive(Clone, Debug, PartialEq)]
pub struct EventStatsCommand {
    /// At least one aggregate or window function.
    pub functions: Vec<AggregateCall>,
    /// The keys behind `by`.
    pub by: Option<Grouping>,
    /// `bucket_nullable`: whether rows without a key form a group; `None` takes the setting.
    pub bucket_nullable: Option<bool>,
}

impl Parser<'_> {
    pub(crate) fn eventstats_command(&mut self) -> Parsing<EventStatsCommand> {
        let bucket_nullable = if self.option("bucket_nullable") { Some(self.boolean()?) } else { None };
        let functions = self.aggregates()?;
        Ok(EventStatsCommand { functions, by: self.grouping()?, bucket_nullable })
    }
}
