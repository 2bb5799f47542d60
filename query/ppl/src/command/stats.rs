//! `stats [options] aggregate, … [by keys]`: aggregates of groups.

use crate::ast::{AggregateCall, Grouping};
use crate::parser::{Parser, Parsing};

/// `stats`: aggregates of groups, a row for each.
#[derive(Clone, Debug, PartialEq)]
pub struct StatsCommand {
    /// At least one aggregate.
    pub aggregates: Vec<AggregateCall>,
    /// The keys behind `by`.
    pub by: Option<Grouping>,
    /// `bucket_nullable`: whether rows without a key form a group; `None` takes the setting.
    pub bucket_nullable: Option<bool>,
    /// `partitions`, which changes no answer.
    pub partitions: Option<u64>,
    /// `allnum`: read and not used, as in OpenSearch.
    pub allnum: Option<bool>,
    /// `delim`: read and not used, as in OpenSearch.
    pub delim: Option<String>,
    /// `dedup_splitvalues`: read and not used, as in OpenSearch.
    pub dedup_splitvalues: Option<bool>,
}

impl Parser<'_> {
    pub(crate) fn stats_command(&mut self) -> Parsing<StatsCommand> {
        let mut command = StatsCommand {
            aggregates: Vec::new(),
            by: None,
            bucket_nullable: None,
            partitions: None,
            allnum: None,
            delim: None,
            dedup_splitvalues: None,
        };
        loop {
            if self.option("bucket_nullable") {
                command.bucket_nullable = Some(self.boolean()?);
            } else if self.option("partitions") {
                command.partitions = Some(self.count("partitions")?);
            } else if self.option("allnum") {
                command.allnum = Some(self.boolean()?);
            } else if self.option("delim") {
                command.delim = Some(self.string()?.value);
            } else {
                break;
            }
        }
        command.aggregates = self.aggregates()?;
        command.by = self.grouping()?;
        if self.option("dedup_splitvalues") {
            command.dedup_splitvalues = Some(self.boolean()?);
        }
        Ok(command)
    }
}
