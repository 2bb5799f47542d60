//! Regular expressions of scripts: literals between slashes, `=~`, `==~`, and the methods of `Pattern` and `Matcher`.

use std::sync::Arc;

use millrace_ingest::pattern::{Expression, Replacement};
use serde_json::Value;

use super::evaluate::Machine;
use super::memory::Operand;
use super::object::Object;
use super::tree::Node;
use crate::document::VALUE_BYTES;
use crate::error::{ProcessorError, Result};
use crate::processor::{drop_trailing, java_replacement, split};

/// A compiled literal.
#[derive(Debug)]
pub(super) struct ScriptPattern {
    search: Expression,
    /// Matches whole texts only.
    whole: Expression,
}

/// A text with the pattern that is applied to it, and the last match.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    pattern: Arc<ScriptPattern>,
    text: Arc<str>,
    /// Byte at which the next search begins.
    from: usize,
    /// Texts of the groups of the last match.
    groups: Option<Vec<Option<Arc<str>>>>,
}

impl ScriptPattern {
    /// Compiles a literal with its flags.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(super) fn compile(text: &str, flags: &str) -> std::result::Result<Self, String> {
        let mut options = String::new();
        let mut is_multiline = false;
        for flag in flags.chars() {
            match flag {
                'i' | 'x' => options.push(flag),
                // The point takes line ends; the notation is that of Ruby.
                's' => options.push('m'),
                'm' => is_multiline = true,
                other => return Err(format!("the flag [{other}] of a regular expression is not supported")),
            }
        }
        let text = if is_multiline { text.to_owned() } else { anchor(text) };
        let text = if options.is_empty() { text } else { format!("(?{options}:{text})") };
        let whole = Expression::compile(&format!("\\A(?:{text})\\z"))?;
        Ok(Self { search: Expression::compile(&text)?, whole })
    }
}

/// Has `^` and `$` match at the ends of the text only, as in Java, and not at those of each line.
fn anchor(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut letters, mut sets) = (text.chars().peekable(), 0_usize);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                out.push(letter);
                out.extend(letters.next());
            }
            '[' => {
                sets += 1;
                out.push(letter);
                // A sign and a bracket at the begin are no ends of the set.
                for first in ['^', ']'] {
                    out.extend(letters.next_if_eq(&first));
                }
            }
            ']' => {
                sets = sets.saturating_sub(1);
                out.push(letter);
            }
            '^' if sets == 0 => out.push_str("\\A"),
            '$' if sets == 0 => out.push_str("\\Z"),
            other => out.push(other),
        }
    }
    out
}

impl Machine<'_> {
    fn stopped(&self, pattern: &ScriptPattern) -> ProcessorError {
        let text = pattern.search.as_str();
        ProcessorError::exceeded(format!("the pattern [{text}] was stopped after a second"))
    }

    /// Returns whether a text matches a pattern, in part or as a whole.
    pub(super) fn is_match(&mut self, pattern: &ScriptPattern, text: &str, whole: bool) -> Result<bool> {
        self.budget().charge_read(text.len())?;
        let expression = if whole { &pattern.whole } else { &pattern.search };
        expression.is_match(text, &self.deadline).map_err(|_| self.stopped(pattern))
    }

    /// Calls a method of a pattern; `None` where it has no such method.
    pub(super) fn call_pattern(
        &mut self,
        pattern: &Arc<ScriptPattern>,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        Ok(Some(match (name, arguments) {
            ("matcher", [text @ (Operand::Text(_) | Operand::Char(_))]) => {
                let text = self.text_of(text)?;
                let matcher = Matcher { pattern: Arc::clone(pattern), text, from: 0, groups: None };
                self.make_object(Object::Matcher(matcher))?
            }
            ("split", [text @ (Operand::Text(_) | Operand::Char(_))]) => {
                let text = self.text_of(text)?;
                self.split(pattern, &text)?
            }
            ("pattern" | "toString", []) => Operand::Text(pattern.search.as_str().into()),
            _ => return Ok(None),
        }))
    }

    /// Splits a text at the matches, without empty texts at its end.
    fn split(&mut self, pattern: &ScriptPattern, text: &str) -> Result<Operand> {
        self.budget().charge_read(text.len())?;
        let mut parts = split(text, &pattern.search, 0, &self.deadline)?;
        drop_trailing(&mut parts);
        self.budget().charge(parts.len().saturating_mul(VALUE_BYTES))?;
        let texts = parts.into_iter().map(Value::from).collect();
        self.make(Value::Array(texts))
    }

    /// Calls a method of a matcher; `None` where it has no such method.
    pub(super) fn call_matcher(
        &mut self,
        node: &Node,
        matcher: &mut Matcher,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let pattern = Arc::clone(&matcher.pattern);
        let text = Arc::clone(&matcher.text);
        Ok(Some(match (name, arguments) {
            ("matches" | "find", []) => {
                self.budget().charge_read(text.len())?;
                let (expression, from) = match name {
                    "matches" => (&pattern.whole, 0),
                    _ => (&pattern.search, matcher.from),
                };
                let found = expression.captures_at(&text, from, &self.deadline);
                let found = found.map_err(|_| self.stopped(&pattern))?;
                let is_found = found.is_some();
                if let Some(Some(whole)) = found.as_ref().and_then(|groups| groups.first()) {
                    let next = text.get(whole.end..).and_then(|rest| rest.chars().next());
                    let step = if whole.is_empty() { next.map_or(1, char::len_utf8) } else { 0 };
                    matcher.from = whole.end + step;
                }
                let groups = found.map(|groups| {
                    groups.into_iter().map(|range| text.get(range?).map(Arc::from)).collect::<Vec<_>>()
                });
                let count = groups.as_ref().map_or(0, Vec::len);
                self.budget().charge(count.saturating_mul(VALUE_BYTES))?;
                let bytes =
                    groups.iter().flatten().flatten().map(|text: &Arc<str>| text.len() + VALUE_BYTES).sum();
                self.budget().charge(bytes)?;
                matcher.groups = groups;
                Operand::Bool(is_found)
            }
            ("group", [] | [Operand::Int(_)]) => {
                let number = arguments.first().and_then(Operand::as_int).unwrap_or(0);
                let Some(groups) = &matcher.groups else {
                    return Err(self.fail(node, "illegal_state_exception", "No match found"));
                };
                let group = usize::try_from(number).ok().and_then(|number| groups.get(number));
                let Some(group) = group else {
                    let reason = format!("No group {number}");
                    return Err(self.fail(node, "index_out_of_bounds_exception", &reason));
                };
                group.clone().map_or(Operand::Null, Operand::Text)
            }
            ("groupCount", []) => {
                let count = matcher.groups.as_ref().map_or(0, |groups| groups.len().saturating_sub(1));
                Operand::Int(count as i64)
            }
            ("replaceAll", [Operand::Text(replacement)]) => {
                self.budget().charge_read(text.len())?;
                let replacement = Replacement::parse(&java_replacement(replacement), &pattern.search);
                let replaced = pattern.search.replace_all(&text, &replacement, &self.deadline);
                let replaced = replaced.map_err(|_| self.stopped(&pattern))?;
                self.budget().charge(replaced.as_ref().map_or(0, String::len))?;
                Operand::Text(replaced.map_or(text, Arc::from))
            }
            _ => return Ok(None),
        }))
    }
}
