//! One level of a plan over one scan: what the nodes above the scan do to its rows, in terms of its fields.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullHandling};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, FetchType, Limit, LogicalPlan, SkipType, SortExpr, TableScan, Unnest,
};
use serde_json::{Value, json};

use super::{RenderRefusal, RenderResult, clauses};
use crate::count::RowCount;
use crate::elements::nested_clause;
use crate::output_columns::OutputColumns;
use crate::push::Clause;
use crate::pushdown;
use crate::table::{ScanSource, SqlTable};

/// Qualifier of the keys of groups.
const KEY: &str = "$key";
/// Qualifier of the aggregates of groups.
const METRIC: &str = "$metric";

/// One level of a plan.
pub(super) struct FlatSelect {
    /// The scan.
    pub(super) scan: Arc<ScanSource>,
    /// Conditions on its rows, beside those that the scan has.
    pub(super) filters: Vec<Clause>,
    /// Groups of the rows.
    pub(super) groups: Option<Groups>,
    /// Conditions on groups.
    pub(super) having: Vec<Expr>,
    /// Order of rows or groups.
    pub(super) sorts: Vec<SortExpr>,
    /// Rows or groups that are skipped, and most that are left.
    pub(super) cut: Option<(usize, Option<usize>)>,
    /// True where rows stand once for each value of a field, or for each element.
    unnested: bool,
    /// Elements that rows stand for.
    pub(super) elements: Option<Elements>,
    /// The columns of the plan, in terms of fields, keys and aggregates.
    columns: HashMap<Column, Expr>,
}

/// The elements of a nested path: each row stands for one.
pub(super) struct Elements {
    /// The path.
    pub(super) path: String,
    /// Conditions on elements.
    pub(super) filters: Vec<Clause>,
}

impl Elements {
    /// Makes the clause of the documents that have a row.
    pub(super) fn document_clause(&self) -> Clause {
        let all = match self.filters.as_slice() {
            [] => Clause::All,
            filters => Clause::And(filters.to_vec()),
        };
        Clause::Leaf(nested_clause(&self.path, &all))
    }

    /// Lists the aggregations around one of elements, named by what it reads.
    pub(super) fn wrappers(&self, field: &str) -> Vec<(String, Value)> {
        let mut wrappers = vec![(format!("{field}@NESTED"), json!({"nested": {"path": self.path}}))];
        if !self.filters.is_empty() {
            let filter = clauses::clause(&Clause::And(self.filters.clone()), false);
            wrappers.push((format!("{field}@FILTER"), json!({"filter": filter})));
        }
        wrappers
    }
}

/// Groups of rows.
pub(super) struct Groups {
    /// Keys, over fields.
    pub(super) keys: Vec<Expr>,
    /// Aggregates, over fields.
    pub(super) metrics: Vec<Expr>,
}

/// A reference to a part of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupMember {
    /// A key.
    Key(usize),
    /// An aggregate.
    Metric(usize),
}

impl GroupMember {
    /// Reads a reference.
    pub(super) fn new(expr: &Expr) -> Option<Self> {
        let Expr::Column(column) = expr else { return None };
        let at = column.name.parse().ok()?;
        match column.relation.as_ref()?.table() {
            KEY => Some(Self::Key(at)),
            METRIC => Some(Self::Metric(at)),
            _ => None,
        }
    }

    fn expr(qualifier: &str, at: usize) -> Expr {
        Expr::Column(Column::new(Some(qualifier), at.to_string()))
    }
}

/// Returns whether a column is a key or an aggregate of groups.
pub(super) fn is_of_group(column: &Column) -> bool {
    column.relation.as_ref().is_some_and(|relation| matches!(relation.table(), KEY | METRIC))
}

/// Returns the path of a column of a scan.
pub(super) fn path_of(column: &Column) -> &str {
    crate::column::path_of(&column.name)
}

