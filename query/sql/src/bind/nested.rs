//! Elements of nested paths: `FROM e, e.array AS p`, `EXISTS (SELECT … FROM e.array AS p …)` and `nested(path)`.
//!
//! A source of elements ([`NestedSource`]) has no scan of its own. Its columns are lists in the scan of the documents, which the plan
//! unnests above that ([`unnested`]). A condition on elements narrows the scan to documents with such an element. `nested(path)` stands
//! for all values of a document in WHERE, in ORDER BY and in aggregates, and for the value of each element in SELECT and GROUP BY.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, NullHandling, UnnestOptions};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, cast, lit};
use datafusion::scalar::ScalarValue;
use sqlparser::ast;

use super::arithmetic::operation;
use super::call::called;
use super::from::table_name;
use super::{Binder, Bound, ExpressionContext, Scope, unsupported};
use crate::elements::nested_clause;
use crate::error::{Result, SqlError};
use crate::push::{Clause, PushedPredicate};
use crate::source::{self, IndexSource, NestedSource, Source, SourceKind};
use crate::table::ROW;
use crate::types::SqlType;

/// Name of the function of elements.
const NESTED: &str = "nested";
/// Name of the function that goes back from elements to their documents.
const REVERSE_NESTED: &str = "reverse_nested";

/// Arguments of a call of `nested`.
enum NestedArguments<'q> {
    /// A field, perhaps with its path.
    Field(String, Option<String>),
    /// All fields below a path.
    Wildcard(String),
    /// A path, and a condition on its elements.
    Condition(String, &'q ast::Expr),
}

impl<'q> NestedArguments<'q> {
    fn new(call: &'q ast::Function) -> Result<Self> {
        let usage = || {
            SqlError::Semantic(format!(
                "[{call}] takes a field, perhaps with its nested path, or a nested path and a condition"
            ))
        };
        let ast::FunctionArguments::List(list) = &call.args else { return Err(usage()) };
        let argument = |at: usize| match list.args.get(at) {
            Some(ast::FunctionArg::Unnamed(argument)) => Ok(Some(argument)),
            None => Ok(None),
            Some(_) => Err(usage()),
        };
        let (first, second) = (argument(0)?.ok_or_else(usage)?, argument(1)?);
        if list.args.len() > 2 {
            return Err(usage());
        }
        let first = match first {
            ast::FunctionArgExpr::Expr(expr) => path_of(expr).ok_or_else(usage)?,
            ast::FunctionArgExpr::QualifiedWildcard(name) => return Ok(Self::Wildcard(table_name(name))),
            _ => return Err(usage()),
        };
        match second {
            None => Ok(Self::Field(first, None)),
            Some(ast::FunctionArgExpr::Expr(expr)) => Ok(match path_of(expr) {
                Some(path) => Self::Field(first, Some(path)),
                None => Self::Condition(first, expr),
            }),
            Some(_) => Err(usage()),
        }
    }
}

