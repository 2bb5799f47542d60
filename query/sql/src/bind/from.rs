//! FROM and WHERE: the sources of a SELECT, and the plan of their scans, joins and conditions.

use std::ops::Range;
use std::sync::Arc;

use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::JoinType;
use datafusion::logical_expr::{Case, Expr, LogicalPlan, LogicalPlanBuilder, Operator, lit};
use millrace_matching::table::ScanHandle;
use sqlparser::ast;

use super::comparison::compare;
use super::condition::and_or;
use super::nested::unnested;
use super::relation::Relation;
use super::subquery::{domain_name, holds_subquery, is_correlated};
use super::tables::list_members;
use super::{Binder, Bound, ExpressionContext, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::push::{Clause, PushedPredicate};
use crate::source::{self, IndexSource, NestedSource, Source, SourceKind};
use crate::statement::{MAX_SOURCES, too_many_sources};
use crate::table::{ScanSource, SqlTable};

/// The plan of FROM and WHERE.
pub(super) struct ScanPlan {
    pub(super) plan: LogicalPlan,
    /// Counter of its rows, where one scan has them.
    pub(super) count: Option<Count>,
    /// `true` if conditions are left to a filter above the scan.
    pub(super) residual: bool,
}

/// Counter of the rows of a scan.
pub(super) struct Count {
    /// A plan that does without reading columns.
    pub(super) plan: LogicalPlan,
    /// Handle of the scan, which knows the number once it has found them all.
    pub(super) by_scan: Arc<ScanHandle>,
}

/// The join of a source with those before it.
pub(super) struct Join {
    pub(super) kind: JoinType,
    constraint: Option<ast::JoinConstraint>,
    /// True for a source that begins another member of the list of FROM.
    begins: bool,
    /// Conditions that the join tests.
    pub(super) on: Vec<Expr>,
}

impl Join {
    /// Makes the join with the elements that calls of `nested` unnest: a document without any has a row, but no group.
    pub(super) fn of_elements(source: &Source, grouped_paths: &[String]) -> Self {
        let is_grouped =
            matches!(&source.kind, SourceKind::Nested(nested) if grouped_paths.contains(&nested.path));
        let kind = if is_grouped { JoinType::Inner } else { JoinType::Left };
        Self { kind, constraint: None, begins: false, on: Vec::new() }
    }
}

/// A column that USING or NATURAL makes of those of several sources.
#[derive(Debug)]
pub(crate) struct MergedColumn {
    pub(super) name: String,
    pub(super) bound: Bound,
    /// The sources of a member of FROM that are joined so far.
    pub(super) sources: Range<usize>,
}

/// The index expression that a table's name is.
pub(super) fn table_name(name: &ast::ObjectName) -> String {
    let parts = name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.as_str());
    parts.collect::<Vec<_>>().join(".")
}

/// Lists the conditions that an AND connects, in their order.
pub(super) fn conjuncts(condition: &ast::Expr) -> Vec<&ast::Expr> {
    let (mut conditions, mut rest) = (Vec::new(), Some(condition));
    while let Some(condition) = rest {
        rest = match condition {
            ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
                conditions.push(right.as_ref());
                Some(left.as_ref())
            }
            ast::Expr::Nested(inner) => Some(inner),
            other => {
                conditions.push(other);
                None
            }
        };
    }
    conditions.reverse();
    conditions
}

