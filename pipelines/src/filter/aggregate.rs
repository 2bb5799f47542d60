//! `aggregate`: collects values of the events of a task in a map, by a script in the subset of Ruby that the filter `ruby` has.
//!
//! Filters of a pipeline with the same `task_id` share their maps. The clock ends maps that are too old, and may make events of
//! them; so does the end of the pipeline for the maps that are left. Maps are in memory: a crash loses them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use indexmap::IndexMap;
use millrace_ingest::event::time_format::{Zone, iso8601};
use millrace_ingest::{Event, Fault, FieldReference, Options, Template};
use millrace_runtime::Instant;
use parking_lot::Mutex;
use serde_json::Value;

use super::ruby::{TaskMap, TaskScript};
use super::{Filter, Flush, Outcome};

/// Age of a map where nothing is said, as in Logstash.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1_800);
/// Longest age that can be set, in seconds.
const MAX_TIMEOUT_SECONDS: f64 = 31_536_000.0;
/// Most maps of a `task_id`.
const MAX_MAPS: usize = 1_000_000;
/// Bytes of the maps of a `task_id`.
const MAX_BYTES: usize = 64 << 20;
/// Pause between two searches for maps that are too old.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);
/// Tag of an event whose script failed.
const FAILURE: &str = "_aggregateexception";
/// Tag of events that the end of the pipeline makes.
const FINAL: &str = "_aggregatefinalflush";

/// Maps of the filters of a pipeline, by the text of their `task_id`.
#[derive(Debug, Default)]
pub(super) struct TaskRegistry(HashMap<String, TaskGroup>);

#[derive(Debug, Default)]
struct TaskGroup {
    tasks: Arc<Mutex<Tasks>>,
    has_timeouts: bool,
}

#[derive(Debug)]
struct Aggregate {
    task_id: Template,
    script: TaskScript,
    action: MapAction,
    ends_task: bool,
    tasks: Arc<Mutex<Tasks>>,
    timeouts: TimeoutOptions,
    /// `true` if this is the filter of the `task_id` that says what becomes of old maps.
    has_timeouts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapAction {
    Create,
    Update,
    CreateOrUpdate,
}

#[derive(Debug)]
struct TimeoutOptions {
    timeout: Duration,
    inactivity: Duration,
    script: Option<TaskScript>,
    pushes_map: bool,
    pushes_previous: bool,
    time_field: Option<FieldReference>,
    task_field: Option<FieldReference>,
    tags: Vec<String>,
}

/// Maps of a `task_id` by task, in the order of their creation.
#[derive(Debug, Default)]
struct Tasks {
    maps: IndexMap<String, Task>,
    /// Bytes of the maps: an upper bound that is measured anew when it exceeds the limit.
    bytes: usize,
    /// Time of the next search for old maps.
    next_search: Option<Instant>,
    /// `true` if a filter of the `task_id` says what becomes of old maps.
    has_timeouts: bool,
}

#[derive(Debug)]
struct Task {
    map: TaskMap,
    created: Moment,
    last: Moment,
}

/// Time of an event by the clock, and by its own field.
#[derive(Clone, Copy, Debug)]
struct Moment {
    clock: Instant,
    event: DateTime<Utc>,
}

pub(super) fn build(
    mut options: Options,
    registry: &mut TaskRegistry,
) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let pattern = options.required_text("task_id");
    let task_id = Template::parse(&pattern);
    if task_id.is_constant() && !pattern.is_empty() {
        options.fault_here("option [task_id] of [aggregate] must have a reference such as %{id}");
    }
    let has_code = options.given().any(|(name, _)| name == "code");
    let script = script(&mut options, "code");
    if !has_code {
        options.fault_here("[aggregate] needs the option [code], a script that works");
    }
    let action = match options.one_of("map_action", &["create", "update", "create_or_update"]) {
        Some("create") => MapAction::Create,
        Some("update") => MapAction::Update,
        _ => MapAction::CreateOrUpdate,
    };
    let ends_task = options.boolean("end_of_task").unwrap_or(false);
    let (timeouts, has_timeouts) = TimeoutOptions::take(&mut options);
    if let Some((at, _)) = options.take("aggregate_maps_path") {
        options.fault(
            at,
            "option [aggregate_maps_path] of [aggregate] is not supported: maps are in memory only",
        );
    }
    // The bound of maps is fixed.
    let _ = options.integer("map_count_warning_threshold", 0..=i64::from(i32::MAX));
    let group = registry.0.entry(pattern.clone()).or_default();
    if has_timeouts && std::mem::replace(&mut group.has_timeouts, true) {
        options.fault_here(format!(
            "two filters [aggregate] with the task_id [{pattern}] have options for timeouts: give them to one"
        ));
    }
    options.finish()?;
    let Some(script) = script else { return Err(Vec::new()) };
    let tasks = Arc::clone(&group.tasks);
    tasks.lock().has_timeouts |= has_timeouts;
    Ok(Arc::new(Aggregate { task_id, script, action, ends_task, tasks, timeouts, has_timeouts }))
}

