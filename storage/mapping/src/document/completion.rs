//! `completion`: inputs with weights, as terms in the order in which they are completed.
//!
//! Each way through the terms of an input (see [`paths`]) is a string `path END weight END input`, with
//! eight hexadecimal digits of weight. Where the field has contexts, each of them makes a string, and
//! `kind value CONTEXT` comes first, `kind` being the letter of the context's place in the mapping.

use jiter::{Jiter, Peek};
use serde_json::Value;

use super::ChunkBuilder;
use super::failure::{Failure, ParseResult, token};
use super::features::kind;
use super::leaf::scopes_of;
use crate::analysis::{SEPARATOR, paths};
use crate::mapping::{Cause, Context, ContextKind, Contexts, FieldType, Scope, Token, values};
use crate::term::check_term;

/// Ends a path, and a weight.
const END: char = '\u{1e}';
/// Ends a context.
const CONTEXT: char = '\u{1d}';
/// Most values of one context of an input.
const MAX_CONTEXT_VALUES: usize = 1_000;

/// An input as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// Its context, where the field has any: place in the mapping, and value.
    pub context: Option<(usize, &'a str)>,
    /// Its terms.
    pub path: &'a str,
    /// Its weight.
    pub weight: u32,
    /// The input itself.
    pub input: &'a str,
}

impl<'a> Completion<'a> {
    /// Takes apart the string of an input.
    pub fn new(text: &'a str, in_contexts: bool) -> Option<Self> {
        let (context, rest) = match in_contexts {
            false => (None, text),
            true => {
                let (context, rest) = text.split_once(CONTEXT)?;
                let place = usize::from(context.bytes().next()?.checked_sub(b'a')?);
                (Some((place, context.get(1..)?)), rest)
            }
        };
        let (path, rest) = rest.split_once(END)?;
        let (weight, input) = rest.split_once(END)?;
        Some(Self { context, path, weight: u32::from_str_radix(weight, 16).ok()?, input })
    }

    /// Returns what the strings of a context start with; `whole` says that the value goes no further.
    pub fn lead(place: usize, value: &str, whole: bool) -> String {
        let letter = u8::try_from(place).map_or('z', |place| char::from(b'a'.saturating_add(place)));
        let mut lead = format!("{letter}{value}");
        if whole {
            lead.push(CONTEXT);
        }
        lead
    }
}

/// An input as a document gives it.
#[derive(Clone, Debug)]
pub(super) struct Input {
    text: String,
    weight: u32,
    /// Places of contexts, and their values.
    contexts: Vec<(usize, String)>,
}

impl ChunkBuilder {
    /// Parses the value of a completion: an input, or an array of them.
    pub(super) fn completions(&mut self, json: &mut Jiter<'_>, leaf: u32) -> ParseResult<()> {
        let contexts = self.mapping.leaf(leaf).field.contexts();
        let mut inputs = Vec::new();
        match json.peek()? {
            Peek::Null => json.known_null()?,
            Peek::Array => {
                self.depth += 1;
                let mut next = json.known_array()?;
                while let Some(peek) = next {
                    self.completion(json, leaf, "null", peek, &contexts, &mut inputs)?;
                    next = json.array_step()?;
                }
                self.depth -= 1;
            }
            peek => {
                let path = self.mapping.leaf(leaf).field.path.clone();
                self.completion(json, leaf, &path, peek, &contexts, &mut inputs)?;
            }
        }
        let in_document = self.mapping.object(self.mapping.leaf(leaf).object).scopes.first();
        if contexts.list().iter().any(|context| context.path.is_some())
            && in_document == Some(&Scope::DOCUMENT)
        {
            // The rest of the document may say more.
            self.completions.push((leaf, inputs));
            return Ok(());
        }
        inputs.iter().try_for_each(|input| self.put_input(leaf, input))
    }

