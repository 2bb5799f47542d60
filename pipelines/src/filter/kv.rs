//! `kv`: finds keys and values in texts.

mod scan;

use std::sync::Arc;
use std::time::Duration;

use millrace_ingest::event::text_of;
use millrace_ingest::pattern::{Deadline, Expression, MatchStopped};
use millrace_ingest::{Event, Fault, FieldReference, Options, Template};
use serde_json::{Map, Value};

use super::characters::Characters;
use super::settings::{texts_or, value_of};
use super::{Filter, Outcome};
use scan::{Separator, Syntax};

/// Time that Logstash gives a text.
const DEFAULT_TIMEOUT_MILLIS: i64 = 30_000;
/// Longest time that can be given.
const MAX_TIMEOUT_MILLIS: i64 = 86_400_000;
/// Depth to which values are searched for pairs.
const MAX_DEPTH: usize = 16;
/// Pairs between looks at the clock.
const PAIRS_PER_LOOK: usize = 256;

#[derive(Debug)]
struct Kv {
    syntax: Syntax,
    key: Change,
    value: Change,
    include_keys: Vec<Template>,
    exclude_keys: Vec<Template>,
    default_keys: Vec<(String, Value)>,
    prefix: Template,
    source: FieldReference,
    target: Option<FieldReference>,
    recursive: bool,
    duplicates: bool,
    empty_values: bool,
    timeout: Duration,
    tags_on_failure: Vec<String>,
    tags_on_timeout: Vec<String>,
}

/// Change of keys, or of values.
#[derive(Debug)]
struct Change {
    trim: Option<Characters>,
    remove: Option<Characters>,
    transform: Option<&'static str>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    // Names of fields are those of the event, with and without the schema.
    let _ = options.ecs_compatibility();
    let timeout = options.integer("timeout_millis", 0..=MAX_TIMEOUT_MILLIS).unwrap_or(DEFAULT_TIMEOUT_MILLIS);
    let timeout =
        Duration::from_millis(if timeout == 0 { MAX_TIMEOUT_MILLIS } else { timeout }.unsigned_abs());
    let syntax = Syntax {
        fields: separator(&mut options, "field_split", "field_split_pattern", " "),
        values: separator(&mut options, "value_split", "value_split_pattern", "="),
        lenient: options.one_of("whitespace", &["lenient", "strict"]) != Some("strict"),
        brackets: options.boolean("include_brackets").unwrap_or(true),
    };
    let kv = Kv {
        syntax,
        key: Change::take(&mut options, "trim_key", "remove_char_key", "transform_key"),
        value: Change::take(&mut options, "trim_value", "remove_char_value", "transform_value"),
        include_keys: options.texts("include_keys").iter().map(|key| Template::parse(key)).collect(),
        exclude_keys: options.texts("exclude_keys").iter().map(|key| Template::parse(key)).collect(),
        default_keys: options
            .hash("default_keys")
            .into_iter()
            .map(|(key, value)| (key, value_of(value)))
            .collect(),
        prefix: options.template("prefix").unwrap_or_else(|| Template::parse("")),
        source: options
            .field("source")
            .map_or_else(|| FieldReference::parse("message"), Ok)
            .map_err(|fault| vec![Fault { at: options.at(), message: fault }])?,
        target: options.field("target"),
        recursive: options.boolean("recursive").unwrap_or(false),
        duplicates: options.boolean("allow_duplicate_values").unwrap_or(true),
        empty_values: options.boolean("allow_empty_values").unwrap_or(false),
        timeout,
        tags_on_failure: texts_or(&mut options, "tag_on_failure", &["_kv_filter_error"]),
        tags_on_timeout: texts_or(&mut options, "tag_on_timeout", &["_kv_filter_timeout"]),
    };
    options.finish()?;
    Ok(Arc::new(kv))
}

