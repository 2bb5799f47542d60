//! `search`: rows of indices, found by free text, comparisons and bounds of time.
//!
//! Its conditions become a text of the query string syntax, which the inverted index answers. Bounds of time that hold for every row
//! are conditions of their own, so that they are ranges of the index.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::names::NameSet;
use super::pipe::Pipe;
use super::{Planner, index_expression, syntax, times};
use crate::ast::{
    ComparisonOperator, SearchCondition, SearchSource, SearchTerm, SourceRelation, TimeBound, TimeModifier,
};

/// Field of the bounds of time.
const TIME: &str = "@timestamp";

/// Plans the source.
pub(super) fn plan(source: &SearchSource, names: NameSet, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let mut pipe = match &source.relation {
        SourceRelation::Indices { indices, alias } => {
            let mut pipe = Pipe::from_index(index_expression(indices), names);
            if planner.correlated > 0 {
                pipe.correlate();
            }
            if let Some(alias) = alias {
                pipe.qualify(&alias.path);
            }
            pipe
        }
        SourceRelation::Subsearch { pipeline, alias } => {
            let mut pipe = planner.pipeline(pipeline, None)?;
            if let Some(alias) = alias {
                pipe.qualify(&alias.path);
            }
            pipe
        }
    };
    let Some(condition) = &source.condition else { return Ok(pipe) };
    let (mut texts, mut times) = (Vec::new(), Vec::new());
    for part in conjuncts(condition) {
        match part {
            SearchCondition::Time(modifier) => times.push(modifier),
            other => texts.push(written(other, planner)?),
        }
    }
    if !texts.is_empty() {
        if pipe.index().is_none() {
            return Err(SqlError::Unsupported("free text over a subsearch is not supported".to_owned()));
        }
        let text = texts.join(" AND ");
        pipe.filter(syntax::call("query", vec![syntax::string(&text)]), planner.sql)?;
    }
    for modifier in times {
        pipe.filter(bound(modifier, planner)?, planner.sql)?;
    }
    Ok(pipe)
}

/// Lists the conditions that all hold.
fn conjuncts(condition: &SearchCondition) -> Vec<&SearchCondition> {
    match condition {
        SearchCondition::And(parts) => parts.iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// Makes the comparison of a bound of time.
fn bound(modifier: &TimeModifier, planner: &Planner<'_, '_, '_>) -> Result<ast::Expr> {
    let op = match modifier.bound {
        TimeBound::Earliest => ast::BinaryOperator::GtEq,
        TimeBound::Latest => ast::BinaryOperator::LtEq,
    };
    let instant = times::instant(&modifier.value, planner.sql.now_ms())?;
    let instant = syntax::call("timestamp", vec![syntax::string(&times::shown(instant))]);
    Ok(syntax::binary(syntax::column(TIME), op, instant))
}

/// Writes a condition in the query string syntax.
fn written(condition: &SearchCondition, planner: &Planner<'_, '_, '_>) -> Result<String> {
    let joined = |parts: &[SearchCondition], word: &str| {
        let parts = parts.iter().map(|part| written(part, planner)).collect::<Result<Vec<_>>>()?;
        Ok::<_, SqlError>(format!("({})", parts.join(word)))
    };
    Ok(match condition {
        SearchCondition::And(parts) => joined(parts, " AND ")?,
        SearchCondition::Or(parts) => joined(parts, " OR ")?,
        SearchCondition::Not(inner) => format!("NOT ({})", written(inner, planner)?),
        SearchCondition::Term(term) => term_text(term),
        SearchCondition::Comparison { field, operator, value } => {
            let (field, value) = (escaped_name(&field.path), term_text(value));
            match operator {
                ComparisonOperator::Eq => format!("{field}:{value}"),
                ComparisonOperator::NotEq => format!("(_exists_:{field} AND NOT {field}:{value})"),
                ComparisonOperator::Lt => format!("{field}:<{value}"),
                ComparisonOperator::LtEq => format!("{field}:<={value}"),
                ComparisonOperator::Gt => format!("{field}:>{value}"),
                ComparisonOperator::GtEq => format!("{field}:>={value}"),
            }
        }
        SearchCondition::InList { field, values } => {
            let values: Vec<String> = values.iter().map(term_text).collect();
            format!("{}:({})", escaped_name(&field.path), values.join(" OR "))
        }
        SearchCondition::Time(modifier) => {
            let op = match modifier.bound {
                TimeBound::Earliest => ">=",
                TimeBound::Latest => "<=",
            };
            let instant = times::instant(&modifier.value, planner.sql.now_ms())?;
            format!("{}:{op}\"{}\"", escaped_name(TIME), times::shown_iso(instant))
        }
    })
}

/// Writes a term. Wildcards and escapes of the user stay.
fn term_text(term: &SearchTerm) -> String {
    let mut out = String::new();
    let mut letters = without_suffix(term).chars().peekable();
    if term.is_quoted {
        out.push('"');
    }
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                out.push('\\');
                out.push(letters.next().unwrap_or('\\'));
            }
            '"' => out.push_str("\\\""),
            '+' | '-' | '=' | '&' | '|' | '!' | '(' | ')' | '{' | '}' | '[' | ']' | '^' | '~' | ':' | '/'
            | '<' | '>'
                if !term.is_quoted =>
            {
                out.push('\\');
                out.push(letter);
            }
            ' ' if !term.is_quoted => out.push_str("\\ "),
            other => out.push(other),
        }
    }
    if term.is_quoted {
        out.push('"');
    }
    out
}

fn escaped_name(path: &str) -> String {
    let mut out = String::new();
    for letter in path.chars() {
        if !(letter.is_alphanumeric() || matches!(letter, '_' | '.' | '@')) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Leaves out the letter that makes a number with a point a float or a double.
fn without_suffix(term: &SearchTerm) -> &str {
    let number = term.text.strip_suffix(['d', 'D', 'f', 'F']).filter(|number| {
        !term.is_quoted
            && number.contains('.')
            && number.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | '-'))
    });
    number.unwrap_or(&term.text)
}
