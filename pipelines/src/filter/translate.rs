//! `translate`: replaces values by those of a dictionary.

mod dictionary;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrace_ingest::event::text_of;
use millrace_ingest::options::Setting;
use millrace_ingest::{Event, Fault, FieldReference, Options, Template};
use parking_lot::Mutex;
use serde_json::Value;

use super::refresh::RefreshedFile;
use super::settings::value_of;
use super::{Filter, Outcome};
use dictionary::{Dictionary, Lookup};

/// Most code points of a YAML dictionary that `yaml_dictionary_code_point_limit` may ask for.
const MAX_CODE_POINTS: i64 = 1 << 30;

#[derive(Debug)]
struct Translate {
    source: FieldReference,
    target: FieldReference,
    is_override: bool,
    fallback: Option<Template>,
    entries: Entries,
    iteration: Iteration,
}

#[derive(Debug)]
enum Entries {
    Inline(Dictionary),
    File(RefreshedFile<Dictionary>),
}

/// Values that are translated.
#[derive(Debug)]
enum Iteration {
    /// The source, or the first of its elements.
    Single,
    /// Each element of the source.
    Elements,
    /// A member of each element of an array.
    Members(FieldReference),
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let ecs = options.ecs_compatibility().is_enabled();
    let source = renamed(&mut options, "source", "field");
    let target = renamed(&mut options, "target", "destination");
    if source.is_none() {
        options.fault_here("[translate] needs the option [source]");
    }
    let default_target = if ecs { source.clone() } else { FieldReference::parse("translation").ok() };
    let target = target.or(default_target);
    let in_place = source == target;
    let is_override = options.boolean("override");
    if in_place && is_override == Some(false) && source.is_some() {
        options.fault_here("[override => false] has no effect on a translation in place: remove it");
    }
    let fallback = options.template("fallback");
    let iteration = match options.field("iterate_on") {
        None => Iteration::Single,
        Some(field) if Some(&field) == source.as_ref() => Iteration::Elements,
        Some(field) => Iteration::Members(field),
    };
    let entries = entries(&mut options);
    options.finish()?;
    let (Some(source), Some(target), Some(entries)) = (source, target, entries) else {
        return Err(Vec::new());
    };
    let is_override = is_override.unwrap_or(in_place);
    Ok(Arc::new(Translate { source, target, is_override, fallback, entries, iteration }))
}

/// Takes a field by its name of now, or by that of before.
fn renamed(options: &mut Options, name: &'static str, former: &'static str) -> Option<FieldReference> {
    let (field, old) = (options.field(name), options.field(former));
    if field.is_some() && old.is_some() {
        options.fault_here(format!("[{former}] is the former name of [{name}]: give one"));
    }
    field.or(old)
}

fn entries(options: &mut Options) -> Option<Entries> {
    let inline: Vec<(String, Setting)> = options.hash("dictionary");
    let path = options.text("dictionary_path").map(PathBuf::from);
    // As in Logstash, zero or less never loads a file again.
    let interval = options.integer("refresh_interval", i64::MIN..=31_536_000).unwrap_or(300).max(0);
    let is_merge = options.one_of("refresh_behaviour", &["merge", "replace"]) != Some("replace");
    let exact = options.boolean("exact").unwrap_or(true);
    let regex = options.boolean("regex").unwrap_or(false);
    let code_points = options.integer("yaml_dictionary_code_point_limit", 1..=MAX_CODE_POINTS);
    // Dictionaries are read at once; how has no effect on what they say.
    let _ = options.one_of("yaml_load_strategy", &["one_shot", "streaming"]);
    let lookup = match (exact, regex) {
        (true, false) => Lookup::Exact,
        (true, true) => Lookup::Expression,
        (false, _) => Lookup::Substring { is_expression: regex },
    };
    let Some(path) = path else {
        let pairs = inline.into_iter().map(|(key, value)| (key, value_of(value)));
        return Dictionary::new(lookup, pairs)
            .map_err(|fault| options.fault_here(fault))
            .ok()
            .map(Entries::Inline);
    };
    if !inline.is_empty() {
        options.fault_here("[translate] takes [dictionary] or [dictionary_path], not both");
    }
    let is_yaml = path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml");
    if code_points.is_some() && !is_yaml {
        options.fault_here("[yaml_dictionary_code_point_limit] is for YAML dictionaries only: remove it");
    }
    let limit = code_points.map(i64::unsigned_abs);
    let former: Mutex<Option<dictionary::Pairs>> = Mutex::new(None);
    let load = move |path: &std::path::Path| {
        let mut pairs = dictionary::read(path, limit)?;
        if !is_merge {
            return Dictionary::new(lookup, pairs);
        }
        let mut former = former.lock();
        for (key, value) in former.iter().flatten() {
            if !pairs.contains_key(key) {
                pairs.insert(key.clone(), value.clone());
            }
        }
        // A file that makes no dictionary leaves nothing behind for the next one.
        let dictionary = Dictionary::new(lookup, pairs.clone())?;
        *former = Some(pairs);
        Ok(dictionary)
    };
    let file = RefreshedFile::open(path, Duration::from_secs(interval.unsigned_abs()), load);
    file.map_err(|fault| options.fault_here(fault)).ok().map(Entries::File)
}