impl Binder<'_> {
    /// Binds FROM: its sources, and the join of each but the first with those before it.
    pub(super) fn sources(
        &mut self,
        from: &[ast::TableWithJoins],
        depth: usize,
    ) -> Result<(Vec<Source>, Vec<Join>)> {
        if from.is_empty() {
            let (name, kind) = (None, SourceKind::Nothing);
            return Ok((vec![Source { qualifier: "nothing".to_owned(), name, kind }], Vec::new()));
        }
        let (mut sources, mut joins) = (Vec::new(), Vec::new());
        for from in from {
            let members = self.list_factors(&from.relation);
            for relation in members.as_deref().unwrap_or(std::slice::from_ref(&from.relation)) {
                if !sources.is_empty() {
                    let (kind, on) = (JoinType::Inner, Vec::new());
                    joins.push(Join { kind, constraint: None, begins: true, on });
                }
                sources.push(self.source(relation, &sources, depth)?);
            }
            for join in &from.joins {
                use ast::JoinOperator as J;
                let (kind, constraint) = match &join.join_operator {
                    J::Join(constraint) | J::Inner(constraint) | J::CrossJoin(constraint) => {
                        (JoinType::Inner, constraint)
                    }
                    J::Left(constraint) | J::LeftOuter(constraint) => (JoinType::Left, constraint),
                    J::Right(constraint) | J::RightOuter(constraint) => (JoinType::Right, constraint),
                    J::FullOuter(constraint) => (JoinType::Full, constraint),
                    _ => return unsupported("this kind of join"),
                };
                sources.push(self.source(&join.relation, &sources, depth)?);
                joins.push(Join {
                    kind,
                    constraint: Some(constraint.clone()),
                    begins: false,
                    on: Vec::new(),
                });
            }
        }
        Ok((sources, joins))
    }

    /// Makes a source of each name of a list such as `a, b` where a query of WITH has one of the names.
    fn list_factors(&self, relation: &ast::TableFactor) -> Option<Vec<ast::TableFactor>> {
        let ast::TableFactor::Table { name, alias: None, .. } = relation else { return None };
        let list = table_name(name);
        self.listed_relation(&list)?;
        let factor = |member: &str| {
            let mut factor = relation.clone();
            if let ast::TableFactor::Table { name, .. } = &mut factor {
                *name = ast::ObjectName::from(vec![ast::Ident::new(member)]);
            }
            factor
        };
        Some(list_members(&list).map(factor).collect())
    }

    /// Binds what joins are made on; returns the conditions that rows have to meet before they are joined, and those that
    /// name columns of a query around it, which are conditions of WHERE.
    pub(super) fn join_conditions(
        &mut self,
        joins: &mut [Join],
        scope: &mut Scope,
    ) -> Result<(Vec<Bound>, Vec<Bound>)> {
        let (mut before, mut correlated) = (Vec::new(), Vec::new());
        let domain = domain_name(scope.number);
        let padded = nullable_sources(joins);
        let mut first = 0;
        for right in 1..=joins.len() {
            let nullable = nullable_sources(joins.get(..right - 1).unwrap_or_default());
            let Some(join) = joins.get_mut(right - 1) else { break };
            if join.begins {
                first = right;
            }
            let conditions: Vec<Bound> = match join.constraint.take() {
                None | Some(ast::JoinConstraint::None) => Vec::new(),
                Some(ast::JoinConstraint::On(condition)) => {
                    let bound = conjuncts(&condition).into_iter().map(|condition| {
                        let bound = self.expr(condition, scope, ExpressionContext::Row)?;
                        self.truth(bound)
                    });
                    bound.collect::<Result<_>>()?
                }
                Some(ast::JoinConstraint::Using(names)) => {
                    let names: Vec<String> = names.iter().map(table_name).collect();
                    merge(scope, first..right, &names, join.kind)?
                }
                Some(ast::JoinConstraint::Natural) => {
                    let names = shared_names(&scope.sources, first..right);
                    merge(scope, first..right, &names, join.kind)?
                }
            };
            for condition in conditions {
                if holds_subquery(&condition.expr) {
                    return unsupported("a subquery in ON");
                }
                if matches!(scope.sources.get(right).map(|own| &own.kind), Some(SourceKind::Nested(_))) {
                    if join.kind != JoinType::Inner || padded.get(right) == Some(&true) {
                        return unsupported("ON of an outer join with nested elements");
                    }
                    correlated.push(condition);
                    continue;
                }
                if is_correlated(&condition.expr, &domain) {
                    if join.kind != JoinType::Inner || padded.get(right) == Some(&true) {
                        return unsupported("a column of a query around it in ON of an outer join");
                    }
                    correlated.push(condition);
                    continue;
                }
                // A condition on a side whose rows are not kept is one on its scan.
                match &condition.pushed {
                    Some(own)
                        if filters(join.kind, right, own.source)
                            && nullable.get(own.source) != Some(&true) =>
                    {
                        before.push(condition);
                    }
                    _ => join.on.push(condition.expr),
                }
            }
        }
        Ok((before, correlated))
    }

    /// Binds a source of FROM, which may be the elements of one before it.
    fn source(&mut self, factor: &ast::TableFactor, before: &[Source], depth: usize) -> Result<Source> {
        if let Some(elements) = self.nested_factor(factor, before)? {
            return Ok(elements);
        }
        let qualifier = format!("t{}", self.next_source);
        self.next_source += 1;
        if self.next_source - self.steps > MAX_SOURCES {
            return Err(too_many_sources());
        }
        match factor {
            ast::TableFactor::Table { name, alias, args: None, .. } => {
                let name = table_name(name);
                let alias = alias.as_ref();
                if let Some(relation) = self.named_relation(&name)? {
                    let name = alias.map_or(name, |alias| alias.name.value.clone());
                    return relation.with_names(alias)?.into_source(qualifier, Some(name));
                }
                if let Some(named) = self.listed_relation(&name) {
                    return unsupported(format!(
                        "the query [{named}] of WITH in the index expression [{name}]"
                    ));
                }
                let snapshot = self.snapshots.get(&name).ok_or_else(|| SqlError::unknown_field(&name))?;
                let mut index = IndexSource::new(name.clone(), Arc::clone(snapshot));
                index.list_valued = Arc::clone(&self.list_valued);
                let name = Some(alias.map_or(name, |alias| alias.name.value.clone()));
                Ok(Source { qualifier, name, kind: SourceKind::Index(index) })
            }
            ast::TableFactor::Derived { subquery, alias, lateral: false, .. } => {
                let planned = self.query(subquery, None, depth + 1)?;
                let relation = Relation::new(planned, "a query in FROM")?.with_names(alias.as_ref())?;
                let name = alias.as_ref().map(|alias| alias.name.value.clone());
                relation.into_source(qualifier, name)
            }
            other => unsupported(format!("[{other}] in FROM")),
        }
    }

    /// Builds the plan of FROM and WHERE, without the conditions that hold subqueries, which come back.
    pub(super) fn scan(
        &mut self,
        sources: Vec<Source>,
        joins: Vec<Join>,
        before: Vec<Bound>,
        conditions: Vec<Bound>,
        domain: Option<LogicalPlan>,
    ) -> Result<(ScanPlan, Vec<Expr>)> {
        let nullable = nullable_sources(&joins);
        let is_inner = |source: usize| nullable.get(source) == Some(&false);
        let single = sources.len() == 1 && domain.is_none();
        let (sources, mut elements) = split_elements(sources, is_inner)?;
        let (mut pushed, mut left): (Vec<PushedPredicate>, Vec<Expr>) = (Vec::new(), Vec::new());
        pushed.extend(before.into_iter().filter_map(|condition| condition.pushed));
        for condition in conditions {
            // Behind an outer join a condition on the side that it adds nulls to is no condition on its scan.
            match condition.pushed {
                Some(own) if !is_inner(own.source) => left.push(condition.expr),
                Some(own) => match elements.iter_mut().find(|(number, _)| *number == own.source) {
                    // Documents without such an element have no row; of the others each element is tested.
                    Some((_, nested)) => {
                        nested.conditions.push(own.truth);
                        left.push(condition.expr);
                    }
                    None => pushed.push(own),
                },
                None => left.push(condition.expr),
            }
        }
        let mut count = None;
        let mut plans = Vec::with_capacity(sources.len());
        for (number, source) in sources.into_iter().enumerate() {
            let Some(source) = source else {
                plans.push(None);
                continue;
            };
            plans.push(Some(match source.kind {
                SourceKind::Nested(_) | SourceKind::Nothing => LogicalPlanBuilder::empty(true).build()?,
                SourceKind::Derived(relation) => {
                    LogicalPlanBuilder::new(relation.plan).alias(source.qualifier)?.build()?
                }
                SourceKind::Index(mut index) => {
                    let (own, others) = elements.into_iter().partition(|(_, nested)| nested.root == number);
                    elements = others;
                    let own: NumberedElements = own;
                    for (_, nested) in &own {
                        index.columns.extend(nested.index.columns.iter().cloned());
                    }
                    let truths = pushed.iter().filter(|own| own.source == number);
                    let mut conditions: Vec<Clause> = truths.map(|own| own.truth.clone()).collect();
                    index.set_conditions(&conditions)?;
                    conditions.extend(own.iter().filter_map(|(_, nested)| nested.narrowing()));
                    let (mut plan, counting) = self.table(&source.qualifier, index, conditions)?;
                    if let Some(limit) = self.names.hints().join_limit(number).filter(|_| !joins.is_empty()) {
                        plan = LogicalPlanBuilder::new(plan).limit(0, Some(limit))?.build()?;
                    }
                    if single {
                        count = Some(counting);
                    }
                    unnested(plan, &own, is_inner)?
                }
            }));
        }
        let mut plan = joined(plans, joins)?;
        if let Some(domain) = domain {
            plan = LogicalPlanBuilder::new(domain).cross_join(plan)?.build()?;
        }
        let residual = !left.is_empty();
        let (later, now): (Vec<Expr>, Vec<Expr>) = left.into_iter().partition(holds_subquery);
        let mut builder = LogicalPlanBuilder::new(plan);
        for condition in now {
            builder = builder.filter(condition)?;
        }
        Ok((ScanPlan { plan: builder.build()?, count, residual }, later))
    }

    /// Returns the condition of the request on the scan of a source.
    fn filter_of(&self, expression: &str) -> Option<Clause> {
        let filter = self.filter?;
        Some(match self.filters.get(expression) {
            Some(query) => Clause::Read(filter.clone(), Box::new(query.clone())),
            None => Clause::Leaf(filter.clone()),
        })
    }

    /// Makes the scan of indices: one with the columns, and what counts its rows.
    fn table(
        &mut self,
        qualifier: &str,
        index: IndexSource,
        conditions: Vec<Clause>,
    ) -> Result<(LogicalPlan, Count)> {
        let IndexSource { expression, snapshot, columns, marks, .. } = index;
        let filter = self.filter_of(&expression);
        let truths: Vec<Clause> = conditions.iter().chain(&filter).cloned().collect();
        let filters = match truths.is_empty() {
            true => Vec::new(),
            false => vec![Clause::And(truths).expr(self.scores)?],
        };
        let mut make = |columns, marks, projection: Option<Vec<usize>>, filters: Vec<Expr>| {
            let source = ScanSource {
                index: expression.clone(),
                snapshot: Arc::clone(&snapshot),
                columns: Arc::new(columns),
                marks,
                conditions: conditions.clone(),
                filter: filter.clone(),
                whole_texts: Arc::clone(&self.whole_texts),
            };
            let table = SqlTable::new(source, self.now_ms, self.compute.clone(), self.work.clone());
            self.handles.extend(table.handles().map(Arc::clone));
            let [handle, _] = table.handles().map(Arc::clone);
            let source = provider_as_source(Arc::new(table));
            let scan = LogicalPlanBuilder::scan_with_filters(qualifier, source, projection, filters)?;
            Ok::<_, SqlError>((scan.build()?, handle))
        };
        let (plan, by_scan) = make(columns, marks, None, filters.clone())?;
        let (counting, _) = make(Vec::new(), Vec::new(), Some(Vec::new()), filters)?;
        Ok((plan, Count { plan: counting, by_scan }))
    }
}

