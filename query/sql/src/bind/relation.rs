//! Relations: plans with named and typed columns, as derived tables, queries of WITH and set operations have them.
//!
//! The columns of a plan are `c0`, `c1`, … in the order of [`Relation::columns`]. A set operation meets them by position.

use std::sync::Arc;

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, Extension, LogicalPlan, LogicalPlanBuilder, SortExpr, Union,
    WindowFunctionDefinition, cast,
};
use sqlparser::ast;

use super::case::result_type;
use super::select::{PlannedQuery, Tail};
use super::subquery::holds_subquery;
use super::tables::{count_names, count_uses, list_members};
use super::{Binder, Bound, ExpressionContext, OutColumn, Scope, unsupported, use_plan};
use crate::column::arrow_type;
use crate::count::RowCount;
use crate::error::{Result, SqlError};
use crate::functions::values;
use crate::shared::Shared;
use crate::source::{DerivedSource, Source, SourceColumn, SourceKind};
use crate::types::SqlType;

/// Most rows that a recursive query makes.
const MAX_RECURSIVE_ROWS: u64 = 1_000_000;
/// Number of a row among equal ones.
const NUMBER: &str = "n";

/// A plan with its columns.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    pub(crate) plan: LogicalPlan,
    pub(crate) columns: Vec<OutColumn>,
    /// The order of its rows, by its columns.
    pub(crate) order: Vec<SortExpr>,
}

/// A query of WITH.
#[derive(Debug)]
pub(super) struct NamedRelation {
    name: String,
    relation: Relation,
    /// `true` for a step of a statement of another language, which one query reads.
    step: bool,
}

/// Refers to a column of a relation.
pub(super) fn output(at: usize) -> Expr {
    Expr::Column(Column::new_unqualified(format!("c{at}")))
}

impl Relation {
    /// Takes over a query that stands where it cannot name columns of the queries around it.
    pub(crate) fn new(planned: PlannedQuery, what: &str) -> Result<Self> {
        match planned.correlation.is_empty() {
            true => Ok(Self { plan: planned.plan, columns: planned.columns, order: planned.order }),
            false => unsupported(format!("{what} that names columns of a query around it")),
        }
    }

    /// Renames the columns as an alias has it: `AS t (a, b)`.
    pub(super) fn with_names(mut self, alias: Option<&ast::TableAlias>) -> Result<Self> {
        let Some(alias) = alias.filter(|alias| !alias.columns.is_empty()) else { return Ok(self) };
        if alias.columns.len() != self.columns.len() {
            return Err(SqlError::Semantic(format!(
                "[{}] names {} columns, but its query answers {}",
                alias.name.value,
                alias.columns.len(),
                self.columns.len()
            )));
        }
        for (column, named) in self.columns.iter_mut().zip(&alias.columns) {
            column.alias = Some(named.name.value.clone());
        }
        Ok(self)
    }

    /// Makes a source of FROM of the relation.
    pub(super) fn into_source(self, qualifier: String, name: Option<String>) -> Result<Source> {
        let columns = self.columns.into_iter().enumerate().map(|(at, column)| SourceColumn {
            column: format!("c{at}"),
            name: column.alias.unwrap_or(column.name),
            ty: column.ty,
            list: column.list,
            shown: column.shown,
            element: column.element,
        });
        let relation = DerivedSource { plan: self.plan, columns: columns.collect(), order: self.order };
        Ok(Source { qualifier, name, kind: SourceKind::Derived(Box::new(relation)) })
    }

    /// Returns a column.
    fn bound(&self, at: usize) -> Result<Bound> {
        let column = self.columns.get(at).ok_or_else(|| {
            SqlError::Semantic("the sides of a set operation need the same number of columns".to_owned())
        })?;
        Ok(Bound { list: column.list, ..Bound::new(output(at), column.ty) })
    }

