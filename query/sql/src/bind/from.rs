//! FROM and WHERE: the sources of a SELECT, and the plan of their scans, joins and conditions.

use std::sync::Arc;

use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::JoinType;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use millrace_matching::table::predicate_udf::holds_predicate;
use millrace_matching::table::{ScanHandle, TableSnapshot};
use sqlparser::ast;

use super::{Binder, Bound, unsupported};
use crate::column::SqlColumn;
use crate::error::{Result, SqlError};
use crate::push::{Clause, PushedPredicate};
use crate::source::{DerivedColumn, IndexSource, Source, SourceKind};
use crate::statement::{MAX_SOURCES, too_many_sources};
use crate::table::SqlTable;

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

/// The index expression that a table's name is.
pub(super) fn table_name(name: &ast::ObjectName) -> String {
    let parts = name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.as_str());
    parts.collect::<Vec<_>>().join(".")
}

impl Binder<'_> {
    /// Binds FROM.
    pub(super) fn sources(
        &mut self,
        from: &[ast::TableWithJoins],
        on: &mut Vec<(JoinType, Option<ast::Expr>)>,
        depth: usize,
    ) -> Result<Vec<Source>> {
        let [from] = from else {
            return match from {
                [] => Ok(vec![Source {
                    qualifier: "nothing".to_owned(),
                    names: Vec::new(),
                    kind: SourceKind::Nothing,
                }]),
                _ => unsupported("a list of sources with aliases in FROM"),
            };
        };
        let mut sources = vec![self.source(&from.relation, depth)?];
        for join in &from.joins {
            use ast::JoinOperator as J;
            let (kind, constraint) = match &join.join_operator {
                J::Join(constraint) | J::Inner(constraint) => (JoinType::Inner, Some(constraint)),
                J::Left(constraint) | J::LeftOuter(constraint) => (JoinType::Left, Some(constraint)),
                J::CrossJoin(constraint) => (JoinType::Inner, Some(constraint)),
                _ => return unsupported("this kind of join"),
            };
            let condition = match constraint {
                None | Some(ast::JoinConstraint::None) => None,
                Some(ast::JoinConstraint::On(condition)) => Some(condition.clone()),
                Some(_) => return unsupported("a join without ON"),
            };
            sources.push(self.source(&join.relation, depth)?);
            on.push((kind, condition));
        }
        Ok(sources)
    }

    fn source(&mut self, factor: &ast::TableFactor, depth: usize) -> Result<Source> {
        let qualifier = format!("t{}", self.next_source);
        self.next_source += 1;
        if self.next_source > MAX_SOURCES {
            return Err(too_many_sources());
        }
        match factor {
            ast::TableFactor::Table { name, alias, args: None, .. } => {
                let name = table_name(name);
                let snapshot = self.snapshots.get(&name).ok_or_else(|| SqlError::unknown_field(&name))?;
                let mut names = vec![name];
                names.extend(alias.as_ref().map(|alias| alias.name.value.clone()));
                Ok(Source {
                    qualifier,
                    names,
                    kind: SourceKind::Index(IndexSource::new(Arc::clone(snapshot))),
                })
            }
            ast::TableFactor::Derived { subquery, alias, lateral: false, .. } => {
                let planned = self.query(subquery, None, depth + 1)?;
                let columns = planned
                    .columns
                    .into_iter()
                    .enumerate()
                    .map(|(at, column)| DerivedColumn {
                        column: format!("c{at}"),
                        name: column.alias.unwrap_or(column.name),
                        ty: column.ty,
                        list: column.list,
                    })
                    .collect();
                let names = alias.iter().map(|alias| alias.name.value.clone()).collect();
                Ok(Source { qualifier, names, kind: SourceKind::Derived(Box::new(planned.plan), columns) })
            }
            other => unsupported(format!("[{other}] in FROM")),
        }
    }

    /// Builds the plan of FROM and WHERE.
    pub(super) fn scan(
        &mut self,
        sources: Vec<Source>,
        joins: Vec<(JoinType, Option<Expr>)>,
        conditions: Vec<Bound>,
    ) -> Result<ScanPlan> {
        // Behind an outer join a condition on the right side is no condition on its scan.
        let outer = joins.iter().any(|(kind, _)| *kind != JoinType::Inner);
        let (mut pushed, mut left): (Vec<PushedPredicate>, Vec<Expr>) = (Vec::new(), Vec::new());
        for condition in conditions {
            match condition.pushed {
                Some(own) if own.source == 0 || !outer => pushed.push(own),
                _ => left.push(condition.expr),
            }
        }
        if left.iter().any(holds_predicate) {
            return unsupported(
                "a relevance function, or LIKE on a text field without a keyword field, which the index answers over its terms, together with a condition that it cannot answer",
            );
        }
        let single = sources.len() == 1;
        let mut count = None;
        let mut plans = Vec::with_capacity(sources.len());
        for (number, source) in sources.into_iter().enumerate() {
            plans.push(match source.kind {
                SourceKind::Nothing => LogicalPlanBuilder::empty(true).build()?,
                SourceKind::Derived(plan, _) => {
                    LogicalPlanBuilder::new(*plan).alias(source.qualifier)?.build()?
                }
                SourceKind::Index(index) => {
                    let mut truths: Vec<Clause> = pushed
                        .iter()
                        .filter(|own| own.source == number)
                        .map(|own| own.truth.clone())
                        .collect();
                    truths.extend(self.filter.map(|filter| {
                        let read = source.names.first().and_then(|name| self.filters.get(name));
                        match read {
                            Some(query) => Clause::Read(filter.clone(), Box::new(query.clone())),
                            None => Clause::Leaf(filter.clone()),
                        }
                    }));
                    if let [only] = truths.as_slice() {
                        self.pushed.push(only.to_json());
                    } else if !truths.is_empty() {
                        self.pushed.push(Clause::And(truths.clone()).to_json());
                    }
                    let filters = match truths.is_empty() {
                        true => Vec::new(),
                        false => vec![Clause::And(truths).expr(self.scores)?],
                    };
                    let (plan, counting) =
                        self.table(&source.qualifier, index.snapshot, index.columns, filters)?;
                    if single {
                        count = Some(counting);
                    }
                    plan
                }
            });
        }
        let mut plans = plans.into_iter();
        let mut builder = LogicalPlanBuilder::new(
            plans.next().ok_or_else(|| SqlError::Syntax("the statement has no source".to_owned()))?,
        );
        for ((kind, condition), right) in joins.into_iter().zip(plans) {
            builder = match condition {
                None => builder.cross_join(right)?,
                Some(condition) => builder.join_on(right, kind, [condition])?,
            };
        }
        let residual = !left.is_empty();
        for condition in left {
            builder = builder.filter(condition)?;
        }
        Ok(ScanPlan { plan: builder.build()?, count, residual })
    }

    /// Makes the scan of indices: one with the columns, and what counts its rows.
    fn table(
        &mut self,
        qualifier: &str,
        snapshot: Arc<TableSnapshot>,
        columns: Vec<SqlColumn>,
        filters: Vec<Expr>,
    ) -> Result<(LogicalPlan, Count)> {
        let mut make = |columns: Vec<SqlColumn>, projection: Option<Vec<usize>>, filters: Vec<Expr>| {
            let compute = self.compute.clone();
            let table =
                SqlTable::new(Arc::clone(&snapshot), columns, self.now_ms, compute, self.work.clone());
            let handle = Arc::clone(table.handle());
            self.handles.push(Arc::clone(&handle));
            let source = provider_as_source(Arc::new(table));
            let scan = LogicalPlanBuilder::scan_with_filters(qualifier, source, projection, filters)?;
            Ok::<_, SqlError>((scan.build()?, handle))
        };
        let (plan, by_scan) = make(columns, None, filters.clone())?;
        let (counting, _) = make(Vec::new(), Some(Vec::new()), filters)?;
        Ok((plan, Count { plan: counting, by_scan }))
    }
}
