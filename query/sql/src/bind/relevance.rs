//! Functions that the inverted index answers: `match` and its like. Their arguments become a clause of the
//! query language.

use serde_json::{Map, Value, json};
use sqlparser::ast::{self, BinaryOperator};

use super::call::{arguments, called};
use super::{Binder, Bound, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::push::{Clause, PushedPredicate};
use crate::source::SourceKind;
use crate::types::SqlType;

/// Arguments of a relevance function before its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RelevanceSignature {
    /// A field and a text.
    Field,
    /// A list of fields and a text.
    Fields,
    /// A text, which may name fields itself.
    Text,
    /// A relevance function and a factor.
    Score,
}

/// Finds a relevance function: its clause, and what it takes.
fn clause(name: &str) -> Option<(&'static str, RelevanceSignature)> {
    Some(match name {
        "match" | "matchquery" | "match_query" => ("match", RelevanceSignature::Field),
        "match_phrase" | "matchphrase" | "matchphrasequery" => ("match_phrase", RelevanceSignature::Field),
        "match_phrase_prefix" => ("match_phrase_prefix", RelevanceSignature::Field),
        "match_bool_prefix" => ("match_bool_prefix", RelevanceSignature::Field),
        "wildcard_query" | "wildcardquery" => ("wildcard", RelevanceSignature::Field),
        "multi_match" | "multimatch" | "multimatchquery" => ("multi_match", RelevanceSignature::Fields),
        "simple_query_string" => ("simple_query_string", RelevanceSignature::Fields),
        "query_string" => ("query_string", RelevanceSignature::Fields),
        "query" => ("query_string", RelevanceSignature::Text),
        "score" | "scorequery" | "score_query" => ("", RelevanceSignature::Score),
        _ => return None,
    })
}