    /// Puts the inputs that waited for the contexts that the document has elsewhere.
    pub(super) fn waiting_completions(&mut self, source: &[u8]) -> ParseResult<()> {
        let waiting = std::mem::take(&mut self.completions);
        if waiting.is_empty() {
            return Ok(());
        }
        let source: Value = serde_json::from_slice(source).unwrap_or_default();
        for (leaf, inputs) in waiting {
            let contexts = self.mapping.leaf(leaf).field.contexts();
            let mut found = Vec::new();
            for (place, context) in contexts.list().iter().enumerate() {
                let Some(path) = &context.path else { continue };
                for value in at_path(&source, path) {
                    match add_values(place, context, value, &mut found) {
                        Err(cause) if !self.lenient => return Err(Box::new(Failure::Rule(cause))),
                        _ => {}
                    }
                }
            }
            for mut input in inputs {
                input.contexts.extend_from_slice(&found);
                match self.put_input(leaf, &input) {
                    Err(_) if self.lenient => {
                        let path = self.mapping.leaf(leaf).field.path.clone();
                        self.ignore(path);
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }

    fn completion(
        &mut self,
        json: &mut Jiter<'_>,
        leaf: u32,
        shown: &str,
        peek: Peek,
        contexts: &Contexts,
        inputs: &mut Vec<Input>,
    ) -> ParseResult<()> {
        match peek {
            Peek::String => {
                add(inputs, Input { text: json.known_str()?.to_owned(), weight: 1, contexts: Vec::new() });
                Ok(())
            }
            Peek::Object => {
                let start = json.current_index();
                self.skip(json)?;
                let members: Value = serde_json::from_slice(json.slice_to_current(start)).unwrap_or_default();
                let path = self.mapping.leaf(leaf).field.path.clone();
                object(&members, &path, contexts, inputs).map_err(|cause| Box::new(Failure::Rule(cause)))
            }
            other => Err(Box::new(Failure::Rule(Cause::new(
                "parsing_exception",
                format!("failed to parse [{shown}]: expected text or object, but got {}", kind(other)),
            )))),
        }
    }

    /// Puts an input into a leaf, its multi-fields, and the fields that it is copied to.
    fn put_input(&mut self, leaf: u32, input: &Input) -> ParseResult<()> {
        self.put_completion(leaf, input)?;
        for at in 0..self.mapping.leaf(leaf).fan.len() {
            let sub = self.mapping.leaf(leaf).fan[at];
            match self.mapping.leaf(sub).field.field_type {
                FieldType::Completion => self.put_completion(sub, input)?,
                _ => self.put_one(sub, Token::Str(&input.text))?,
            }
        }
        self.copies(leaf, Token::Str(&input.text))
    }

    /// Puts a text that is the input of a completion without saying more of it.
    pub(super) fn put_plain_completion(&mut self, leaf: u32, text: &str) -> ParseResult<()> {
        self.put_completion(leaf, &Input { text: text.to_owned(), weight: 1, contexts: Vec::new() })
    }

    fn put_completion(&mut self, leaf: u32, input: &Input) -> ParseResult<()> {
        let mapping = self.mapping.clone();
        let mapped = mapping.leaf(leaf);
        let field = &mapped.field;
        if input.text.trim().is_empty() {
            self.ignore(field.path.clone());
            return Ok(());
        }
        let text = cut(&input.text, field.max_input_length());
        check_reserved(text)?;
        let Some(analyzer) = mapping.analyzers().get(&field.analyzer) else {
            return Err(Failure::mapping(format!(
                "analyzer [{}] has not been configured in mappings",
                field.analyzer
            )));
        };
        let keys = field.completion_keys();
        let mut leads = vec![String::new()];
        if !field.contexts().list().is_empty() {
            leads =
                input.contexts.iter().map(|(place, value)| Completion::lead(*place, value, true)).collect();
            leads.sort_unstable();
            leads.dedup();
            if leads.is_empty() {
                return Err(Box::new(Failure::Mapping(millrace_runtime::Error::IllegalArgument(format!(
                    "Contexts are mandatory in context enabled completion field [{}]",
                    field.path
                )))));
            }
        }
        let scopes = scopes_of(&mapping, mapped);
        for path in paths(analyzer, keys.separators, keys.increments, text) {
            for lead in &leads {
                let term = format!("{lead}{path}{END}{:08X}{END}{text}", input.weight);
                check_term(&field.path, term.as_bytes())?;
                self.columns.push_str(scopes, field.column, term.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Adds an input; of equal ones the greater weight stays.
fn add(inputs: &mut Vec<Input>, input: Input) {
    match inputs.iter_mut().find(|known| known.text == input.text) {
        Some(known) if known.weight >= input.weight => {}
        Some(known) => *known = input,
        None => inputs.push(input),
    }
}

/// Reads the members of an input.
fn object(members: &Value, path: &str, contexts: &Contexts, inputs: &mut Vec<Input>) -> Result<(), Cause> {
    let mut texts = Vec::new();
    let mut weight = 1;
    let mut given = Vec::new();
    for (key, value) in members.as_object().into_iter().flatten() {
        match key.as_str() {
            "input" => match value {
                Value::String(text) => texts.push(text.clone()),
                Value::Array(items) => {
                    for item in items {
                        let Value::String(text) = item else {
                            return Err(Cause::argument(format!(
                                "input array must have string values, but was [{}]",
                                token(item)
                            )));
                        };
                        texts.push(text.clone());
                    }
                }
                other => {
                    return Err(Cause::argument(format!(
                        "input must be a string or array, but was [{}]",
                        token(other)
                    )));
                }
            },
            "weight" => weight = weight_of(value)?,
            "contexts" => {
                if contexts.list().is_empty() {
                    return Err(Cause::argument(format!(
                        "contexts field is not supported for field: [{path}]"
                    )));
                }
                let Value::Object(values) = value else {
                    return Err(Cause::argument(format!(
                        "contexts must be an object or an array , but was [{}]",
                        token(value)
                    )));
                };
                for (name, value) in values {
                    let (place, context) =
                        contexts.get(name).map_err(|error| Cause::argument(error.to_string()))?;
                    add_values(place, context, value, &mut given)?;
                }
            }
            other => {
                return Err(Cause::argument(format!(
                    "unknown field name [{other}], must be one of [input, weight, contexts]"
                )));
            }
        }
    }
    for text in texts {
        add(inputs, Input { text, weight, contexts: given.clone() });
    }
    Ok(())
}

fn weight_of(value: &Value) -> Result<u32, Cause> {
    let number = match value {
        Value::String(text) => text.parse::<i64>().ok(),
        Value::Number(number) => number.as_i64(),
        other => {
            return Err(Cause::argument(format!(
                "weight must be a number or string, but was [{}]",
                token(other)
            )));
        }
    };
    let shown = values::shown(value);
    let number =
        number.ok_or_else(|| Cause::argument(format!("weight must be an integer, but was [{shown}]")))?;
    u32::try_from(number).ok().filter(|weight| *weight <= i32::MAX as u32).ok_or_else(|| {
        Cause::argument(format!("weight must be in the interval [0..2147483647], but was [{shown}]"))
    })
}

/// Adds the values of a context.
fn add_values(
    place: usize,
    context: &Context,
    value: &Value,
    found: &mut Vec<(usize, String)>,
) -> Result<(), Cause> {
    match (context.kind, value) {
        (_, Value::Null) => return Ok(()),
        (ContextKind::Geo { .. }, Value::Array(items)) if items.iter().all(Value::is_number) => {}
        (_, Value::Array(items)) => {
            return items.iter().try_for_each(|item| add_values(place, context, item, found));
        }
        _ => {}
    }
    let text = match (context.kind, value) {
        (ContextKind::Category, Value::String(text)) => text.clone(),
        (ContextKind::Category, Value::Number(_) | Value::Bool(_)) => values::shown(value),
        (ContextKind::Category, other) => {
            return Err(Cause::new(
                "parse_exception",
                format!("context must be a string, number or boolean, but was [{}]", token(other)),
            ));
        }
        (ContextKind::Geo { precision }, value) => {
            let point = values::geo_value(value)?;
            values::check_point(point, &context.name)?;
            values::to_geohash(point, precision)
        }
    };
    check_reserved(&text).map_err(|_| {
        Cause::argument(format!(
            "Illegal value [{text}] of context [{}]: it has a reserved character",
            context.name
        ))
    })?;
    if found.len() >= MAX_CONTEXT_VALUES {
        return Err(Cause::argument(format!(
            "an input has more than [{MAX_CONTEXT_VALUES}] values of contexts"
        )));
    }
    found.push((place, text));
    Ok(())
}

/// Finds the values at a dotted path, through arrays.
fn at_path<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    match value {
        Value::Array(items) => items.iter().flat_map(|item| at_path(item, path)).collect(),
        Value::Object(members) => {
            if let Some(found) = members.get(path) {
                return vec![found];
            }
            let cuts = path.match_indices('.');
            cuts.filter_map(|(at, _)| Some((members.get(path.get(..at)?)?, path.get(at + 1..)?)))
                .flat_map(|(below, rest)| at_path(below, rest))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Cuts a text to so many UTF-16 code units, or one more where the last would be cut in two.
fn cut(text: &str, limit: usize) -> &str {
    let mut units = 0;
    for (at, character) in text.char_indices() {
        if units >= limit {
            return text.get(..at).unwrap_or(text);
        }
        units += character.len_utf16();
    }
    text
}

/// Refuses the characters that keep the parts of an input apart.
fn check_reserved(text: &str) -> ParseResult<()> {
    let mut units = 0;
    for character in text.chars() {
        if character == '\0' || matches!(character, SEPARATOR | END | CONTEXT) {
            return Err(Failure::rule(format!(
                "Illegal input [{text}] UTF-16 codepoint [0x{:x}] at position {units} is a reserved character",
                u32::from(character)
            )));
        }
        units += character.len_utf16();
    }
    Ok(())
}
