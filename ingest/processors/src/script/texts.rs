//! Methods of texts. Positions count characters.

use serde_json::Value;

use super::evaluate::Machine;
use super::memory::Operand;
use super::tree::Node;
use crate::document::VALUE_BYTES;
use crate::error::Result;

impl Machine<'_> {
    /// Calls a method of a text; `None` where texts have no such method.
    pub(super) fn call_text(
        &mut self,
        node: &Node,
        text: &str,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        self.budget().charge_read(text.len())?;
        let is_letter = |operand: &Operand| matches!(operand, Operand::Char(_));
        let texts: Vec<Operand>;
        let arguments = match arguments.iter().any(is_letter) {
            false => arguments,
            true => {
                // Methods take characters as texts.
                let text = |operand: &Operand| match operand {
                    Operand::Char(letter) => Operand::Text(letter.to_string().into()),
                    other => other.clone(),
                };
                texts = arguments.iter().map(text).collect();
                &texts
            }
        };
        let made = |text: String| Operand::Text(text.into());
        let position = |found: Option<usize>| {
            let before = found.and_then(|at| text.get(..at));
            Operand::Int(before.map_or(-1, |before| before.chars().count() as i64))
        };
        Ok(Some(match (name, arguments) {
            ("length", []) => Operand::Int(text.chars().count() as i64),
            ("isEmpty", []) => Operand::Bool(text.is_empty()),
            ("isBlank", []) => Operand::Bool(text.trim().is_empty()),
            ("contains", [Operand::Text(other)]) => Operand::Bool(text.contains(&**other)),
            ("startsWith", [Operand::Text(other)]) => Operand::Bool(text.starts_with(&**other)),
            ("endsWith", [Operand::Text(other)]) => Operand::Bool(text.ends_with(&**other)),
            ("equalsIgnoreCase", [Operand::Text(other)]) => {
                Operand::Bool(text.to_lowercase() == other.to_lowercase())
            }
            ("compareTo", [Operand::Text(other)]) => Operand::Int(text.cmp(other) as i64),
            ("indexOf", [Operand::Text(other)]) => position(text.find(&**other)),
            ("indexOf", [Operand::Text(other), Operand::Int(from)]) => {
                let from = self.byte_position(node, text, *from)?;
                position(text.get(from..).and_then(|rest| rest.find(&**other)).map(|at| at + from))
            }
            ("lastIndexOf", [Operand::Text(other)]) => position(text.rfind(&**other)),
            ("toLowerCase", []) => made(text.to_lowercase()),
            ("toUpperCase", []) => made(text.to_uppercase()),
            ("trim" | "strip", []) => made(text.trim().to_owned()),
            ("concat", [Operand::Text(other)]) => {
                self.budget().charge(other.len())?;
                made(format!("{text}{other}"))
            }
            ("replace", [Operand::Text(from), Operand::Text(to)]) => {
                let count = text.matches(&**from).count();
                self.budget().charge(count.saturating_mul(to.len()))?;
                made(text.replace(&**from, to))
            }
            ("substring" | "charAt", [Operand::Int(from)]) => {
                let start = self.byte_position(node, text, *from)?;
                let rest = text.get(start..).unwrap_or_default();
                match name {
                    "substring" => made(rest.to_owned()),
                    _ => match rest.chars().next() {
                        Some(letter) => Operand::Char(letter),
                        None => return Err(self.text_bounds(node, text, *from)),
                    },
                }
            }
            ("substring", [Operand::Int(from), Operand::Int(to)]) => {
                let start = self.byte_position(node, text, *from)?;
                let end = self.byte_position(node, text, *to)?;
                let Some(cut) = text.get(start..end) else { return Err(self.text_bounds(node, text, *to)) };
                made(cut.to_owned())
            }
            ("splitOnToken", [Operand::Text(token), limit @ ..]) if limit.len() < 2 => {
                let limit = limit.first().and_then(Operand::as_int).and_then(|n| usize::try_from(n).ok());
                let matches = if token.is_empty() { 0 } else { text.matches(&**token).count() };
                let count = limit.filter(|limit| *limit > 0).map_or(matches, |limit| limit.min(matches)) + 1;
                self.budget().check_bytes(text.len().saturating_add(count.saturating_mul(VALUE_BYTES)))?;
                let parts: Vec<Value> = match (token.is_empty(), limit) {
                    (true, _) => vec![text.into()],
                    (_, Some(limit)) if limit > 0 => text.splitn(limit, &**token).map(Value::from).collect(),
                    _ => text.split(&**token).map(Value::from).collect(),
                };
                self.make(Value::Array(parts))?
            }
            ("chars" | "toCharArray", []) => {
                let count = text.chars().count();
                self.budget().check_bytes(count.saturating_mul(VALUE_BYTES))?;
                self.make_stream(text.chars().map(Operand::Char).collect())?
            }
            _ => return Ok(None),
        }))
    }

    /// Returns the byte at which a character begins.
    fn byte_position(&self, node: &Node, text: &str, character: i64) -> Result<usize> {
        let number = usize::try_from(character).map_err(|_| self.text_bounds(node, text, character))?;
        let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        starts.nth(number).ok_or_else(|| self.text_bounds(node, text, character))
    }

    fn text_bounds(&self, node: &Node, text: &str, character: i64) -> crate::error::ProcessorError {
        let length = text.chars().count();
        let reason = format!("begin {character}, end {length}, length {length}");
        self.fail(node, "string_index_out_of_bounds_exception", &reason)
    }
}
