//! Buckets and aggregates that only a search answers, as OpenSearch's first engine calls them: `terms('field' = 'age', 'size' = 5)`,
//! `range(age, 20, 30)`, `date_histogram(…)`, `filter('name', condition)`, `missing(age)` in GROUP BY, and `topHits(…)`, `stats(age)`,
//! `extended_stats(age)`, `percentiles(age, 25, 75)` in SELECT.

use datafusion::logical_expr::{Expr, lit};
use serde_json::{Map, Value, json};
use sqlparser::ast::{self, BinaryOperator};

use super::call::{arguments, called};
use super::{Binder, Bound, ExpressionContext, Scope};
use crate::error::{Result, SqlError};
use crate::functions::search_aggregation::{SearchAggregation, SearchBuckets, SearchMetric};
use crate::renderer::{clause_json, exact_path_of};
use crate::source::SourceKind;
use crate::types::SqlType;

/// Most arguments of a call.
const MAX_ARGUMENTS: usize = 1_024;

/// An argument, with a name where it has one.
struct Argument<'e> {
    name: Option<String>,
    value: &'e ast::Expr,
}

impl Argument<'_> {
    /// Returns the value without quotes.
    fn text(&self) -> String {
        text_of(self.value)
    }

    fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    /// Returns the value as JSON: a number where it is one.
    fn json(&self) -> Value {
        let text = self.text();
        match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => json!(number),
            (_, Ok(number)) if number.is_finite() => json!(number),
            _ => json!(text),
        }
    }
}

/// Returns the text of a string, a name or a number.
fn text_of(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        ast::Expr::Identifier(ident) => ident.value.clone(),
        ast::Expr::CompoundIdentifier(parts) => {
            parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".")
        }
        other => other.to_string(),
    }
}