/// Returns the path that an expression spells out.
pub(super) fn path_of(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Identifier(ident) => Some(ident.value.clone()),
        ast::Expr::CompoundIdentifier(parts) => {
            Some(parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join("."))
        }
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the call of `nested` that an expression is.
pub(super) fn nested_call(expr: &ast::Expr) -> Option<&ast::Function> {
    match expr {
        ast::Expr::Function(call) if called(call) == NESTED => Some(call),
        ast::Expr::Nested(inner) => nested_call(inner),
        _ => None,
    }
}

/// Returns true for the name of the function of elements.
pub(super) fn is_nested(name: &str) -> bool {
    name == NESTED
}

/// Returns true for the name of the function that goes back to documents.
pub(super) fn is_reverse_nested(name: &str) -> bool {
    name == REVERSE_NESTED
}

/// Returns the arguments of the call of `reverse_nested` that an expression is: a field, and the nested path of it.
fn reverse_nested_field(expr: &ast::Expr) -> Option<(String, Option<String>)> {
    let ast::Expr::Function(call) = expr else { return None };
    if !is_reverse_nested(&called(call)) {
        return None;
    }
    match NestedArguments::new(call).ok()? {
        NestedArguments::Field(field, path) => {
            let path = path.map(|path| path.trim_start_matches('~').to_owned());
            Some((field, path.filter(|path| !path.is_empty())))
        }
        _ => None,
    }
}

/// Lists the names of the fields that `nested(path.*)` stands for; `None` for another expression.
pub(super) fn wildcard_fields(expr: &ast::Expr, scope: &Scope) -> Result<Option<Vec<String>>> {
    let Some(call) = nested_call(expr) else { return Ok(None) };
    let NestedArguments::Wildcard(path) = NestedArguments::new(call)? else { return Ok(None) };
    let (number, path) = nested_source(&path, scope)?;
    let Some(SourceKind::Index(index)) = scope.sources.get(number).map(|source| &source.kind) else {
        return Err(SqlError::unknown_field(&path));
    };
    let below = format!("{path}.");
    let mut fields: Vec<String> = Vec::new();
    for index in &index.snapshot.indices {
        let mapping = &index.mapping;
        for field in mapping.fields().filter(|field| field.path.starts_with(&below)) {
            // Fields within a field are other forms of its values.
            let is_form =
                field.path.rsplit_once('.').is_some_and(|(around, _)| mapping.field(around).is_some());
            if !is_form && mapping.nested_path(&field.path) == Some(&path) {
                let name = field.path.to_string();
                if !fields.contains(&name) {
                    fields.push(name);
                }
            }
        }
    }
    fields.sort_unstable();
    Ok(Some(fields))
}

/// Finds the source of documents that has a path, and the path in it.
fn nested_source(path: &str, scope: &Scope) -> Result<(usize, String)> {
    let own = source::unqualified(&scope.sources, path);
    for path in [own, path] {
        for (number, source) in scope.sources.iter().enumerate() {
            if let SourceKind::Index(index) = &source.kind
                && index.has(path)
            {
                return Ok((number, path.to_owned()));
            }
        }
    }
    Err(SqlError::unknown_field(path))
}

fn not_nested(path: &str) -> SqlError {
    SqlError::Semantic(format!("Illegal nested field name: {path}"))
}

impl Binder<'_> {
    /// Binds `nested(…)`.
    pub(super) fn nested(
        &mut self,
        call: &ast::Function,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let (field, around) = match NestedArguments::new(call)? {
            NestedArguments::Wildcard(_) => {
                return Err(SqlError::Semantic(format!("Invalid use of expression {call}")));
            }
            NestedArguments::Condition(path, condition) => {
                let (number, path) = nested_source(&path, scope)?;
                let nested = self.elements_of(&path, number, scope)?;
                return self.elements_exist(number, nested, None, Some(condition), scope);
            }
            NestedArguments::Field(field, around) => (field, around),
        };
        let (number, path) = nested_source(&field, scope)?;
        let Some(SourceKind::Index(index)) = scope.sources.get(number).map(|source| &source.kind) else {
            return Err(SqlError::unknown_field(&field));
        };
        let nested = index.nested_path(&path).map(str::to_owned).ok_or_else(|| not_nested(&path))?;
        if let Some(around) = around {
            let (_, around) = nested_source(&around, scope)?;
            if index.nested_path(&around) != Some(&around) || !nested.starts_with(&around) {
                return Err(not_nested(&around));
            }
        }
        let grouped = scope.grouped_paths.contains(&nested);
        let unnested = !scope.filters && (grouped || place == ExpressionContext::Output);
        let found = match unnested {
            true => {
                let source = implicit_source(number, nested, scope);
                match scope.sources.get_mut(source).map(|source| (&source.qualifier, &mut source.kind)) {
                    Some((qualifier, SourceKind::Nested(nested))) => {
                        nested.column(source, &path, qualifier)?
                    }
                    _ => None,
                }
            }
            false => {
                match scope.sources.get_mut(number).map(|source| (&source.qualifier, &mut source.kind)) {
                    Some((qualifier, SourceKind::Index(index))) => {
                        index.values_column(number, &nested, &path, qualifier)?
                    }
                    _ => None,
                }
            }
        };
        found.ok_or_else(|| SqlError::unknown_field(&field))
    }

    /// Binds `reverse_nested(field[, path])`: a field of the documents of elements, or of other elements of these.
    pub(super) fn reverse_nested(&mut self, call: &ast::Function, scope: &mut Scope) -> Result<Bound> {
        let expr = ast::Expr::Function(call.clone());
        let Some((field, path)) = reverse_nested_field(&expr) else {
            return Err(SqlError::Semantic(format!("[{call}] takes a field, perhaps with its nested path")));
        };
        let (number, path_of_field) = nested_source(&field, scope)?;
        let found = match path {
            None => source::column_within(&mut scope.sources, number..number + 1, &path_of_field)?,
            Some(path) => {
                nested_of(&path, number, &scope.sources).ok_or_else(|| not_nested(&path))?;
                let source = implicit_source(number, path, scope);
                match scope.sources.get_mut(source).map(|source| (&source.qualifier, &mut source.kind)) {
                    Some((qualifier, SourceKind::Nested(nested))) => {
                        nested.column(source, &path_of_field, qualifier)?
                    }
                    _ => None,
                }
            }
        };
        found.ok_or_else(|| SqlError::unknown_field(&field))
    }

    /// Makes the number that tells a document, or an element, that groups by `reverse_nested` count from others.
    pub(super) fn reversed_identity(&mut self, scope: &mut Scope) -> Result<Option<Expr>> {
        // A search counts what is in its buckets.
        let Some((number, path)) = scope.reversed.clone().filter(|_| !self.is_search) else {
            return Ok(None);
        };
        let mut parts = Vec::new();
        for name in ["_index", "_id"] {
            let column = source::column_within(&mut scope.sources, number..number + 1, name)?;
            let space = lit(ScalarValue::Utf8View(Some(" ".to_owned())));
            parts.extend([column.ok_or_else(|| SqlError::unknown_field(name))?.expr, space]);
        }
        if let Some(path) = path {
            let source = implicit_source(number, path, scope);
            if let Some(source) = scope.sources.get_mut(source)
                && let SourceKind::Nested(nested) = &mut source.kind
            {
                parts.push(cast(nested.ordinal(&source.qualifier), DataType::Utf8View));
            }
        }
        let joined = parts.into_iter().reduce(|left, right| operation(left, Operator::StringConcat, right));
        Ok(joined)
    }

    /// Makes the source of the elements of a path of another source.
    fn elements_of(&mut self, path: &str, number: usize, scope: &Scope) -> Result<NestedSource> {
        nested_of(path, number, &scope.sources).ok_or_else(|| not_nested(path))
    }

    /// Binds the condition that a document has an element for which another holds.
    fn elements_exist(
        &mut self,
        number: usize,
        nested: NestedSource,
        name: Option<String>,
        condition: Option<&ast::Expr>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let path = nested.path.clone();
        let mut own = Clause::All;
        if let Some(condition) = condition {
            // Names within `nested(path, …)` are whole paths.
            let name = name.or_else(|| Some(path.clone()));
            let qualifier = format!("{path} elements");
            let mut inner = self.scope(vec![Source { qualifier, name, kind: SourceKind::Nested(nested) }]);
            let outer = std::mem::take(&mut self.outer);
            let bound = self.expr(condition, &mut inner, ExpressionContext::Row);
            self.outer = outer;
            let bound = bound?;
            match self.truth(bound)?.pushed {
                Some(pushed) => own = pushed.truth,
                None => {
                    return unsupported(format!(
                        "the condition [{condition}] on elements of [{path}], which the index does not answer: \
                         join the elements with [FROM t, t.{path} AS p]"
                    ));
                }
            }
        }
        let clause = Clause::Leaf(nested_clause(&path, &own));
        let Some(expr) = scope.sources.get_mut(number).and_then(|source| source.mark(&clause)) else {
            return unsupported("elements of a source that is no index");
        };
        let pushed = Some(PushedPredicate::certain(number, clause));
        Ok(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) })
    }

    /// Binds `EXISTS (SELECT … FROM e.array AS p [WHERE …])`; `None` where the query is another.
    pub(super) fn exists_nested(&mut self, query: &ast::Query, scope: &mut Scope) -> Result<Option<Bound>> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
        let [from] = select.from.as_slice() else { return Ok(None) };
        let ast::TableFactor::Table { name, alias, args: None, .. } = &from.relation else { return Ok(None) };
        let Some((number, path)) = nested_table(&table_name(name), &scope.sources) else { return Ok(None) };
        let is_plain = from.joins.is_empty()
            && query.with.is_none()
            && query.limit_clause.is_none()
            && select.having.is_none()
            && matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
        let nested = nested_of(&path, number, &scope.sources);
        let Some(nested) = nested.filter(|nested| is_plain && nested.around.is_none()) else {
            return unsupported(format!("[EXISTS ({query})] over elements other than with FROM and WHERE"));
        };
        let name = alias.as_ref().map(|alias| alias.name.value.clone());
        let condition = select.selection.as_ref();
        self.elements_exist(number, nested, name, condition, scope).map(Some)
    }

    /// Makes the source of `e.array AS p` in FROM; `None` where the name is one of an index.
    pub(super) fn nested_factor(
        &mut self,
        factor: &ast::TableFactor,
        sources: &[Source],
    ) -> Result<Option<Source>> {
        let ast::TableFactor::Table { name, alias, args: None, .. } = factor else { return Ok(None) };
        let name = table_name(name);
        let Some((number, path)) = nested_table(&name, sources) else {
            let outer = self.outer.iter().any(|scope| nested_table(&name, &scope.sources).is_some());
            return match outer {
                true => unsupported(format!("[{name}] of a query around it in FROM, but for EXISTS,")),
                false => Ok(None),
            };
        };
        let nested = nested_of(&path, number, sources).ok_or_else(|| not_nested(&path))?;
        let qualifier = format!("t{}", self.next_source);
        self.next_source += 1;
        let name = Some(alias.as_ref().map_or(name, |alias| alias.name.value.clone()));
        Ok(Some(Source { qualifier, name, kind: SourceKind::Nested(nested) }))
    }
}

