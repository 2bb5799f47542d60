//! From pipelines to relations.
//!
//! Each command takes the [`Pipe`] of the commands before it and returns one, a file a command. [`Planner`] has what all of them
//! need; [`order`] tells what each command does to the order of rows. [`PipelineStatement`] is what SQL's runner is handed.

mod aggregates;
mod appendcol;
mod bin;
mod chart;
mod columns;
mod convert;
mod decimals;
mod dedup;
mod describe;
mod eval;
mod eventstats;
mod expressions;
mod extract;
mod fields;
mod fieldsummary;
mod fillnull;
mod flatten;
mod foreach;
mod format;
mod functions;
mod graphlookup;
mod grok;
mod join;
mod lookup;
mod makeresults;
mod mvcombine;
mod names;
mod nearest;
pub mod order;
mod patterns;
mod pipe;
mod raretop;
mod rename;
mod replace;
mod search;
mod sort;
mod spans;
mod spath;
mod stats;
mod streamstats;
mod subsearch;
mod syntax;
mod timechart;
mod times;
mod timewrap;
mod totals;
mod transpose;
mod trendline;
mod union;
mod unnest;
mod xyseries;

use millrace_sql::error::{LocatedError, Result, SqlError};
use millrace_sql::relational::{OutColumn, PlannedRelation, RelationPlanner, RelationalStatement, SqlType};
use sqlparser::ast;

use self::names::NameSet;
use self::pipe::Pipe;
pub use self::timewrap::Timewrap;
use crate::ast::{
    Command, CommandKind, ExplainMode, Expression, FieldName, IndexSelector, PipedQuery, Pipeline,
    PipelineSource, SourceRelation, TextSpan,
};
use crate::reference::{COMMANDS, Support};
use crate::{ParseError, ParseErrorKind};

/// Most commands of a statement, those of subsearches among them.
const MAX_COMMANDS: usize = 400;
/// Deepest subsearches in subsearches.
const MAX_DEPTH: usize = 10;

/// Settings that change the answers of pipelines.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// Rows that a subsearch in an expression answers at most; all where absent.
    pub subsearch_rows: Option<u64>,
    /// Rows of the other side of a join; all where absent.
    pub join_rows: Option<u64>,
    /// `true` if joins may be right, full and cross ones.
    pub all_joins: bool,
    /// Most matches of `rex`.
    pub rex_matches: u64,
    /// Most values of `values`; 0 are all.
    pub values_limit: u64,
    /// `true` if `LIKE` and groups of nulls are those of the older syntax.
    pub legacy_syntax: bool,
}

impl Default for PipelineSettings {
    fn default() -> Self {
        Self {
            subsearch_rows: Some(10_000),
            join_rows: Some(50_000),
            all_joins: true,
            rex_matches: 10,
            values_limit: 0,
            legacy_syntax: true,
        }
    }
}

/// A parsed statement of PPL, with what its plan depends on.
#[derive(Debug)]
pub struct PipelineStatement {
    text: String,
    query: PipedQuery,
    settings: PipelineSettings,
    /// Pattern of the fields whose matches the answer shows.
    highlight: Option<String>,
}

impl PipelineStatement {
    /// Parses a statement.
    ///
    /// # Errors
    /// The text is no PPL, or longer or deeper than the bounds allow.
    pub fn parse(text: String, settings: PipelineSettings) -> Result<Self> {
        match crate::parse(&text) {
            Ok(query) => Ok(Self::new(text, query, settings)),
            Err(error) => {
                let ParseError { kind, offset, message, suggestion, .. } = error;
                let own = match kind {
                    ParseErrorKind::Syntax => SqlError::Syntax(message),
                    ParseErrorKind::Unsupported => SqlError::Unsupported(message),
                    ParseErrorKind::TooLarge => SqlError::TooLarge(message),
                };
                let end = text.len().min(offset + 40);
                Err(LocatedError::locate(LocatedError::suggest(own, suggestion), offset, end))
            }
        }
    }

    /// Takes over a parsed statement and its text.
    pub fn new(text: String, query: PipedQuery, settings: PipelineSettings) -> Self {
        Self { text, query, settings, highlight: None }
    }

