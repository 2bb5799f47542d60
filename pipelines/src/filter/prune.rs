//! `prune`: removes fields by their names and values.

use std::sync::Arc;

use millrace_ingest::event::text_of;
use millrace_ingest::pattern::{Deadline, Expression};
use millrace_ingest::{Event, Fault, Options, Template};
use serde_json::Value;

use super::settings::texts_or;
use super::{Filter, Outcome};

/// Names that formats without a field have left behind.
const UNRESOLVED: &str = r"%\{[^}]+\}";

#[derive(Debug)]
struct Prune {
    whitelist_names: Vec<Pattern>,
    blacklist_names: Vec<Pattern>,
    whitelist_values: Vec<(Template, Pattern)>,
    blacklist_values: Vec<(Template, Pattern)>,
    interpolate: bool,
}

/// An expression that is the same for all events, or made for each.
#[derive(Debug)]
enum Pattern {
    Fixed(Expression),
    PerEvent(Template),
}

impl Pattern {
    fn parse(text: &str, interpolate: bool) -> Result<Self, String> {
        let template = Template::parse(text);
        if interpolate && !template.is_constant() {
            return Ok(Self::PerEvent(template));
        }
        Expression::compile(text).map(Self::Fixed)
    }

    /// Returns whether a text matches. A pattern that an event makes invalid, or that takes too long, matches nothing.
    fn is_match(&self, text: &str, event: &Event) -> bool {
        let deadline = Deadline::default();
        match self {
            Self::Fixed(expression) => expression.is_match(text, &deadline),
            Self::PerEvent(template) => match Expression::compile(&template.render(event)) {
                Ok(expression) => expression.is_match(text, &deadline),
                Err(_) => Ok(false),
            },
        }
        .unwrap_or(false)
    }
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let interpolate = options.boolean("interpolate").unwrap_or(false);
    let patterns = |options: &mut Options, name: &'static str, default: &[&str]| {
        let mut patterns = Vec::new();
        for text in texts_or(options, name, default) {
            match Pattern::parse(&text, interpolate) {
                Ok(pattern) => patterns.push(pattern),
                Err(fault) => options.fault_here(fault),
            }
        }
        patterns
    };
    let whitelist_names = patterns(&mut options, "whitelist_names", &[]);
    let blacklist_names = patterns(&mut options, "blacklist_names", &[UNRESOLVED]);
    let values = |options: &mut Options, name: &'static str| {
        let mut values = Vec::new();
        for (field, value) in options.hash(name) {
            match Pattern::parse(&value.as_text().unwrap_or_default(), interpolate) {
                Ok(pattern) => values.push((Template::parse(&field), pattern)),
                Err(fault) => options.fault_here(fault),
            }
        }
        values
    };
    let whitelist_values = values(&mut options, "whitelist_values");
    let blacklist_values = values(&mut options, "blacklist_values");
    options.finish()?;
    Ok(Arc::new(Prune { whitelist_names, blacklist_names, whitelist_values, blacklist_values, interpolate }))
}

impl Prune {
    /// Returns what is left of a value whose texts are to match, or not to; `None` where nothing is.
    fn left(value: &Value, pattern: &Pattern, wanted: bool, event: &Event) -> Option<Value> {
        let stays = |value: &Value| pattern.is_match(&text_of(value), event) == wanted;
        match value {
            Value::Array(elements) => {
                let left: Vec<Value> = elements.iter().filter(|element| stays(element)).cloned().collect();
                (!left.is_empty() || elements.is_empty()).then_some(Value::Array(left))
            }
            Value::Null | Value::Bool(false) => Some(value.clone()),
            single => stays(single).then(|| single.clone()),
        }
    }
}

impl Filter for Prune {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let any =
            |patterns: &[Pattern], name: &str| patterns.iter().any(|pattern| pattern.is_match(name, event));
        let mut removed: Vec<String> = Vec::new();
        for name in event.fields().keys() {
            let is_listed = self.whitelist_names.is_empty() || any(&self.whitelist_names, name);
            if !is_listed || any(&self.blacklist_names, name) {
                removed.push(name.clone());
            }
        }
        for (values, wanted) in [(&self.whitelist_values, true), (&self.blacklist_values, false)] {
            for (field, pattern) in values {
                let field = if self.interpolate { field.render(event) } else { field.as_str().to_owned() };
                let Some(value) = event.fields().get(&field) else { continue };
                match Self::left(value, pattern, wanted, event) {
                    None => removed.push(field),
                    // The next pattern sees what this one has left.
                    Some(left) if left != *value => drop(event.fields_mut().insert(field, left)),
                    Some(_) => {}
                }
            }
        }
        for field in removed {
            event.fields_mut().shift_remove(&field);
        }
        Outcome::Matched
    }
}
