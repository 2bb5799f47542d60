//! The percolator: documents of the change feed meet the filters of rules, with the rights of the rules' owners.
//!
//! [`Matching`] is handed rules and frames as the store has them, and gives frames as the core of rules takes them, with
//! events for nothing but the documents that some rule matches. Alerts and detectors ask it of what arrives, replays of what is stored.
//! All of it blocks: it is called on compute threads.
//!
//! - [`targets`]: which indices a rule watches, with the rights that its owner has now; no index whose mapping this version refuses
//! - [`rule_indices`]: the indices that rules write, most of which no rule watches
//! - [`compiled`]: the filters of an index, compiled anew only where they may mean something else
//! - [`filter_cache`]: compiled filters, by index
//! - [`stored`]: which stored documents rules may match, by the index
//! - [`panic_isolation`]: filters that panic
//! - [`formats`]: event times that are written in a way of their own
//! - [`slow`]: which filter it is that takes too long
//! - [`reason`]: why a filter cannot be compiled or asked

mod compiled;
mod filter_cache;
mod formats;
mod panic_isolation;
mod reason;
pub mod rule_indices;
mod slow;
mod stored;
mod targets;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use millrace_accounts::Accounts;
use millrace_catalog::access::Origin as FrameOrigin;
use millrace_catalog::frame::{AppliedFrame, Op};
use millrace_engine::Engine;
use millrace_mapping::fields::shown;
use millrace_query::filters::{ArrivedDocument, Batch};
use millrace_rules::engine::{Frame, Rule, RuleMatches};
use millrace_rules::{Event, Origin, Time};
use millrace_runtime::Priority;
use serde_json::Value;
use uuid::Uuid;

use self::compiled::{CompiledFilters, Matches, OwnerProjection};
use self::filter_cache::{CacheEntry, MAX_KEPT};
use self::formats::Formats;
use self::slow::Slow;
use self::targets::Targets;

pub use self::reason::reason_of;
pub use self::targets::watched_indices;

/// A rule as it is asked.
#[derive(Debug)]
pub struct MatchRequest {
    /// Id of the rule.
    pub id: String,
    /// User with whose rights it is asked.
    pub owner: String,
    /// Its patterns of indices, as one expression.
    pub expression: String,
    /// Each of the patterns but exclusions.
    pub parts: Vec<String>,
    /// The search body.
    pub body: Value,
    /// The second one, where the rule's type has one.
    pub second: Option<Value>,
    /// `true` if updates of documents are events, too.
    pub include_updates: bool,
    /// `true` if documents that rules wrote are events, too.
    pub allow_alerts: bool,
    /// The field of the event time.
    pub timestamp_field: String,
}

impl MatchRequest {
    /// Makes the request of an alert rule.
    pub fn new(rule: &Rule) -> Self {
        let definition = &rule.definition;
        Self {
            id: rule.id.clone(),
            owner: rule.owner.clone(),
            expression: definition.index.join(","),
            parts: definition.index.iter().filter(|part| !part.starts_with('-')).cloned().collect(),
            body: definition.body.clone(),
            second: definition.second(),
            include_updates: definition.include_updates,
            allow_alerts: definition.allow_alerts,
            timestamp_field: definition.timestamp_field.clone(),
        }
    }
}

/// Rules, and what they are asked of.
#[derive(Debug)]
pub struct Matching {
    engine: Arc<Engine>,
    rules: BTreeMap<String, Arc<MatchRequest>>,
    targets: Targets,
    indices: HashMap<Uuid, CacheEntry>,
    /// Why rules are not asked of indices whose filters were forgotten, as nothing came for a while.
    unwatched: HashMap<Uuid, BTreeMap<String, String>>,
    /// Counts the batches.
    batch: u64,
    /// Bytes of filters that are kept.
    most_kept: usize,
    /// Indices whose filters are forgotten though documents of them come all the time.
    crowded_out: usize,
    slow: Slow,
    /// Of the threads that help.
    priority: Priority,
    /// Messages about rules, each to be reported once.
    to_tell: Vec<(String, String)>,
}

/// A frame as the core of rules takes it, with what its events match. Its events are read only when rules come to it: values take many
/// times as much as sources, and frames wait for one another.
#[derive(Debug)]
pub struct Evaluable {
    /// The frame, without events as yet.
    pub frame: Frame,
    /// Matches of each rule.
    pub matched: Vec<RuleMatches>,
    documents: Vec<Document>,
}

