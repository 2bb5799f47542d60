//! The format `json`: a statement as a search, whose answer is shown as it is.
//!
//! What a search can say of a statement is taken from its syntax tree beside the plan, which has checked it: the
//! conditions are those that the index answers, columns are parts of the source, groups are `terms` with the
//! names of their fields, aggregates have the names that the statement gives them, as OpenSearch's first engine
//! has it. A statement that is more than that is refused.

use millrace_matching::table::TableSnapshot;
use serde_json::{Map, Value, json};
use sqlparser::ast;

use super::bind::PlannedQuery;
use super::error::{Result, SqlError};
use super::statement::Names;

/// Groups that are answered where the statement does not say.
const DEFAULT_GROUPS: usize = 200;

/// A statement as a search.
#[derive(Clone, Debug)]
pub struct NativeSearch {
    /// The index expression.
    pub index: String,
    /// The body.
    pub body: Value,
}

/// Makes the search of a statement.
///
/// # Errors
/// A statement that no search is.
pub(super) fn search(
    query: &ast::Query,
    names: &Names,
    planned: &PlannedQuery,
    pushed: &[Value],
    snapshot: &TableSnapshot,
    index: &str,
) -> Result<NativeSearch> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return refuse("a union") };
    let one = matches!(select.from.as_slice(), [from] if from.joins.is_empty()
        && matches!(from.relation, ast::TableFactor::Table { .. }));
    if !one {
        return refuse("more than one index expression in FROM");
    }
    if planned.residual {
        return refuse("a condition that the index cannot answer");
    }
    if select.having.is_some() {
        return refuse("HAVING");
    }
    let translator = Translator { select, names, snapshot, qualifiers: qualifiers(select, index) };
    let (from, limit) = planned.cut;
    let mut body = Map::new();
    if let Some(condition) = pushed.first() {
        body.insert("query".into(), condition.clone());
    }
    body.insert("track_total_hits".into(), json!(true));
    let grouped = match &select.group_by {
        ast::GroupByExpr::Expressions(exprs, _) => exprs.as_slice(),
        ast::GroupByExpr::All(_) => return refuse("GROUP BY ALL"),
    };
    let aggregates = translator.aggregates()?;
    if grouped.is_empty() && aggregates.is_empty() && select.distinct.is_none() {
        body.insert("from".into(), json!(from));
        body.insert("size".into(), json!(limit.unwrap_or(10_000)));
        if let Some(fields) = translator.fields()? {
            body.insert("_source".into(), json!({"includes": fields, "excludes": []}));
        }
        let sorts = translator.sorts(query)?;
        if !sorts.is_empty() {
            body.insert("sort".into(), json!(sorts));
        }
    } else {
        body.insert("size".into(), json!(0));
        let keys = match &select.distinct {
            None => grouped.iter().map(|key| translator.group(key)).collect::<Result<Vec<_>>>()?,
            Some(_) if grouped.is_empty() && aggregates.is_empty() => {
                translator.fields()?.map_or_else(|| refuse("DISTINCT *"), Ok)?
            }
            Some(_) => return refuse("DISTINCT of groups"),
        };
        let size = limit.unwrap_or(DEFAULT_GROUPS);
        let order = translator.order(query, &keys)?;
        let mut inner = aggregates;
        for (at, key) in keys.iter().enumerate().rev() {
            let mut terms = json!({"field": translator.exact(key), "size": size});
            if at == 0
                && let Some(order) = &order
            {
                terms["order"] = order.clone();
            }
            let mut group = json!({"terms": terms});
            if !inner.is_empty() {
                group["aggs"] = Value::Object(inner);
            }
            inner = Map::new();
            inner.insert(key.clone(), group);
        }
        body.insert("aggs".into(), Value::Object(inner));
    }
    Ok(NativeSearch { index: index.to_owned(), body: Value::Object(body) })
}

fn refuse<T>(what: &str) -> Result<T> {
    Err(SqlError::Unsupported(format!(
        "{what} cannot be shown in the format [json]; ask for jdbc, csv or raw"
    )))
}

/// The names by which columns may be qualified.
fn qualifiers(select: &ast::Select, index: &str) -> Vec<String> {
    let mut names = vec![index.to_owned()];
    if let Some(ast::TableFactor::Table { alias: Some(alias), .. }) =
        select.from.first().map(|from| &from.relation)
    {
        names.push(alias.name.value.clone());
    }
    names
}

struct Translator<'a> {
    select: &'a ast::Select,
    names: &'a Names,
    snapshot: &'a TableSnapshot,
    qualifiers: Vec<String>,
}

