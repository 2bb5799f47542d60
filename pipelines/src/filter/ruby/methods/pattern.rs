//! Methods of expressions and matches.

use std::sync::Arc;

use millrace_ingest::pattern::Expression;

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::value::{Key, MatchData, Members, RaisedError, Val};
use super::{arg, int_arg};

/// Methods of expressions and matches.
pub(super) const NAMES: &[&str] = &[
    "match",
    "match?",
    "=~",
    "source",
    "to_s",
    "[]",
    "captures",
    "named_captures",
    "names",
    "pre_match",
    "post_match",
    "begin",
    "end",
    "values_at",
    "size",
    "length",
    "to_a",
    "string",
];

/// Escapes all that has a meaning in expressions.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            ' ' | '-' | '#' | '.' | '*' | '?' | '+' | '^' | '$' | '|' | '\\' | '(' | ')' | '[' | ']'
            | '{' | '}' => {
                quoted.push('\\');
                quoted.push(letter);
            }
            other => quoted.push(other),
        }
    }
    quoted
}

/// Returns the expression that a value is: an expression, or a text that stands for itself.
pub(super) fn expression_of(run: &mut Interpreter<'_>, value: &Val) -> Result<Arc<Expression>, Flow> {
    match value {
        Val::Regex(regex) => Ok(Arc::clone(regex)),
        Val::Text(text) => run.expression(&quoted(text)),
        other => {
            Err(RaisedError::type_error(format!("wrong argument type {} (expected Regexp)", other.class()))
                .into())
        }
    }
}

/// Finds a match from a byte on, without noting it.
pub(super) fn find_from(
    run: &mut Interpreter<'_>,
    regex: &Expression,
    text: &Arc<str>,
    from: usize,
) -> Result<Option<MatchData>, Flow> {
    run.step(1 + text.len() / 256)?;
    let found = regex.captures_at(text, from, &run.deadline).map_err(|_| {
        Flow::Exceeded("regular expressions of the script take too long for an event".to_owned())
    })?;
    Ok(found.map(|groups| MatchData {
        text: Arc::clone(text),
        groups,
        names: regex.group_names().map(|(name, group)| (name.to_owned(), group)).collect(),
    }))
}

/// Finds the first match and notes it.
pub(super) fn find(run: &mut Interpreter<'_>, pattern: &Val, text: &Arc<str>, from: usize) -> Evaluated {
    let regex = expression_of(run, pattern)?;
    let found = find_from(run, &regex, text, from)?;
    Ok(run.set_match(found))
}

/// Returns the number of characters before the match that was found.
pub(super) fn place(found: &Val) -> Val {
    match found {
        Val::Match(found) => {
            let start = found.groups.first().cloned().flatten().map_or(0, |range| range.start);
            Val::Int(found.text.get(..start).map_or(0, |before| before.chars().count()) as i64)
        }
        _ => Val::Nil,
    }
}

/// Calls a method of an expression or a match.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    receiver: &Val,
    name: &'static str,
    args: &[Val],
) -> Option<Evaluated> {
    match receiver {
        Val::Regex(regex) => Some(match name {
            "match" | "=~" | "match?" => of_text(run, receiver, name, args),
            "source" => run.text(regex.as_str()),
            "names" => {
                let names: Vec<Val> = regex.group_names().map(|(name, _)| Val::text(name)).collect();
                run.array(names)
            }
            _ => return None,
        }),
        Val::Match(found) => of_match(run, found, name, args),
        _ => None,
    }
}

fn of_text(run: &mut Interpreter<'_>, pattern: &Val, name: &str, args: &[Val]) -> Evaluated {
    let text = match arg(args, 0)? {
        Val::Text(text) | Val::Symbol(text) => Arc::clone(text),
        Val::Nil => {
            run.set_match(None);
            return Ok(if name == "match?" { Val::Bool(false) } else { Val::Nil });
        }
        other => {
            return Err(RaisedError::type_error(format!(
                "no implicit conversion of {} into String",
                other.class()
            ))
            .into());
        }
    };
    let found = find(run, pattern, &text, 0)?;
    Ok(match name {
        "match?" => Val::Bool(found.is_true()),
        "=~" => place(&found),
        _ => found,
    })
}

fn of_match(
    run: &mut Interpreter<'_>,
    found: &Arc<MatchData>,
    name: &str,
    args: &[Val],
) -> Option<Evaluated> {
    let group = |at: usize| Val::optional(found.group(at));
    let range = |args: &[Val]| -> Result<std::ops::Range<usize>, RaisedError> {
        let at = usize::try_from(int_arg(args, 0)?).unwrap_or(usize::MAX);
        Ok(found.groups.get(at).cloned().flatten().unwrap_or_default())
    };
    let characters =
        |bytes: usize| Val::Int(found.text.get(..bytes).map_or(0, |before| before.chars().count()) as i64);
    let whole = found.groups.first().cloned().flatten().unwrap_or_default();
    Some(match name {
        "[]" => match args.first() {
            Some(Val::Text(name) | Val::Symbol(name)) => Ok(Val::optional(found.named(name))),
            _ => int_arg(args, 0)
                .map(|at| group(usize::try_from(at).unwrap_or(usize::MAX)))
                .map_err(Flow::from),
        },
        "captures" => run.array((1..found.groups.len()).map(group).collect()),
        "to_a" => run.array((0..found.groups.len()).map(group).collect()),
        "values_at" => {
            let places = args.iter().map(|at| match at {
                Val::Int(at) => group(usize::try_from(*at).unwrap_or(usize::MAX)),
                _ => Val::Nil,
            });
            run.array(places.collect())
        }
        "size" | "length" => Ok(Val::Int(found.groups.len() as i64)),
        "names" => run.array(found.names.iter().map(|(name, _)| Val::text(name.as_str())).collect()),
        "named_captures" => {
            let members: Members = found
                .names
                .iter()
                .map(|(name, number)| (Key::Text(Arc::from(name.as_str())), group(*number)))
                .collect();
            run.hash(members)
        }
        "pre_match" => run.text(found.text.get(..whole.start).unwrap_or_default()),
        "post_match" => run.text(found.text.get(whole.end..).unwrap_or_default()),
        "string" => Ok(Val::Text(Arc::clone(&found.text))),
        "begin" => range(args).map(|range| characters(range.start)).map_err(Flow::from),
        "end" => range(args).map(|range| characters(range.end)).map_err(Flow::from),
        _ => return None,
    })
}
