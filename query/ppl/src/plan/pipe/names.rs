//! The names of a [`Pipe`]: what they stand for, and the refusal of those that stand for nothing.

use millrace_sql::error::{LocatedError, Result, SqlError};
use millrace_sql::relational::RelationPlanner;
use sqlparser::ast;

use super::super::{expressions, nearest, syntax};
use super::{Input, Pipe, is_metadata};

/// Most names of columns in an error.
const MAX_LISTED: usize = 100;

impl Pipe {
    /// Finds what a name stands for, over the input; `None` where there is no such column.
    /// In a subsearch, other names are ones of the rows around it.
    pub(crate) fn find(&self, path: &str, planner: &RelationPlanner<'_, '_>) -> Result<Option<ast::Expr>> {
        let found = self.find_bound(path, planner)?;
        Ok(found.or_else(|| self.correlated.then(|| syntax::column(path))))
    }

    /// Finds what a name stands for among the columns of the pipe itself.
    pub(crate) fn find_bound(
        &self,
        path: &str,
        planner: &RelationPlanner<'_, '_>,
    ) -> Result<Option<ast::Expr>> {
        if let Some(found) = self.find_own(path, planner)? {
            return Ok(Some(found));
        }
        for qualifier in &self.qualifiers {
            if let Some(rest) = path.strip_prefix(qualifier.as_str()).and_then(|rest| rest.strip_prefix('.'))
                && let Some(found) = self.find_own(rest, planner)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_own(&self, path: &str, planner: &RelationPlanner<'_, '_>) -> Result<Option<ast::Expr>> {
        let of_index = |path: &str| match &self.input {
            Input::Index(expression) if is_metadata(path) || planner.field(expression, path)?.is_some() => {
                Ok::<_, SqlError>(Some(syntax::column(path)))
            }
            _ => Ok(None),
        };
        let Some(columns) = &self.columns else { return of_index(path) };
        if let Some(column) = columns.iter().find(|column| column.name == path) {
            return Ok(Some(column.expr.clone()));
        }
        // Fields below an object that is there are there, too.
        let mut end = path.len();
        while let Some(at) = path.get(..end).and_then(|path| path.rfind('.')) {
            end = at;
            let Some((parent, rest)) = path.split_at_checked(at) else { break };
            let Some(column) = columns.iter().find(|column| column.name == parent) else { continue };
            if let (Some(own), Input::Index(_)) = (syntax::path(&column.expr), &self.input)
                && let Some(found) = of_index(&format!("{own}{rest}"))?
            {
                return Ok(Some(found));
            }
            let rest = rest.trim_start_matches('.');
            return Ok(Some(syntax::call("json_member", vec![column.expr.clone(), syntax::string(rest)])));
        }
        Ok(None)
    }

    /// Returns whether an expression over columns needs these bound before.
    pub(super) fn is_computed(&self, expr: &ast::Expr) -> bool {
        let Some(columns) = &self.columns else { return false };
        let computed: Vec<&str> =
            columns.iter().filter(|column| !column.is_plain()).map(|column| column.name.as_str()).collect();
        !computed.is_empty()
            && syntax::paths(expr).iter().any(|path| {
                let below = |name: &&str| path.strip_prefix(*name).is_some_and(|rest| rest.starts_with('.'));
                computed.iter().any(|name| name == path || below(name))
            })
    }

    /// Makes an expression of a user one over the input.
    pub(crate) fn resolve(
        &mut self,
        mut expr: ast::Expr,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<ast::Expr> {
        if self.groups.is_some() || self.is_computed(&expr) {
            self.close(planner)?;
        }
        let now_ms = planner.now_ms();
        expressions::resolve(&mut expr, now_ms, &mut |path| {
            self.find(path, planner)?.ok_or_else(|| self.unknown(path, planner))
        })?;
        Ok(expr)
    }

    /// Refuses a name that no column has.
    pub(crate) fn check(&self, path: &str, planner: &RelationPlanner<'_, '_>) -> Result<()> {
        match self.find(path, planner)? {
            Some(_) => Ok(()),
            None => Err(self.unknown(path, planner)),
        }
    }

    /// Refuses a name that no column has, with the names of all columns.
    pub(crate) fn check_listed(&mut self, path: &str, planner: &RelationPlanner<'_, '_>) -> Result<()> {
        if self.find(path, planner)?.is_some() {
            return Ok(());
        }
        let names = self.visible(planner)?;
        let details = format!(
            "can't resolve Symbol(namespace=FIELD_NAME, name={path}) in type env: field [{path}] not found; input fields are: [{}]",
            names.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join(", ")
        );
        Err(LocatedError::suggest(SqlError::Semantic(details), nearest::nearest(path, &names)))
    }

    /// Refuses a name, with the nearest one that there is.
    pub(super) fn unknown(&self, path: &str, planner: &RelationPlanner<'_, '_>) -> SqlError {
        let known = match (&self.columns, &self.input) {
            (Some(columns), _) => columns.iter().map(|column| column.name.clone()).collect(),
            (None, Input::Index(expression)) => planner.field_paths(expression),
            (None, _) => Vec::new(),
        };
        let details = format!(
            "can't resolve Symbol(namespace=FIELD_NAME, name={path}) in type env: Field [{path}] not found."
        );
        LocatedError::suggest(SqlError::Semantic(details), nearest::nearest(path, &known))
    }

    /// Returns the name of a column that a name stands for: a qualifier is no part of it.
    pub(super) fn shown_name(&self, name: &str, planner: &RelationPlanner<'_, '_>) -> Result<String> {
        if self.find_own(name, planner)?.is_some() {
            return Ok(name.to_owned());
        }
        for qualifier in &self.qualifiers {
            let rest = name.strip_prefix(qualifier.as_str()).and_then(|rest| rest.strip_prefix('.'));
            if let Some(rest) = rest
                && self.find_own(rest, planner)?.is_some()
            {
                return Ok(rest.to_owned());
            }
        }
        Ok(name.to_owned())
    }
}
