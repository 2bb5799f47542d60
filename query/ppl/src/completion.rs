//! Completions: the tokens that can stand at the cursor, for shells and editors.
//!
//! The text before the word at the cursor is parsed. The tokens that the parser looked for at its end are the candidates;
//! names of fields and indices come from the caller.

use crate::parser::{Expectation, expected_at_end};
use crate::reference::FUNCTIONS;

/// A text that can replace the word at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionCandidate {
    /// The offset at which the word begins, in bytes.
    pub start: usize,
    /// The text that replaces the word.
    pub text: String,
    /// The kind of the text.
    pub kind: CandidateKind,
}

/// Kinds of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    /// The name of a command.
    Command,
    /// An option; the text ends with `=`.
    CommandOption,
    /// A word of the language.
    Keyword,
    /// A function; the text ends with `(`.
    Function,
    /// A field.
    Field,
    /// An index.
    Index,
    /// A value.
    Value,
}

/// Names that the caller knows.
#[derive(Clone, Debug, Default)]
pub struct CompletionNames {
    /// The fields of the source.
    pub fields: Vec<String>,
    /// The indices and aliases.
    pub indices: Vec<String>,
    /// Values of fields, as pairs of field and value.
    pub values: Vec<(String, String)>,
}

/// Lists the completions of the word at the cursor, an offset in bytes.
#[must_use]
pub fn completions(text: &str, cursor: usize, names: &CompletionNames) -> Vec<CompletionCandidate> {
    let before = text.get(..cursor.min(text.len())).unwrap_or_default();
    let is_word = |letter: char| letter.is_alphanumeric() || "_@.*`-".contains(letter);
    let start = before
        .rfind(|letter| !is_word(letter))
        .map_or(0, |at| at + before.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8));
    let word = before.get(start..).unwrap_or_default();
    let lead = before.get(..start).unwrap_or_default();
    let expected = expected_at_end(lead);
    if expected.offset() < lead.trim_end().len() {
        return Vec::new();
    }
    let mut found =
        Candidates { start, word: word.trim_start_matches('`').to_lowercase(), found: Vec::new() };
    for token in expected.tokens() {
        match token {
            Expectation::Command(name) => found.add(CandidateKind::Command, (*name).to_owned()),
            Expectation::Choice(name) => found.add(CandidateKind::CommandOption, format!("{name}=")),
            Expectation::Keyword(name) => found.add(CandidateKind::Keyword, (*name).to_owned()),
            Expectation::Boolean => {
                found.add(CandidateKind::Value, "true".to_owned());
                found.add(CandidateKind::Value, "false".to_owned());
            }
            Expectation::Function => found.add_functions(false),
            Expectation::Aggregate => found.add_functions(true),
            Expectation::Field => found.add_names(CandidateKind::Field, &names.fields),
            Expectation::Index => found.add_names(CandidateKind::Index, &names.indices),
            Expectation::Term | Expectation::Text => found.add_values(lead, names),
            _ => {}
        }
    }
    if let Some(field) = compared_field(lead) {
        found.add_values_of(field, names);
    }
    found.found
}

/// Returns the indices that a text names as its first source, with commas between them. The text may be incomplete.
#[must_use]
pub fn source_of(text: &str) -> Option<String> {
    let mut names = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.ends_with(char::is_whitespace) {
        names.push(' ');
    }
    let names = names.replace(" =", "=").replace("= ", "=");
    let lower = names.to_ascii_lowercase();
    let start = ["source=", "index="].into_iter().find_map(|word| Some(lower.find(word)? + word.len()))?;
    let rest = names.get(start..)?.replace(", ", ",");
    let end = rest.find(|letter: char| !(letter.is_alphanumeric() || "_-.*,@".contains(letter)))?;
    rest.get(..end).filter(|names| !names.is_empty()).map(str::to_owned)
}

/// Completions that begin with the word at the cursor.
struct Candidates {
    start: usize,
    word: String,
    found: Vec<CompletionCandidate>,
}

impl Candidates {
    fn add(&mut self, kind: CandidateKind, text: String) {
        let plain = text.trim_start_matches(['`', '\'']);
        let is_new = !self.found.iter().any(|other| other.text == text);
        if plain.to_lowercase().starts_with(&self.word) && is_new {
            self.found.push(CompletionCandidate { start: self.start, text, kind });
        }
    }

    fn add_functions(&mut self, are_aggregates: bool) {
        for function in FUNCTIONS.iter().filter(|function| function.group.is_aggregate() == are_aggregates) {
            self.add(CandidateKind::Function, format!("{}(", function.name));
        }
    }

    fn add_names(&mut self, kind: CandidateKind, names: &[String]) {
        for name in names {
            let is_plain = name.chars().all(|c| c.is_alphanumeric() || "_@.-*".contains(c));
            self.add(kind, if is_plain { name.clone() } else { format!("`{}`", name.replace('`', "``")) });
        }
    }

    fn add_values(&mut self, lead: &str, names: &CompletionNames) {
        if let Some(field) = compared_field(lead) {
            self.add_values_of(field, names);
        }
    }

    fn add_values_of(&mut self, field: &str, names: &CompletionNames) {
        for (_, value) in names.values.iter().filter(|(of, _)| of == field) {
            self.add(CandidateKind::Value, format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'")));
        }
    }
}

/// Returns the field in front of a comparison that the text ends with.
fn compared_field(lead: &str) -> Option<&str> {
    let behind = lead.trim_end().trim_end_matches(['\'', '"']);
    let field = behind.trim_end_matches(['=', '!']).trim_end();
    if field.len() == behind.len() {
        return None;
    }
    let start = field.rfind(|c: char| c.is_whitespace() || "(|,[".contains(c)).map_or(0, |at| at + 1);
    Some(field.get(start..)?.trim_matches('`'))
}
