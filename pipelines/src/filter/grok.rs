//! `grok`: takes texts apart by patterns of named expressions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrace_ingest::event::text_of;
use millrace_ingest::options::{Location, Setting};
use millrace_ingest::pattern::{Captures, Deadline, Kind, Library, Pattern, put_capture};
use millrace_ingest::{EcsCompatibility, Event, Fault, FieldReference, Options};
use serde_json::Value;

use super::settings::texts_or;
use super::{Filter, Outcome};

/// Time that Logstash gives a pattern.
const DEFAULT_TIMEOUT_MILLIS: i64 = 30_000;
/// Longest time that can be given.
const MAX_TIMEOUT_MILLIS: i64 = 86_400_000;

#[derive(Debug)]
struct Grok {
    matches: Vec<Matching>,
    break_on_match: bool,
    keep_empty_captures: bool,
    tags_on_failure: Vec<String>,
    tags_on_timeout: Vec<String>,
    /// Time for one pattern, or for all patterns of an event together.
    timeout: Duration,
    timeout_of_event: bool,
}

/// Patterns for one field.
#[derive(Debug)]
struct Matching {
    field: FieldReference,
    patterns: Vec<CompiledMatch>,
}

#[derive(Debug)]
struct CompiledMatch {
    pattern: Pattern,
    /// For each capture of the pattern, in its order.
    targets: Vec<Target>,
    /// Positions in `targets`, those of the same field together, in the order of their first.
    order: Vec<usize>,
}

#[derive(Debug)]
struct Target {
    reference: FieldReference,
    kind: Kind,
    overwrite: bool,
}

/// Result of one attempt on a text.
#[derive(Clone, Copy, PartialEq)]
enum Attempt {
    Matched,
    Unmatched,
    TimedOut,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let ecs = options.ecs_compatibility();
    let library = library(&mut options, ecs);
    let named_only = options.boolean("named_captures_only").unwrap_or(true);
    let overwrite = options.texts("overwrite");
    let target = options.text("target");
    let timeout = options.integer("timeout_millis", 0..=MAX_TIMEOUT_MILLIS).unwrap_or(DEFAULT_TIMEOUT_MILLIS);
    // No limit means the longest.
    let millis = if timeout == 0 { MAX_TIMEOUT_MILLIS } else { timeout };
    let timeout = Duration::from_millis(millis.unsigned_abs());
    let scope = options.one_of("timeout_scope", &["pattern", "event"]);
    let reader = Reader { library, named_only, overwrite, target };
    let matches = reader.matches(&mut options);
    let grok = Grok {
        matches,
        break_on_match: options.boolean("break_on_match").unwrap_or(true),
        keep_empty_captures: options.boolean("keep_empty_captures").unwrap_or(false),
        tags_on_failure: texts_or(&mut options, "tag_on_failure", &["_grokparsefailure"]),
        tags_on_timeout: texts_or(&mut options, "tag_on_timeout", &["_groktimeout"]),
        timeout,
        timeout_of_event: scope == Some("event"),
    };
    options.finish()?;
    Ok(Arc::new(grok))
}

/// Patterns that the standard library does not have.
fn library(options: &mut Options, ecs: EcsCompatibility) -> Library {
    let mut library = Library::with_ecs(ecs);
    let directories = options.texts("patterns_dir");
    let glob = options.text("patterns_files_glob").unwrap_or_else(|| "*".to_owned());
    for directory in directories {
        if let Err(fault) = library.load(Path::new(&directory), &glob) {
            options.fault_here(fault);
        }
    }
    for (name, definition) in options.hash("pattern_definitions") {
        let defined = match definition.as_text() {
            Some(definition) => library.define(&name, &definition),
            None => Err(format!("the definition of the pattern [{name}] must be a text")),
        };
        if let Err(fault) = defined {
            options.fault_here(fault);
        }
    }
    library
}

/// Options that patterns are compiled with.
struct Reader {
    library: Library,
    named_only: bool,
    overwrite: Vec<String>,
    target: Option<String>,
}

impl Reader {
    fn matches(&self, options: &mut Options) -> Vec<Matching> {
        let mut matches = Vec::new();
        let Some((at, setting)) = options.take("match") else {
            options.fault_here(
                "[grok] needs the option [match], as in match => { \"message\" => \"%{PATTERN}\" }",
            );
            return matches;
        };
        for (field, patterns) in pairs(setting).unwrap_or_else(|| {
            options.fault(at, "option [match] of [grok] must be a hash of fields and their patterns");
            Vec::new()
        }) {
            let patterns: Option<Vec<String>> = match patterns {
                Setting::Array(patterns) => patterns.iter().map(Setting::as_text).collect(),
                single => single.as_text().map(|pattern| vec![pattern]),
            };
            let patterns = patterns.unwrap_or_else(|| {
                options.fault(
                    at,
                    format!("the pattern for the field [{field}] must be a text or an array of texts"),
                );
                Vec::new()
            });
            match self.matching(&field, &patterns, at) {
                Ok(matching) => matches.push(matching),
                Err(faults) => faults.into_iter().for_each(|fault| options.fault(fault.at, fault.message)),
            }
        }
        matches
    }