/// A document that is an event.
#[derive(Debug)]
struct Document {
    index: Arc<str>,
    uuid: Arc<str>,
    shard: u32,
    seq_no: u64,
    id: Arc<str>,
    created: bool,
    source: Bytes,
    /// Visible part of the source.
    shown: OwnerProjection,
    /// Formats of time fields that are written in a way of their own.
    formats: Formats,
}

impl Evaluable {
    /// Makes one whose events are read.
    pub fn new(frame: Frame, matched: Vec<RuleMatches>) -> Self {
        Self { frame, matched, documents: Vec::new() }
    }

    /// Reads its events: the frame with them, and which of them each rule matches.
    pub fn read(self) -> (Frame, Vec<RuleMatches>) {
        let Self { mut frame, matched, documents } = self;
        let origin = frame.origin;
        frame.events.extend(documents.into_iter().map(|document| document.read(origin)));
        (frame, matched)
    }
}

impl Document {
    fn read(self, origin: Origin) -> Event {
        let whole: Value = serde_json::from_slice(&self.source).unwrap_or_default();
        // How many rules an alert has gone through ends loops of them, also of owners who may not see that.
        let depth = whole.get("depth").filter(|_| origin == Origin::Rule).cloned();
        let mut source = shown(whole, &self.shown);
        if let (Some(depth), Value::Object(members)) = (depth, &mut source) {
            members.insert("depth".to_owned(), depth);
        }
        Event {
            index: self.index,
            uuid: self.uuid,
            shard: self.shard,
            seq_no: self.seq_no,
            id: self.id,
            created: self.created,
            times: self.formats.read(&source),
            source: Arc::new(source),
        }
    }
}

/// An operation that some filter is asked of.
struct OperationPosition<'a> {
    frame: usize,
    shard: u32,
    seq_no: u64,
    op: &'a Op,
    source: &'a Bytes,
}

/// A document that matches, and the rules that it matches.
struct Hit<'a> {
    place: &'a OperationPosition<'a>,
    index: Arc<str>,
    uuid: Arc<str>,
    /// Part of its source that these owners see.
    shown: OwnerProjection,
    /// Formats of time fields that are written in a way of their own.
    formats: Formats,
    /// And whether it matches their second filter.
    rules: Vec<(Arc<MatchRequest>, bool)>,
}

/// Documents for which it is worth to take another thread.
const PART_ROWS: usize = 250;
/// Indices that are looked at for filters which another one can have, too.
const MAX_ALIKE: usize = 64;

impl Matching {
    /// Begins without rules; `priority` is that of the threads on which it is asked.
    pub fn new(engine: &Arc<Engine>, accounts: &Arc<Accounts>, priority: Priority) -> Self {
        Self {
            engine: Arc::clone(engine),
            rules: BTreeMap::new(),
            targets: Targets::new(engine, accounts),
            indices: HashMap::new(),
            unwatched: HashMap::new(),
            batch: 0,
            most_kept: MAX_KEPT,
            crowded_out: 0,
            slow: Slow::default(),
            priority,
            to_tell: Vec::new(),
        }
    }

    /// Goes on at another priority.
    pub fn set_priority(&mut self, priority: Priority) {
        self.priority = priority;
    }

    /// Adds a rule, or puts it in the place of the one with its id. One that is not enabled is not asked.
    pub fn put(&mut self, rule: &Rule) {
        match rule.definition.enabled {
            true => self.request(MatchRequest::new(rule)),
            false => self.remove(&rule.id),
        }
    }

    /// Adds a request, or puts it in the place of the one with its id.
    pub fn request(&mut self, request: MatchRequest) {
        self.forget_told(&request.id);
        self.rules.insert(request.id.clone(), Arc::new(request));
        self.targets.invalidate();
    }

    /// Lists the ids of what is asked.
    pub fn requested(&self) -> Vec<String> {
        self.rules.keys().cloned().collect()
    }

    /// Removes a rule.
    pub fn remove(&mut self, id: &str) {
        self.forget_told(id);
        self.rules.remove(id);
        self.targets.invalidate();
    }

    /// Forgets what was told of a rule that is another one, or gone.
    fn forget_told(&mut self, id: &str) {
        self.slow.forget(id);
        self.unwatched.retain(|_, problems| {
            problems.remove(id);
            !problems.is_empty()
        });
    }