fn script(options: &mut Options, name: &'static str) -> Option<TaskScript> {
    let text = options.text(name)?;
    TaskScript::parse(&text)
        .map_err(|problem| options.fault_here(format!("[{name}] of [aggregate], {problem}")))
        .ok()
}

impl TimeoutOptions {
    /// Takes the options; returns whether one of them was given.
    fn take(options: &mut Options) -> (Self, bool) {
        let names = [
            "timeout",
            "inactivity_timeout",
            "timeout_code",
            "push_map_as_event_on_timeout",
            "push_previous_map_as_event",
            "timeout_timestamp_field",
            "timeout_task_id_field",
            "timeout_tags",
        ];
        let is_given = options.given().any(|(given, _)| names.contains(&given));
        let seconds = |options: &mut Options, name| {
            let given = options.float(name)?;
            if (0.0..=MAX_TIMEOUT_SECONDS).contains(&given) {
                return Some(Duration::from_secs_f64(given));
            }
            options.fault_here(format!(
                "option [{name}] of [aggregate] must be 0 to {MAX_TIMEOUT_SECONDS} seconds"
            ));
            None
        };
        let timeout = seconds(options, "timeout").unwrap_or(DEFAULT_TIMEOUT);
        let inactivity = seconds(options, "inactivity_timeout");
        if inactivity.is_some_and(|inactivity| inactivity > timeout) {
            options.fault_here("option [inactivity_timeout] of [aggregate] must not exceed [timeout]");
        }
        let taken = Self {
            timeout,
            inactivity: inactivity.unwrap_or(timeout),
            script: script(options, "timeout_code"),
            pushes_map: options.boolean("push_map_as_event_on_timeout").unwrap_or(false),
            pushes_previous: options.boolean("push_previous_map_as_event").unwrap_or(false),
            time_field: options.field("timeout_timestamp_field"),
            task_field: options.field("timeout_task_id_field"),
            tags: options.texts("timeout_tags"),
        };
        (taken, is_given)
    }

    fn pushes(&self) -> bool {
        self.pushes_map || self.pushes_previous
    }

    /// Makes the event of a map.
    fn event(&self, task_id: &str, task: &Task) -> Event {
        let mut event = match task.map.to_object() {
            Ok(members) => Event::from_fields(members, Utc::now()),
            Err(reason) => {
                tracing::warn!(reason, task_id, "a map of the filter aggregate is no object of an event");
                let mut event = Event::new(Utc::now());
                event.tag(FAILURE);
                event
            }
        };
        if let Some(field) = &self.task_field {
            // A map may have any value on the way to the field.
            if event.set(field, Value::from(task_id)).is_err() {
                event.tag(FAILURE);
            }
        }
        self.tags.iter().for_each(|tag| event.tag(tag));
        if let Some(script) = &self.script {
            let outcome = script.run(&mut event, &TaskMap::new(), &mut Vec::new());
            if let Some(error) = outcome.error {
                tracing::warn!(error, task_id, "timeout_code of the filter aggregate failed");
                event.tag(FAILURE);
            }
        }
        event
    }

