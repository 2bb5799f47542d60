//! The output columns of a SELECT: its bound items, and the names that users see.

use sqlparser::ast;

use super::from::table_name;
use super::nested::wildcard_fields;
use super::statistics::statistics;
use super::{Binder, Bound, ExpressionContext, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::source::{self, SourceKind};
use crate::types::SqlType;

/// Most output columns.
const MAX_OUTPUTS: usize = 4_096;

/// An output column.
#[derive(Clone, Debug)]
pub struct OutColumn {
    /// Text of the user.
    pub name: String,
    /// The alias that was given.
    pub alias: Option<String>,
    /// Type of its values.
    pub ty: SqlType,
    /// `true` if it holds several values.
    pub list: bool,
    /// Type as the schema shows it.
    pub shown: &'static str,
    /// Type of the elements of an array that is held as JSON, where it is known.
    pub element: Option<SqlType>,
}

/// An output column with what it is bound to.
pub(super) struct Item {
    pub(super) column: OutColumn,
    pub(super) bound: Bound,
}

impl Binder<'_> {
    /// Binds the items of SELECT.
    pub(super) fn items(&mut self, select: &ast::Select, scope: &mut Scope) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let place = select.select_token.0.span.start;
        let names = self.names;
        let written = names.items(place);
        for (at, item) in select.projection.iter().enumerate() {
            let written = written.get(at).copied().unwrap_or_default();
            match item {
                ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }
                    if wildcard_fields(expr, scope)?.is_some() =>
                {
                    for field in wildcard_fields(expr, scope)?.unwrap_or_default() {
                        let parts = field.split('.').map(ast::Ident::new).collect();
                        let field_expr = with_argument(expr, ast::Expr::CompoundIdentifier(parts));
                        items.push(self.item(&field_expr, format!("nested({field})"), None, scope)?);
                    }
                }
                ast::SelectItem::UnnamedExpr(expr) => {
                    let name = shown_name(expr, written, scope);
                    self.add_items(expr, name, None, scope, &mut items)?;
                }
                ast::SelectItem::ExprWithAlias { expr, alias } => {
                    let name = shown_name(expr, without_alias(written, alias), scope);
                    self.add_items(expr, name, Some(alias.value.clone()), scope, &mut items)?;
                }
                ast::SelectItem::Wildcard(_) => {
                    let merged = scope.merged.iter().map(|merged| Item {
                        column: out_column(merged.name.clone(), &merged.bound),
                        bound: merged.bound.clone(),
                    });
                    items.extend(merged);
                    for source in 0..scope.sources.len() {
                        self.all_of(source, scope, true, &mut items)?;
                    }
                }
                ast::SelectItem::QualifiedWildcard(
                    ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let name = table_name(name);
                    let source = source::source_named(&scope.sources, &name);
                    let source = source.ok_or_else(|| SqlError::unknown_field(&format!("{name}.*")))?;
                    self.all_of(source, scope, false, &mut items)?;
                }
                other => return unsupported(format!("[{other}]")),
            }
            if items.len() > MAX_OUTPUTS {
                return Err(SqlError::TooLarge(format!(
                    "the statement answers more than {MAX_OUTPUTS} columns"
                )));
            }
        }
        Ok(items)
    }

    /// Adds the columns of an expression.
    fn add_items(
        &mut self,
        expr: &ast::Expr,
        name: String,
        alias: Option<String>,
        scope: &mut Scope,
        items: &mut Vec<Item>,
    ) -> Result<()> {
        let Some(columns) = statistics(expr).filter(|_| !self.is_search) else {
            items.push(self.item(expr, name, alias, scope)?);
            return Ok(());
        };
        for (column, expr) in columns {
            let alias = alias.as_ref().map(|alias| format!("{alias}.{column}"));
            items.push(self.item(&expr, format!("{name}.{column}"), alias, scope)?);
        }
        Ok(())
    }

    fn item(
        &mut self,
        expr: &ast::Expr,
        name: String,
        alias: Option<String>,
        scope: &mut Scope,
    ) -> Result<Item> {
        let bound = self.expr(expr, scope, ExpressionContext::Output)?;
        let column = OutColumn { alias, ..out_column(name, &bound) };
        Ok(Item { column, bound })
    }

    /// Adds the columns of a source, `unmerged` without those that USING made one of several.
    fn all_of(
        &mut self,
        source: usize,
        scope: &mut Scope,
        unmerged: bool,
        items: &mut Vec<Item>,
    ) -> Result<()> {
        let Scope { sources, merged, .. } = scope;
        let Some(of) = sources.get(source) else { return Ok(()) };
        let is_merged = |name: &str| {
            unmerged && merged.iter().any(|merged| merged.name == name && merged.sources.contains(&source))
        };
        if let SourceKind::Derived(own) = &of.kind {
            // Columns of a query may share a name.
            let own = own.columns.iter().map(|column| (column.name.clone(), column.bound(&of.qualifier)));
            let own = own.filter(|(name, _)| !is_merged(name));
            items.extend(own.map(|(name, bound)| Item { column: out_column(name, &bound), bound }));
            return Ok(());
        }
        // Elements in FROM stand in the place of the field that holds them.
        let unnested: Vec<String> = sources.iter().filter_map(|other| other.unnested_path(source)).collect();
        let of = match sources.get(source) {
            Some(of) => of,
            None => return Ok(()),
        };
        if matches!(of.kind, SourceKind::Nothing) {
            return Err(SqlError::Semantic("[*] needs a FROM".to_owned()));
        }
        let shown = |name: &str| match &of.kind {
            SourceKind::Nested(nested) => format!("{}.{name}", nested.path),
            _ => name.to_owned(),
        };
        let columns = match &of.kind {
            SourceKind::Index(index) if self.flat => source::leaves(&index.snapshot),
            _ => of.column_names(),
        };
        let names: Vec<(String, String)> = columns.into_iter().map(|name| (shown(&name), name)).collect();
        for (shown, name) in names {
            if is_merged(&name) || unmerged && unnested.contains(&name) {
                continue;
            }
            let Some(bound) = source::column_within(sources, source..source + 1, &name)? else { continue };
            items.push(Item { column: out_column(shown, &bound), bound });
        }
        Ok(())
    }
}