/// Sources of elements, with their places in FROM.
type NumberedElements = Vec<(usize, NestedSource)>;

/// Takes the sources of elements from the others, which have the columns of these.
fn split_elements(
    sources: Vec<Source>,
    is_inner: impl Fn(usize) -> bool,
) -> Result<(Vec<Option<Source>>, NumberedElements)> {
    let (mut plain, mut elements) = (Vec::with_capacity(sources.len()), Vec::new());
    for (number, source) in sources.into_iter().enumerate() {
        let SourceKind::Nested(mut nested) = source.kind else {
            plain.push(Some(source));
            continue;
        };
        // The rows of an outer join would have to be unnested behind it.
        if !nested.implicit && !is_inner(nested.root) {
            return unsupported(format!("[{}] of a source to which an outer join adds rows", nested.path));
        }
        nested.ordinal(&source.qualifier);
        plain.push(None);
        elements.push((number, nested));
    }
    Ok((plain, elements))
}

/// Returns true where a condition on one source, in ON, leaves rows of that source out.
fn filters(kind: JoinType, right: usize, source: usize) -> bool {
    match kind {
        JoinType::Inner => true,
        JoinType::Left => source == right,
        JoinType::Right => source != right,
        _ => false,
    }
}

/// Tells of each source whether a join adds rows of nulls to it.
fn nullable_sources(joins: &[Join]) -> Vec<bool> {
    let mut nullable = vec![false];
    let mut first = 0;
    for join in joins {
        if join.begins {
            first = nullable.len();
        }
        if matches!(join.kind, JoinType::Right | JoinType::Full) {
            nullable.iter_mut().skip(first).for_each(|source| *source = true);
        }
        nullable.push(matches!(join.kind, JoinType::Left | JoinType::Full));
    }
    nullable
}