impl FlatSelect {
    /// Folds a plan.
    pub(super) fn new(plan: &LogicalPlan) -> RenderResult<Self> {
        match plan {
            LogicalPlan::TableScan(scan) => Self::of_scan(scan, plan),
            LogicalPlan::SubqueryAlias(alias) => {
                let mut own = Self::new(&alias.input)?;
                own.rename(plan, &alias.input)?;
                Ok(own)
            }
            LogicalPlan::Projection(projection) => {
                let mut own = Self::new(&projection.input)?;
                let schema = projection.input.schema();
                let exprs = projection.expr.iter().map(|expr| match expr {
                    Expr::Alias(alias) => own.resolved(&alias.expr, schema),
                    other => own.resolved(other, schema),
                });
                let exprs = exprs.collect::<RenderResult<Vec<Expr>>>()?;
                own.columns = plan.schema().columns().into_iter().zip(exprs).collect();
                Ok(own)
            }
            LogicalPlan::Filter(filter) => {
                // Each of many conditions is a node.
                let (mut predicates, mut input) = (vec![&filter.predicate], &filter.input);
                while let LogicalPlan::Filter(inner) = input.as_ref() {
                    predicates.push(&inner.predicate);
                    input = &inner.input;
                }
                let mut own = Self::new(input)?;
                predicates
                    .into_iter()
                    .rev()
                    .try_for_each(|predicate| own.filter(predicate, input.schema()))?;
                Ok(own)
            }
            LogicalPlan::Aggregate(aggregate) => Self::of_aggregate(aggregate, plan),
            LogicalPlan::Sort(sort) => {
                let mut own = Self::new(&sort.input)?;
                if own.cut.is_some() {
                    return Err("an order of the rows that LIMIT leaves".into());
                }
                let sorts = sort.expr.iter().map(|key| {
                    let expr = own.resolved(&key.expr, sort.input.schema())?;
                    own.require_fields(&expr)?;
                    Ok(SortExpr::new(expr, key.asc, key.nulls_first))
                });
                own.sorts = sorts.collect::<RenderResult<_>>()?;
                if let Some(fetch) = sort.fetch {
                    own.cut(0, Some(fetch))?;
                }
                Ok(own)
            }
            LogicalPlan::Limit(limit) => {
                let mut own = Self::new(&limit.input)?;
                let (skip, fetch) = cut_of(limit)?;
                own.cut(skip, fetch)?;
                Ok(own)
            }
            LogicalPlan::Unnest(unnest) => Self::of_unnest(unnest, plan),
            LogicalPlan::Extension(extension) => {
                if let Some(outputs) = OutputColumns::from_plan(plan) {
                    let mut own = Self::new(outputs.input())?;
                    let exprs: Vec<Expr> = outputs.columns().map(|column| own.column(column)).collect();
                    own.columns = plan.schema().columns().into_iter().zip(exprs).collect();
                    return Ok(own);
                }
                let input = match extension.node.as_any().is::<RowCount>() {
                    true => extension.node.inputs().into_iter().next(),
                    false => None,
                };
                Self::new(input.ok_or("a relation that is read more than once")?)
            }
            LogicalPlan::Join(_) => Err("a join or a subquery".into()),
            LogicalPlan::Union(_) => Err("a set operation".into()),
            LogicalPlan::Window(_) => Err("a window function".into()),
            LogicalPlan::RecursiveQuery(_) => Err("a recursive query".into()),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => {
                Err("a statement without an index".into())
            }
            _ => Err("a part of the plan".into()),
        }
    }

    fn of_scan(scan: &TableScan, plan: &LogicalPlan) -> RenderResult<Self> {
        let own = |column: Column| (column.clone(), Expr::Column(column));
        Ok(Self {
            scan: scan_source(scan).ok_or("a source that is no index")?,
            filters: Vec::new(),
            groups: None,
            having: Vec::new(),
            sorts: Vec::new(),
            cut: None,
            unnested: false,
            elements: None,
            columns: plan.schema().columns().into_iter().map(own).collect(),
        })
    }