    /// Tells why rules are not asked, of all indices or of some.
    pub fn problems(&self) -> BTreeMap<String, String> {
        let mut problems: BTreeMap<String, String> = BTreeMap::new();
        let of_indices = self.indices.values().flat_map(|watched| watched.compiled.problems());
        let forgotten =
            self.unwatched.values().flatten().map(|(rule, reason)| (rule.as_str(), reason.as_str()));
        for (rule, reason) in self.targets.problems().chain(of_indices).chain(forgotten) {
            if self.rules.contains_key(rule) {
                problems.entry(rule.to_owned()).or_insert_with(|| reason.to_owned());
            }
        }
        problems
    }

    /// Takes what is to be told of rules since it was asked last.
    pub fn take_told(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.to_tell)
    }

    /// Asks the rules of frames: one [`Evaluable`] a frame, in their order.
    pub fn run(&mut self, frames: &[Arc<AppliedFrame>]) -> Vec<Evaluable> {
        self.targets.refresh(&self.rules, &mut self.to_tell);
        self.batch += 1;
        let time_ms = frames.last().map_or(0, |frame| frame.time_ms);
        let mut places: BTreeMap<Uuid, Vec<OperationPosition<'_>>> = BTreeMap::new();
        for (at, frame) in frames.iter().enumerate() {
            self.gather(at, frame, &mut places);
        }
        let mut hits: Vec<Vec<Hit<'_>>> = frames.iter().map(|_| Vec::new()).collect();
        let mut failed: Vec<(usize, String, String)> = Vec::new();
        let mut lost: BTreeMap<String, UnmatchableDocuments> = BTreeMap::new();
        for (uuid, places) in &places {
            let Some(watched) = self.indices.get_mut(uuid) else { continue };
            (watched.batch, watched.time_ms) = (self.batch, time_ms);
            let compiled = &watched.compiled;
            let mut asking = FilterEvaluation {
                engine: &self.engine,
                priority: self.priority,
                frames,
                compiled,
                slow: &mut self.slow,
                hits: &mut hits,
                failed: &mut failed,
                lost: UnmatchableDocuments::default(),
            };
            asking.all(places);
            let of_index = asking.lost;
            if of_index.documents > 0 {
                compiled.rules().for_each(|rule| lost.entry(rule.id.clone()).or_default().add(&of_index));
            }
        }
        self.to_tell.extend(lost.into_iter().map(|(rule, lost)| (rule, lost.said())));
        self.forget_gone(&places);
        self.forget_most(time_ms);
        let mut evaluable: Vec<Evaluable> =
            frames.iter().zip(hits).map(|(frame, hits)| evaluable(frame, hits)).collect();
        for (frame, rule, reason) in failed {
            let Some(Evaluable { matched, .. }) = evaluable.get_mut(frame) else { continue };
            matched.retain(|of| of.rule != rule);
            matched.push(RuleMatches { rule, outcome: Err(reason), second: Vec::new() });
        }
        evaluable
    }

    /// Gathers the operations of a frame that some rule is asked of.
    fn gather<'a>(
        &mut self,
        at: usize,
        frame: &'a AppliedFrame,
        places: &mut BTreeMap<Uuid, Vec<OperationPosition<'a>>>,
    ) {
        if matches!(frame.origin, FrameOrigin::Restore | FrameOrigin::System) {
            return;
        }
        for part in &frame.parts {
            // Looked at once a batch: what the index is does not change meanwhile.
            if !places.contains_key(&part.index) {
                self.compile(part.index);
            }
            let compiled = self.indices.get(&part.index).map(|watched| &watched.compiled);
            let Some(compiled) = compiled.filter(|compiled| !compiled.is_empty()) else { continue };
            if frame.origin == FrameOrigin::Rule && !compiled.allows_alerts() {
                continue;
            }
            let of_index = places.entry(part.index).or_default();
            for (seq_no, op) in (part.first_seq_no..).zip(&part.ops) {
                let Some(source) = &op.source else { continue };
                if op.created || compiled.includes_updates() {
                    of_index.push(OperationPosition { frame: at, shard: part.shard, seq_no, op, source });
                }
            }
        }
    }

    /// Has the filters of an index compiled for what it is now. Of one that is gone those of before are asked, as long as
    /// their rules and owners are what they were.
    fn compile(&mut self, uuid: Uuid) {
        let Some((name, rules)) = self.targets.rules_for(&uuid) else {
            if let Some(before) = self.indices.get(&uuid)
                && (self.targets.is_there(&uuid)
                    || !before.compiled.is_current(&self.rules, self.targets.owners()))
            {
                self.indices.remove(&uuid);
            }
            return;
        };
        let Ok(index) = self.engine.index(name) else { return };
        let (meta, mapping) = (index.meta(), index.mapping());
        if meta.uuid != uuid {
            return;
        }
        let owners = self.targets.owners();
        let before = self.indices.remove(&uuid);
        let compiled = match before {
            Some(before) if before.compiled.is_of(&meta, &mapping, rules, owners) => before.compiled,
            before => {
                let others = self.indices.values().take(MAX_ALIKE);
                let mut shared = others.filter_map(|other| {
                    CompiledFilters::shared(&other.compiled, &meta, &mapping, rules, owners)
                });
                let told = self.unwatched.remove(&uuid).unwrap_or_default();
                shared.next().unwrap_or_else(|| {
                    let before = before.as_ref().map(|before| &before.compiled);
                    CompiledFilters::new(&meta, &mapping, rules, owners, before, &told, &mut self.to_tell)
                })
            }
        };
        self.indices.insert(uuid, CacheEntry { compiled, batch: self.batch, time_ms: 0 });
    }
}

