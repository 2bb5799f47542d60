//! Replacing `%{NAME:field:type}` by definitions.

use std::collections::HashMap;

use super::library::is_name;
use super::matcher::Kind;
use super::{Capture, Library};

/// Longest expression that definitions may make, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Depth to which definitions may name one another.
const MAX_DEPTH: usize = 64;
/// Most fields of a pattern.
const MAX_CAPTURES: usize = 2_000;
/// Marks the groups that are made here, where the name of a group stands.
pub(super) const MARK: char = '\u{1}';

/// Shortest definition that is written once only, in bytes.
const MIN_SHARED: usize = 128;

/// Replaces all references in a pattern. Each that names a field becomes a group `(?<MARK number>…)`, where the
/// number is its place in the captures answered.
pub(super) fn expand(
    pattern: &str,
    library: &Library,
    named_only: bool,
) -> Result<(String, Vec<Capture>), String> {
    let mut expansion = Expansion::new(library, named_only);
    expansion.add(pattern)?;
    Ok((expansion.out, expansion.captures))
}

/// Replaces them likewise, but writes definitions that capture nothing once: each place that names one calls it, by a group `(?MARK number)`,
/// where the number is its place in the definitions answered. `None` where that would not mean the same, or is not shorter.
pub(super) fn expand_shared(
    pattern: &str,
    library: &Library,
    named_only: bool,
) -> Option<(String, Vec<String>)> {
    let mut expansion =
        Expansion { shared: Some(ExpansionState::default()), ..Expansion::new(library, named_only) };
    expansion.add(pattern).ok()?;
    let ExpansionState { definitions, .. } = expansion.shared?;
    // An option that is set in one place would not have effect in another.
    let sets_options = |text: &str| {
        let mut behind = text.split("(?").skip(1).filter_map(|behind| behind.chars().next());
        behind.any(|letter| letter.is_ascii_alphabetic() || letter == '-')
    };
    let texts = || definitions.iter().chain([&expansion.out]);
    (!definitions.is_empty() && !texts().any(|text| sets_options(text)))
        .then_some((expansion.out, definitions))
}

/// Returns whether a definition means the same wherever it stands: it captures nothing and refers to no group.
fn stands_alone(expanded: &str) -> bool {
    let mut letters = expanded.chars();
    let mut before = ['\0'; 2];
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            if letters.next().is_some_and(|escaped| matches!(escaped, '1'..='9' | 'k' | 'g')) {
                return false;
            }
            before = ['\0'; 2];
            continue;
        }
        match (before, letter) {
            // A group with a name or a number; a look-behind is none.
            (['(', '?'], '\'' | '(') => return false,
            (['?', '<'], letter) if letter != '=' && letter != '!' => return false,
            _ => {}
        }
        before = [before[1], letter];
    }
    true
}

struct Expansion<'a> {
    library: &'a Library,
    named_only: bool,
    out: String,
    captures: Vec<Capture>,
    /// Names of the definitions that are being replaced, from the outermost.
    within: Vec<String>,
    /// Definitions that are written once, where that is wanted.
    shared: Option<ExpansionState>,
}

#[derive(Default)]
struct ExpansionState {
    definitions: Vec<String>,
    /// Places of definitions by their names; `None` for those that are written wherever they are named.
    known: HashMap<String, Option<usize>>,
}

impl<'a> Expansion<'a> {
    fn new(library: &'a Library, named_only: bool) -> Self {
        Self {
            library,
            named_only,
            out: String::new(),
            captures: Vec::new(),
            within: Vec::new(),
            shared: None,
        }
    }

    /// The place of a shared definition.
    fn share(&mut self, name: &str, definition: &str) -> Option<usize> {
        if let Some(known) = self.shared.as_ref()?.known.get(name) {
            return *known;
        }
        let mut whole = Self::new(self.library, self.named_only);
        whole.within.clone_from(&self.within);
        whole.within.push(name.to_owned());
        let expanded = whole.add(definition).is_ok();
        let alone = expanded
            && whole.captures.is_empty()
            && whole.out.len() >= MIN_SHARED
            && stands_alone(&whole.out);
        let shared = self.shared.as_mut()?;
        let place = alone.then(|| {
            shared.definitions.push(whole.out);
            shared.definitions.len() - 1
        });
        shared.known.insert(name.to_owned(), place);
        place
    }

