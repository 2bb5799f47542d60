//! `highlight(field, 'option' = 'value', …)`: the fragments of a field that the conditions of the statement match.

use serde_json::{Map, Value, json};
use sqlparser::ast;

use super::call::arguments;
use super::relevance::option_of;
use super::{Binder, Bound, ExpressionContext, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::highlight::HighlightColumn;
use crate::source::{self, SourceKind};

/// Options whose values are lists of tags.
const TAGS: [&str; 2] = ["pre_tags", "post_tags"];

/// Returns true for the name of the function.
pub(super) fn is_highlight(name: &str) -> bool {
    name == "highlight"
}

impl Binder<'_> {
    /// Binds `highlight(…)`.
    pub(super) fn highlight(
        &mut self,
        call: &ast::Function,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        if place == ExpressionContext::Row {
            return unsupported(format!("[{call}] outside of SELECT"));
        }
        let usage = || {
            SqlError::Semantic(format!("[{call}] takes a field or a pattern, then options as name = value"))
        };
        let args = arguments(call)?;
        let (field, given) = args.split_first().ok_or_else(usage)?;
        let pattern = super::nested::path_of(field).ok_or_else(usage)?;
        let mut options = Map::new();
        for option in given {
            let (name, value) = option_of(option).ok_or_else(usage)?;
            let value = option_value(value).ok_or_else(usage)?;
            let value = if TAGS.contains(&name.as_str()) { json!([value]) } else { value };
            options.insert(name, value);
        }
        if options.contains_key("pre_tags") {
            options.entry("post_tags").or_insert_with(|| json!(["</em>"]));
        }
        let own = source::unqualified(&scope.sources, &pattern).to_owned();
        let column = HighlightColumn::new(&own, &Value::Object(options))?;
        for source in &mut scope.sources {
            let qualifier = &source.qualifier;
            if let SourceKind::Index(index) = &mut source.kind
                && (column.is_pattern() || index.has(&own))
            {
                return Ok(index.highlight(&call.to_string(), column, qualifier));
            }
        }
        Err(SqlError::unknown_field(&pattern))
    }
}

/// Reads the value of an option.
fn option_value(value: &ast::Expr) -> Option<Value> {
    match value {
        ast::Expr::Value(given) => match &given.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => Some(json!(text)),
            ast::Value::Number(text, _) => text.parse().ok().map(Value::Number),
            ast::Value::Boolean(flag) => Some(json!(flag)),
            _ => None,
        },
        ast::Expr::Identifier(ident) => Some(json!(ident.value)),
        _ => None,
    }
}
