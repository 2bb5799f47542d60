//! The syntax tree of PPL: the types that commands share.
//!
//! [`PipedQuery`] is the root, [`Pipeline`] a source with its commands. The types of single commands are in
//! [`command`](crate::command). Expressions ([`Expression`]) are trees of sqlparser.

mod aggregate;
mod expression;
mod name;
mod search;
mod span;
mod time;

pub use aggregate::{AggregateCall, Grouping, GroupingKey, SpanBucket};
pub(crate) use expression::SUBSEARCH;
pub use expression::{Assignment, Expression, StringLiteral, placeholder_name, subsearch_index};
pub use name::{FieldName, FieldPattern, IndexSelector};
pub use search::{ComparisonOperator, SearchCondition, SearchSource, SearchTerm, SourceRelation};
pub use span::TextSpan;
pub use time::{SpanLength, SpanUnit, TimeBound, TimeModifier, TimeModifierValue, TimeStep};

use crate::command;

/// A whole text of PPL.
#[derive(Clone, Debug, PartialEq)]
pub struct PipedQuery {
    /// The way in which the plan is shown; `None` runs the query.
    pub explain: Option<ExplainMode>,
    /// The pipeline.
    pub pipeline: Pipeline,
}

/// Detail of a plan that `explain` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplainMode {
    /// The logical plan.
    Simple,
    /// Logical and physical plan.
    #[default]
    Standard,
    /// The plans with their estimates.
    Cost,
    /// The plans with all that is known of them.
    Extended,
}

/// A source and the commands that its rows pass, from left to right.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The rows at the start.
    pub source: PipelineSource,
    /// The commands behind pipes. Empty pipes leave none.
    pub commands: Vec<Command>,
    /// The text of the pipeline.
    pub span: TextSpan,
}

/// The rows that a pipeline starts with.
#[expect(clippy::large_enum_variant, reason = "a syntax tree has few of these nodes")]
#[derive(Clone, Debug, PartialEq)]
pub enum PipelineSource {
    /// `search source=…`: rows of indices or of a subsearch.
    Search(SearchSource),
    /// `describe …`: the fields of an index.
    Describe(command::DescribeCommand),
    /// `show datasources`.
    ShowDatasources,
    /// `makeresults …`: rows of the text.
    MakeResults(command::MakeResultsCommand),
    /// `multisearch [ … ] [ … ]`.
    MultiSearch(command::MultiSearchCommand),
    /// `union …` at the start.
    Union(command::UnionCommand),
    /// `graphlookup …` at the start.
    GraphLookup(command::GraphLookupCommand),
    /// The rows of the surrounding pipeline at this command: brackets of `appendpipe`.
    Input,
    /// The rows of the surrounding pipeline's own source: brackets of `appendcol`.
    OuterSource,
    /// No rows: brackets of `append` without a source.
    Empty,
}

/// A command behind a pipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The text of the command, without its pipe.
    pub span: TextSpan,
    /// The command with its options.
    pub kind: CommandKind,
}

/// The commands that can stand behind a pipe.
#[expect(clippy::large_enum_variant, reason = "a syntax tree has few of these nodes")]
#[derive(Clone, Debug, PartialEq)]
pub enum CommandKind {
    /// `addcoltotals`
    AddColTotals(command::AddColTotalsCommand),
    /// `addtotals`
    AddTotals(command::AddTotalsCommand),
    /// `append`
    Append(command::AppendCommand),
    /// `appendcol`
    AppendCol(command::AppendColCommand),
    /// `appendpipe`
    AppendPipe(command::AppendPipeCommand),
    /// `bin`
    Bin(command::BinCommand),
    /// `chart`
    Chart(command::ChartCommand),
    /// `convert`
    Convert(command::ConvertCommand),
    /// `dedup`
    Dedup(command::DedupCommand),
    /// `eval`
    Eval(command::EvalCommand),
    /// `eventstats`
    EventStats(command::EventStatsCommand),
    /// `expand`
    Expand(command::ExpandCommand),
    /// `fieldformat`
    FieldFormat(command::FieldFormatCommand),
    /// `fields`, `table`
    Fields(command::FieldsCommand),
    /// `fieldsummary`
    FieldSummary(command::FieldSummaryCommand),
    /// `fillnull`
    FillNull(command::FillNullCommand),
    /// `flatten`
    Flatten(command::FlattenCommand),
    /// `foreach`
    Foreach(command::ForeachCommand),
    /// `graphlookup`
    GraphLookup(command::GraphLookupCommand),
    /// `grok`
    Grok(command::GrokCommand),
    /// `head`
    Head(command::HeadCommand),
    /// `join`
    Join(command::JoinCommand),
    /// `lookup`
    Lookup(command::LookupCommand),
    /// `mvcombine`
    MvCombine(command::MvCombineCommand),
    /// `mvexpand`
    MvExpand(command::MvExpandCommand),
    /// `nomv`
    NoMv(command::NoMvCommand),
    /// `parse`
    Parse(command::ParseCommand),
    /// `patterns`
    Patterns(command::PatternsCommand),
    /// `rare`, `top`
    RareTop(command::RareTopCommand),
    /// `regex`
    Regex(command::RegexCommand),
    /// `rename`
    Rename(command::RenameCommand),
    /// `replace`
    Replace(command::ReplaceCommand),
    /// `reverse`
    Reverse,
    /// `rex`
    Rex(command::RexCommand),
    /// `sort`
    Sort(command::SortCommand),
    /// `spath`
    Spath(command::SpathCommand),
    /// `stats`
    Stats(command::StatsCommand),
    /// `streamstats`
    StreamStats(command::StreamStatsCommand),
    /// `tail`
    Tail(command::TailCommand),
    /// `timechart`
    Timechart(command::TimechartCommand),
    /// `timewrap`
    Timewrap(command::TimewrapCommand),
    /// `transpose`
    Transpose(command::TransposeCommand),
    /// `trendline`
    Trendline(command::TrendlineCommand),
    /// `union`
    Union(command::UnionCommand),
    /// `where`
    Where(command::WhereCommand),
    /// `xyseries`
    XySeries(command::XySeriesCommand),
}