    fn is_old_by_clock(&self, task: &Task, now: Instant) -> bool {
        now.saturating_duration_since(task.created.clock) > self.timeout
            || now.saturating_duration_since(task.last.clock) > self.inactivity
    }

    fn is_old_by_event(&self, task: &Task, time: DateTime<Utc>) -> bool {
        let exceeds = |since: DateTime<Utc>, age: Duration| {
            TimeDelta::from_std(age).is_ok_and(|age| time.signed_duration_since(since) > age)
        };
        exceeds(task.created.event, self.timeout) || exceeds(task.last.event, self.inactivity)
    }
}

impl Tasks {
    /// Takes out the maps that are too old by the clock.
    fn take_old(&mut self, timeouts: &TimeoutOptions, now: Instant) -> Vec<(String, Task)> {
        if self.next_search.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next_search = Some(now + SEARCH_PAUSE);
        if !self.maps.values().any(|task| timeouts.is_old_by_clock(task, now)) {
            return Vec::new();
        }
        let maps = std::mem::take(&mut self.maps);
        let (old, kept): (Vec<_>, Vec<_>) =
            maps.into_iter().partition(|(_, task)| timeouts.is_old_by_clock(task, now));
        self.maps = kept.into_iter().collect();
        old
    }

    /// Counts the bytes that a script made; takes out the oldest maps where all of them exceed the bounds.
    fn take_excess(&mut self, bytes: usize) -> Vec<(String, Task)> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= MAX_BYTES && self.maps.len() <= MAX_MAPS {
            return Vec::new();
        }
        let weight = |(id, task): (&String, &Task)| task.map.weight(MAX_BYTES).saturating_add(id.len());
        let weights: Vec<usize> = self.maps.iter().map(weight).collect();
        self.bytes = weights.iter().fold(0, |sum: usize, weight| sum.saturating_add(*weight));
        let mut excess = 0;
        for weight in weights {
            if self.bytes <= MAX_BYTES / 2 && self.maps.len() - excess <= MAX_MAPS {
                break;
            }
            // Below half of the bound, measuring is rare.
            self.bytes = self.bytes.saturating_sub(weight);
            excess += 1;
        }
        if excess > 0 {
            tracing::error!(
                maps = excess,
                "maps of the filter aggregate exceed {MAX_BYTES} bytes or {MAX_MAPS}: the oldest ones end"
            );
        }
        self.maps.drain(..excess).collect()
    }
}

impl Aggregate {
    /// Returns the time that ages are counted from; `None` where the field of an event has none.
    fn moment(&self, event: &Event) -> Option<Moment> {
        let own = match &self.timeouts.time_field {
            None => Utc::now(),
            Some(field) => iso8601(event.get(field)?.as_str()?, Zone::UTC)?,
        };
        Some(Moment { clock: Instant::now(), event: own })
    }

    fn push(&self, ended: impl IntoIterator<Item = (String, Task)>, made: &mut Vec<Event>) {
        if self.timeouts.pushes() {
            made.extend(ended.into_iter().map(|(task_id, task)| self.timeouts.event(&task_id, &task)));
        }
    }
}