impl Translator<'_> {
    /// Returns the path that an expression is.
    fn path(&self, expr: &ast::Expr) -> Option<String> {
        let path = match expr {
            ast::Expr::Identifier(ident) => ident.value.clone(),
            ast::Expr::CompoundIdentifier(parts) => {
                parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".")
            }
            ast::Expr::Nested(inner) => return self.path(inner),
            _ => return None,
        };
        let own = self.qualifiers.iter().find_map(|name| path.strip_prefix(name.as_str())?.strip_prefix('.'));
        Some(own.map_or(path.clone(), str::to_owned))
    }

    /// Returns the field that has a path's whole values.
    fn exact(&self, path: &str) -> String {
        let keyword = format!("{path}.keyword");
        let text = |index: &millrace_matching::table::TableIndex| {
            use millrace_mapping::FieldType;
            let own = index.mapping.field(path);
            own.is_some_and(|field| {
                matches!(
                    field.field_type,
                    FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_)
                )
            }) && index.mapping.field(&keyword).is_some()
        };
        if self.snapshot.indices.iter().any(text) { keyword } else { path.to_owned() }
    }

    /// Lists the items with the names of their columns: the alias, or what is written.
    fn items(&self) -> Result<Vec<(String, &ast::Expr)>> {
        let place = self.select.select_token.0.span.start;
        let written = self.names.items(place);
        let mut items = Vec::new();
        for (at, item) in self.select.projection.iter().enumerate() {
            items.push(match item {
                ast::SelectItem::UnnamedExpr(expr) => {
                    (written.get(at).copied().unwrap_or_default().trim().to_owned(), expr)
                }
                ast::SelectItem::ExprWithAlias { expr, alias } => (alias.value.clone(), expr),
                _ => return Ok(Vec::new()),
            });
        }
        Ok(items)
    }

    /// Lists the fields of SELECT; `None` stands for all.
    fn fields(&self) -> Result<Option<Vec<String>>> {
        let items = self.items()?;
        if items.is_empty() {
            return Ok(None);
        }
        let path = |(_, expr): &(String, &ast::Expr)| match self.path(expr) {
            Some(path) => Ok(path),
            None => refuse("an expression in SELECT"),
        };
        items.iter().map(path).collect::<Result<_>>().map(Some)
    }

    /// Makes the aggregations of the aggregates in SELECT, by their names.
    fn aggregates(&self) -> Result<Map<String, Value>> {
        let mut found = Map::new();
        for (name, expr) in self.items()? {
            let ast::Expr::Function(call) = expr else { continue };
            found.insert(name, self.aggregate(call)?);
        }
        Ok(found)
    }

    fn aggregate(&self, call: &ast::Function) -> Result<Value> {
        let ast::FunctionArguments::List(list) = &call.args else { return refuse("this function") };
        let [ast::FunctionArg::Unnamed(argument)] = list.args.as_slice() else {
            return refuse("a function of several arguments");
        };
        let distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        let name = call.name.to_string().to_ascii_lowercase();
        let path = match argument {
            ast::FunctionArgExpr::Expr(expr) => self.path(expr),
            _ => None,
        };
        let kind = match (name.as_str(), &path, distinct) {
            ("count", None, false) => return Ok(json!({"value_count": {"field": "_index"}})),
            ("count", Some(_), false) => "value_count",
            ("count", Some(_), true) => "cardinality",
            ("avg" | "max" | "min" | "sum", Some(_), false) => name.as_str(),
            _ => return refuse("this function"),
        };
        let field = self.exact(&path.unwrap_or_default());
        let mut aggregation = Map::new();
        aggregation.insert(kind.to_owned(), json!({"field": field}));
        Ok(Value::Object(aggregation))
    }

    /// Returns the field of a key of GROUP BY.
    fn group(&self, key: &ast::Expr) -> Result<String> {
        let items = self.items()?;
        let ordinal = key.to_string().parse::<usize>().ok();
        let item = ordinal.and_then(|number| items.get(number.checked_sub(1)?));
        let path = self.path(item.map_or(key, |(_, expr)| expr));
        let Some(path) = path else { return refuse("an expression in GROUP BY") };
        let aliased = items.iter().find(|(name, expr)| *name == path && self.path(expr).is_some());
        Ok(aliased.and_then(|(_, expr)| self.path(expr)).unwrap_or(path))
    }

    fn keys<'q>(&self, query: &'q ast::Query) -> Result<&'q [ast::OrderByExpr]> {
        match query.order_by.as_ref().map(|order| &order.kind) {
            None => Ok(&[]),
            Some(ast::OrderByKind::Expressions(keys)) => Ok(keys),
            Some(_) => refuse("ORDER BY ALL"),
        }
    }

    /// Makes the sort of rows.
    fn sorts(&self, query: &ast::Query) -> Result<Vec<Value>> {
        let key = |key: &ast::OrderByExpr| {
            let Some(path) = self.path(&key.expr) else { return refuse("an expression in ORDER BY") };
            let order = if key.options.asc.unwrap_or(true) { "asc" } else { "desc" };
            let field = if path == "_score" { path } else { self.exact(&path) };
            let mut sort = Map::new();
            sort.insert(field, json!({"order": order}));
            Ok(Value::Object(sort))
        };
        self.keys(query)?.iter().map(key).collect()
    }

    /// Makes the order of the outermost groups.
    fn order(&self, query: &ast::Query, keys: &[String]) -> Result<Option<Value>> {
        let items = self.items()?;
        let mut orders = Vec::new();
        for key in self.keys(query)? {
            let direction = if key.options.asc.unwrap_or(true) { "asc" } else { "desc" };
            let text = key.expr.to_string();
            let by_key = self.path(&key.expr).is_some_and(|path| keys.first() == Some(&path));
            let named = items.iter().find(|(name, expr)| {
                (*name == text || expr.to_string() == text) && matches!(expr, ast::Expr::Function(_))
            });
            let by = match (by_key, named) {
                (true, _) => "_key".to_owned(),
                (false, Some((name, _))) => name.clone(),
                _ => return refuse("this ORDER BY of groups"),
            };
            let mut order = Map::new();
            order.insert(by, json!(direction));
            orders.push(Value::Object(order));
        }
        Ok((!orders.is_empty()).then(|| json!(orders)))
    }
}
