//! Expressions of a user become ones over the columns of an input: names are looked up, functions of PPL are written with those that
//! SQL's binder knows ([`functions`](super::functions)).

use std::ops::ControlFlow;

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast::{self, VisitMut, VisitorMut};

use super::{decimals, functions, syntax};

/// Functions whose first argument is a word of the language.
const WORD_FIRST: &[&str] = &["timestampadd", "timestampdiff", "get_format", "extract"];

/// Functions that the inverted index answers: their arguments are read by the binder.
const RELEVANCE: &[&str] = &[
    "match",
    "match_phrase",
    "match_phrase_prefix",
    "match_bool_prefix",
    "multi_match",
    "simple_query_string",
    "query_string",
    "query",
    "wildcard_query",
];

/// Returns whether a name is one of a function that the inverted index answers.
pub(crate) fn is_relevance(name: &str) -> bool {
    RELEVANCE.contains(&name)
}

/// Looks up the names in an expression.
///
/// # Errors
/// Those of names that are not found.
pub(crate) fn resolve(
    expr: &mut ast::Expr,
    now_ms: i64,
    find: &mut dyn FnMut(&str) -> Result<ast::Expr>,
) -> Result<()> {
    let (saved, queries, parameters) = (Vec::new(), Vec::new(), Vec::new());
    let mut resolver = Resolver { find, now_ms, saved, queries, parameters };
    match expr.visit(&mut resolver) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Returns the name of a call, in lower case.
pub(crate) fn name_of(call: &ast::Function) -> String {
    call.name.to_string().trim_matches('`').to_ascii_lowercase()
}

struct Resolver<'f> {
    find: &'f mut dyn FnMut(&str) -> Result<ast::Expr>,
    /// Expressions that stay as they are, with what stands for them.
    saved: Vec<ast::Expr>,
    queries: Vec<ast::Query>,
    /// Time of the request.
    now_ms: i64,
    /// Parameters of lambdas around.
    parameters: Vec<Vec<String>>,
}

/// Stands for an expression that stays as it is.
const SAVED: &str = "\u{1}saved";

impl Resolver<'_> {
    /// Makes names that are not found null: a choice goes on to the next value.
    fn forget_unknown(&mut self, call: &mut ast::Function) {
        let ast::FunctionArguments::List(list) = &mut call.args else { return };
        for arg in &mut list.args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg)) = arg else { continue };
            let Some(path) = syntax::path(arg) else { continue };
            let first = path.split('.').next().unwrap_or_default();
            let is_parameter = self.parameters.iter().flatten().any(|name| name == first);
            if !is_parameter && (self.find)(&path).is_err() {
                *arg = syntax::null();
            }
        }
    }

    fn resolved(&mut self, expr: &mut ast::Expr) -> Result<()> {
        match expr {
            ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => {
                let path = syntax::path(expr).unwrap_or_default();
                let first = path.split('.').next().unwrap_or_default();
                if !self.parameters.iter().flatten().any(|name| name == first) {
                    *expr = (self.find)(&path)?;
                }
            }
            ast::Expr::Value(value) => {
                let is_saved = matches!(&value.value, ast::Value::Placeholder(text) if text == SAVED);
                if is_saved && let Some(saved) = self.saved.pop() {
                    *expr = saved;
                }
            }
            ast::Expr::InSubquery { subquery, .. } | ast::Expr::Exists { subquery, .. } => {
                if let Some(query) = self.queries.pop() {
                    **subquery = query;
                }
            }
            ast::Expr::Subquery(subquery) => {
                if let Some(query) = self.queries.pop() {
                    **subquery = query;
                }
            }
            ast::Expr::Lambda(_) => {
                self.parameters.pop();
            }
            ast::Expr::Function(_) | ast::Expr::RLike { .. } => functions::rewrite(expr, self.now_ms)?,
            ast::Expr::BinaryOp { .. } => {
                if let Some(exact) = decimals::folded(expr) {
                    *expr = exact;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl VisitorMut for Resolver<'_> {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<SqlError> {
        match expr {
            ast::Expr::Function(call) => {
                let name = name_of(call);
                if name == "mvmap" {
                    functions::write_lambda(call);
                }
                if name == "coalesce" {
                    self.forget_unknown(call);
                }
                if is_relevance(&name) {
                    let placeholder = ast::Expr::Value(ast::Value::Placeholder(SAVED.to_owned()).into());
                    self.saved.push(std::mem::replace(expr, placeholder));
                } else if WORD_FIRST.contains(&name.as_str())
                    && let ast::FunctionArguments::List(list) = &mut call.args
                    && let Some(ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(first))) =
                        list.args.first_mut()
                    && let ast::Expr::Identifier(word) = first
                {
                    *first = syntax::string(&word.value.clone());
                }
            }
            ast::Expr::InSubquery { subquery, .. } | ast::Expr::Exists { subquery, .. } => {
                let empty = syntax::query(syntax::select(std::iter::empty(), None), Vec::new(), None);
                self.queries.push(std::mem::replace(subquery, empty));
            }
            ast::Expr::Subquery(subquery) => {
                let empty = syntax::query(syntax::select(std::iter::empty(), None), Vec::new(), None);
                self.queries.push(std::mem::replace(subquery, empty));
            }
            ast::Expr::Lambda(lambda) => {
                let names = match &lambda.params {
                    ast::OneOrManyWithParens::One(one) => vec![one.name.value.clone()],
                    ast::OneOrManyWithParens::Many(many) => {
                        many.iter().map(|parameter| parameter.name.value.clone()).collect()
                    }
                };
                self.parameters.push(names);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<SqlError> {
        match self.resolved(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}