/// Takes a separator: characters, or an expression that goes before them.
fn separator(
    options: &mut Options,
    characters: &'static str,
    expression: &'static str,
    default: &str,
) -> Separator {
    let set = options.text(characters);
    if let Some(pattern) = options.text(expression) {
        if pattern.is_empty() {
            options.fault_here(format!("option [{expression}] of [kv] must have an expression"));
        }
        match Expression::compile(&pattern) {
            Ok(expression) => return Separator::Expression(expression),
            Err(fault) => options.fault_here(fault),
        }
    }
    if set.as_deref() == Some("") {
        options.fault_here(format!("option [{characters}] of [kv] must have a character"));
    }
    Separator::Characters(Characters::parse(set.as_deref().unwrap_or(default)))
}

impl Change {
    fn take(
        options: &mut Options,
        trim: &'static str,
        remove: &'static str,
        transform: &'static str,
    ) -> Self {
        let mut set = |name| options.text(name).map(|set| Characters::parse(&set));
        let (trim, remove) = (set(trim), set(remove));
        Self { trim, remove, transform: options.one_of(transform, &["lowercase", "uppercase", "capitalize"]) }
    }

    fn apply(&self, text: &str) -> String {
        let text = match &self.trim {
            Some(set) => text.trim_matches(|letter| set.contains(letter)),
            None => text,
        };
        let text = match &self.remove {
            Some(set) => text.chars().filter(|letter| !set.contains(*letter)).collect(),
            None => text.to_owned(),
        };
        match self.transform {
            Some("lowercase") => text.to_lowercase(),
            Some("uppercase") => text.to_uppercase(),
            Some(_) => {
                let mut letters = text.chars();
                let first = letters.next().map(|first| first.to_uppercase().collect::<String>());
                first.unwrap_or_default() + &letters.as_str().to_lowercase()
            }
            None => text,
        }
    }
}

/// Options that depend on the event.
struct EventOptions {
    include: Vec<String>,
    exclude: Vec<String>,
    prefix: String,
    deadline: Deadline,
}

impl Kv {
    fn parse(
        &self,
        text: &str,
        wanted: &EventOptions,
        depth: usize,
        pairs: &mut Map<String, Value>,
    ) -> Result<(), MatchStopped> {
        let mut late = false;
        let mut count = 0_usize;
        let mut inner = Ok(());
        self.syntax.scan(text, &wanted.deadline, |key, value| {
            count += 1;
            late = count.is_multiple_of(PAIRS_PER_LOOK) && wanted.deadline.is_over();
            if value.is_empty() && !self.empty_values {
                return !late;
            }
            let key = self.key.apply(key);
            let is_wanted = (wanted.include.is_empty() || wanted.include.contains(&key))
                && !wanted.exclude.contains(&key);
            if !is_wanted {
                return !late;
            }
            let text = self.value.apply(value);
            let mut value = Value::Null;
            if self.recursive && depth < MAX_DEPTH {
                let mut found = Map::new();
                inner = self.parse(&text, wanted, depth + 1, &mut found);
                if !found.is_empty() {
                    value = Value::Object(found);
                }
            }
            if value.is_null() {
                value = Value::String(text);
            }
            self.add(format!("{}{key}", wanted.prefix), value, pairs);
            !late && inner.is_ok()
        })?;
        if late { Err(MatchStopped) } else { inner }
    }

    /// Adds a pair; further values of a key make an array.
    fn add(&self, key: String, value: Value, pairs: &mut Map<String, Value>) {
        match pairs.get_mut(&key) {
            None => drop(pairs.insert(key, value)),
            Some(Value::Array(values)) => {
                if self.duplicates || !values.contains(&value) {
                    values.push(value);
                }
            }
            Some(have) => {
                if self.duplicates || *have != value {
                    *have = Value::Array(vec![have.take(), value]);
                }
            }
        }
    }