/// Joins the plans of sources; those of elements have none.
fn joined(plans: Vec<Option<LogicalPlan>>, joins: Vec<Join>) -> Result<LogicalPlan> {
    let mut plans = plans.into_iter();
    let none = || SqlError::Syntax("the statement has no source".to_owned());
    let mut member = plans.next().flatten().ok_or_else(none)?;
    let mut whole: Option<LogicalPlan> = None;
    let crossed = |left: Option<LogicalPlan>, right: LogicalPlan| match left {
        None => Ok::<_, SqlError>(right),
        Some(left) => Ok(LogicalPlanBuilder::new(left).cross_join(right)?.build()?),
    };
    for (join, right) in joins.into_iter().zip(plans) {
        let Some(right) = right else { continue };
        if join.begins {
            whole = Some(crossed(whole, member)?);
            member = right;
            continue;
        }
        let builder = LogicalPlanBuilder::new(member);
        member = match (join.kind, join.on.is_empty()) {
            (JoinType::Inner, true) => builder.cross_join(right)?,
            (kind, true) => builder.join_on(right, kind, [lit(true)])?,
            (kind, false) => builder.join_on(right, kind, join.on)?,
        }
        .build()?;
    }
    crossed(whole, member)
}

/// Lists the names of columns that a source shares with those before it.
fn shared_names(sources: &[Source], before: Range<usize>) -> Vec<String> {
    let right = sources.get(before.end).map(Source::column_names).unwrap_or_default();
    let left: Vec<String> =
        sources.get(before).unwrap_or_default().iter().flat_map(Source::column_names).collect();
    right.into_iter().filter(|name| left.contains(name)).collect()
}

