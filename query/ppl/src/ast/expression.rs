//! Expressions: trees of sqlparser, with the few conventions for what these trees cannot say.
//!
//! - A name is an `Identifier` or a `CompoundIdentifier`; backticks are the quote style of an `Ident`.
//! - A subsearch stands in [`Expression::subsearches`]. `Subquery`, `InSubquery` and `Exists` refer to it by a query of the form
//!   `TABLE "$subsearch"."0"`; [`subsearch_index`] reads the number.
//! - `<<FIELD>>` is an `Identifier` with that text and no quotes; [`placeholder_name`] reads it.
//! - `isnull(x)` and `isnotnull(x)` are `IsNull` and `IsNotNull`; `x contains y` is the call `contains(x, y)`.
//! - `count(eval(x))` is `count(*)` with a filter; `count`, `c` and `count()` are `count(*)`; `dc(x)` and `distinct_count(x)` are
//!   `count(DISTINCT x)`; `p95(x)` and `perc95(x)` are `percentile(x, 95)`.
//! - Options of relevance functions are comparisons (`operator = 'and'`), weights of fields are `BitwiseXor`, as in SQL.

use sqlparser::ast::{Expr, Query, SetExpr};

use super::{FieldName, Pipeline, TextSpan};

/// The schema in the reference to a subsearch. No index has such a name.
pub(crate) const SUBSEARCH: &str = "$subsearch";

/// An expression with the subsearches in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// The tree.
    pub expr: Expr,
    /// The subsearches that the tree refers to by number.
    pub subsearches: Vec<Pipeline>,
    /// The text of the expression, as it was written.
    pub text: String,
    /// The position of the text.
    pub span: TextSpan,
}

/// A value for a field: `field = expression`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The field.
    pub field: FieldName,
    /// The value.
    pub value: Expression,
}

/// A text in quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringLiteral {
    /// The text, without quotes and escapes.
    pub value: String,
    /// The position, quotes included.
    pub span: TextSpan,
}

/// Returns the number of the subsearch that a query refers to; `None` for a query of SQL.
#[must_use]
pub fn subsearch_index(query: &Query) -> Option<usize> {
    match query.body.as_ref() {
        SetExpr::Table(table) if table.schema_name.as_deref() == Some(SUBSEARCH) => {
            table.table_name.as_ref()?.parse().ok()
        }
        _ => None,
    }
}

/// Returns the word of a placeholder: `FIELD` for `<<FIELD>>`.
#[must_use]
pub fn placeholder_name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Identifier(ident) if ident.quote_style.is_none() => {
            ident.value.strip_prefix("<<")?.strip_suffix(">>")
        }
        _ => None,
    }
}
