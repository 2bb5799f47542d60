//! From the syntax tree to expressions: names, types, nulls and functions mean here what OpenSearch's SQL
//! means by them.
//!
//! [`select`] binds a SELECT, [`from`] its sources and conditions, [`output`] its columns, [`statistics`] those of one call; [`select_builder`] makes the plan above them, with
//! [`grouping`] its groups, and [`grouping_sets`] those of ROLLUP and the like; [`relation`] makes relations of queries: those of WITH, VALUES and set operations; [`subquery`] joins the
//! subqueries of expressions; [`nested`] binds elements of nested paths; [`tables`] finds the indices that a statement names.
//! [`expr`] binds expressions ([`comparison`], [`condition`], [`arithmetic`], [`case`]), [`call`] calls of functions, [`window`] those over windows, [`percentile`] one of both, [`collection`] aggregates that keep values, [`lambda`] functions with lambdas, [`pipeline`] what values mean in pipelines, [`relevance`] the
//! functions that the inverted index answers, [`search_aggregation`] those that only a search does; [`parameter`] finds the types of parameters without values. A [`Bound`] carries beside the expression what the index could answer in its place ([`PushedPredicate`]).

mod arithmetic;
mod call;
mod case;
mod collection;
mod comparison;
mod condition;
mod expr;
mod frame;
mod from;
mod grouping;
mod grouping_sets;
mod highlight;
mod lambda;
mod literal;
mod nested;
mod operand;
mod output;
mod parameter;
mod percentile;
mod pipeline;
mod places;
mod relation;
mod relevance;
mod search_aggregation;
mod select;
mod select_builder;
mod statistics;
mod subquery;
mod tables;
mod window;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, cast};
use datafusion::scalar::ScalarValue;
use millrace_dsl::query::Query;
use millrace_matching::table::{ScanHandle, TableSnapshot};
use sqlparser::ast;

pub(crate) use self::call::names_aggregate;
pub use self::output::OutColumn;
pub(crate) use self::relation::Relation;
pub(crate) use self::select::{PlannedQuery, Total};
pub(crate) use self::tables::tables;
use millrace_work::QueryContext;
use millrace_work::compute::Compute;

use self::from::MergedColumn;
use self::relation::NamedRelation;
use self::subquery::Subquery;
use super::error::{Result, SqlError};
use super::functions;
use super::parameters::Parameters;
use super::push::PushedPredicate;
use super::request::{SqlDialect, SqlRequest};
use super::source::{self, Source};
use super::statement::Names;
use super::types::{NANOS, SqlType};
use super::whole_texts::WholeTexts;

/// Most parts of expressions that stand in a plan more often than in its statement.
const MAX_REPEATED: usize = 100_000;

/// Most nodes of plans that stand in the plan of a statement where they are used.
const MAX_USED_NODES: usize = 5_000;

/// A value that a statement spells out.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that no long holds.
    UInt(u64),
    Float(f64),
    Str(String),
    /// Microseconds of a day.
    Time(i64),
    /// Nanoseconds since 1970.
    Timestamp(i128),
}

/// A bound expression.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// The expression.
    pub expr: Expr,
    /// Its type.
    pub ty: SqlType,
    /// `true` if it has a list of values.
    pub list: bool,
    /// Type that the answer's schema shows, where it is another.
    pub shown: Option<&'static str>,
    /// The field that it is, by place of the source and path.
    pub field: Option<(usize, String)>,
    /// The literal that it is.
    pub literal: Option<Literal>,
    /// The number of the parameter without a value that it is.
    pub parameter: Option<usize>,
    /// Predicate that the index answers in its place.
    pub pushed: Option<PushedPredicate>,
    /// Type of the elements of an array that is held as JSON, where it is known.
    pub element: Option<SqlType>,
}

impl Bound {
    /// Makes an expression of single values.
    pub(crate) fn new(expr: Expr, ty: SqlType) -> Self {
        Self {
            expr,
            ty,
            list: false,
            shown: None,
            field: None,
            literal: None,
            parameter: None,
            pushed: None,
            element: None,
        }
    }