/// Documents of a batch that no rule could be asked of.
#[derive(Debug, Default)]
struct UnmatchableDocuments {
    documents: u64,
    /// The first reason.
    reason: String,
}

impl UnmatchableDocuments {
    fn add(&mut self, other: &Self) {
        if self.documents == 0 {
            self.reason.clone_from(&other.reason);
        }
        self.documents += other.documents;
    }

    /// Reports it once a rule and batch, for any number of events.
    fn said(&self) -> String {
        format!("{} documents could not be asked; the first: {}", self.documents, self.reason)
    }
}

/// The filters of an index being asked.
struct FilterEvaluation<'a, 'b> {
    engine: &'b Arc<Engine>,
    priority: Priority,
    frames: &'b [Arc<AppliedFrame>],
    compiled: &'b CompiledFilters,
    slow: &'b mut Slow,
    hits: &'b mut Vec<Vec<Hit<'a>>>,
    failed: &'b mut Vec<(usize, String, String)>,
    lost: UnmatchableDocuments,
}

impl<'a> FilterEvaluation<'a, '_> {
    /// Asks of all places: in parts, as many at a time as a batch may have, and no more than leave some for each thread.
    fn all(&mut self, places: &'a [OperationPosition<'a>]) {
        let arrivals: Arc<[ArrivedDocument]> = places.iter().map(|place| self.arrival(place)).collect();
        let threads = self.engine.compute().threads().max(1);
        let most = places.len().div_ceil(threads).max(PART_ROWS);
        let (mut parts, mut first) = (Vec::new(), 0);
        while let Some(rest) = arrivals.get(first..).filter(|rest| !rest.is_empty()) {
            let fitting = Batch::fitting(&rest[..rest.len().min(most)]).max(1);
            parts.push(first..first + fitting);
            first += fitting;
        }
        self.some(places, &arrivals, &parts);
    }

    fn arrival(&self, place: &OperationPosition<'_>) -> ArrivedDocument {
        ArrivedDocument {
            id: place.op.id.clone(),
            source: place.source.clone(),
            seq_no: place.seq_no,
            routing: place.op.routing.as_deref().map(Arc::from),
            now_ms: self.frames.get(place.frame).map_or(0, |frame| frame.time_ms),
        }
    }

    /// Asks of parts of the places. What cannot be asked as a whole is asked in halves, so that a document stops no other.
    fn some(
        &mut self,
        places: &'a [OperationPosition<'a>],
        arrivals: &Arc<[ArrivedDocument]>,
        parts: &[Range<usize>],
    ) {
        let answers = self.compiled.found(arrivals, parts, self.engine.compute(), self.priority, self.slow);
        for (part, found) in parts.iter().zip(answers) {
            let of_part = places.get(part.clone()).unwrap_or_default();
            match found {
                Ok(found) => self.note(of_part, found),
                Err(_) if part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    self.some(places, arrivals, &[part.start..middle, middle..part.end]);
                }
                Err(error) => {
                    let documents = of_part.len() as u64;
                    let reason = format!("of index [{}], {error}", self.compiled.name());
                    self.lost.add(&UnmatchableDocuments { documents, reason });
                }
            }
        }
    }

    /// Notes which rules some places match.
    fn note(&mut self, places: &'a [OperationPosition<'a>], found: compiled::RuleMatches) {
        let mut by_row: BTreeMap<u32, Vec<(Arc<MatchRequest>, bool)>> = BTreeMap::new();
        for (rule, rows) in found {
            match rows {
                Ok(Matches { rows, second }) => {
                    for row in rows {
                        let also = second.contains(row);
                        by_row.entry(row).or_default().push((Arc::clone(&rule), also));
                    }
                }
                Err(reason) => {
                    let frame = places.first().map_or(0, |place| place.frame);
                    self.failed.push((frame, rule.id.clone(), reason));
                }
            }
        }
        for (row, rules) in by_row {
            let Some(place) = places.get(row as usize) else { continue };
            let Some(hits) = self.hits.get_mut(place.frame) else { continue };
            for (shown, rules) in self.compiled.by_sight(rules) {
                let (index, uuid) = (Arc::clone(self.compiled.name()), Arc::clone(self.compiled.uuid()));
                let formats = self.compiled.formats().clone();
                hits.push(Hit { place, index, uuid, shown, formats, rules });
            }
        }
    }
}