    fn matching(&self, field: &str, patterns: &[String], at: Location) -> Result<Matching, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut fault = |message: String| faults.push(Fault { at, message });
        let field = FieldReference::parse(field).map_err(&mut fault).ok();
        let mut compiled = Vec::new();
        for pattern in patterns {
            match self.compile(pattern) {
                Ok(pattern) => compiled.push(pattern),
                Err(message) => fault(message),
            }
        }
        match field {
            Some(field) if faults.is_empty() => Ok(Matching { field, patterns: compiled }),
            _ => Err(faults),
        }
    }

    fn compile(&self, text: &str) -> Result<CompiledMatch, String> {
        let pattern = Pattern::compile(text, &self.library, self.named_only)?;
        let targets = pattern
            .captures()
            .iter()
            .map(|capture| {
                let name = match &self.target {
                    None => capture.name.clone(),
                    Some(target) => format!("{}{}", bracketed(target), bracketed(&capture.name)),
                };
                Ok(Target {
                    reference: FieldReference::parse(&name)?,
                    kind: capture.kind,
                    overwrite: self.overwrite.iter().any(|field| same_field(field, &capture.name)),
                })
            })
            .collect::<Result<Vec<Target>, String>>()?;
        let first = |target: &Target| targets.iter().position(|other| other.reference == target.reference);
        let mut order: Vec<usize> = (0..targets.len()).collect();
        order.sort_by_key(|at| targets.get(*at).and_then(first));
        Ok(CompiledMatch { pattern, targets, order })
    }
}

fn bracketed(name: &str) -> String {
    if name.starts_with('[') { name.to_owned() } else { format!("[{name}]") }
}

fn same_field(one: &str, other: &str) -> bool {
    one == other || bracketed(one) == bracketed(other)
}

/// Fields and patterns of `match`: a hash, or an array in turns.
fn pairs(setting: Setting) -> Option<Vec<(String, Setting)>> {
    match setting {
        Setting::Hash(members) => Some(members),
        Setting::Array(elements) if elements.len() % 2 == 0 => elements
            .chunks_exact(2)
            .map(|pair| Some((pair.first()?.as_text()?, pair.get(1)?.clone())))
            .collect(),
        _ => None,
    }
}

impl Filter for Grok {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let deadline = Deadline::within(self.timeout);
        let mut matched = false;
        for matching in &self.matches {
            match self.field(matching, event, &deadline) {
                Attempt::Matched => matched = true,
                Attempt::Unmatched => {}
                Attempt::TimedOut => {
                    self.tags_on_timeout.iter().for_each(|tag| event.tag(tag));
                    return Outcome::Unmatched;
                }
            }
            if matched && self.break_on_match {
                break;
            }
        }
        if matched {
            Outcome::Matched
        } else {
            self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
            Outcome::Unmatched
        }
    }
}

impl Grok {
    fn field(&self, matching: &Matching, event: &mut Event, deadline: &Deadline) -> Attempt {
        let texts = match event.get(&matching.field).as_deref() {
            None | Some(Value::Null) => return Attempt::Unmatched,
            // By far the most frequent; it is not copied.
            Some(Value::String(_)) => None,
            Some(Value::Array(elements)) => Some(elements.iter().map(text_of).collect()),
            Some(other) => Some(vec![text_of(other)]),
        };
        match texts {
            None => self.patterns(matching, None, event, deadline),
            Some(texts) => {
                let mut attempt = Attempt::Unmatched;
                for text in texts {
                    match self.patterns(matching, Some(&text), event, deadline) {
                        Attempt::Unmatched => {}
                        Attempt::Matched => attempt = Attempt::Matched,
                        Attempt::TimedOut => return Attempt::TimedOut,
                    }
                }
                attempt
            }
        }
    }

    /// Tries the patterns for a field on a text, or on the field itself.
    fn patterns(
        &self,
        matching: &Matching,
        text: Option<&str>,
        event: &mut Event,
        deadline: &Deadline,
    ) -> Attempt {
        let mut attempt = Attempt::Unmatched;
        for compiled in &matching.patterns {
            let of_pattern;
            let deadline = if self.timeout_of_event {
                if deadline.is_over() {
                    return Attempt::TimedOut;
                }
                deadline
            } else {
                of_pattern = Deadline::within(self.timeout);
                &of_pattern
            };
            let found = {
                let field = event.get(&matching.field);
                let text = match (text, field.as_deref()) {
                    (Some(text), _) => text,
                    (None, Some(Value::String(text))) => text,
                    // A match before this one took it.
                    _ => return attempt,
                };
                compiled
                    .pattern
                    .find(text, deadline)
                    .map(|found| found.map(|captures| self.values(compiled, &captures, text)))
            };
            match found {
                Err(_) => return Attempt::TimedOut,
                Ok(None) => {}
                Ok(Some(values)) => {
                    for (target, value) in values {
                        put_capture(event, &target.reference, value, target.overwrite);
                    }
                    if self.break_on_match {
                        return Attempt::Matched;
                    }
                    attempt = Attempt::Matched;
                }
            }
        }
        attempt
    }

    fn values<'a>(
        &self,
        compiled: &'a CompiledMatch,
        captures: &Captures<'_>,
        text: &str,
    ) -> Vec<(&'a Target, Value)> {
        let mut values = Vec::with_capacity(compiled.targets.len());
        for at in &compiled.order {
            let Some(target) = compiled.targets.get(*at) else { continue };
            match captures.range(*at).and_then(|range| text.get(range)) {
                Some(part) if self.keep_empty_captures || !part.is_empty() => {
                    values.push((target, target.kind.value(part)));
                }
                None if self.keep_empty_captures => values.push((target, Value::Null)),
                _ => {}
            }
        }
        values
    }
}