/// Finds the source and the path that a name such as `e.array` stands for.
fn nested_table(name: &str, sources: &[Source]) -> Option<(usize, String)> {
    sources.iter().enumerate().find_map(|(number, source)| {
        let rest = name.strip_prefix(source.name.as_deref()?)?.strip_prefix('.')?;
        match &source.kind {
            SourceKind::Index(_) => Some((number, rest.to_owned())),
            SourceKind::Nested(own) if !own.implicit => Some((number, format!("{}.{rest}", own.path))),
            _ => None,
        }
    })
}

/// Makes the source of the elements of a path; `None` where the path is not nested.
fn nested_of(path: &str, number: usize, sources: &[Source]) -> Option<NestedSource> {
    let source = sources.get(number)?;
    let (root, around, index) = match &source.kind {
        SourceKind::Index(index) => (number, None, index),
        SourceKind::Nested(own) => (own.root, Some((number, own.path.clone())), &own.index),
        _ => return None,
    };
    let qualifier = sources.get(root)?.qualifier.clone();
    let is_nested = index.nested_path(path) == Some(path);
    is_nested.then(|| {
        let mut index_of_elements = IndexSource::new(index.expression.clone(), Arc::clone(&index.snapshot));
        index_of_elements.list_valued = Arc::clone(&index.list_valued);
        NestedSource {
            root,
            root_qualifier: qualifier,
            around,
            path: path.to_owned(),
            implicit: false,
            index: index_of_elements,
            conditions: Vec::new(),
        }
    })
}

