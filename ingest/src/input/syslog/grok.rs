//! Messages of another form, which a pattern of grok reads.

use std::time::Duration;

use millrace_runtime::Instant;
use parking_lot::Mutex;
use serde_json::Value;

use super::times::TimeLookup;
use crate::event::text_of;
use crate::pattern::{Captures, Deadline, Kind, Library, MatchStopped, Pattern, put_capture};
use crate::{EcsCompatibility, Event, FieldReference, Options};

/// Time for one text.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Time for all texts on which the pattern takes too long, within [`PERIOD`]. Behind it, texts have [`SHORT_TIMEOUT`].
const MAX_WASTED: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(10);
const SHORT_TIMEOUT: Duration = Duration::from_millis(1);
/// Tag of messages on which the pattern took too long.
const TIMEOUT_TAG: &str = "_groktimeout";
/// Tag of messages whose time cannot be read.
const TIME_FAILURE: &str = "_dateparsefailure";

/// The option `grok_pattern`.
#[derive(Debug)]
pub(super) struct HeaderPattern {
    pattern: Pattern,
    /// For each capture, in its order.
    targets: Vec<(FieldReference, Kind)>,
    /// Field of the text, which a capture replaces.
    text: FieldReference,
    /// Fields of the time, the one that counts first.
    times: Vec<FieldReference>,
    priority: FieldReference,
    ecs: EcsCompatibility,
    wasted: Mutex<WastedTime>,
}

/// Time of a period that texts took on which the pattern took too long: anybody may send such texts.
#[derive(Debug)]
struct WastedTime {
    since: Instant,
    time: Duration,
}

impl HeaderPattern {
    /// Takes the option. `text_field` is the field that the codec leaves the message in.
    pub(super) fn take(options: &mut Options, text_field: &str, ecs: EcsCompatibility) -> Option<Self> {
        let given = options.text("grok_pattern")?;
        let made = Self::new(&given, text_field, ecs);
        made.map_err(|fault| options.fault_here(format!("option [grok_pattern] of [syslog]: {fault}"))).ok()
    }

    fn new(pattern: &str, text_field: &str, ecs: EcsCompatibility) -> Result<Self, String> {
        let pattern = Pattern::compile(pattern, &Library::with_ecs(ecs), true)?;
        let targets = pattern.captures().iter().map(|capture| {
            let reference = FieldReference::parse(&capture.name)?;
            Ok((reference, capture.kind))
        });
        let targets = targets.collect::<Result<_, String>>()?;
        let times: &[&str] = ecs.select(&["timestamp8601", "timestamp"], &["timestamp"]);
        let times = times.iter().map(|name| FieldReference::parse(name)).collect::<Result<_, _>>()?;
        let priority = FieldReference::parse(ecs.select("priority", "[log][syslog][priority]"))?;
        let text = FieldReference::parse(text_field)?;
        let wasted = Mutex::new(WastedTime { since: Instant::now(), time: Duration::ZERO });
        Ok(Self { pattern, targets, text, times, priority, ecs, wasted })
    }

    /// Matches a text.
    ///
    /// # Errors
    /// The pattern takes too long on it.
    fn find(&self, text: &str) -> Result<Option<Captures<'_>>, MatchStopped> {
        let began = Instant::now();
        let timeout = {
            let mut wasted = self.wasted.lock();
            if wasted.since.elapsed() > PERIOD {
                *wasted = WastedTime { since: began, time: Duration::ZERO };
            }
            if wasted.time < MAX_WASTED { TIMEOUT } else { SHORT_TIMEOUT }
        };
        let found = self.pattern.find(text, &Deadline::within(timeout));
        if found.is_err() {
            self.wasted.lock().time += began.elapsed();
        }
        found
    }

    /// Gives an event the fields of its text, and its time. Returns the priority, 0 where the pattern has none; `None` for a text
    /// that the pattern does not match.
    pub(super) fn read(&self, event: &mut Event, text: &str, times: &TimeLookup<'_>) -> Option<u32> {
        let Ok(captures) = self.find(text) else {
            event.tag(TIMEOUT_TAG);
            return None;
        };
        let captures = captures?;
        for (at, (reference, kind)) in self.targets.iter().enumerate() {
            let part = captures.range(at).and_then(|range| text.get(range));
            if let Some(part) = part.filter(|part| !part.is_empty()) {
                put_capture(event, reference, kind.value(part), *reference == self.text);
            }
        }
        self.read_time(event, times);
        let priority = event.get(&self.priority).as_deref().map(text_of);
        Some(priority.and_then(|priority| priority.parse().ok()).unwrap_or(0))
    }

    fn read_time(&self, event: &mut Event, times: &TimeLookup<'_>) {
        let given = self.times.iter().find_map(|field| match event.get(field)?.into_owned() {
            Value::String(text) => Some(text),
            _ => None,
        });
        let Some(text) = given else { return };
        match times.read(&text) {
            Some(instant) => event.set_timestamp(instant),
            None => event.tag(TIME_FAILURE),
        }
        if self.ecs.is_enabled() {
            self.times.iter().for_each(|field| event.discard(field));
        }
    }
}