/// Makes a frame with the documents that some rule matches.
fn evaluable(frame: &AppliedFrame, hits: Vec<Hit<'_>>) -> Evaluable {
    let mut matched: BTreeMap<&str, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (at, hit) in hits.iter().enumerate() {
        for (rule, also) in &hit.rules {
            // An update is an event of those alone that ask for it.
            if hit.place.op.created || rule.include_updates {
                let (places, second) = matched.entry(&rule.id).or_default();
                places.push(at);
                if *also {
                    second.push(at);
                }
            }
        }
    }
    let matched: Vec<RuleMatches> = matched
        .into_iter()
        .map(|(rule, (places, second))| RuleMatches { rule: rule.to_owned(), outcome: Ok(places), second })
        .collect();
    let documents = hits.into_iter().map(|Hit { place, index, uuid, shown, formats, .. }| Document {
        index,
        uuid,
        shard: place.shard,
        seq_no: place.seq_no,
        id: String::from_utf8_lossy(&place.op.id).into(),
        created: place.op.created,
        source: place.source.clone(),
        shown,
        formats,
    });
    let documents = documents.collect();
    let frame = Frame {
        number: frame.number,
        time: Time::from_ms(frame.time_ms),
        origin: origin(frame.origin),
        events: Vec::new(),
        complete: true,
    };
    Evaluable { frame, matched, documents }
}

/// Returns the writer of a frame, in the words of rules. Frames without a noted writer are of users.
fn origin(origin: FrameOrigin) -> Origin {
    match origin {
        FrameOrigin::Unknown | FrameOrigin::User => Origin::User,
        FrameOrigin::Pipeline => Origin::Pipeline,
        FrameOrigin::Restore => Origin::Restore,
        FrameOrigin::Rule => Origin::Rule,
        FrameOrigin::System => Origin::System,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_read_when_rules_come_to_their_frame() {
        let source = Bytes::from_static(br#"{"a":[1,1,1],"depth":2}"#);
        let id = Bytes::from_static(b"d1");
        let op = Op { id, generated: false, created: true, version: 1, routing: None, source: None };
        let place = OperationPosition { frame: 0, shard: 1, seq_no: 7, op: &op, source: &source };
        let hit = || Hit {
            place: &place,
            index: "logs".into(),
            uuid: "u".into(),
            shown: OwnerProjection::default(),
            formats: Formats::default(),
            rules: Vec::new(),
        };
        let of = AppliedFrame { number: 3, origin: FrameOrigin::Rule, ..AppliedFrame::default() };
        let waiting = evaluable(&of, vec![hit(), hit()]);
        assert!(waiting.frame.events.is_empty());
        // What it holds until then is what the feed has.
        assert!(waiting.documents.iter().all(|document| document.source.as_ptr() == source.as_ptr()));
        let (frame, _) = waiting.read();
        let read: Vec<_> =
            frame.events.iter().map(|event| (&*event.id, event.seq_no, &*event.source)).collect();
        let whole = json!({"a": [1, 1, 1], "depth": 2});
        assert_eq!((frame.number, read), (3, vec![("d1", 7, &whole); 2]));
    }
}
