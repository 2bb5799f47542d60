//! `dissect`: takes texts apart at fixed delimiters.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem::Finder;
use millrace_ingest::event::text_of;
use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::{Number, Value};

use super::settings::texts_or;
use super::{Filter, Outcome};

/// Most fields of one mapping.
const MAX_FIELDS: usize = 1_000;

#[derive(Debug)]
struct Dissect {
    mappings: Vec<(FieldReference, Mapping)>,
    conversions: Vec<Conversion>,
    tags_on_failure: Vec<String>,
}

/// Fields of a text with the delimiters between them.
#[derive(Debug)]
struct Mapping {
    /// Text before the first field.
    start: String,
    fields: Vec<Field>,
    /// Positions of fields whose values are put into the event directly or joined, each with those that are appended
    /// to it, in order.
    values: Vec<(FieldReference, Vec<usize>)>,
    /// Positions of fields whose name another field has, each with the name of that.
    indirect: Vec<(String, usize)>,
}

#[derive(Debug)]
struct Field {
    /// Name for [`Mapping::indirect`].
    name: String,
    /// Delimiter behind it; empty at the end of the mapping.
    delimiter: String,
    /// Finds it.
    finder: Finder<'static>,
    /// `true` if the delimiter may be repeated.
    padded: bool,
}

#[derive(Debug)]
struct Conversion {
    field: FieldReference,
    name: String,
    integer: bool,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let mut mappings = Vec::new();
    for (field, mapping) in options.hash("mapping") {
        let read = mapping.as_text().ok_or_else(|| format!("the mapping of [{field}] must be a text"));
        let read = read.and_then(|mapping| Ok((FieldReference::parse(&field)?, Mapping::parse(&mapping)?)));
        match read {
            Ok(mapping) => mappings.push(mapping),
            Err(fault) => options.fault_here(fault),
        }
    }
    let mut conversions = Vec::new();
    for (name, kind) in options.hash("convert_datatype") {
        let kind = kind.as_text().unwrap_or_default();
        match (FieldReference::parse(&name), kind.as_str()) {
            (Ok(field), "int" | "float") => {
                conversions.push(Conversion { field, name, integer: kind == "int" })
            }
            (Err(fault), _) => options.fault_here(fault),
            (_, other) => {
                options.fault_here(format!("[{name}] can be converted to int or float, not to [{other}]"))
            }
        }
    }
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_dissectfailure"]);
    options.finish()?;
    Ok(Arc::new(Dissect { mappings, conversions, tags_on_failure }))
}

/// Notation of a field of a mapping.
struct FieldSpec<'a> {
    kind: Kind,
    name: &'a str,
    order: Option<usize>,
    padded: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Skip,
    Append,
    Indirect,
}

impl<'a> FieldSpec<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let wrong = |why: &str| format!("[%{{{text}}}] is not a field of a mapping: {why}");
        let (inner, padded) = match text.strip_suffix("->") {
            Some(inner) => (inner, true),
            None => (text, false),
        };
        let (kind, rest) = match inner.as_bytes().first() {
            None => (Kind::Skip, inner),
            Some(b'?') => (Kind::Skip, &inner[1..]),
            Some(b'+') => (Kind::Append, &inner[1..]),
            Some(b'&') => (Kind::Indirect, &inner[1..]),
            Some(_) => (Kind::Plain, inner),
        };
        let (name, order) = match rest.rsplit_once('/') {
            Some((name, order)) if kind == Kind::Append => {
                (name, Some(order.parse().map_err(|_| wrong("its order is not a number"))?))
            }
            _ => (rest, None),
        };
        if name.is_empty() && kind != Kind::Skip {
            return Err(wrong("it has no name"));
        }
        if name.starts_with(['?', '+', '&']) {
            return Err(wrong("it has more than one modifier"));
        }
        Ok(Self { kind, name, order, padded })
    }
}