    fn add(&mut self, pattern: &str) -> Result<(), String> {
        let mut rest = pattern;
        while let Some(start) = rest.find("%{") {
            let (before, from) = rest.split_at(start);
            self.push(before)?;
            match Reference::parse(from) {
                Some((reference, behind)) => {
                    self.reference(&reference)?;
                    rest = behind;
                }
                None => {
                    self.push("%{")?;
                    rest = &from[2..];
                }
            }
        }
        self.push(rest)
    }

    fn push(&mut self, text: &str) -> Result<(), String> {
        if text.contains(MARK) {
            return Err("a pattern cannot have the control character 1".to_owned());
        }
        self.out.push_str(text);
        if self.out.len() > MAX_BYTES {
            return Err(format!(
                "the pattern becomes longer than {MAX_BYTES} bytes; its definitions name too much"
            ));
        }
        Ok(())
    }

    fn reference(&mut self, reference: &Reference<'_>) -> Result<(), String> {
        let name = reference.name;
        if self.within.iter().any(|within| within == name) {
            return Err(format!(
                "the pattern [{name}] is defined by itself: {} -> {name}",
                self.within.join(" -> ")
            ));
        }
        if self.within.len() >= MAX_DEPTH {
            return Err(format!("patterns name one another more than {MAX_DEPTH} deep at [{name}]"));
        }
        let definition = match reference.definition {
            Some(definition) => definition,
            None => self.library.get(name).ok_or_else(|| {
                let suggestion = crate::options::suggest(name, self.library.names());
                format!("there is no pattern [{name}]{suggestion}")
            })?,
        };
        let field = reference.field.or((!self.named_only).then_some(name));
        match field {
            Some(field) => {
                if self.captures.len() >= MAX_CAPTURES {
                    return Err(format!("the pattern has more than {MAX_CAPTURES} fields"));
                }
                self.out.push_str(&format!("(?<{MARK}{}>", self.captures.len()));
                self.captures.push(Capture {
                    name: field.to_owned(),
                    kind: reference.kind,
                    type_name: reference.type_name.map(Box::from),
                    group: 0,
                });
            }
            None => self.out.push_str("(?:"),
        }
        let place = match reference.definition {
            Some(_) => None,
            None => self.share(name, definition),
        };
        if let Some(place) = place {
            self.out.push_str(&format!("(?{MARK}{place}))"));
            return Ok(());
        }
        self.within.push(name.to_owned());
        self.add(definition)?;
        self.within.pop();
        self.push(")")
    }
}

/// Returns the names that a text begins with, with the colons between them. As in Logstash, patterns may have anything behind it, which has no meaning:
/// `HTTPD24_ERRORLOG` has `[code]?`.
fn leading_name(text: &str) -> &str {
    let is_part =
        |letter: char| !letter.is_ascii() || letter.is_ascii_alphanumeric() || "@[]_:.-^`\\".contains(letter);
    text.find(|letter| !is_part(letter)).and_then(|end| text.get(..end)).unwrap_or(text)
}

/// `%{NAME}`, `%{NAME:field}`, `%{NAME:field:type}`, each also with `=definition`.
struct Reference<'a> {
    name: &'a str,
    field: Option<&'a str>,
    kind: Kind,
    type_name: Option<&'a str>,
    definition: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// Reads a reference that begins a text, and answers what stands behind it.
    fn parse(text: &'a str) -> Option<(Self, &'a str)> {
        let inner = text.strip_prefix("%{")?;
        let (inner, behind) = inner.split_once('}')?;
        let length = inner.bytes().take_while(|byte| is_name(*byte)).count();
        let (name, rest) = inner.split_at(length);
        if name.is_empty() {
            return None;
        }
        let (rest, definition) = match rest.split_once('=') {
            Some((rest, definition)) => (rest, Some(definition)),
            None => (rest, None),
        };
        let (field, type_name) = match rest.strip_prefix(':').map(leading_name) {
            Some(field) => match field.split_once(':') {
                Some((field, type_name)) => (Some(field), Some(type_name)),
                None => (Some(field), None),
            },
            None => (None, None),
        };
        let kind = type_name.map_or(Kind::Text, Kind::named);
        let field = field.filter(|field| !field.is_empty());
        Some((Self { name, field, kind, type_name, definition }, behind))
    }
}