impl Binder<'_> {
    /// Binds a call of a relevance function; `None` where it is another.
    pub(super) fn relevance(
        &mut self,
        name: &str,
        call: &ast::Function,
        scope: &mut Scope,
    ) -> Result<Option<Bound>> {
        let Some((clause, form)) = clause(name) else { return Ok(None) };
        let args = self.spelt(&arguments(call)?)?;
        let args: Vec<&ast::Expr> = args.iter().collect();
        if form == RelevanceSignature::Score {
            return self.scored(&args, scope).map(Some);
        }
        let (body, source) = match form {
            RelevanceSignature::Field => {
                let (field, text, options) = match args.as_slice() {
                    [field, text, options @ ..] if option_of(field).is_none() => (field, text, options),
                    _ => return Err(usage(name, "a field and a text")),
                };
                let (source, path) = self.searched(field, scope)?;
                let mut body = options_of(name, options)?;
                let member = if clause == "wildcard" { "value" } else { "query" };
                let text = string(text).ok_or_else(|| usage(name, "a field and a text"))?;
                let text = if clause == "wildcard" { crate::push::wildcard(&text, true) } else { text };
                body.insert(member.to_owned(), json!(text));
                (json!({clause: {path: body}}), source)
            }
            RelevanceSignature::Fields => {
                let (fields, text, options) = match args.as_slice() {
                    // Without fields, all are searched.
                    [text, options @ ..]
                        if string(text).is_some() && options.iter().all(|own| option_of(own).is_some()) =>
                    {
                        (Vec::new(), string(text), options)
                    }
                    [fields, text, options @ ..] if option_of(fields).is_none() => {
                        (weighted(fields)?, string(text), options)
                    }
                    options => (named_fields(options), named(options, "query"), options),
                };
                let text = text.ok_or_else(|| usage(name, "fields and a text"))?;
                let mut body = options_of(name, options)?;
                body.insert("query".to_owned(), json!(text));
                if !fields.is_empty() {
                    body.insert("fields".to_owned(), json!(fields));
                }
                (json!({clause: body}), self.only_index(scope)?)
            }
            _ => {
                let (text, options) = match args.as_slice() {
                    [text, options @ ..] => (string(text), options),
                    [] => (None, [].as_slice()),
                };
                let text = text.ok_or_else(|| usage(name, "a text"))?;
                let mut body = options_of(name, options)?;
                body.insert("query".to_owned(), json!(text));
                (json!({clause: body}), self.only_index(scope)?)
            }
        };
        answered(scope, source, Clause::Scored(body, 1.0)).map(Some)
    }

    /// Binds `field = match_query('text')`.
    pub(super) fn relevance_of_field(
        &mut self,
        field: &ast::Expr,
        call: &ast::Function,
        scope: &mut Scope,
    ) -> Result<Option<Bound>> {
        let name = called(call);
        if matches!(name.as_str(), "term" | "terms" | "in_terms") {
            return self.terms_of_field(field, call, scope).map(Some);
        }
        let Some((clause, form)) = clause(&name) else { return Ok(None) };
        let args = self.spelt(&arguments(call)?)?;
        let [text] = args.as_slice() else { return Ok(None) };
        let Some(text) = string(text) else { return Ok(None) };
        let (source, path) = self.searched(field, scope)?;
        let body = match (form, clause) {
            (RelevanceSignature::Field, "wildcard") => {
                json!({"wildcard": {path: {"value": crate::push::wildcard(&text, true)}}})
            }
            (RelevanceSignature::Field, _) => json!({clause: {path: {"query": text}}}),
            (RelevanceSignature::Fields, _) => json!({clause: {"query": text, "fields": [path]}}),
            _ => return Ok(None),
        };
        answered(scope, source, Clause::Scored(body, 1.0)).map(Some)
    }

    /// Binds `field = term(value)` and `field = in_terms(value, …)`: terms of the index, which no analyzer changes.
    fn terms_of_field(
        &mut self,
        field: &ast::Expr,
        call: &ast::Function,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let name = called(call);
        let args = self.spelt(&arguments(call)?)?;
        let value = |expr: &ast::Expr| match number(expr) {
            Some(_) => string(expr).and_then(|text| serde_json::from_str::<Value>(&text).ok()),
            None => string(expr).map(Value::String),
        };
        let values = args.iter().map(value).collect::<Option<Vec<Value>>>();
        let values = values.filter(|values| !values.is_empty() && (name != "term" || values.len() == 1));
        let values = values.ok_or_else(|| SqlError::Semantic(format!("{name} takes terms of the field")))?;
        let (source, path) = self.searched(field, scope)?;
        answered(scope, source, Clause::Scored(json!({"terms": {path: values}}), 1.0))
    }

    /// Binds `score(relevance function, factor)`.
    fn scored(&mut self, args: &[&ast::Expr], scope: &mut Scope) -> Result<Bound> {
        let (inner, factor) = match args {
            [inner] => (inner, 1.0),
            [inner, factor] => (inner, number(factor).ok_or_else(|| usage("score", "a factor"))?),
            _ => return Err(usage("score", "a relevance function and a factor")),
        };
        let ast::Expr::Function(call) = inner else {
            return Err(usage("score", "a relevance function and a factor"));
        };
        let bound = self.relevance(&called(call), call, scope)?;
        match bound.and_then(|bound| bound.pushed).map(|pushed| (pushed.source, pushed.truth)) {
            Some((source, Clause::Scored(body, boost))) => {
                answered(scope, source, Clause::Scored(body, boost * factor as f32))
            }
            _ => Err(usage("score", "a relevance function and a factor")),
        }
    }

    /// Finds the field that a relevance function searches.
    pub(super) fn searched(&mut self, field: &ast::Expr, scope: &mut Scope) -> Result<(usize, String)> {
        let path = match field {
            ast::Expr::Identifier(ident) => ident.value.clone(),
            ast::Expr::CompoundIdentifier(parts) => {
                parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".")
            }
            other => string(other)
                .ok_or_else(|| SqlError::Semantic(format!("[{other}] is no field that can be searched")))?,
        };
        let bound = match crate::source::resolve(&mut scope.sources, &path)? {
            None => crate::source::resolve_behind_alias(&mut scope.sources, &path)?,
            bound => bound,
        };
        bound.and_then(|bound| bound.field).ok_or_else(|| SqlError::unknown_field(&path))
    }

    /// Finds the indices that a function without a field of its own searches.
    fn only_index(&self, scope: &Scope) -> Result<usize> {
        let mut indices = scope
            .sources
            .iter()
            .enumerate()
            .filter(|(_, source)| matches!(source.kind, SourceKind::Index(_)));
        match (indices.next(), indices.next()) {
            (Some((source, _)), None) => Ok(source),
            _ => unsupported("a search over fields of more than one source"),
        }
    }
}

