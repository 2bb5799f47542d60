//! `suggest`: likely intended texts, or likely continuations. One file a suggester.

mod completion;
mod phrase;
mod term;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::json;

pub use completion::{CategoryContext, CompletionQuery, CompletionSuggester, contexts_of};
pub use phrase::{Generator, PhraseSuggester, Smoothing};
pub use term::{Distance, SortBy, SpellingOptions, SuggestMode, TermSuggester};

/// Most suggestions of one request.
const MAX_SUGGESTIONS: usize = 100;
/// Most options of a suggestion.
const MAX_SIZE: usize = 10_000;
/// Longest text that suggestions are made for, in bytes.
const MAX_TEXT: usize = 16 << 10;

/// A named suggestion of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// Name under which it is answered.
    pub name: String,
    /// The text that it is made for; absent where the request gives none.
    pub text: Option<String>,
    /// Suggester that is used.
    pub suggester: Suggester,
}

/// Kind of a suggestion.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Suggester {
    Term(TermSuggester),
    Phrase(Box<PhraseSuggester>),
    Completion(CompletionSuggester),
}

impl Suggester {
    /// Returns its name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Term(_) => "term",
            Self::Phrase(_) => "phrase",
            Self::Completion(_) => "completion",
        }
    }
}

/// Parses the member `suggest`.
pub(crate) fn parse(value: &Value) -> Result<Vec<Suggestion>> {
    let Value::Object(members) = value else {
        return Err(Error::Parsing(format!(
            "Unknown key for a {} in [suggest].",
            json::token(value).to_ascii_uppercase()
        )));
    };
    let mut global = None;
    let mut suggestions = Vec::new();
    for (name, value) in members {
        match value {
            Value::String(text) if name == "text" => global = Some(short_text(text)?),
            Value::Object(options) => suggestions.push(suggestion(name, options)?),
            _ => return Err(Error::IllegalArgument(format!("[suggest] does not support [{name}]"))),
        }
        if suggestions.len() > MAX_SUGGESTIONS {
            return Err(Error::IllegalArgument(format!(
                "too many suggestions: at most {MAX_SUGGESTIONS} allowed"
            )));
        }
    }
    for suggestion in &mut suggestions {
        if suggestion.text.is_none() {
            suggestion.text.clone_from(&global);
        }
    }
    Ok(suggestions)
}

fn suggestion(name: &str, members: &Map<String, Value>) -> Result<Suggestion> {
    let (mut text, mut prefix, mut regex, mut suggester) = (None, None, None, None);
    for (key, value) in members {
        match (key.as_str(), value) {
            ("text" | "prefix" | "regex", value) => {
                let given = json::text(value).ok_or_else(|| {
                    Error::IllegalArgument(format!("[suggestion] does not support [{key}]"))
                })?;
                let given = Some(short_text(&given)?);
                match key.as_str() {
                    "text" => text = given,
                    "prefix" => prefix = given,
                    _ => regex = given,
                }
            }
            ("term", Value::Object(options)) => {
                suggester = Some(Suggester::Term(TermSuggester::parse(options)?))
            }
            ("phrase", Value::Object(options)) => {
                suggester = Some(Suggester::Phrase(Box::new(PhraseSuggester::parse(options)?)));
            }
            ("completion", Value::Object(options)) => {
                suggester = Some(Suggester::Completion(CompletionSuggester::parse(options)?));
            }
            (_, Value::Object(_)) => {
                return Err(Error::NamedObjectNotFound(format!("unknown field [{key}]")));
            }
            _ => return Err(Error::IllegalArgument(format!("[suggestion] does not support [{key}]"))),
        }
    }
    let mut suggester = suggester.ok_or_else(|| Error::Parse("missing suggestion object".to_owned()))?;
    if let Suggester::Completion(completion) = &mut suggester
        && prefix.is_none()
        && text.is_none()
        && regex.is_some()
    {
        completion.by_expression();
    }
    let text = text.or(prefix).or(regex);
    Ok(Suggestion { name: name.to_owned(), text, suggester })
}

fn short_text(text: &str) -> Result<String> {
    match text.len() <= MAX_TEXT {
        true => Ok(text.to_owned()),
        false => Err(Error::IllegalArgument(format!(
            "the text of a suggestion has {} bytes, at most {MAX_TEXT} are allowed",
            text.len()
        ))),
    }
}

/// Reads a count that must be positive.
fn size(name: &str, value: &Value) -> Result<usize> {
    match usize::try_from(json::integer(value)?) {
        Ok(size) if size > MAX_SIZE => {
            Err(Error::IllegalArgument(format!("{name} must be at most {MAX_SIZE}, but was {size}")))
        }
        Ok(size) if size > 0 => Ok(size),
        _ => Err(Error::IllegalArgument(format!("{name} must be positive"))),
    }
}

fn name_of(value: &Value, option: &str) -> Result<String> {
    json::text(value).ok_or_else(|| Error::IllegalArgument(format!("[{option}] must be a string")))
}

fn required_field(field: Option<String>) -> Result<String> {
    field.ok_or_else(|| Error::Parse("the required field option [field] is missing".to_owned()))
}