impl Filter for Aggregate {
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome {
        let task_id = self.task_id.render(event);
        if task_id == self.task_id.as_str() {
            return Outcome::Unmatched;
        }
        let Some(moment) = self.moment(event) else {
            event.tag(FAILURE);
            return Outcome::Unmatched;
        };
        let mut tasks = self.tasks.lock();
        let is_old = self.timeouts.time_field.is_some()
            && tasks.maps.get(&task_id).is_some_and(|task| self.timeouts.is_old_by_event(task, moment.event));
        if is_old {
            let ended = tasks.maps.shift_remove_entry(&task_id);
            self.push(ended, made);
        }
        let is_known = tasks.maps.contains_key(&task_id);
        match self.action {
            MapAction::Update if !is_known => return Outcome::Unmatched,
            MapAction::Create if is_known => return Outcome::Unmatched,
            _ => {}
        }
        if !is_known && self.timeouts.pushes_previous {
            let previous = tasks.maps.shift_remove_index(0);
            self.push(previous, made);
        }
        let created = || Task { map: TaskMap::new(), created: moment, last: moment };
        let task = tasks.maps.entry(task_id.clone()).or_insert_with(created);
        task.last = moment;
        let outcome = self.script.run(event, &task.map, made);
        if self.ends_task {
            tasks.maps.shift_remove(&task_id);
        }
        let excess = tasks.take_excess(outcome.bytes + task_id.len());
        self.push(excess, made);
        match outcome.error {
            Some(error) => {
                tracing::debug!(error, task_id, "a script of the filter aggregate failed");
                event.tag(FAILURE);
                Outcome::Unmatched
            }
            None if outcome.is_cancelled => Outcome::Dropped,
            None => Outcome::Matched,
        }
    }

    fn flush(&self, flush: Flush, made: &mut Vec<Event>) {
        let first = made.len();
        let mut tasks = self.tasks.lock();
        if tasks.has_timeouts && !self.has_timeouts {
            return;
        }
        if flush == Flush::Final {
            tasks.next_search = None;
        }
        let old = tasks.take_old(&self.timeouts, Instant::now());
        self.push(old, made);
        if flush == Flush::Final {
            if self.timeouts.pushes() {
                let last: Vec<_> = tasks.maps.drain(..).collect();
                self.push(last, made);
            }
            made.iter_mut().skip(first).for_each(|event| event.tag(FINAL));
        }
    }