/// Merges the columns that have one name on both sides of a join; returns the condition of the join.
fn merge(scope: &mut Scope, before: Range<usize>, names: &[String], kind: JoinType) -> Result<Vec<Bound>> {
    let mut conditions = Vec::with_capacity(names.len());
    for name in names {
        // Members of the list of FROM merge columns of their own.
        let is_own = |merged: &MergedColumn| merged.name == *name && merged.sources.start == before.start;
        let merged = scope.merged.iter().position(is_own);
        let left = match merged.and_then(|at| scope.merged.get(at)) {
            Some(merged) => Some(merged.bound.clone()),
            None => source::column_within(&mut scope.sources, before.clone(), name)?,
        };
        let right = source::column_within(&mut scope.sources, before.end..before.end + 1, name)?;
        let (Some(left), Some(right)) = (left, right) else { return Err(SqlError::unknown_field(name)) };
        conditions.push(compare(&left, Operator::Eq, &right, scope)?);
        let bound = match kind {
            JoinType::Right => right,
            JoinType::Full => first_of(&left.single(), &right.single())?,
            _ => left,
        };
        let sources = before.start..before.end + 1;
        match merged.and_then(|at| scope.merged.get_mut(at)) {
            Some(merged) => (merged.bound, merged.sources) = (bound, sources),
            None => scope.merged.push(MergedColumn { name: name.clone(), bound, sources }),
        }
    }
    Ok(match conditions.is_empty() {
        true => conditions,
        false => vec![and_or(&conditions, true)],
    })
}

/// Takes the first of two values that is not null.
fn first_of(one: &Bound, other: &Bound) -> Result<Bound> {
    let ty = one.ty.common(other.ty).unwrap_or(one.ty);
    let (first, second) = (one.to(ty)?, other.to(ty)?);
    let present = Box::new(first.clone().is_not_null());
    let choice = Case::new(None, vec![(present, Box::new(first))], Some(Box::new(second)));
    Ok(Bound::new(Expr::Case(choice), ty))
}