impl Mapping {
    fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = text.split("%{");
        let start = pieces.next().unwrap_or_default().to_owned();
        let mut mapping = Self { start, fields: Vec::new(), values: Vec::new(), indirect: Vec::new() };
        // For each value: the name, and the order and place of its parts.
        let mut values: Vec<(&str, Vec<(usize, usize)>)> = Vec::new();
        for piece in pieces {
            let (inner, delimiter) = piece
                .split_once('}')
                .ok_or_else(|| format!("the mapping [{text}] has a field that is not closed"))?;
            let written = FieldSpec::parse(inner)?;
            let at = mapping.fields.len();
            if at >= MAX_FIELDS {
                return Err(format!("a mapping has at most {MAX_FIELDS} fields"));
            }
            if mapping.fields.last().is_some_and(|field| field.delimiter.is_empty()) {
                return Err(format!("the mapping [{text}] has two fields without a delimiter between them"));
            }
            match written.kind {
                Kind::Skip => {}
                Kind::Indirect => mapping.indirect.push((written.name.to_owned(), at)),
                Kind::Plain | Kind::Append => {
                    // A value that is put again replaces the first; one that is appended comes behind it.
                    let place = (written.order.unwrap_or(0), at);
                    match values.iter_mut().find(|(name, _)| *name == written.name) {
                        Some((_, parts)) if written.kind == Kind::Append => parts.push(place),
                        Some((_, parts)) => *parts = vec![place],
                        None => values.push((written.name, vec![place])),
                    }
                }
            }
            mapping.fields.push(Field {
                name: written.name.to_owned(),
                delimiter: delimiter.to_owned(),
                finder: Finder::new(delimiter).into_owned(),
                padded: written.padded,
            });
        }
        if mapping.fields.is_empty() {
            return Err(format!("the mapping [{text}] has no field"));
        }
        for (name, mut parts) in values {
            parts.sort_unstable();
            mapping
                .values
                .push((FieldReference::parse(name)?, parts.into_iter().map(|(_, at)| at).collect()));
        }
        Ok(mapping)
    }

    /// Text of each field, or nothing where the delimiters are not all there.
    fn cut<'a>(&self, text: &'a str) -> Option<Vec<&'a str>> {
        let mut rest = text.strip_prefix(self.start.as_str())?;
        let mut parts = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            if field.delimiter.is_empty() {
                parts.push(rest);
                rest = "";
                continue;
            }
            let (part, behind) = rest.split_at_checked(field.finder.find(rest.as_bytes())?)?;
            parts.push(part);
            rest = behind.get(field.delimiter.len()..)?;
            if field.padded {
                rest = rest.trim_start_matches(field.delimiter.as_str());
            }
        }
        Some(parts)
    }

    /// Puts the fields of a text into an event: each where the mapping says, or where the text itself does. `None` where
    /// the delimiters are not all there; whether everything found its place.
    fn put(&self, text: &str, event: &mut Event) -> Option<bool> {
        let parts = self.cut(text)?;
        let part = |at: usize| parts.get(at).copied().unwrap_or_default();
        let mut all = true;
        for (reference, places) in &self.values {
            let put = match places.as_slice() {
                [at] => event.put_text(reference, part(*at)),
                places => event.put_text(reference, &self.joined(places, part)),
            };
            all &= put.is_ok();
        }
        for (name, at) in &self.indirect {
            let names = self.fields.iter().position(|field| field.name == *name).filter(|names| names != at);
            if let Some(reference) = names.and_then(|names| FieldReference::parse(part(names)).ok()) {
                all &= event.put_text(&reference, part(*at)).is_ok();
            }
        }
        Some(all)
    }

    fn joined<'a>(&self, places: &[usize], part: impl Fn(usize) -> &'a str) -> String {
        let mut value = String::new();
        for (nth, at) in places.iter().enumerate() {
            if nth > 0 {
                // What stands before the part in the text; the first part has only what stands behind it.
                let delimiter = self.fields.get(at.saturating_sub(1)).map_or("", |field| &field.delimiter);
                value.push_str(delimiter);
            }
            value.push_str(part(*at));
        }
        value
    }
}

impl Filter for Dissect {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let mut outcome = Outcome::Matched;
        for (field, mapping) in &self.mappings {
            let put = match event.get(field).map(Cow::into_owned) {
                None | Some(Value::Null) => {
                    outcome = Outcome::Unmatched;
                    continue;
                }
                Some(Value::String(text)) => (!text.is_empty()).then(|| mapping.put(&text, event)).flatten(),
                Some(other) => mapping.put(&text_of(&other), event),
            };
            if put != Some(true) {
                self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
                outcome = Outcome::Unmatched;
            }
        }
        self.conversions.iter().for_each(|conversion| conversion.apply(event));
        outcome
    }
}

impl Conversion {
    fn apply(&self, event: &mut Event) {
        let kind = if self.integer { "int" } else { "float" };
        let converted = match event.get(&self.field).as_deref() {
            None | Some(Value::Null) => Err("nullvalue"),
            Some(value @ (Value::String(_) | Value::Number(_))) => {
                number(&text_of(value), self.integer).ok_or("uncoercible")
            }
            Some(_) => Err("uncoercible"),
        };
        let set = converted
            .and_then(|number| event.set(&self.field, Value::Number(number)).map_err(|_| "uncoercible"));
        if let Err(why) = set {
            event.tag(&format!("_dataconversion{why}_{}_{kind}", self.name));
        }
    }
}

fn number(text: &str, integer: bool) -> Option<Number> {
    let text = text.trim();
    if integer {
        if let Ok(whole) = text.parse::<i64>() {
            return Some(whole.into());
        }
        let float = text.parse::<f64>().ok().filter(|float| float.abs() < 9.0e18)?;
        return Some((float.trunc() as i64).into());
    }
    text.parse().ok().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Event, Mapping};

    #[test]
    fn wrong_mappings_are_named() {
        for mapping in ["no field", "%{a", "%{a}%{b}", "%{+}", "%{&}", "%{+a/x} %{b}", "%{?+a}", "%{[a}"] {
            assert!(Mapping::parse(mapping).is_err(), "{mapping}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(mapping in "[a-c%{}+?&/0-9> :,\\-\\[\\]ä]{0,40}", text in "\\PC{0,40}") {
            if let Ok(mapping) = Mapping::parse(&mapping) {
                let _ = mapping.put(&text, &mut Event::new(chrono::DateTime::UNIX_EPOCH));
            }
        }

        #[test]
        fn what_is_joined_comes_apart(parts in proptest::collection::vec("[a-z]{0,5}", 1..8)) {
            let mapping: Vec<String> = (0..parts.len()).map(|at| format!("%{{f{at}}}")).collect();
            let mapping = Mapping::parse(&mapping.join(" | ")).unwrap();
            let text = parts.join(" | ");
            let cut: Vec<String> = mapping.cut(&text).unwrap().into_iter().map(str::to_owned).collect();
            prop_assert_eq!(cut, parts);
        }
    }
}