    fn pairs(&self, event: &Event) -> Option<Result<Map<String, Value>, MatchStopped>> {
        let value = event.get(&self.source)?;
        let render = |keys: &[Template]| keys.iter().map(|key| key.render(event)).collect();
        let wanted = EventOptions {
            include: render(&self.include_keys),
            exclude: render(&self.exclude_keys),
            prefix: self.prefix.render(event),
            deadline: Deadline::within(self.timeout),
        };
        let mut pairs = Map::new();
        let parsed = match &*value {
            Value::Null => return None,
            Value::String(text) => self.parse(text, &wanted, 0, &mut pairs),
            Value::Array(elements) => elements.iter().try_for_each(|element| match element {
                Value::String(text) => self.parse(text, &wanted, 0, &mut pairs),
                other => self.parse(&text_of(other), &wanted, 0, &mut pairs),
            }),
            // Nothing is found in numbers and objects.
            _ => Ok(()),
        };
        Some(parsed.map(|()| {
            for (key, value) in &self.default_keys {
                pairs.entry(key.as_str()).or_insert_with(|| value.clone());
            }
            pairs
        }))
    }
}

impl Filter for Kv {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let pairs = match self.pairs(event) {
            None => return Outcome::Unmatched,
            Some(Ok(pairs)) => pairs,
            Some(Err(MatchStopped)) => {
                self.tags_on_timeout.iter().for_each(|tag| event.tag(tag));
                return Outcome::Unmatched;
            }
        };
        if pairs.is_empty() {
            return Outcome::Unmatched;
        }
        let set = match &self.target {
            Some(target) => event.set(target, Value::Object(pairs)),
            None => {
                let put = |event: &mut Event, (key, value): (String, Value)| {
                    event.set(&FieldReference::parse(&key)?, value)
                };
                // One key that cannot be a field does not keep the others out.
                pairs.into_iter().map(|pair| put(event, pair)).fold(Ok(()), Result::and)
            }
        };
        if set.is_err() {
            self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
            return Outcome::Unmatched;
        }
        Outcome::Matched
    }
}

#[cfg(test)]
mod tests {
    use millrace_ingest::Options;
    use millrace_ingest::options::{Location, Setting};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn separators_are_not_empty() {
        for name in ["field_split", "value_split", "field_split_pattern", "value_split_pattern"] {
            let given = (name.to_owned(), Location::default(), Setting::Text(String::new()));
            let faults = build(Options::new("kv", Location::default(), [given])).unwrap_err();
            assert!(faults[0].message.contains(name), "{faults:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(
            text in "[a-c= &\"'\\\\\\[\\]()<>:;ä\\n-]{0,60}",
            fields in "[ &;=\\\\^-]{1,3}",
            pattern in proptest::bool::ANY,
            strict in proptest::bool::ANY,
        ) {
            let given = |name: &str, value: &str| (name.to_owned(), Location::default(), Setting::Text(value.to_owned()));
            let mut options = vec![given("recursive", "true"), given("allow_empty_values", "true")];
            options.push(if pattern { given("field_split_pattern", "[ &]+|") } else { given("field_split", &fields) });
            options.push(given("whitespace", if strict { "strict" } else { "lenient" }));
            let kv = build(Options::new("kv", Location::default(), options)).unwrap();
            let mut event = Event::new(chrono::Utc::now());
            event.fields_mut().insert("message".to_owned(), Value::String(text));
            kv.apply(&mut event, &mut Vec::new());
        }

        #[test]
        fn pairs_are_found(pairs in proptest::collection::btree_map("[a-z]{1,6}", "[a-z0-9./_-]{1,8}", 1..6)) {
            let text: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let kv = build(Options::new("kv", Location::default(), [])).unwrap();
            let mut event = Event::new(chrono::Utc::now());
            let text = format!("begin {} end", text.join(" "));
            event.fields_mut().insert("message".to_owned(), Value::String(text));
            kv.apply(&mut event, &mut Vec::new());
            for (key, value) in pairs.iter().filter(|(key, _)| *key != "message") {
                prop_assert_eq!(event.fields().get(key).and_then(Value::as_str), Some(value.as_str()));
            }
        }
    }
}
