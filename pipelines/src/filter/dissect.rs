//! `dissect`: takes texts apart at fixed delimiters.

use std::borrow::Cow;
use std::sync::Arc;

use millrace_ingest::dissect::{DissectDialect, DissectModifier, DissectPattern};
use millrace_ingest::event::text_of;
use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::{Number, Value};

use super::settings::texts_or;
use super::{Filter, Outcome};

#[derive(Debug)]
struct Dissect {
    mappings: Vec<(FieldReference, Mapping)>,
    conversions: Vec<Conversion>,
    tags_on_failure: Vec<String>,
}

/// A pattern with the fields that its texts are put into.
#[derive(Debug)]
struct Mapping {
    pattern: DissectPattern,
    /// Positions of fields whose values are put into the event directly or joined, each with those that are appended
    /// to it, in order.
    values: Vec<(FieldReference, Vec<usize>)>,
    /// Positions of fields whose name another field has, each with the name of that.
    indirect: Vec<(String, usize)>,
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

impl Mapping {
    fn parse(text: &str) -> Result<Self, String> {
        let pattern = DissectPattern::parse(text, DissectDialect::Logstash)?;
        let mut indirect = Vec::new();
        // For each value: the name, and the order and place of its parts.
        let mut named: Vec<(&str, Vec<(usize, usize)>)> = Vec::new();
        for (at, field) in pattern.fields().iter().enumerate() {
            match field.modifier {
                DissectModifier::Skip | DissectModifier::ReferenceKey => {}
                DissectModifier::ReferenceValue => indirect.push((field.name.clone(), at)),
                DissectModifier::Plain | DissectModifier::Append => {
                    // A value that is put again replaces the first; one that is appended comes behind it.
                    let place = (field.order.unwrap_or(0), at);
                    match named.iter_mut().find(|(name, _)| *name == field.name) {
                        Some((_, parts)) if field.modifier == DissectModifier::Append => parts.push(place),
                        Some((_, parts)) => *parts = vec![place],
                        None => named.push((&field.name, vec![place])),
                    }
                }
            }
        }
        let mut values = Vec::with_capacity(named.len());
        for (name, mut parts) in named {
            parts.sort_unstable();
            values.push((FieldReference::parse(name)?, parts.into_iter().map(|(_, at)| at).collect()));
        }
        Ok(Self { pattern, values, indirect })
    }

    /// Puts the fields of a text into an event: each where the mapping says, or where the text itself does. `None` where
    /// the delimiters are not all there; whether everything found its place.
    fn put(&self, text: &str, event: &mut Event) -> Option<bool> {
        let parts = self.pattern.cut(text)?;
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
            let names = self
                .pattern
                .fields()
                .iter()
                .position(|field| field.name == *name)
                .filter(|names| names != at);
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
                let delimiter =
                    self.pattern.fields().get(at.saturating_sub(1)).map_or("", |field| &field.delimiter);
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

/// Converts a text. A whole number of more than 64 bits becomes the nearest number with a fraction, as `mutate` has it.
fn number(text: &str, integer: bool) -> Option<Number> {
    let text = text.trim();
    if integer {
        if let Ok(whole) = text.parse::<i64>() {
            return Some(whole.into());
        }
        if let Ok(whole) = text.parse::<u64>() {
            return Some(whole.into());
        }
        let whole = text.parse::<f64>().ok()?.trunc();
        return if whole.abs() < 9.0e18 { Some((whole as i64).into()) } else { Number::from_f64(whole) };
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
            let cut: Vec<String> = mapping.pattern.cut(&text).unwrap().into_iter().map(str::to_owned).collect();
            prop_assert_eq!(cut, parts);
        }
    }
}