impl Translate {
    fn single(&self, dictionary: &Dictionary, event: &mut Event) -> Result<bool, String> {
        let text = match event.get(&self.source).as_deref() {
            Some(Value::Array(elements)) => elements.first().map(text_of).unwrap_or_default(),
            Some(value) => text_of(value),
            None => return Ok(false),
        };
        let value = match (dictionary.get(&text), &self.fallback) {
            (Some(value), _) => value,
            (None, Some(fallback)) => Value::String(fallback.render(event)),
            (None, None) => return Ok(false),
        };
        event.set(&self.target, value)?;
        Ok(true)
    }

    fn elements(&self, dictionary: &Dictionary, event: &mut Event) -> Result<bool, String> {
        let elements = match event.get(&self.source).map(|value| value.into_owned()) {
            Some(Value::Array(elements)) => elements,
            Some(single) => vec![single],
            None => return Ok(false),
        };
        let fallback =
            self.fallback.as_ref().map_or(Value::Null, |fallback| Value::String(fallback.render(event)));
        let translated: Vec<Value> = elements
            .iter()
            .map(|element| dictionary.get(&text_of(element)).unwrap_or_else(|| fallback.clone()))
            .collect();
        let any = translated.iter().any(|value| !value.is_null() && *value != Value::Bool(false));
        event.set(&self.target, Value::Array(translated))?;
        Ok(any)
    }

    fn members(
        &self,
        dictionary: &Dictionary,
        event: &mut Event,
        array: &FieldReference,
    ) -> Result<bool, String> {
        let count = match event.get(array).as_deref() {
            Some(Value::Array(elements)) => elements.len(),
            _ => return Ok(false),
        };
        let mut any = false;
        for at in 0..count {
            let within = |field: &FieldReference| {
                FieldReference::parse(&format!("{}[{at}]{}", bracketed(array), bracketed(field)))
            };
            let text = match event.get(&within(&self.source)?).as_deref() {
                None | Some(Value::Null) => continue,
                Some(value) => text_of(value),
            };
            let value = match (dictionary.get(&text), &self.fallback) {
                (Some(value), _) => value,
                (None, Some(fallback)) => Value::String(fallback.render(event)),
                (None, None) => continue,
            };
            event.set(&within(&self.target)?, value)?;
            any = true;
        }
        Ok(any)
    }
}

fn bracketed(field: &FieldReference) -> String {
    field.path().iter().map(|name| format!("[{name}]")).collect()
}

impl Filter for Translate {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let is_included = match &self.iteration {
            Iteration::Members(array) => event.get(array).is_some(),
            _ => (self.is_override || event.get(&self.target).is_none()) && event.get(&self.source).is_some(),
        };
        if !is_included {
            return Outcome::Unmatched;
        }
        let current;
        let dictionary = match &self.entries {
            Entries::Inline(dictionary) => dictionary,
            Entries::File(file) => {
                current = file.current();
                &current
            }
        };
        let translated = match &self.iteration {
            Iteration::Single => self.single(dictionary, event),
            Iteration::Elements => self.elements(dictionary, event),
            Iteration::Members(array) => self.members(dictionary, event, array),
        };
        match translated {
            Ok(translated) if translated || self.source == self.target => Outcome::Matched,
            _ => Outcome::Unmatched,
        }
    }
}