    /// Gives two relations the same types.
    fn aligned(self, other: Self) -> Result<(Self, Self)> {
        if self.columns.len() != other.columns.len() {
            return Err(SqlError::Semantic(format!(
                "the sides of a set operation have {} and {} columns",
                self.columns.len(),
                other.columns.len()
            )));
        }
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut columns = self.columns.clone();
        for (at, column) in columns.iter_mut().enumerate() {
            let (one, two) = (self.bound(at)?, other.bound(at)?);
            let ty = result_type([&one, &two].into_iter())?;
            let list = one.list || two.list;
            left.push(converted(&one, ty, list)?.alias(format!("c{at}")));
            right.push(converted(&two, ty, list)?.alias(format!("c{at}")));
            if column.ty != ty {
                (column.ty, column.shown) = (ty, ty.name());
            }
            column.list = list;
        }
        let projected = |relation: Self, outputs: Vec<Expr>| {
            let is_same = |(own, column): (&OutColumn, &OutColumn)| own.ty == column.ty && !column.list;
            let plan = match relation.columns.iter().zip(&columns).all(is_same) {
                true => relation.plan,
                false => LogicalPlanBuilder::new(relation.plan).project(outputs)?.build()?,
            };
            Ok::<_, SqlError>(Self { plan, columns: columns.clone(), order: Vec::new() })
        };
        Ok((projected(self, left)?, projected(other, right)?))
    }

    /// Leaves one of equal rows.
    fn distinct(self) -> Result<Self> {
        let all: Vec<Expr> = (0..self.columns.len()).map(output).collect();
        let plan = LogicalPlanBuilder::new(self.plan).aggregate(all, Vec::<Expr>::new())?.build()?;
        Ok(Self { plan, ..self })
    }

    /// Unites the rows of relations of the same types.
    fn union(self, other: Self) -> Result<Self> {
        // Chains of UNION ALL whose columns have the same types are one node.
        let mut inputs = match self.plan {
            LogicalPlan::Union(union) => union.inputs,
            plan => vec![Arc::new(plan)],
        };
        inputs.push(Arc::new(other.plan));
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        Ok(Self { plan, columns: self.columns, order: Vec::new() })
    }

    /// Numbers equal rows, so that each is met by one of another relation.
    fn numbered(self) -> Result<Self> {
        let all: Vec<Expr> = (0..self.columns.len()).map(output).collect();
        let number = WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), Vec::new());
        let number = Expr::from(number).partition_by(all.clone()).build()?;
        let plan = LogicalPlanBuilder::window_plan(self.plan, vec![number.clone()])?;
        let number = Expr::Column(Column::new_unqualified(number.schema_name().to_string())).alias(NUMBER);
        let plan = LogicalPlanBuilder::new(plan).project(all.into_iter().chain([number]))?.build()?;
        Ok(Self { plan, ..self })
    }

    /// Leaves the rows that another relation has, or has not: each as often as it is met with `all`, else once.
    fn met_by(self, other: Self, kind: JoinType, all: bool) -> Result<Self> {
        let (left, right) = match all {
            true => (self.numbered()?, other.numbered()?),
            false => (self.distinct()?, other),
        };
        if left.columns.iter().any(|column| column.list) {
            return unsupported("INTERSECT or EXCEPT of a field of several values");
        }
        let names: Vec<String> = (0..left.columns.len())
            .map(|at| format!("c{at}"))
            .chain(all.then(|| NUMBER.to_owned()))
            .collect();
        let keys = |of: &str| names.iter().map(|name| Column::new(Some(of), name)).collect::<Vec<_>>();
        let keys = (keys("l"), keys("r"));
        let right = LogicalPlanBuilder::new(right.plan).alias("r")?.build()?;
        let joined = LogicalPlanBuilder::new(left.plan).alias("l")?.join_detailed(
            right,
            kind,
            keys,
            None,
            NullEquality::NullEqualsNull,
        )?;
        let outputs = (0..left.columns.len()).map(|at| {
            let name = format!("c{at}");
            Expr::Column(Column::new(Some("l"), &name)).alias(name)
        });
        let plan = joined.project(outputs.collect::<Vec<_>>())?.build()?;
        Ok(Self { plan, columns: left.columns, order: Vec::new() })
    }
}

/// Makes a column one of a type, and of lists where the other side has them.
fn converted(bound: &Bound, ty: SqlType, list: bool) -> Result<Expr> {
    match (list, bound.list) {
        (false, _) => bound.to(ty),
        (true, true) => values::list_of(bound, ty),
        (true, false) => {
            let single = bound.to(ty)?;
            let some = Box::new(single.clone().is_not_null());
            let of_one = Box::new(cast(single, arrow_type(ty, true)));
            Ok(Expr::Case(datafusion::logical_expr::Case::new(None, vec![(some, of_one)], None)))
        }
    }
}