fn out_column(name: String, bound: &Bound) -> OutColumn {
    let Bound { ty, list, element, .. } = *bound;
    OutColumn { name, alias: None, ty, list, shown: bound.shown_type(), element }
}

/// The name of an output column: a field's own, with its source in a join, or what the user wrote.
fn shown_name(expr: &ast::Expr, written: &str, scope: &Scope) -> String {
    match expr {
        ast::Expr::Identifier(ident) => ident.value.clone(),
        ast::Expr::CompoundIdentifier(parts) => {
            let path = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
            // Of elements the name is that of the field.
            if let Some(path) = scope.sources.iter().find_map(|source| source.element_path(&path)) {
                return path;
            }
            let is_plain = |source: &&source::Source| !matches!(source.kind, SourceKind::Nested(_));
            // Of several sources the name tells which.
            match scope.sources.iter().filter(is_plain).count() {
                1 => source::unqualified(&scope.sources, &path).to_owned(),
                _ => path,
            }
        }
        _ => written.to_owned(),
    }
}

/// Returns a call with another argument.
fn with_argument(call: &ast::Expr, argument: ast::Expr) -> ast::Expr {
    let mut call = call.clone();
    if let ast::Expr::Function(call) = &mut call
        && let ast::FunctionArguments::List(list) = &mut call.args
    {
        list.args = vec![ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))];
    }
    call
}

/// Returns the text of the user before an alias.
fn without_alias<'t>(written: &'t str, alias: &ast::Ident) -> &'t str {
    let quoted = alias.quote_style.map(|quote| format!("{quote}{}{quote}", alias.value));
    let before = quoted
        .as_deref()
        .and_then(|quoted| written.strip_suffix(quoted))
        .or_else(|| written.strip_suffix(alias.value.as_str()));
    let before = before.unwrap_or(written).trim_end();
    let word = before.len().checked_sub(3).and_then(|at| before.get(at..));
    match word {
        Some(word)
            if word.trim_start().eq_ignore_ascii_case("as") && word.starts_with(char::is_whitespace) =>
        {
            before.get(..before.len() - 3).unwrap_or(before).trim_end()
        }
        Some(word)
            if word.get(1..).is_some_and(|word| word.eq_ignore_ascii_case("as"))
                && word.starts_with([')', '`', '\'', '"']) =>
        {
            before.get(..before.len() - 2).unwrap_or(before).trim_end()
        }
        _ => before,
    }
}