/// Finds the source of the elements that calls of `nested` unnest, or makes it.
fn implicit_source(root: usize, path: String, scope: &mut Scope) -> usize {
    let known = scope.sources.iter().position(|source| {
        matches!(&source.kind, SourceKind::Nested(own) if own.implicit && own.root == root && own.path == path)
    });
    if let Some(known) = known {
        return known;
    }
    let Some(nested) = nested_of(&path, root, &scope.sources) else { return root };
    let qualifier = format!("{} {path}", nested.root_qualifier);
    let kind = SourceKind::Nested(NestedSource { implicit: true, ..nested });
    scope.sources.push(Source { qualifier, name: None, kind });
    scope.sources.len() - 1
}

/// Returns the nested paths that calls of `nested` in GROUP BY name.
pub(super) fn grouped_paths(select: &ast::Select, scope: &Scope) -> Vec<String> {
    let ast::GroupByExpr::Expressions(keys, _) = &select.group_by else { return Vec::new() };
    let item = |at: usize| match select.projection.get(at) {
        Some(ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }) => Some(expr),
        _ => None,
    };
    let path = |key: &ast::Expr| {
        let ordinal = || key.to_string().parse::<usize>().ok().and_then(|at| item(at.checked_sub(1)?));
        let key = match key {
            ast::Expr::Identifier(ident) => scope.aliases.get(&ident.value).unwrap_or(key),
            ast::Expr::Value(_) => ordinal().unwrap_or(key),
            _ => key,
        };
        let NestedArguments::Field(field, _) = NestedArguments::new(nested_call(key)?).ok()? else {
            return None;
        };
        let (number, path) = nested_source(&field, scope).ok()?;
        match &scope.sources.get(number)?.kind {
            SourceKind::Index(index) => index.nested_path(&path).map(str::to_owned),
            _ => None,
        }
    };
    let reversed = keys.iter().filter_map(reverse_nested_field).filter_map(|(_, path)| path);
    keys.iter().filter_map(path).chain(reversed).collect()
}