    /// Has the answer show the matches of fields of a pattern, in the column `_highlight`.
    #[must_use]
    pub fn with_highlight(self, pattern: Option<String>) -> Self {
        Self { highlight: pattern, ..self }
    }

    /// Returns the detail in which the statement asks for its plan; `None` where it asks for rows.
    pub fn explain(&self) -> Option<ExplainMode> {
        self.query.explain
    }

    /// Finds the `timewrap` that the statement ends with: it changes the answer of the plan.
    ///
    /// # Errors
    /// Those of the command.
    pub fn timewrap(&self, now_ms: i64) -> Result<Option<Timewrap>> {
        Timewrap::find(&self.query.pipeline, now_ms)
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl RelationalStatement for PipelineStatement {
    fn index_expressions(&self) -> Vec<String> {
        let mut found = Vec::new();
        index_expressions(&self.query.pipeline, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn names_score(&self) -> bool {
        self.text.contains("_score")
    }

    fn plan(&self, planner: &mut RelationPlanner<'_, '_>, rows: Option<usize>) -> Result<PlannedRelation> {
        let mut planner = Planner {
            names: NameSet::new(&self.text, false),
            settings: &self.settings,
            sql: planner,
            commands: 0,
            depth: 0,
            correlated: 0,
            next_name: 0,
            substitution_bytes: foreach::MAX_BYTES,
        };
        let mut pipe = planner.pipeline(&self.query.pipeline, None)?;
        if let Some(pattern) = &self.highlight {
            pipe.highlight(pattern, planner.sql)?;
        }
        let mut planned = pipe.answer(rows, planner.sql)?;
        for column in planned.columns_mut() {
            show(column);
        }
        Ok(planned)
    }
}

/// Gives a column the name and the type that answers of PPL show.
fn show(column: &mut OutColumn) {
    if let Some(alias) = column.alias.take() {
        column.name = alias;
    }
    // A path below nested elements has the type of its field.
    if column.ty != SqlType::Array || column.shown == SqlType::Array.name() {
        column.shown = type_name(column.ty);
    }
}

/// Returns the name of a type in answers of PPL.
pub(crate) fn type_name(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Undefined => "undefined",
        SqlType::Byte => "tinyint",
        SqlType::Short => "smallint",
        SqlType::Integer => "int",
        SqlType::Long | SqlType::UnsignedLong => "bigint",
        SqlType::Float => "float",
        SqlType::Double => "double",
        SqlType::Keyword | SqlType::Text => "string",
        SqlType::Boolean => "boolean",
        SqlType::Date => "date",
        SqlType::Time => "time",
        SqlType::Timestamp(_) => "timestamp",
        SqlType::Interval => "interval",
        SqlType::Ip => "ip",
        SqlType::GeoPoint => "geo_point",
        SqlType::Binary => "binary",
        SqlType::Object => "struct",
        SqlType::Nested | SqlType::Array => "array",
    }
}

/// Plans the pipelines of a statement.
pub(crate) struct Planner<'p, 'b, 'a> {
    pub(crate) sql: &'p mut RelationPlanner<'b, 'a>,
    pub(crate) names: NameSet,
    pub(crate) settings: &'p PipelineSettings,
    commands: usize,
    depth: usize,
    /// Subsearches of expressions around.
    pub(crate) correlated: usize,
    /// Number of the next hidden column.
    next_name: usize,
    /// Bytes that assignments of `foreach` may still have.
    pub(crate) substitution_bytes: usize,
}

impl<'p, 'b, 'a> Planner<'p, 'b, 'a> {
    /// Plans a pipeline; `input` are the rows that its brackets stand behind.
    pub(crate) fn pipeline(&mut self, pipeline: &Pipeline, input: Option<Pipe>) -> Result<Pipe> {
        self.commands += pipeline.commands.len() + 1;
        if self.commands > MAX_COMMANDS {
            return Err(SqlError::TooLarge(format!("the statement has more than {MAX_COMMANDS} commands")));
        }
        if self.depth >= MAX_DEPTH {
            return Err(SqlError::TooLarge(format!("subsearches are nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let planned = self.commands_of(pipeline, input);
        self.depth -= 1;
        planned
    }

    fn commands_of(&mut self, pipeline: &Pipeline, input: Option<Pipe>) -> Result<Pipe> {
        let names = self.names.with_restriction(columns::is_restricted(&pipeline.commands));
        let source = pipeline.span;
        let mut pipe =
            self.source(&pipeline.source, names, input).map_err(|error| self.locate(error, source))?;
        let commands = match pipeline.commands.split_last() {
            // The answer is changed behind the plan.
            Some((last, before)) if self.is_wrapped() && matches!(last.kind, CommandKind::Timewrap(_)) => {
                before
            }
            _ => pipeline.commands.as_slice(),
        };
        for command in commands {
            let next = self.command(command, pipe, pipeline);
            pipe = next.map_err(|error| self.locate(error, command.span))?;
        }
        Ok(pipe)
    }

    /// Returns whether the pipeline that is planned is the statement itself.
    fn is_wrapped(&self) -> bool {
        self.depth == 1 && self.correlated == 0
    }

    fn source(&mut self, source: &PipelineSource, names: NameSet, input: Option<Pipe>) -> Result<Pipe> {
        match source {
            PipelineSource::Search(search) => search::plan(search, names, self),
            PipelineSource::Input | PipelineSource::OuterSource => {
                input.ok_or_else(|| SqlError::Semantic("the brackets have no input".to_owned()))
            }
            PipelineSource::Empty => {
                let mut pipe = Pipe::nothing(names);
                pipe.filter(syntax::boolean(false), self.sql)?;
                Ok(pipe)
            }
            PipelineSource::MultiSearch(command) => union::multisearch(command, self),
            PipelineSource::Union(command) => union::union(command, None, self),
            PipelineSource::MakeResults(command) => makeresults::plan(command, names, self),
            PipelineSource::GraphLookup(command) => graphlookup::source(command, names, self),
            PipelineSource::Describe(command) => describe::plan(command, names, self),
            PipelineSource::ShowDatasources => describe::no_sources(names, self),
        }
    }

    fn command(&mut self, command: &Command, pipe: Pipe, pipeline: &Pipeline) -> Result<Pipe> {
        use CommandKind as C;
        match &command.kind {
            C::Where(own) => {
                let mut pipe = pipe;
                let condition = self.value(&own.condition, &mut pipe)?;
                pipe.filter(condition, self.sql)?;
                Ok(pipe)
            }
            C::Fields(own) => fields::plan(own, pipe, self),
            C::Eval(own) => eval::plan(own, pipe, self),
            C::Head(own) => {
                let mut pipe = pipe;
                pipe.cut(own.from, own.count);
                Ok(pipe)
            }
            C::Stats(own) => stats::plan(own, pipe, self),
            C::Sort(own) => sort::plan(own, pipe, self),
            C::Reverse => sort::reverse(pipe, self),
            C::Tail(own) => sort::tail(own.count, pipe, self),
            C::Rename(own) => rename::plan(own, pipe, self),
            C::Dedup(own) => dedup::plan(own, pipe, self),
            C::EventStats(own) => eventstats::plan(own, pipe, self),
            C::StreamStats(own) => streamstats::plan(own, pipe, self),
            C::RareTop(own) => raretop::plan(own, pipe, self),
            C::Bin(own) => bin::plan(own, pipe, self),
            C::Timechart(own) => timechart::plan(own, pipe, self),
            C::Chart(own) => chart::plan(own, pipe, self),
            C::FillNull(own) => fillnull::plan(own, pipe, self),
            C::Replace(own) => replace::plan(own, pipe, self),
            C::Convert(own) => convert::plan(own, pipe, self),
            C::Parse(own) => extract::parse(own, pipe, self),
            C::Rex(own) => extract::rex(own, pipe, self),
            C::Regex(own) => extract::regex(own, pipe, self),
            C::Grok(own) => extract::grok(own, pipe, self),
            C::Spath(own) => spath::plan(own, pipe, self),
            C::Join(own) => join::plan(own, pipe, self),
            C::Lookup(own) => lookup::plan(own, pipe, self),
            C::Append(own) => union::append(own, pipe, self),
            C::AppendPipe(own) => union::appendpipe(own, pipe, self),
            C::Union(own) => union::union(own, Some(pipe), self),
            C::AddTotals(own) => totals::rows(own, pipe, self),
            C::AddColTotals(own) => totals::columns(own, pipe, self),
            C::AppendCol(own) => appendcol::plan(own, pipe, pipeline, self),
            C::Expand(own) => unnest::expand(own, pipe, self),
            C::FieldFormat(own) => format::fieldformat(own, pipe, self),
            C::FieldSummary(own) => fieldsummary::plan(own, pipe, self),
            C::Flatten(own) => flatten::plan(own, pipe, self),
            C::Foreach(own) => foreach::plan(own, pipe, self),
            C::GraphLookup(own) => graphlookup::plan(own, pipe, self),
            C::MvCombine(own) => mvcombine::plan(own, pipe, self),
            C::MvExpand(own) => unnest::mvexpand(own, pipe, self),
            C::NoMv(own) => format::nomv(own, pipe, self),
            C::Patterns(own) => patterns::plan(own, pipe, self),
            C::Timewrap(_) => {
                Err(SqlError::Unsupported("timewrap is only supported as the last command".to_owned()))
            }
            C::Transpose(own) => transpose::plan(own, pipe, self),
            C::Trendline(own) => trendline::plan(own, pipe, self),
            C::XySeries(own) => xyseries::plan(own, pipe, self),
        }
    }

    /// Plans the subsearches of an expression, which stands in the tree of SQL then.
    pub(crate) fn expression(&mut self, expression: &Expression, pipe: &mut Pipe) -> Result<ast::Expr> {
        subsearch::plan(expression, pipe, self)
    }

    /// Plans an expression of one row, where aggregates of one value stand for it. Those of its subsearches stay.
    pub(crate) fn value(&mut self, expression: &Expression, pipe: &mut Pipe) -> Result<ast::Expr> {
        let mut own = expression.clone();
        functions::write_values(&mut own.expr);
        subsearch::plan(&own, pipe, self)
    }

    /// Makes a name for a hidden column that no other has.
    pub(crate) fn fresh_name(&mut self, what: &str) -> String {
        self.next_name += 1;
        format!("\u{1}{what}{}", self.next_name)
    }

    /// Plans a source that another relation meets.
    pub(crate) fn relation_source(&mut self, source: &SourceRelation) -> Result<Pipe> {
        match source {
            SourceRelation::Indices { indices, .. } => {
                Ok(Pipe::from_index(index_expression(indices), self.names.unrestricted()))
            }
            SourceRelation::Subsearch { pipeline, .. } => self.pipeline(pipeline, None),
        }
    }

    /// Tells where an error is.
    fn locate(&self, error: SqlError, span: TextSpan) -> SqlError {
        LocatedError::locate(error, span.start, span.end)
    }
}

/// Refuses what has no plan; the table of the language has the reasons for commands.
pub(crate) fn refused<T>(what: &str) -> Result<T> {
    let reason = COMMANDS.iter().find(|command| command.name == what).map(|command| command.support);
    Err(SqlError::Unsupported(match reason {
        Some(Support::Parsed(reason)) => format!("{what} is not supported: {reason}"),
        _ => format!("{what} is not supported"),
    }))
}

/// Makes one expression of a list of indices.
pub(crate) fn index_expression(indices: &[IndexSelector]) -> String {
    indices.iter().map(|index| index.expression.as_str()).collect::<Vec<_>>().join(",")
}

/// Returns the paths of fields.
pub(crate) fn paths_of(fields: &[FieldName]) -> Vec<String> {
    fields.iter().map(|field| field.path.clone()).collect()
}

/// Lists the index expressions of a pipeline and its subsearches.
fn index_expressions(pipeline: &Pipeline, found: &mut Vec<String>) {
    columns::visit_sources(pipeline, &mut |indices| found.push(index_expression(indices)));
}