    fn is_flushed(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use millrace_ingest::{Location, Setting};
    use serde_json::json;

    use super::*;

    fn filter(registry: &mut TaskRegistry, given: &[(&str, &str)]) -> Result<Arc<dyn Filter>, Vec<Fault>> {
        let given = given.iter().map(|(name, value)| {
            ((*name).to_owned(), Location::default(), Setting::Text((*value).to_owned()))
        });
        build(Options::new("aggregate", Location::default(), given), registry)
    }

    fn event(fields: Value) -> Event {
        Event::from_fields(fields.as_object().cloned().unwrap(), DateTime::UNIX_EPOCH)
    }

    fn apply(filter: &Arc<dyn Filter>, fields: Value) -> (Outcome, Value, Vec<Value>) {
        let (mut event, mut made) = (event(fields), Vec::new());
        let outcome = filter.apply(&mut event, &mut made);
        let fields = |event: &Event| Value::Object(event.fields().clone());
        (outcome, fields(&event), made.iter().map(fields).collect())
    }

    fn flushed(filter: &Arc<dyn Filter>, flush: Flush) -> Vec<Value> {
        let mut made = Vec::new();
        filter.flush(flush, &mut made);
        made.iter().map(|event| Value::Object(event.fields().clone())).collect()
    }

    #[test]
    fn filters_of_a_task_share_its_map() {
        let mut registry = TaskRegistry::default();
        let id = ("task_id", "%{task}");
        let start =
            filter(&mut registry, &[id, ("code", "map['sum'] = 0"), ("map_action", "create")]).unwrap();
        let sql =
            filter(&mut registry, &[id, ("code", "map['sum'] += event.get('d')"), ("map_action", "update")])
                .unwrap();
        let end = filter(
            &mut registry,
            &[
                id,
                ("code", "event.set('sum', map['sum'])"),
                ("map_action", "update"),
                ("end_of_task", "true"),
            ],
        )
        .unwrap();
        assert_eq!(apply(&sql, json!({"task": "a", "d": 1})).0, Outcome::Unmatched, "there is no map yet");
        for task in ["a", "b"] {
            assert_eq!(apply(&start, json!({"task": task})).0, Outcome::Matched);
            assert_eq!(apply(&start, json!({"task": task})).0, Outcome::Unmatched, "the map is there");
            apply(&sql, json!({"task": task, "d": 12}));
        }
        apply(&sql, json!({"task": "a", "d": 34}));
        assert_eq!(apply(&end, json!({"task": "a"})).1, json!({"task": "a", "sum": 46}));
        assert_eq!(apply(&end, json!({"task": "a"})).0, Outcome::Unmatched, "the task has ended");
        assert_eq!(apply(&end, json!({"task": "b"})).1["sum"], 12);
        assert_eq!(apply(&end, json!({"x": 1})).0, Outcome::Unmatched);
        let failing = filter(&mut registry, &[id, ("code", "map['x'].upcase")]).unwrap();
        assert_eq!(apply(&failing, json!({"task": "c"})).1["tags"], json!(["_aggregateexception"]));
    }

    #[test]
    fn an_event_in_a_map_is_gone_with_its_script() {
        let mut registry = TaskRegistry::default();
        let code =
            "if map['first'] then event.set('copied', map['first'].get('n')) else map['first'] = event end";
        let aggregate = filter(&mut registry, &[("task_id", "%{id}"), ("code", code)]).unwrap();
        let (outcome, first, _) = apply(&aggregate, json!({"id": "a", "n": 1}));
        assert_eq!((outcome, first.get("tags")), (Outcome::Matched, None));
        let (_, second, _) = apply(&aggregate, json!({"id": "a", "n": 2}));
        assert_eq!(second["tags"], json!(["_aggregateexception"]));
        assert_eq!(second.get("copied"), None, "it is not the value of another event");
    }

    #[test]
    fn a_new_task_pushes_the_map_before() {
        let code = "map['country'] = event.get('country')\nmap['towns'] ||= []\nmap['towns'] << {'town' => event.get('town')}\nevent.cancel()";
        let filter = filter(
            &mut TaskRegistry::default(),
            &[
                ("task_id", "%{country}"),
                ("code", code),
                ("push_previous_map_as_event", "true"),
                ("timeout_task_id_field", "id"),
                ("timeout_tags", "done"),
            ],
        )
        .unwrap();
        assert_eq!(apply(&filter, json!({"country": "F", "town": "Paris"})).0, Outcome::Dropped);
        assert_eq!(apply(&filter, json!({"country": "F", "town": "Lyon"})).2, Vec::<Value>::new());
        let made = apply(&filter, json!({"country": "US", "town": "NY"})).2;
        assert_eq!(
            made,
            [
                json!({"country": "F", "towns": [{"town": "Paris"}, {"town": "Lyon"}], "id": "F", "tags": ["done"]})
            ]
        );
        let last = flushed(&filter, Flush::Final);
        assert_eq!(
            last,
            [
                json!({"country": "US", "towns": [{"town": "NY"}], "id": "US", "tags": ["done", "_aggregatefinalflush"]})
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn old_maps_become_events() {
        let given = [
            ("task_id", "%{user}"),
            ("code", "map['clicks'] ||= 0; map['clicks'] += 1"),
            ("push_map_as_event_on_timeout", "true"),
            ("timeout", "600"),
            ("inactivity_timeout", "300"),
            ("timeout_code", "event.set('several', event.get('clicks') > 1)"),
        ];
        let filter = filter(&mut TaskRegistry::default(), &given).unwrap();
        apply(&filter, json!({"user": "a"}));
        tokio::time::advance(Duration::from_secs(200)).await;
        apply(&filter, json!({"user": "a"}));
        apply(&filter, json!({"user": "b"}));
        assert_eq!(flushed(&filter, Flush::Due), Vec::<Value>::new());
        tokio::time::advance(Duration::from_secs(299)).await;
        apply(&filter, json!({"user": "a"}));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(flushed(&filter, Flush::Due), [json!({"clicks": 1, "several": false})]);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(flushed(&filter, Flush::Due), [json!({"clicks": 3, "several": true})]);
    }

    #[test]
    fn the_end_of_the_pipeline_pushes_all_maps() {
        let given = [
            ("task_id", "%{user}"),
            ("code", "map['clicks'] ||= 0; map['clicks'] += 1"),
            ("push_map_as_event_on_timeout", "true"),
        ];
        let filter = filter(&mut TaskRegistry::default(), &given).unwrap();
        for user in ["a", "b", "a"] {
            apply(&filter, json!({"user": user}));
        }
        let expected = [2, 1].map(|clicks| json!({"clicks": clicks, "tags": ["_aggregatefinalflush"]}));
        assert_eq!(flushed(&filter, Flush::Final), expected);
        assert_eq!(flushed(&filter, Flush::Final), Vec::<Value>::new());
    }

    #[test]
    fn ages_may_be_those_of_events() {
        let given = [
            ("task_id", "%{user}"),
            ("code", "map['clicks'] ||= 0; map['clicks'] += 1"),
            ("push_map_as_event_on_timeout", "true"),
            ("timeout", "60"),
            ("timeout_timestamp_field", "time"),
        ];
        let filter = filter(&mut TaskRegistry::default(), &given).unwrap();
        apply(&filter, json!({"user": "a", "time": "2024-01-01T00:00:00Z"}));
        assert_eq!(apply(&filter, json!({"user": "a", "time": "2024-01-01T00:00:50Z"})).2.len(), 0);
        assert_eq!(
            apply(&filter, json!({"user": "a", "time": "2024-01-01T00:01:01Z"})).2,
            [json!({"clicks": 2})]
        );
        assert_eq!(apply(&filter, json!({"user": "a"})).1["tags"], json!(["_aggregateexception"]));
    }

    #[test]
    fn options_are_checked() {
        let mut registry = TaskRegistry::default();
        let timeouts = [("task_id", "%{a}"), ("code", "map['a'] = 1"), ("timeout", "5")];
        assert!(filter(&mut registry, &timeouts).is_ok());
        let faults = [
            (filter(&mut registry, &timeouts), "have options for timeouts"),
            (filter(&mut registry, &[("task_id", "a"), ("code", "1")]), "must have a reference"),
            (
                filter(&mut registry, &[("task_id", "%{b}"), ("code", "mapp['a'] = 1")]),
                "[code] of [aggregate]",
            ),
            (filter(&mut registry, &[("task_id", "%{b}"), ("code", "@a = 1")]), "put values into map"),
            (
                filter(&mut registry, &[("task_id", "%{b}"), ("code", "1"), ("aggregate_maps_path", "/x")]),
                "in memory only",
            ),
            (
                filter(
                    &mut registry,
                    &[("task_id", "%{c}"), ("code", "1"), ("timeout", "1"), ("inactivity_timeout", "2")],
                ),
                "must not exceed",
            ),
        ];
        for (built, expected) in faults {
            let faults = built.unwrap_err();
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{faults:?}");
        }
    }

    #[test]
    fn maps_are_bounded() {
        let given = [
            ("task_id", "%{a}"),
            ("code", "map['x'] = 'x' * 10_000_000"),
            ("push_map_as_event_on_timeout", "true"),
        ];
        let filter = filter(&mut TaskRegistry::default(), &given).unwrap();
        let made: usize = (0..12).map(|n| apply(&filter, json!({"a": n})).2.len()).sum();
        assert!(made > 2, "{made}");
    }
}
