//! Functions of `patterns`: the constant parts of texts, and the variable ones.

use serde_json::{Map, Value, json};

use super::Definition;
use super::json::{MAX_BYTES, too_long};
use super::patterns::with_regex;
use super::row::{Context, Val};
use crate::types::SqlType::{self, Boolean, Keyword, Object, Undefined};

type Answer<'a> = Result<Val<'a>, String>;

/// Stands for a variable part.
const VARIABLE: &str = "<*>";
/// Most variable parts of a text that have numbers.
const MAX_TOKENS: usize = 1_000;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "text_pattern" => Definition::new(
            |types| match types {
                [text, variable, Boolean] if is_text(*text) && is_text(*variable) => {
                    Some((vec![Keyword, Keyword, Boolean], Keyword))
                }
                _ => None,
            },
            text_pattern,
        ),
        "pattern_tokens" => Definition::new(
            |types| match types {
                [texts, variable] if texts.is_json() && is_text(*variable) => {
                    Some((vec![*texts, Keyword], Object))
                }
                _ => None,
            },
            pattern_tokens,
        ),
        _ => return None,
    })
}

fn is_text(ty: SqlType) -> bool {
    ty.is_string() || ty == Undefined
}

/// Replaces the variable parts of a text, by a sign or by their numbers.
fn text_pattern<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [text, variable, is_numbered] = args else { return Ok(Val::Null) };
    let is_numbered = *is_numbered == Val::Bool(true);
    with_regex(variable.text(), |regex| {
        let mut out = String::new();
        let mut last = 0;
        let parts = regex.find_iter(text.text()).filter(|part| !part.is_empty());
        for (at, part) in parts.enumerate() {
            out.push_str(text.text().get(last..part.start()).unwrap_or_default());
            match is_numbered && at < MAX_TOKENS {
                true => out.push_str(&format!("<token{}>", at + 1)),
                false => out.push_str(VARIABLE),
            }
            last = part.end();
            if out.len() > MAX_BYTES {
                return Err(too_long());
            }
        }
        out.push_str(text.text().get(last..).unwrap_or_default());
        Ok(Val::str(out))
    })
}

/// Lists the variable parts of texts by their numbers.
fn pattern_tokens<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [texts, variable] = args else { return Ok(Val::Null) };
    let Ok(Value::Array(texts)) = serde_json::from_str(texts.text()) else { return Ok(Val::Null) };
    with_regex(variable.text(), |regex| {
        let mut tokens: Map<String, Value> = Map::new();
        let mut left = MAX_BYTES;
        for text in texts.iter().filter_map(Value::as_str) {
            let parts = regex.find_iter(text).filter(|part| !part.is_empty()).take(MAX_TOKENS);
            for (at, part) in parts.enumerate() {
                left = left.checked_sub(part.len() + 16).ok_or_else(too_long)?;
                let own = tokens.entry(format!("<token{}>", at + 1)).or_insert_with(|| json!([]));
                if let Value::Array(own) = own {
                    own.push(json!(part.as_str()));
                }
            }
        }
        Ok(Val::str(Value::Object(tokens).to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_parts_have_signs_or_numbers() {
        let run = |name: &str, args: &[Val<'static>]| {
            (find(name).unwrap().eval)(args, Context { now: 0, ty: Keyword }).unwrap()
        };
        let pattern = |is_numbered| {
            let args = [Val::str("a1@b.c"), Val::str("[a-zA-Z0-9]+"), Val::Bool(is_numbered)];
            run("text_pattern", &args)
        };
        assert_eq!(pattern(false), Val::str("<*>@<*>.<*>"));
        assert_eq!(pattern(true), Val::str("<token1>@<token2>.<token3>"));
        let tokens = run("pattern_tokens", &[Val::str(r#"["a-1","b-2"]"#), Val::str("[a-z0-9]+")]);
        assert_eq!(tokens, Val::str(r#"{"<token1>":["a","b"],"<token2>":["1","2"]}"#));
    }
}