    /// Returns the type that an answer's schema shows.
    pub(crate) fn shown_type(&self) -> &'static str {
        self.shown.unwrap_or(self.ty.name())
    }

    /// Returns the expression with values of another type, single ones.
    pub(crate) fn to(&self, ty: SqlType) -> Result<Expr> {
        if self.list {
            return self.single().to(ty);
        }
        if self.ty.arrow() == ty.arrow() && !(self.ty.is_string() && ty == SqlType::Ip) {
            return Ok(self.expr.clone());
        }
        if let Some(literal) = self.literal.as_ref().and_then(|literal| literal::converted(literal, ty)) {
            return Ok(Expr::Literal(literal, None));
        }
        match (self.ty, ty) {
            (SqlType::Undefined, _) => Ok(Expr::Literal(ScalarValue::try_from(&ty.arrow())?, None)),
            (from, to) if (from.is_number() || from == SqlType::Boolean) && to.is_number() => {
                Ok(cast(self.expr.clone(), ty.arrow()))
            }
            // Those of nanoseconds are rounded down and have bounds, which a cast does not know.
            (SqlType::Timestamp(_), SqlType::Timestamp(_)) if self.ty != NANOS && ty != NANOS => {
                Ok(cast(self.expr.clone(), ty.arrow()))
            }
            _ => functions::convert(self, ty),
        }
    }

    /// Reduces a list to one value, the least.
    pub(crate) fn single(&self) -> Self {
        if !self.list {
            return self.clone();
        }
        let expr = functions::values::least(self.expr.clone(), self.ty);
        Self { field: self.field.clone(), shown: self.shown, ..Self::new(expr, self.ty) }
    }
}

/// Context of an expression, which decides its allowed content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpressionContext {
    /// In WHERE, ON or the arguments of an aggregate: rows.
    Row,
    /// In SELECT: the output of the query.
    Output,
    /// In GROUP BY, HAVING or ORDER BY, where an alias wins over a field.
    Aliased,
}

/// Binds one statement.
#[derive(Debug)]
pub(crate) struct Binder<'a> {
    /// Snapshots by index expression.
    pub snapshots: &'a HashMap<String, Arc<TableSnapshot>>,
    /// Texts of the user for output columns.
    pub names: &'a Names,
    /// Values of `?`.
    pub parameters: &'a Parameters,
    /// Types of those without values, as far as their places tell them.
    pub inferred: Vec<Option<SqlType>>,
    /// Nested fields whose elements hold several values.
    pub list_valued: Arc<HashSet<String>>,
    /// Texts whose keyword fields have every value.
    pub whole_texts: Arc<WholeTexts>,
    /// A condition on every index scan.
    pub filter: Option<&'a serde_json::Value>,
    /// Filter for each index expression, with the values that it takes from other documents; nothing where no row is read.
    pub filters: HashMap<String, Query>,
    /// Time of the request.
    pub now_ms: i64,
    /// Threads for the work.
    pub compute: Compute,
    /// Context of the statement.
    pub work: &'a QueryContext,
    /// `true` if scores are asked for.
    pub scores: bool,
    /// `true` if the statement is rendered as a search.
    pub is_search: bool,
    /// `true` if `*` stands for the fields below objects, too, in place of these.
    pub flat: bool,
    /// The scans of the statement.
    pub handles: Vec<Arc<ScanHandle>>,
    /// Number of the next source.
    next_source: usize,
    /// Number of the next scope.
    next_scope: usize,
    /// Scopes of the queries around the one that is bound.
    outer: Vec<Scope>,
    /// Queries of WITH, the innermost last.
    named: Vec<NamedRelation>,
    /// Subqueries of expressions, which stand there as columns.
    subqueries: Vec<Subquery>,
    /// Parts of expressions that stand in the plan more often than in the statement.
    repeated: usize,
    /// Nodes of the plans of subqueries and of queries of WITH, where they are used.
    used_nodes: usize,
    /// Sources that are steps of a statement of another language.
    steps: usize,
    /// `true` for a statement of pipelines, whose arithmetic is wider.
    pub is_pipeline: bool,
    /// Parameters of the lambdas around, the innermost last.
    lambdas: Vec<Vec<(String, Bound)>>,
}