/// Finds the field of `reverse_nested` in GROUP BY: the source of its documents, and its nested path.
pub(super) fn reversed_group(select: &ast::Select, scope: &Scope) -> Option<(usize, Option<String>)> {
    let ast::GroupByExpr::Expressions(keys, _) = &select.group_by else { return None };
    let (field, path) = keys.iter().find_map(reverse_nested_field)?;
    let (number, _) = nested_source(&field, scope).ok()?;
    Some((number, path))
}

/// Adds an order by document and element behind one by values of documents, where calls of `nested` unnest elements.
pub(super) fn ordered_by_element(sorts: &mut Vec<SortExpr>, sources: &mut [Source]) {
    if sorts.is_empty() {
        return;
    }
    for source in sources {
        let SourceKind::Nested(nested) = &mut source.kind else { continue };
        if nested.implicit {
            let row = Expr::Column(Column::new(Some(nested.root_qualifier.as_str()), ROW));
            let ordinal = nested.ordinal(&source.qualifier);
            sorts.extend([row, ordinal].map(|key| SortExpr::new(key, true, false)));
        }
    }
}

/// Unnests the elements of sources above the scan that has their columns. Inner paths come behind those around them.
pub(super) fn unnested(
    plan: LogicalPlan,
    elements: &[(usize, NestedSource)],
    inner: impl Fn(usize) -> bool,
) -> Result<LogicalPlan> {
    let mut plan = plan;
    // The node that unnests a column leaves its qualifier out.
    let mut known: Vec<&str> = Vec::new();
    for (number, own) in elements {
        let is_within = |other: &NestedSource| {
            let mut around = other.around.as_ref().map(|(around, _)| *around);
            while let Some(at) = around {
                if at == *number {
                    return true;
                }
                let found = elements.iter().find(|(number, _)| *number == at);
                around = found.and_then(|(_, own)| own.around.as_ref().map(|(around, _)| *around));
            }
            false
        };
        let lists = std::iter::once(own)
            .chain(elements.iter().map(|(_, other)| other).filter(|other| is_within(other)));
        let columns = lists.flat_map(|source| &source.index.columns);
        let mut unnested_columns = Vec::new();
        for column in columns {
            let is_unnested = known.contains(&column.name.as_str());
            let qualifier = (!is_unnested).then_some(own.root_qualifier.as_str());
            unnested_columns.push(Column::new(qualifier, &column.name));
            known.push(&column.name);
        }
        let null_handling =
            if inner(*number) { NullHandling::Drop } else { NullHandling::PreserveAndExpandEmpty };
        let options = UnnestOptions { null_handling, recursions: Vec::new() };
        plan =
            LogicalPlanBuilder::new(plan).unnest_columns_with_options(unnested_columns, options)?.build()?;
    }
    Ok(plan)
}
