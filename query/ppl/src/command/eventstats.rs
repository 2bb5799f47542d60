//! `eventstats [bucket_nullable=bool] function, … [by keys]`: aggregates beside each row.

use crate::ast::{AggregateCall, Grouping};

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