impl Binder<'_> {
    /// Binds a call that only a search answers; `None` where it is another.
    pub(super) fn search_aggregation(
        &mut self,
        name: &str,
        call: &ast::Function,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Option<Bound>> {
        if let Some(bound) = self.nested_aggregate(name, call, scope, place)? {
            return Ok(Some(bound));
        }
        let groups = place == ExpressionContext::Aliased;
        let is_buckets = groups
            && matches!(
                name,
                "terms" | "histogram" | "date_histogram" | "date_range" | "range" | "filter" | "missing"
            )
            || self.is_search
                && (groups || place == ExpressionContext::Output && scope.groups_elements())
                && matches!(name, "nested" | "reverse_nested");
        let is_metric = place != ExpressionContext::Row
            && matches!(name, "tophits" | "stats" | "extended_stats" | "percentiles");
        if !is_buckets && !is_metric {
            return Ok(None);
        }
        let exprs = arguments(call)?;
        if exprs.len() > MAX_ARGUMENTS {
            return Err(SqlError::TooLarge(format!("{name} has more than {MAX_ARGUMENTS} arguments")));
        }
        let args: Vec<Argument<'_>> = exprs.into_iter().map(argument).collect();
        // Without names it is the function of numbers.
        if name == "histogram" && args.iter().all(|arg| arg.name.is_none()) {
            return Ok(None);
        }
        let alias = args.iter().find(|arg| arg.is_named("alias")).map(Argument::text);
        let written = args.iter().map(|arg| match &arg.name {
            Some(name) => format!("{name}={}", arg.text()),
            None => arg.text(),
        });
        let mut shown = alias.unwrap_or_else(|| {
            let parts = written.collect::<Vec<_>>().join(",");
            format!("{}({parts})", call.name)
        });
        let mut wrappers = option_wrappers(&args);
        let mut columns = Vec::new();
        let mut field = |binder: &mut Self, value: &ast::Expr, scope: &mut Scope| {
            let (path, column) = binder.aggregated_field(value, scope)?;
            columns.push(column.expr);
            Ok::<_, SqlError>(json!(path))
        };
        let body = match name {
            "terms" => {
                let options = self.options(name, &args, scope, &mut field)?;
                json!({"terms": options})
            }
            "histogram" => json!({"histogram": self.options(name, &args, scope, &mut field)?}),
            "date_histogram" => json!({"date_histogram": self.options(name, &args, scope, &mut field)?}),
            "date_range" => {
                let mut options = self.options(name, &args, scope, &mut field)?;
                let bounds: Vec<String> = unnamed(&args).map(Argument::text).collect();
                let ranges = bounds.windows(2).filter_map(|pair| match pair {
                    [from, to] => Some(json!({"from": from, "to": to})),
                    _ => None,
                });
                let open = args.iter().filter(|arg| arg.is_named("from") || arg.is_named("to"));
                let open = open.filter_map(|arg| Some(json!({arg.name.as_deref()?: arg.text()})));
                options.insert("ranges".to_owned(), ranges.chain(open).collect());
                json!({"date_range": options})
            }
            "range" => {
                let mut bounds = unnamed(&args);
                let of = bounds.next().ok_or_else(|| usage(name, "a field and the bounds of its ranges"))?;
                let of = field(self, of.value, scope)?;
                let bounds: Vec<Value> = bounds.map(Argument::json).collect();
                if bounds.len() < 2 || bounds.iter().any(|bound| !bound.is_number()) {
                    return Err(usage(name, "a field and two or more numbers"));
                }
                let ranges = bounds.windows(2).map(|pair| json!({"from": pair.first(), "to": pair.last()}));
                json!({"range": {"field": of, "ranges": ranges.collect::<Vec<_>>()}})
            }
            "filter" => {
                let (label, condition) = match args.as_slice() {
                    [label, condition] if condition.name.is_some() || !is_text(condition.value) => {
                        (Some(label.text()), condition)
                    }
                    [condition] => (None, condition),
                    _ => return Err(usage(name, "a name and a condition")),
                };
                shown = format!("{}@FILTER", label.unwrap_or(shown));
                let bound = self.filter_condition(condition, &arguments(call)?, scope)?;
                columns.push(bound.0);
                json!({"filter": bound.1})
            }
            "missing" => match args.as_slice() {
                [of] => json!({"missing": {"field": field(self, of.value, scope)?}}),
                _ => return Err(usage(name, "a field")),
            },
            "nested" | "reverse_nested" => {
                let (path, column, around) = self.nested_field(name, &args, scope)?;
                columns.push(column);
                (shown, wrappers) = (path.clone(), around);
                json!({"terms": {"field": path}})
            }
            "tophits" => self.top_hits(&args, scope, &mut field)?,
            "percentiles" => {
                let mut given = unnamed(&args);
                let of = given.next().ok_or_else(|| usage(name, "a field and percentages"))?;
                let of = field(self, of.value, scope)?;
                let percents: Vec<Value> = given.map(Argument::json).collect();
                if percents.iter().any(|percent| !percent.is_number()) {
                    return Err(usage(name, "a field and percentages"));
                }
                let mut options = json!({"field": of});
                if !percents.is_empty() {
                    options["percents"] = json!(percents);
                }
                json!({"percentiles": options})
            }
            _ => match args.as_slice() {
                [of] => json!({name: {"field": field(self, of.value, scope)?}}),
                _ => return Err(usage(name, "a field")),
            },
        };
        let columns = match columns.is_empty() {
            true => vec![lit(true)],
            false => columns,
        };
        let expr = match is_buckets {
            true => SearchBuckets::call(SearchAggregation::new(shown, body, wrappers), columns),
            false => SearchMetric::call(SearchAggregation::new(shown, body, wrappers), columns),
        };
        Ok(Some(Bound::new(expr, SqlType::Keyword)))
    }

    /// Binds an aggregate of fields of inner documents, `sum(nested(a.b))` and `max(reverse_nested(c))`.
    fn nested_aggregate(
        &mut self,
        name: &str,
        call: &ast::Function,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Option<Bound>> {
        let kind = match name {
            "count" => "value_count",
            "sum" | "avg" | "min" | "max" => name,
            _ => return Ok(None),
        };
        let ast::FunctionArguments::List(list) = &call.args else { return Ok(None) };
        let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Function(inner)))] =
            list.args.as_slice()
        else {
            return Ok(None);
        };
        let of = called(inner);
        if !self.is_search
            || place == ExpressionContext::Row
            || !matches!(of.as_str(), "nested" | "reverse_nested")
        {
            return Ok(None);
        }
        let exprs = arguments(inner)?;
        let args: Vec<Argument<'_>> = exprs.into_iter().map(argument).collect();
        let (path, column, wrappers) = self.nested_field(&of, &args, scope)?;
        let aggregation = SearchAggregation::new(call.to_string(), json!({kind: {"field": path}}), wrappers);
        let expr = SearchMetric::call(aggregation, vec![column]);
        Ok(Some(Bound::new(expr, SqlType::Keyword)))
    }

    /// Finds the field of `nested(field)`, `nested(field, path)`, `reverse_nested(field)` or `reverse_nested(field, path)`: its path,
    /// its column, and the aggregations on the way to it.
    fn nested_field(
        &mut self,
        name: &str,
        args: &[Argument<'_>],
        scope: &mut Scope,
    ) -> Result<(String, Expr, Wrappers)> {
        let (of, path) = match args {
            [of] => (of, None),
            [of, path] => (of, Some(path.text())),
            _ => return Err(usage(name, "a field and a path")),
        };
        let label = of.text();
        let (field, column) = self.aggregated_field(of.value, scope)?;
        let path =
            match name {
                "nested" => {
                    let path = path.or_else(|| nested_path(&column, scope));
                    Some(path.ok_or_else(|| {
                        SqlError::Semantic(format!("[{label}] is no field of inner documents"))
                    })?)
                }
                _ => path,
            };
        let wrappers = match name {
            "nested" => nested_wrappers(&label, path.as_deref().unwrap_or_default()),
            _ => reverse_wrappers(&label, path.as_deref().unwrap_or_default()),
        };
        Ok((field, column.expr, wrappers))
    }

    /// Writes a comparison of a field of inner documents; `None` for another condition.
    fn nested_condition(&mut self, expr: &ast::Expr, scope: &mut Scope) -> Result<Option<(Expr, Value)>> {
        let ast::Expr::BinaryOp { left, op, right } = expr else { return Ok(None) };
        if !matches!(left.as_ref(), ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)) {
            return Ok(None);
        }
        let (path, column) = self.aggregated_field(left, scope)?;
        if nested_path(&column, scope).is_none() {
            return Ok(None);
        }
        let value = Argument { name: None, value: right }.json();
        let clause = match op {
            BinaryOperator::Eq => json!({"term": {path: {"value": value}}}),
            BinaryOperator::Gt => json!({"range": {path: {"gt": value}}}),
            BinaryOperator::GtEq => json!({"range": {path: {"gte": value}}}),
            BinaryOperator::Lt => json!({"range": {path: {"lt": value}}}),
            BinaryOperator::LtEq => json!({"range": {path: {"lte": value}}}),
            _ => return Ok(None),
        };
        Ok(Some((column.expr, clause)))
    }

    /// Writes the options of buckets.
    fn options(
        &mut self,
        name: &str,
        args: &[Argument<'_>],
        scope: &mut Scope,
        field: &mut impl FnMut(&mut Self, &ast::Expr, &mut Scope) -> Result<Value>,
    ) -> Result<Map<String, Value>> {
        let mut options = Map::new();
        for arg in args {
            let Some(option) = arg.name.as_deref() else {
                if name == "date_range" {
                    continue;
                }
                return Err(usage(name, "options as 'name' = value"));
            };
            match option {
                "field" => drop(options.insert("field".to_owned(), field(self, arg.value, scope)?)),
                "alias" => {}
                "from" | "to" if name == "date_range" => {}
                "order" => {
                    let text = arg.text().to_ascii_lowercase();
                    let (by, direction) = match text.split_once('_') {
                        Some((by, direction)) => (format!("_{by}"), direction.to_owned()),
                        None => ("_key".to_owned(), text),
                    };
                    options.insert("order".to_owned(), json!({by: direction}));
                }
                "interval" if name == "date_histogram" => {
                    let text = arg.text();
                    let calendar = !text.starts_with(|letter: char| letter.is_ascii_digit())
                        || matches!(text.as_str(), "1m" | "1h" | "1d" | "1w" | "1M" | "1q" | "1y");
                    let member = if calendar { "calendar_interval" } else { "fixed_interval" };
                    options.insert(member.to_owned(), json!(text));
                }
                "extended_bounds" => {
                    let text = arg.text();
                    let (min, max) = text
                        .split_once(':')
                        .ok_or_else(|| usage(name, "the option extended_bounds as 'least:greatest'"))?;
                    let number =
                        |bound: &str| bound.parse::<f64>().map_or(json!(bound), |number| json!(number));
                    options.insert(option.to_owned(), json!({"min": number(min), "max": number(max)}));
                }
                "nested" | "reverse_nested" => {}
                "children" => {
                    return Err(SqlError::Unsupported(format!(
                        "the option [{option}] of {name} is not supported"
                    )));
                }
                other => drop(options.insert(other.to_owned(), arg.json())),
            }
        }
        if !options.contains_key("field") {
            return Err(usage(name, "the option 'field'"));
        }
        Ok(options)
    }

    /// Writes `topHits('size' = 3, age = 'desc', 'include' = 'age')`.
    fn top_hits(
        &mut self,
        args: &[Argument<'_>],
        scope: &mut Scope,
        field: &mut impl FnMut(&mut Self, &ast::Expr, &mut Scope) -> Result<Value>,
    ) -> Result<Value> {
        let mut options = Map::new();
        let (mut sorts, mut includes, mut excludes) = (Vec::new(), Vec::new(), Vec::new());
        let list = |arg: &Argument<'_>| -> Vec<String> {
            arg.text().split(',').map(|name| name.trim().to_owned()).collect()
        };
        for arg in args {
            match arg.name.as_deref() {
                Some(option @ ("size" | "from")) => drop(options.insert(option.to_owned(), arg.json())),
                Some("include") => includes.extend(list(arg)),
                Some("exclude") => excludes.extend(list(arg)),
                Some("alias") => {}
                Some(path) => {
                    let of = ast::Expr::Identifier(ast::Ident::new(path));
                    let of = field(self, &of, scope)?;
                    let of = of.as_str().unwrap_or_default();
                    sorts.push(json!({of: {"order": arg.text().to_ascii_lowercase()}}));
                }
                None => return Err(usage("topHits", "options as 'name' = value")),
            }
        }
        if !sorts.is_empty() {
            options.insert("sort".to_owned(), json!(sorts));
        }
        if !includes.is_empty() || !excludes.is_empty() {
            options.insert("_source".to_owned(), json!({"includes": includes, "excludes": excludes}));
        }
        Ok(json!({"top_hits": options}))
    }

    /// Binds the condition of a filter; returns its expression, and its clause.
    fn filter_condition(
        &mut self,
        condition: &Argument<'_>,
        exprs: &[&ast::Expr],
        scope: &mut Scope,
    ) -> Result<(Expr, Value)> {
        // An argument with a name is a comparison.
        let expr = exprs.last().copied().unwrap_or(condition.value);
        if let Some(nested) = self.nested_condition(expr, scope)? {
            return Ok(nested);
        }
        let bound = self.expr(expr, scope, ExpressionContext::Row)?;
        let bound = self.truth(bound)?;
        match &bound.pushed {
            Some(pushed) => Ok((bound.expr.clone(), clause_json(&pushed.truth))),
            None => Err(SqlError::Unsupported(format!("the condition [{expr}] of filter is not supported"))),
        }
    }

    /// Finds the field that an aggregation reads, and its column.
    fn aggregated_field(&mut self, value: &ast::Expr, scope: &mut Scope) -> Result<(String, Bound)> {
        let path = text_of(value);
        let bound = match scope.column(&path)? {
            None => scope.column_behind_alias(&path)?,
            bound => bound,
        };
        let bound = bound.ok_or_else(|| SqlError::unknown_field(&path))?;
        let (source, path) = bound.field.clone().ok_or_else(|| SqlError::unknown_field(&path))?;
        let path = match scope.sources.get(source).map(|source| &source.kind) {
            Some(SourceKind::Index(index)) => exact_path_of(&index.snapshot, &path),
            _ => path,
        };
        Ok((path, bound))
    }
}

