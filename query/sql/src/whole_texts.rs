//! Texts that LIKE compares by their keyword fields, where none of these has lost a value to `ignore_above`: then the index answers the
//! comparison exactly, and a search stands for the statement.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_matching::table::TableSnapshot;
use sqlparser::ast;

use super::ast_walk::visit_expressions;
use super::bind::tables;
use super::error::Result;
use super::push::Comparable;
use super::request::SqlRequest;
use super::run::{RowCountMode, Runner, StatementRequest};
use super::source::column_of;
use super::statement::{Names, Statement, parse_request};

/// Most texts of a statement that are looked at.
const MAX_TEXTS: usize = 16;

/// Paths of such texts, behind the index expressions that have them.
pub(crate) type WholeTexts = HashSet<(String, String)>;

impl Runner {
    /// Finds the whole texts that a query compares by LIKE.
    pub(super) async fn whole_texts(
        &self,
        asked: &StatementRequest,
        query: &ast::Query,
    ) -> Result<Arc<WholeTexts>> {
        let paths = compared_paths(query);
        if paths.is_empty() {
            return Ok(Arc::default());
        }
        let snapshots = self.snapshots(&*asked.session, tables(query)).await?;
        let mut texts: Vec<(&String, &str)> = Vec::new();
        for (expression, snapshot) in &snapshots {
            for path in paths.iter().flat_map(|path| [Some(path.as_str()), without_qualifier(path)]).flatten()
            {
                if is_cut(snapshot, path) && !texts.contains(&(expression, path)) {
                    texts.push((expression, path));
                }
            }
        }
        let mut whole = WholeTexts::new();
        for (expression, path) in texts.into_iter().take(MAX_TEXTS) {
            let cut = format!(
                "SELECT 1 FROM `{expression}` WHERE `{path}` IS NOT NULL AND `{path}.keyword` IS NULL LIMIT 1"
            );
            if !self.has_rows(asked, cut).await? {
                whole.insert((expression.clone(), path.to_owned()));
            }
        }
        Ok(Arc::new(whole))
    }

    /// Returns whether a query has rows.
    async fn has_rows(&self, asked: &StatementRequest, query: String) -> Result<bool> {
        let request = SqlRequest { query, ..SqlRequest::default() };
        let asked = StatementRequest { request, ..asked.clone() };
        let Statement::Query(query, _) = parse_request(&asked.request)? else { return Ok(true) };
        let ready = self.prepare(&asked, &query, &Names::default(), None).await?;
        let first = self.rows(&ready, RowCountMode::Answered).await?.next().await?;
        // The statement goes on.
        ready.stop.disarm();
        Ok(first.is_some_and(|batch| batch.num_rows() > 0))
    }
}

/// Lists the names that LIKE compares in a query and those within it.
fn compared_paths(query: &ast::Query) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let _ = visit_expressions(query, |expr| {
        let (ast::Expr::Like { expr, .. } | ast::Expr::ILike { expr, .. }) = expr else {
            return ControlFlow::Continue(());
        };
        let path = match expr.as_ref() {
            ast::Expr::Identifier(ident) => Some(ident.value.clone()),
            ast::Expr::CompoundIdentifier(parts) => {
                Some(parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join("."))
            }
            _ => None,
        };
        paths.extend(path.filter(|path| !paths.contains(path) && !path.contains('`')));
        ControlFlow::Continue(())
    });
    paths
}

fn without_qualifier(path: &str) -> Option<&str> {
    path.split_once('.').map(|(_, rest)| rest)
}

/// Returns whether a path is a text of single values whose keyword field may lack some.
fn is_cut(snapshot: &TableSnapshot, path: &str) -> bool {
    let is_single = matches!(column_of(snapshot, path), Ok(Some(column)) if !column.list);
    is_single && Comparable::new(snapshot, 0, path).is_some_and(|own| own.is_cut())
}
