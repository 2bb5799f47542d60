//! `rank_feature` and `rank_features`: positive numbers that scores are made of.
//!
//! A number keeps the precision that Lucene keeps of it: the upper half of its bits. It is held as a
//! string, `name=bits` with four hexadecimal digits, so that the values of a feature are terms that can be
//! counted; the name is empty where the field is one feature.

use jiter::{Jiter, Peek};

use super::ChunkBuilder;
use super::failure::{Failure, ParseResult};
use super::leaf::{number_text, scopes_of};
use crate::mapping::{Cause, Field, Token};
use crate::term::check_term;

/// Bits of a number that are not kept.
const DROPPED: u32 = 15;

/// Returns what the strings of a feature start with.
pub fn feature_lead(name: &str) -> String {
    format!("{name}=")
}

/// Reads the number of a feature, as integer and as the number that it stands for, from a string that
/// starts with its [`feature_lead`].
pub fn feature_of(text: &str, lead: &str) -> Option<(u32, f32)> {
    let bits = text.strip_prefix(lead).filter(|bits| bits.len() == 4)?;
    let bits = u32::from_str_radix(bits, 16).ok()?;
    Some((bits, feature_value(bits)))
}

/// Returns the number that kept bits stand for.
pub fn feature_value(bits: u32) -> f32 {
    f32::from_bits(bits << DROPPED)
}

/// Makes the string of a feature.
pub(super) fn encode(field: &Field, name: &str, token: Token<'_>) -> Result<String, Cause> {
    let number: f32 = match token {
        Token::Number(text) | Token::Str(text) => text
            .trim()
            .parse()
            .map_err(|_| Cause::new("number_format_exception", format!("For input string: \"{text}\"")))?,
        Token::Bool(_) => {
            return Err(Cause::new(
                "json_parse_exception",
                "Current token (VALUE_BOOLEAN) not numeric, can not use numeric value accessors",
            ));
        }
    };
    let positive = field.params.get("positive_score_impact").and_then(|impact| impact.as_bool());
    let number = if positive == Some(false) { 1.0 / number } else { number };
    let shown = if name.is_empty() { field.path.as_ref() } else { name };
    if !number.is_finite() {
        return Err(Cause::argument(format!(
            "featureValue must be finite, got: {number} for feature {shown} on field _feature"
        )));
    }
    if number < f32::MIN_POSITIVE {
        return Err(Cause::argument(format!(
            "featureValue must be a positive normal float, got: {number:?} for feature {shown} on field _feature which is less than the minimum positive normal float: 1.17549435E-38"
        )));
    }
    Ok(format!("{}{:04X}", feature_lead(name), number.to_bits() >> DROPPED))
}

impl ChunkBuilder {
    /// Parses the value of a rank_features: an object of numbers, or an array of them.
    pub(super) fn features(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        self.flatten(json, |builder, json, peek| match peek {
            Peek::Object => builder.feature_object(json, leaf),
            peek => {
                let token = kind(peek);
                Err(Failure::rule(format!(
                    "[rank_features] fields must be json objects, expected a START_OBJECT but got: {token}"
                )))
            }
        })
    }

    fn feature_object(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        self.depth += 1;
        let names = self.keys.open_unmapped();
        let mut key = json.known_object()?;
        while let Some(name) = key {
            self.keys.add(name);
            let name = name.to_owned();
            let peek = json.peek()?;
            match peek {
                Peek::Null => json.known_null()?,
                Peek::String => {
                    let text = json.known_str()?.to_owned();
                    self.put_feature(leaf, &name, Token::Str(&text))?;
                }
                peek if peek.is_num() => {
                    let text = number_text(json, peek)?.to_owned();
                    self.put_feature(leaf, &name, Token::Number(&text))?;
                }
                peek => {
                    return Err(Failure::rule(format!(
                        "[rank_features] fields take hashes that map a feature to a strictly positive float, but got unexpected token {}",
                        kind(peek)
                    )));
                }
            }
            key = json.next_key()?;
        }
        self.end_names(json, names)?;
        self.depth -= 1;
        Ok(())
    }

    fn put_feature(&mut self, leaf: u32, name: &str, token: Token<'_>) -> ParseResult<()> {
        let mapped = self.mapping.leaf(leaf);
        let text = match encode(&mapped.field, name, token) {
            Ok(text) => text,
            Err(cause) => return Err(Box::new(Failure::Rule(cause))),
        };
        check_term(&mapped.field.path, text.as_bytes())?;
        let scopes = scopes_of(&self.mapping, mapped);
        let (column, lead) = (mapped.field.column, feature_lead(name));
        let again = |known: &[u8]| known.len() == text.len() && known.starts_with(lead.as_bytes());
        if scopes.first().is_some_and(|scope| self.columns.has_str(*scope, column, again)) {
            return Err(Failure::rule(format!(
                "[rank_features] fields do not support indexing multiple values for the same rank feature [{}.{name}] in the same document",
                mapped.field.path
            )));
        }
        Ok(self.columns.push_str(scopes, column, text.as_bytes())?)
    }
}

/// Names the kind of a value as Java's parser does.
pub(super) fn kind(peek: Peek) -> &'static str {
    match peek {
        Peek::Null => "VALUE_NULL",
        Peek::True | Peek::False => "VALUE_BOOLEAN",
        Peek::String => "VALUE_STRING",
        Peek::Array => "START_ARRAY",
        Peek::Object => "START_OBJECT",
        _ => "VALUE_NUMBER",
    }
}