/// A condition that the index alone answers.
pub(super) fn answered(scope: &mut Scope, source: usize, clause: Clause) -> Result<Bound> {
    // A clause that no search has is refused by now.
    clause.expr(false)?;
    let Some(expr) = scope.sources.get_mut(source).and_then(|source| source.mark(&clause)) else {
        return unsupported("a search of a source that is no index");
    };
    Ok(Bound { pushed: Some(PushedPredicate::certain(source, clause)), ..Bound::new(expr, SqlType::Boolean) })
}

fn usage(name: &str, what: &str) -> SqlError {
    SqlError::Semantic(format!("{name} takes {what}, then options as name = value"))
}

/// Reads `name = value`.
pub(super) fn option_of(expr: &ast::Expr) -> Option<(String, &ast::Expr)> {
    match expr {
        ast::Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let name = match left.as_ref() {
                ast::Expr::Identifier(ident) => ident.value.clone(),
                other => string(other)?,
            };
            Some((name.to_ascii_lowercase(), right))
        }
        _ => None,
    }
}

fn named(options: &[&ast::Expr], wanted: &str) -> Option<String> {
    options
        .iter()
        .filter_map(|expr| option_of(expr))
        .find(|(name, _)| name == wanted)
        .and_then(|(_, value)| string(value))
}

/// Reads `fields = 'a,b^2'`.
fn named_fields(options: &[&ast::Expr]) -> Vec<String> {
    let list = named(options, "fields").unwrap_or_default();
    list.split(',').map(str::trim).filter(|field| !field.is_empty()).map(str::to_owned).collect()
}

/// Reads `['a' ^ 2, 'b']`.
fn weighted(fields: &ast::Expr) -> Result<Vec<String>> {
    let ast::Expr::Array(array) = fields else {
        return Ok(vec![
            field_name(fields).ok_or_else(|| SqlError::Syntax(format!("[{fields}] is no list of fields")))?,
        ]);
    };
    array
        .elem
        .iter()
        .map(|element| match element {
            ast::Expr::BinaryOp { left, op: BinaryOperator::BitwiseXor, right } => {
                field_name(left).zip(number(right)).map(|(name, weight)| format!("{name}^{weight}"))
            }
            other => field_name(other),
        })
        .map(|field| field.ok_or_else(|| SqlError::Syntax(format!("[{fields}] is no list of fields"))))
        .collect()
}

fn field_name(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Identifier(ident) => Some(ident.value.clone()),
        ast::Expr::CompoundIdentifier(parts) => {
            Some(parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join("."))
        }
        other => string(other),
    }
}

/// Reads options into the members of a clause.
fn options_of(name: &str, options: &[&ast::Expr]) -> Result<Map<String, Value>> {
    let mut members = Map::new();
    for option in options {
        let Some((key, value)) = option_of(option) else {
            return Err(SqlError::Syntax(format!("[{option}] is no option of {name}")));
        };
        if matches!(key.as_str(), "query" | "fields") {
            continue;
        }
        let value = match value {
            ast::Expr::Value(given) => match &given.value {
                ast::Value::Number(text, _) => text.parse().map_or(json!(text), Value::Number),
                ast::Value::Boolean(flag) => json!(flag),
                _ => json!(string(value)),
            },
            ast::Expr::Identifier(ident) => json!(ident.value),
            other => match number(other) {
                Some(number) => json!(number),
                None => return Err(SqlError::Syntax(format!("[{other}] is no value of the option {key}"))),
            },
        };
        // The analyzer of that name is the one that a field has anyway.
        if key == "analyzer" && value == "default" {
            continue;
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let value = match (key.as_str(), text(&value)) {
            ("boost" | "tie_breaker" | "slop" | "max_expansions" | "prefix_length", Some(text)) => {
                text.parse().map_or(json!(text), Value::Number)
            }
            _ => value,
        };
        members.insert(key, value);
    }
    Ok(members)
}

/// Reads a string.
pub(super) fn string(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => Some(text.clone()),
            ast::Value::Number(text, _) => Some(text.clone()),
            ast::Value::Boolean(flag) => Some(flag.to_string()),
            _ => None,
        },
        ast::Expr::Nested(inner) => string(inner),
        _ => None,
    }
}

/// Reads a number.
pub(super) fn number(expr: &ast::Expr) -> Option<f64> {
    match expr {
        ast::Expr::Nested(inner) => number(inner),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => number(expr).map(|number| -number),
        other => string(other)?.parse().ok(),
    }
}