/// Scope in which expressions of one SELECT are bound.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Number of the scope.
    number: usize,
    /// Sources of FROM.
    pub sources: Vec<Source>,
    /// Columns that USING and NATURAL make one of two.
    merged: Vec<MergedColumn>,
    /// Expressions of SELECT by alias.
    pub aliases: HashMap<String, ast::Expr>,
    /// Windows of the clause WINDOW.
    windows: Vec<ast::NamedWindowDefinition>,
    /// `true` if an alias is being followed.
    following: bool,
    /// Nested paths whose elements are grouped by `nested`.
    grouped_paths: Vec<String>,
    /// The source whose documents, or elements of a nested path, `reverse_nested` groups.
    reversed: Option<(usize, Option<String>)>,
    /// `true` while conditions on documents are bound.
    filters: bool,
    /// Columns of the queries around this one that it names, as the next of these has them.
    outer: Vec<(Expr, Bound)>,
    /// Subqueries that were bound, by their text: an alias may stand for one in several clauses.
    subqueries: Vec<(ast::Expr, Bound)>,
}

impl Scope {
    /// Finds a column of its sources.
    fn column(&mut self, path: &str) -> Result<Option<Bound>> {
        match self.merged.iter().find(|merged| merged.name == path) {
            Some(merged) => Ok(Some(merged.bound.clone())),
            None => source::resolve(&mut self.sources, path),
        }
    }

    /// Returns true where GROUP BY has a call of `nested` or `reverse_nested`.
    fn groups_elements(&self) -> bool {
        !self.grouped_paths.is_empty() || self.reversed.is_some()
    }

    /// Finds a column behind the index expression of a source that has an alias.
    fn column_behind_alias(&mut self, path: &str) -> Result<Option<Bound>> {
        source::resolve_behind_alias(&mut self.sources, path)
    }
}

/// Returns whether a statement may name its scores: `_score`, or `SCORE()` of Elasticsearch.
fn names_score(request: &SqlRequest) -> bool {
    if request.lines.score {
        return true;
    }
    match request.dialect {
        SqlDialect::OpenSearch => request.query.contains("_score"),
        SqlDialect::Elasticsearch => request.query.to_ascii_lowercase().contains("score"),
    }
}

impl<'a> Binder<'a> {
    /// Makes a binder.
    pub(crate) fn new(
        snapshots: &'a HashMap<String, Arc<TableSnapshot>>,
        names: &'a Names,
        request: &'a SqlRequest,
        parameters: &'a Parameters,
        now_ms: i64,
        compute: Compute,
        work: &'a QueryContext,
    ) -> Self {
        Self {
            snapshots,
            names,
            parameters,
            inferred: Vec::new(),
            list_valued: Arc::default(),
            whole_texts: Arc::default(),
            filter: request.filter.as_ref(),
            filters: HashMap::new(),
            now_ms,
            compute,
            work,
            scores: names_score(request),
            is_search: request.is_search,
            flat: request.lines.flat,
            handles: Vec::new(),
            next_source: 0,
            next_scope: 0,
            outer: Vec::new(),
            named: Vec::new(),
            subqueries: Vec::new(),
            repeated: 0,
            used_nodes: 0,
            steps: 0,
            is_pipeline: false,
            lambdas: Vec::new(),
        }
    }

    /// Accounts for an expression that stands in the plan more often than in the statement.
    ///
    /// # Errors
    /// [`SqlError::TooLarge`]: repetitions within one another multiply.
    fn repeat(&mut self, expr: &Expr, times: usize) -> Result<()> {
        let mut nodes = 0_usize;
        expr.apply(|_| {
            nodes += 1;
            Ok(TreeNodeRecursion::Continue)
        })?;
        self.repeated = self.repeated.saturating_add(nodes.saturating_mul(times));
        match self.repeated > MAX_REPEATED {
            true => Err(SqlError::TooLarge(format!(
                "expressions that are computed more than once (BETWEEN, CASE, aliases) have more than {MAX_REPEATED} parts"
            ))),
            false => Ok(()),
        }
    }
}

/// Accounts for the use of a plan, which others may hold again.
///
/// # Errors
/// [`SqlError::TooLarge`]: uses within one another multiply.
fn use_plan(plan: &LogicalPlan, used_nodes: &mut usize) -> Result<()> {
    plan.apply(|_| {
        *used_nodes += 1;
        Ok(if *used_nodes > MAX_USED_NODES { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match *used_nodes > MAX_USED_NODES {
        true => Err(SqlError::TooLarge(format!(
            "subqueries and queries of WITH, used within one another, make a plan of more than {MAX_USED_NODES} nodes"
        ))),
        false => Ok(()),
    }
}

/// Makes the refusal of what is not built.
pub(crate) fn unsupported<T>(what: impl std::fmt::Display) -> Result<T> {
    Err(SqlError::Unsupported(format!("{what} is not supported")))
}