impl Binder<'_> {
    /// Finds a query of WITH by its name.
    pub(super) fn named_relation(&mut self, name: &str) -> Result<Option<Relation>> {
        let Some(named) = self.named.iter().rev().find(|named| named.name == name) else { return Ok(None) };
        if named.step {
            self.steps += 1;
        } else {
            use_plan(&named.relation.plan, &mut self.used_nodes)?;
        }
        Ok(Some(named.relation.clone()))
    }

    /// Names a relation for queries that are bound later.
    pub(crate) fn define(&mut self, name: String, relation: Relation) {
        self.named.push(NamedRelation { name, relation, step: true });
    }

    /// Returns the first name of a list such as `a, b` that a query of WITH has.
    pub(super) fn listed_relation<'l>(&self, list: &'l str) -> Option<&'l str> {
        let is_named = |member: &&str| self.named.iter().any(|named| named.name == *member);
        list_members(list).find(is_named)
    }

    /// Binds the queries of WITH, each of which the next ones know.
    pub(super) fn with(&mut self, with: &ast::With, query: &ast::Query, depth: usize) -> Result<()> {
        for table in &with.cte_tables {
            let name = table.alias.name.value.clone();
            let recursive = with.recursive && count_names(table.query.as_ref(), &name) > 0;
            let mut relation = match recursive {
                true => self.recursive(table, depth)?,
                false => {
                    let outer = std::mem::take(&mut self.outer);
                    let planned = self.query(&table.query, None, depth + 1);
                    self.outer = outer;
                    Relation::new(planned?, "a query of WITH")?.with_names(Some(&table.alias))?
                }
            };
            // What is read twice runs once.
            if count_uses(query, &table.query) > 1 {
                let node = Arc::new(Shared::new(relation.plan));
                relation.plan = LogicalPlan::Extension(Extension { node });
            }
            self.named.push(NamedRelation { name, relation, step: false });
        }
        Ok(())
    }

    /// Binds a query of WITH RECURSIVE that names itself.
    fn recursive(&mut self, table: &ast::Cte, depth: usize) -> Result<Relation> {
        let name = &table.alias.name.value;
        let plain = table.query.order_by.is_none() && table.query.limit_clause.is_none();
        let ast::SetExpr::SetOperation { op: ast::SetOperator::Union, set_quantifier, left, right } =
            table.query.body.as_ref()
        else {
            return unsupported(format!("the query [{name}], which names itself but is no UNION,"));
        };
        if !plain
            || table.query.with.is_some()
            || count_names(left.as_ref(), name) > 0
            || count_names(right.as_ref(), name) != 1
        {
            return unsupported(format!("[{name}] other than once, behind the UNION of its query,"));
        }
        let first = self.set_expr(left, depth + 1)?.with_names(Some(&table.alias))?;
        let first = widened(first)?;
        let work_table = format!("{name} {}", self.next_source);
        self.next_source += 1;
        let schema = first.plan.schema().as_arrow().fields().iter();
        let schema = schema.map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<_>>();
        let rows =
            CteWorkTable::new(&work_table, Arc::new(datafusion::arrow::datatypes::Schema::new(schema)));
        let scan = LogicalPlanBuilder::scan(&*work_table, provider_as_source(Arc::new(rows)), None)?;
        let outputs = (0..first.columns.len()).map(|at| {
            let column = format!("c{at}");
            Expr::Column(Column::new(Some(work_table.clone()), &column)).alias(column)
        });
        let plan = scan.project(outputs.collect::<Vec<_>>())?.build()?;
        let columns = first.columns.clone();
        self.named.push(NamedRelation {
            name: name.clone(),
            relation: Relation { plan, columns, order: Vec::new() },
            step: false,
        });
        let next = self.set_expr(right, depth + 1);
        self.named.pop();
        let next = next?;
        if next.columns.len() != first.columns.len() {
            return Err(SqlError::Semantic(format!("the sides of [{name}] differ in their columns")));
        }
        let outputs = first.columns.iter().enumerate().map(|(at, column)| {
            Ok(converted(&next.bound(at)?, column.ty, column.list)?.alias(format!("c{at}")))
        });
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        let next = LogicalPlanBuilder::new(next.plan).project(outputs)?.build()?;
        let mut reads = 0;
        next.apply(|node| {
            reads += usize::from(
                matches!(node, LogicalPlan::TableScan(scan) if scan.table_name.table() == work_table),
            );
            Ok(TreeNodeRecursion::Continue)
        })?;
        if reads > 1 {
            return unsupported(format!(
                "a subquery of the recursive query [{name}] that reads its rows again"
            ));
        }
        let distinct = !matches!(set_quantifier, ast::SetQuantifier::All);
        let plan =
            LogicalPlanBuilder::new(first.plan).to_recursive_query(work_table, next, distinct)?.build()?;
        let node = Arc::new(RowCount::with_limit(plan, MAX_RECURSIVE_ROWS));
        let plan = LogicalPlan::Extension(Extension { node });
        Ok(Relation { plan, columns: first.columns, order: Vec::new() })
    }

    /// Binds the body of a query as a relation.
    pub(super) fn set_expr(&mut self, body: &ast::SetExpr, depth: usize) -> Result<Relation> {
        match body {
            ast::SetExpr::Select(select) => {
                let planned = self.select(select, Tail::NONE, depth)?;
                Relation::new(planned, "a side of a set operation")
            }
            ast::SetExpr::Query(query) => {
                Relation::new(self.query(query, None, depth + 1)?, "a side of a set operation")
            }
            ast::SetExpr::Values(rows) => self.values(rows),
            ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let all = match set_quantifier {
                    ast::SetQuantifier::All => true,
                    ast::SetQuantifier::Distinct | ast::SetQuantifier::None => false,
                    other => return unsupported(format!("{op} {other}")),
                };
                let left = self.set_expr(left, depth)?;
                let right = self.set_expr(right, depth)?;
                let (left, right) = left.aligned(right)?;
                match (op, all) {
                    (ast::SetOperator::Union, true) => left.union(right),
                    (ast::SetOperator::Union, false) => left.union(right)?.distinct(),
                    (ast::SetOperator::Intersect, all) => left.met_by(right, JoinType::LeftSemi, all),
                    (ast::SetOperator::Except | ast::SetOperator::Minus, all) => {
                        left.met_by(right, JoinType::LeftAnti, all)
                    }
                }
            }
            other => unsupported(format!("[{other}] as a query")),
        }
    }

    /// Binds VALUES.
    fn values(&mut self, rows: &ast::Values) -> Result<Relation> {
        let mut scope = Scope::default();
        let mut bound: Vec<Vec<Bound>> = Vec::with_capacity(rows.rows.len());
        for row in &rows.rows {
            let row = row.iter().map(|value| self.expr(value, &mut scope, ExpressionContext::Row));
            bound.push(row.collect::<Result<_>>()?);
        }
        if !scope.outer.is_empty() {
            return unsupported("VALUES that names columns of a query around it");
        }
        if bound.iter().flatten().any(|value| holds_subquery(&value.expr)) {
            return unsupported("a subquery in VALUES");
        }
        let width = bound.first().map_or(0, Vec::len);
        if width == 0 || bound.iter().any(|row| row.len() != width) {
            return Err(SqlError::Semantic("the rows of VALUES need the same number of values".to_owned()));
        }
        let mut columns = Vec::with_capacity(width);
        for at in 0..width {
            let ty = result_type(bound.iter().filter_map(|row| row.get(at)))?;
            let name = format!("column{}", at + 1);
            columns.push(OutColumn { name, alias: None, ty, list: false, shown: ty.name(), element: None });
        }
        let convert = |row: &Vec<Bound>| {
            row.iter().zip(&columns).map(|(value, column)| value.to(column.ty)).collect::<Result<Vec<_>>>()
        };
        let plan = LogicalPlanBuilder::values(bound.iter().map(convert).collect::<Result<_>>()?)?;
        let outputs = (0..width).map(|at| {
            Expr::Column(Column::new_unqualified(format!("column{}", at + 1))).alias(format!("c{at}"))
        });
        let plan = plan.project(outputs.collect::<Vec<_>>())?.build()?;
        Ok(Relation { plan, columns, order: Vec::new() })
    }
}

/// Makes integers longs: the sums of a recursive query have to fit.
fn widened(relation: Relation) -> Result<Relation> {
    let mut columns = relation.columns.clone();
    let mut outputs = Vec::with_capacity(columns.len());
    for (at, column) in columns.iter_mut().enumerate() {
        let bound = relation.bound(at)?;
        if matches!(column.ty, SqlType::Byte | SqlType::Short | SqlType::Integer) {
            (column.ty, column.shown) = (SqlType::Long, SqlType::Long.name());
        }
        outputs.push(converted(&bound, column.ty, column.list)?.alias(format!("c{at}")));
    }
    let plan = LogicalPlanBuilder::new(relation.plan).project(outputs)?.build()?;
    Ok(Relation { plan, columns, order: Vec::new() })
}