    fn of_aggregate(aggregate: &Aggregate, plan: &LogicalPlan) -> RenderResult<Self> {
        let mut own = Self::new(&aggregate.input)?;
        if own.cut.is_some() {
            return Err("groups of the rows that LIMIT leaves".into());
        }
        if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
            return Err("ROLLUP, CUBE or GROUPING SETS".into());
        }
        let schema = aggregate.input.schema();
        let keys = aggregate.group_expr.iter().map(|expr| own.resolved(expr, schema));
        let metrics = aggregate.aggr_expr.iter().map(|expr| own.resolved_as_doubles(expr, schema));
        let (mut keys, mut metrics): (Vec<Expr>, Vec<Expr>) =
            (keys.collect::<RenderResult<_>>()?, metrics.collect::<RenderResult<_>>()?);
        keys.iter().chain(&metrics).try_for_each(|expr| own.require_fields(expr))?;
        if let Some(inner) = &own.groups {
            // Distinct values are counted by groups of them.
            let counted = inner.metrics.is_empty() && own.having.is_empty() && !metrics.is_empty();
            if !counted {
                return Err("groups of groups".into());
            }
            keys = keys.iter().map(|key| inner.key(key)).collect::<RenderResult<_>>()?;
            metrics = metrics.iter().map(|metric| inner.counted(metric)).collect::<RenderResult<_>>()?;
        }
        let parts = (0..keys.len())
            .map(|at| GroupMember::expr(KEY, at))
            .chain((0..metrics.len()).map(|at| GroupMember::expr(METRIC, at)));
        own.columns = plan.schema().columns().into_iter().zip(parts).collect();
        own.sorts.clear();
        own.groups = Some(Groups { keys, metrics });
        Ok(own)
    }

    fn of_unnest(unnest: &Unnest, plan: &LogicalPlan) -> RenderResult<Self> {
        let mut own = Self::new(&unnest.input)?;
        let before = unnest.input.schema().columns();
        match own.elements_of(unnest) {
            Some(path) if !own.unnested => own.elements = Some(Elements { path, filters: Vec::new() }),
            _ => {
                for column in &unnest.exec_columns {
                    own.require_fields(&own.column(column.clone()))?;
                }
            }
        }
        let exprs = unnest.dependency_indices.iter().map(|at| {
            let column = before.get(*at).ok_or("values of a field")?;
            Ok(own.column(column.clone()))
        });
        let exprs = exprs.collect::<RenderResult<Vec<Expr>>>()?;
        own.columns = plan.schema().columns().into_iter().zip(exprs).collect();
        own.unnested = true;
        Ok(own)
    }

    /// Returns the nested path whose elements a node unnests, but for one that keeps documents without any.
    fn elements_of(&self, unnest: &Unnest) -> Option<String> {
        let mut nested = None;
        for column in &unnest.exec_columns {
            let Expr::Column(column) = self.column(column.clone()) else { return None };
            let path =
                self.scan.columns.iter().find(|own| own.name == column.name)?.nested_path(&self.scan)?;
            if nested.get_or_insert(path) != &path {
                return None;
            }
        }
        let drops = unnest.options.null_handling == NullHandling::Drop;
        nested.filter(|_| drops && self.groups.is_none()).map(str::to_owned)
    }

    /// Leaves the rows, or the groups, for which a condition is true.
    fn filter(&mut self, predicate: &Expr, schema: &DFSchema) -> RenderResult<()> {
        if self.cut.is_some() {
            return Err("a condition on the rows that LIMIT leaves".into());
        }
        if self.groups.is_some() {
            self.having.push(self.resolved_as_doubles(predicate, schema)?);
        } else {
            let predicate = self.resolved(predicate, schema)?;
            let Some(elements) = &mut self.elements else {
                let clause = pushdown::exact(&predicate, &self.scan);
                self.filters.push(clause.ok_or("a condition that the index cannot answer")?);
                return Ok(());
            };
            for condition in split_conjunction(&predicate) {
                let clause = pushdown::exact(condition, &self.scan);
                let (conditions, clause) = match clause {
                    Some(clause) => (&mut self.filters, clause),
                    None => {
                        let clause = pushdown::exact_for_elements(condition, &self.scan, &elements.path);
                        (&mut elements.filters, clause.ok_or("a condition that the index cannot answer")?)
                    }
                };
                conditions.push(clause);
            }
        }
        Ok(())
    }

    /// Gives the columns of a plan the names that they have above it.
    fn rename(&mut self, plan: &LogicalPlan, input: &LogicalPlan) -> RenderResult<()> {
        let exprs: Vec<Expr> =
            input.schema().columns().into_iter().map(|column| self.column(column)).collect();
        self.columns = plan.schema().columns().into_iter().zip(exprs).collect();
        Ok(())
    }

    /// Skips rows, and leaves some of the others.
    pub(super) fn cut(&mut self, skip: usize, limit: Option<usize>) -> RenderResult<()> {
        let (first, left) = self.cut.unwrap_or((0, None));
        let left = left.map(|left| left.saturating_sub(skip));
        let limit = [left, limit].into_iter().flatten().min();
        self.cut = Some((first.saturating_add(skip), limit));
        Ok(())
    }

    /// Lists the columns of the plan.
    pub(super) fn outputs(&self, plan: &LogicalPlan) -> RenderResult<Vec<Expr>> {
        if self.unnested && self.groups.is_none() {
            return Err(match self.elements {
                Some(_) => "a row for each element of a nested path".into(),
                None => "a row for each value of a field".into(),
            });
        }
        let outputs: Vec<Expr> =
            plan.schema().columns().into_iter().map(|column| self.column(column)).collect();
        outputs.iter().try_for_each(|output| self.require_fields(output))?;
        Ok(outputs)
    }

    /// Refuses an expression over columns that are no fields: a search reads these from elements, or makes them.
    fn require_fields(&self, expr: &Expr) -> RenderResult<()> {
        for column in expr.column_refs().into_iter().filter(|column| !is_of_group(column)) {
            match self.scan.columns.iter().find(|own| own.name == column.name) {
                Some(own) if own.elements.is_some() => {
                    let path = self.elements.as_ref().map(|elements| elements.path.as_str());
                    if path.is_none() || own.nested_path(&self.scan) != path {
                        return Err("elements of a nested path".into());
                    }
                }
                Some(own) if !own.is_field() => return Err("a highlight".into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a column of the plan in terms of fields, keys and aggregates.
    fn column(&self, column: Column) -> Expr {
        self.columns.get(&column).cloned().unwrap_or(Expr::Column(column))
    }

    /// Writes an expression over the columns of a schema in terms of fields, keys and aggregates, without casts that keep every value.
    fn resolved(&self, expr: &Expr, schema: &DFSchema) -> RenderResult<Expr> {
        self.resolved_without(expr, schema, keeps_values)
    }

    /// Writes an expression like [`Self::resolved`] where a search counts with doubles anyway: in aggregates, and over these.
    fn resolved_as_doubles(&self, expr: &Expr, schema: &DFSchema) -> RenderResult<Expr> {
        self.resolved_without(expr, schema, |from, to| keeps_values(from, to) || makes_double(from, to))
    }

    fn resolved_without(
        &self,
        expr: &Expr,
        schema: &DFSchema,
        is_dropped: impl Fn(&DataType, &DataType) -> bool,
    ) -> RenderResult<Expr> {
        let replaced = expr.clone().transform_down(|part| {
            let mut own = part;
            let mut changed = false;
            while let Expr::Cast(cast) = &own
                && is_dropped(&cast.expr.get_type(schema)?, cast.field.data_type())
            {
                own = cast.expr.as_ref().clone();
                changed = true;
            }
            Ok(match &own {
                Expr::Column(column) => match self.columns.get(column) {
                    Some(known) => Transformed::new(known.clone(), true, TreeNodeRecursion::Jump),
                    None => Transformed::new(own, changed, TreeNodeRecursion::Continue),
                },
                _ => Transformed::new(own, changed, TreeNodeRecursion::Continue),
            })
        });
        replaced.data().map_err(|error| RenderRefusal(error.to_string()))
    }
}

impl Groups {
    /// Returns the key that an expression is, over fields.
    fn key(&self, expr: &Expr) -> RenderResult<Expr> {
        let alias = |expr: &Expr| match expr {
            Expr::Alias(alias) => GroupMember::new(&alias.expr),
            other => GroupMember::new(other),
        };
        match alias(expr) {
            Some(GroupMember::Key(at)) => self.keys.get(at).cloned().ok_or_else(|| "groups of groups".into()),
            _ => Err("groups of groups".into()),
        }
    }

    /// Returns the count of distinct values that the count of a key is.
    fn counted(&self, metric: &Expr) -> RenderResult<Expr> {
        let metric = match metric {
            Expr::Alias(alias) => &alias.expr,
            other => other,
        };
        match metric {
            Expr::AggregateFunction(AggregateFunction { func, params })
                if func.name() == "count" && !params.distinct && params.filter.is_none() =>
            {
                let [argument] = params.args.as_slice() else { return Err("groups of groups".into()) };
                let (args, count) = (vec![self.key(argument)?], count_udaf());
                let function = AggregateFunction::new_udf(count, args, true, None, Vec::new(), None);
                Ok(Expr::AggregateFunction(function))
            }
            _ => Err("groups of groups".into()),
        }
    }
}

/// Returns whether a cast keeps every value, and with these their order.
fn keeps_values(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, List, Timestamp, UInt64, Utf8, Utf8View,
    };
    match (from, to) {
        (List(from), List(to)) => keeps_values(from.data_type(), to.data_type()),
        (Int8, Int16 | Int32 | Int64 | Float32 | Float64)
        | (Int16, Int32 | Int64 | Float32 | Float64)
        | (Int32, Int64 | Float64)
        | (Float32, Float64)
        | (Utf8, Utf8View)
        | (Timestamp(TimeUnit::Millisecond, None), Timestamp(TimeUnit::Microsecond, None)) => true,
        (Int8 | Int16 | Int32 | Int64 | UInt64, Decimal128(precision, 0)) => *precision >= 20,
        (from, to) => from == to,
    }
}

/// Returns whether a cast makes a double of a value, as every aggregation does.
fn makes_double(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::List(from), DataType::List(to)) => makes_double(from.data_type(), to.data_type()),
        (from, DataType::Float64) => from.is_integer() || *from == DataType::Boolean,
        _ => false,
    }
}

/// Reads a cut whose numbers are literals.
fn cut_of(limit: &Limit) -> RenderResult<(usize, Option<usize>)> {
    let unknown = || RenderRefusal::from("LIMIT of an expression");
    let skip = match limit.get_skip_type().map_err(|_| unknown())? {
        SkipType::Literal(skip) => skip,
        SkipType::UnsupportedExpr => return Err(unknown()),
    };
    match limit.get_fetch_type().map_err(|_| unknown())? {
        FetchType::Literal(fetch) => Ok((skip, fetch)),
        FetchType::UnsupportedExpr => Err(unknown()),
    }
}

/// Returns the source of a scan of indices.
fn scan_source(scan: &TableScan) -> Option<Arc<ScanSource>> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = (provider.as_ref() as &dyn Any).downcast_ref::<SqlTable>()?;
    Some(Arc::clone(table.source()))
}

/// Visits the scans of a plan, with the fields that each reads.
pub(super) fn for_each_scan(plan: &LogicalPlan, mut visit: impl FnMut(&ScanSource, Vec<String>)) {
    let visited = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(source) = scan_source(scan)
        {
            let paths = source.columns.iter().map(|column| column.path().to_owned());
            visit(&source, paths.collect());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visit does not fail");
}