/// Aggregations around another, by name, the outermost first.
type Wrappers = Vec<(String, Value)>;

/// Returns the path of the inner documents that a field is of.
fn nested_path(column: &Bound, scope: &Scope) -> Option<String> {
    let (source, path) = column.field.as_ref()?;
    let SourceKind::Index(index) = &scope.sources.get(*source)?.kind else { return None };
    let mut paths = index.snapshot.indices.iter().filter_map(|index| index.mapping.nested_path(path));
    paths.next().map(ToString::to_string)
}

fn nested_wrappers(label: &str, path: &str) -> Wrappers {
    vec![(format!("{label}@NESTED"), json!({"nested": {"path": path}}))]
}

/// Returns the way back to the outer document, and to inner ones of another path where `~` is before it.
fn reverse_wrappers(label: &str, path: &str) -> Wrappers {
    let reversed = json!({"reverse_nested": {}});
    match (path.strip_prefix('~'), path.is_empty()) {
        (Some(path), _) => {
            let inner = json!({"nested": {"path": path}});
            vec![(format!("{label}@NESTED_REVERSED"), reversed), (format!("{label}@NESTED"), inner)]
        }
        (None, true) => vec![(format!("{label}@NESTED"), reversed)],
        (None, false) => vec![(format!("{label}@NESTED"), json!({"reverse_nested": {"path": path}}))],
    }
}

/// Returns the way that the options `nested` and `reverse_nested` name.
fn option_wrappers(args: &[Argument<'_>]) -> Wrappers {
    let wrappers = args.iter().find_map(|arg| {
        let path = arg.text();
        match arg.name.as_deref() {
            Some("nested") => Some(nested_wrappers(&path, &path)),
            Some("reverse_nested") => Some(reverse_wrappers(&path, &path)),
            _ => None,
        }
    });
    wrappers.unwrap_or_default()
}

/// Lists the arguments without a name.
fn unnamed<'a, 'e>(args: &'a [Argument<'e>]) -> impl Iterator<Item = &'a Argument<'e>> {
    args.iter().filter(|arg| arg.name.is_none())
}

/// Reads `name = value`.
fn argument(expr: &ast::Expr) -> Argument<'_> {
    match expr {
        ast::Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            Argument { name: Some(text_of(left)), value: right }
        }
        value => Argument { name: None, value },
    }
}

fn is_text(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Value(_))
}

fn usage(name: &str, what: &str) -> SqlError {
    SqlError::Semantic(format!("{name} takes {what}"))
}
