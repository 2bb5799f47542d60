//! Pipelines of made inputs, filters and outputs against a store in memory, with failures of all of them.

mod filters;
mod overload;
mod reload;
mod templates;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_catalog::access::Principal;
use millrace_catalog::frame::PositionDelta;
use millrace_catalog::operation::{
    Action, DeadLetter as Replace, DocResult, OnReject, SourceWrite, WriteOp, WriteOutcome,
};
use millrace_ingest::batch::NotStored;
use millrace_ingest::budget::{Budget, Reservation};
use millrace_ingest::input::{Context, Input, InputError};
use millrace_ingest::output::{
    IndexTemplate, Local, LocalWrite, OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted,
};
use millrace_ingest::{Ack, Batch, Event, Move, Provenance};
use millrace_runtime::Error;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::*;
use crate::filter::{Filter, FilterPlugin, Outcome};
use crate::graph::{Arms, FilterNode, InputNode, Node, OutputNode};
use crate::language;
use crate::settings::EventOrder;
use crate::store::{Durable, Sender};

/// A store in memory that refuses as it is told.
#[derive(Debug, Default)]
struct Memory {
    state: Mutex<StoredEvents>,
    /// One of so many writes is refused, with a reason that passes; 0 refuses none.
    refuse_one_in: usize,
    writes: AtomicUsize,
    /// All writes are refused while it is `true`, with a reason that passes.
    is_full: AtomicBool,
    /// Templates are refused for good while it is `true`.
    refuses_templates: AtomicBool,
    /// Names of templates that were put.
    templates: Mutex<Vec<String>>,
    /// Writes wait while it is `true`.
    held: watch::Sender<bool>,
    /// Nothing becomes durable while it is `true`.
    volatile: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct StoredEvents {
    positions: HashMap<(String, String), (Option<Bytes>, u64)>,
    docs: Vec<(String, Value)>,
    letters: Vec<(String, Value)>,
}

impl Memory {
    fn numbers(&self, partition: &str) -> Vec<u64> {
        let state = self.state.lock();
        let docs = state.docs.iter().filter(|(_, doc)| doc["partition"] == partition);
        docs.map(|(_, doc)| doc["n"].as_u64().unwrap()).collect()
    }

    async fn until(&self, what: impl Fn(&StoredEvents) -> bool) {
        while !what(&self.state.lock()) {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Store for Memory {
    async fn put_template(&self, template: &IndexTemplate) -> millrace_runtime::Result<()> {
        if self.refuses_templates.load(Ordering::Relaxed) {
            return Err(Error::IllegalArgument("the mapping is none".to_owned()));
        }
        self.templates.lock().push(template.name.clone());
        Ok(())
    }

    async fn write(
        &self,
        _writer: &Principal,
        write: SourceWrite,
        replace: Replace,
        _timeout: Duration,
        ready: BoxFuture<'_, ()>,
    ) -> millrace_runtime::Result<Durable> {
        let SourceWrite { ops, own, moves } = write;
        let ops: Vec<WriteOp> = ops.into_iter().chain(own).collect();
        ready.await;
        let _ = self.held.subscribe().wait_for(|held| !held).await;
        let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_full.load(Ordering::Relaxed) {
            return Err(Error::Rejected("the disk is full".to_owned()));
        }
        if self.refuse_one_in > 0 && write.is_multiple_of(self.refuse_one_in) {
            return Err(Error::Rejected("the memory is full".to_owned()));
        }
        if ops.iter().any(|op| &*op.index == "blocked") && !moved_elsewhere(&moves) {
            return Err(Error::Rejected("the index is blocked".to_owned()));
        }
        let mut state = self.state.lock();
        let mut positions = state.positions.clone();
        for delta in moves {
            let part = (delta.source, delta.partition);
            let have = positions.get(&part).cloned().unwrap_or_default();
            if have != (delta.previous, delta.owner_epoch) {
                let (source_id, partition) = part;
                return Err(Error::PositionMoved { pipeline: delta.pipeline, source_id, partition });
            }
            positions.insert(part, (Some(delta.new), delta.owner_epoch));
        }
        state.positions = positions;
        let mut results = Vec::new();
        for op in ops {
            let index = op.index.to_string();
            let refused = index == "strict";
            let op = if refused {
                let error = Error::IllegalArgument("does not fit".to_owned());
                results.push(Err(Error::IllegalArgument("does not fit".to_owned())));
                match replace(&op, &error) {
                    OnReject::DeadLetter(letter) => Some(letter),
                    OnReject::Skip => None,
                    OnReject::Abort => return Err(Error::DeadLetterRefused(error.to_string())),
                }
            } else {
                results.push(Ok(outcome(&op)));
                Some(op)
            };
            let Some(op) = op else { continue };
            let (Action::Index(source) | Action::Create(source)) = &op.action else { panic!() };
            let doc = serde_json::from_slice(source).unwrap();
            if &*op.index == "letters" {
                state.letters.push((index, doc));
            } else {
                state.docs.push((index, doc));
            }
        }
        let mut volatile = self.volatile.subscribe();
        let durable = async move {
            let _ = volatile.wait_for(|volatile| !volatile).await;
            Ok(results)
        };
        Ok(durable.boxed())
    }

    async fn claim(
        &self,
        _: &str,
        source: &str,
        part: &str,
    ) -> millrace_runtime::Result<(Option<Bytes>, u64)> {
        let mut state = self.state.lock();
        let (position, epoch) = state.positions.entry((source.to_owned(), part.to_owned())).or_default();
        *epoch += 1;
        Ok((position.clone(), *epoch))
    }

    fn positions(&self, _: &str, _: &str) -> Vec<(String, Bytes)> {
        Vec::new()
    }

    fn letter(&self, event: &Event, reason: &str, sender: Sender<'_>) -> Option<WriteOp> {
        let event = Value::Object(event.fields().clone());
        Some(write("letters", &json!({"plugin": sender.plugin, "reason": reason, "event": event})))
    }

    fn letter_in_place_of(&self, _: &WriteOp, error: &Error, sender: Sender<'_>) -> Option<WriteOp> {
        Some(write("letters", &json!({"plugin": sender.plugin, "reason": error.to_string()})))
    }
}

/// Returns whether one of the positions is another owner's in any case.
fn moved_elsewhere(moves: &[PositionDelta]) -> bool {
    moves.iter().any(|delta| delta.source == "other")
}

fn outcome(op: &WriteOp) -> WriteOutcome {
    WriteOutcome {
        index: Arc::clone(&op.index),
        id: String::new(),
        version: 1,
        seq_no: 0,
        primary_term: 1,
        result: DocResult::Created,
        shard_copies: 1,
        source: None,
    }
}

fn write(index: &str, doc: &Value) -> WriteOp {
    WriteOp::new(index, None, Action::Create(doc.to_string().into()))
}

/// A source of numbers in partitions, read from the stored positions, several batches ahead.
#[derive(Debug)]
struct Numbers {
    name: &'static str,
    partitions: Vec<&'static str>,
    /// Numbers of each partition; then it waits until it is stopped, or ends.
    total: u64,
    ends: bool,
}

impl Numbers {
    async fn partition(&self, partition: &'static str, context: Context) -> Result<(), InputError> {
        let (stored, owner_epoch) = context.positions.claim(self.name, partition).await?;
        let mut previous = stored;
        let mut next = previous.as_deref().map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
        let mut random = StdRng::seed_from_u64(next + context.batch_size.get() as u64);
        let mut waiting = std::collections::VecDeque::new();
        while next < self.total && !*context.stopping.borrow() {
            let end = (next + random.random_range(1..20)).min(self.total);
            let new = Bytes::copy_from_slice(&end.to_be_bytes());
            let position = Move {
                source: self.name.to_owned(),
                partition: partition.to_owned(),
                previous: previous.replace(new.clone()),
                new,
                owner_epoch,
            };
            let events = (next..end).map(|n| {
                let mut event = event(json!({"partition": partition, "n": n}));
                event.set_provenance(Some(Provenance::new(n.into(), 0)));
                event
            });
            let events = events.collect();
            let (ack, stored) = Ack::channel();
            let batch = Batch { events, position: Some(position), ack, held: Reservation::default() };
            context.batches.send(batch).await.map_err(|_| InputError("ended".to_owned()))?;
            waiting.push_back(stored);
            if waiting.len() > 3 {
                waiting
                    .pop_front()
                    .unwrap()
                    .await
                    .unwrap_or(Err(NotStored::Ended))
                    .map_err(|e| InputError(e.to_string()))?;
            }
            next = end;
        }
        for stored in waiting {
            stored.await.unwrap_or(Err(NotStored::Ended)).map_err(|e| InputError(e.to_string()))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Input for Numbers {
    fn identity(&self) -> String {
        self.name.to_owned()
    }

    async fn run(&self, mut context: Context) -> Result<(), InputError> {
        let all = self.partitions.iter().map(|partition| self.partition(partition, context.clone()));
        futures::future::try_join_all(all).await?;
        if !self.ends {
            let _ = context.stopping.wait_for(|stopping| *stopping).await;
        }
        Ok(())
    }
}

fn event(fields: Value) -> Event {
    let Value::Object(fields) = fields else { panic!() };
    Event::from_fields(fields, DateTime::UNIX_EPOCH)
}

#[derive(Debug)]
struct IndexOutput(&'static str);

impl Local for IndexOutput {
    fn operation(&self, event: &Event, _: Option<String>) -> Result<LocalWrite, String> {
        if event.fields().contains_key("unfit") {
            return Err("no index".to_owned());
        }
        let op = write(self.0, &Value::Object(event.fields().clone()));
        Ok(LocalWrite { op, pipeline: None })
    }

    fn names(&self) -> String {
        self.0.to_owned()
    }
}

#[derive(Debug)]
struct FilterFn(fn(&mut Event, &mut Vec<Event>) -> Outcome);

impl Filter for FilterFn {
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome {
        (self.0)(event, made)
    }
}

fn label(id: &str) -> Label {
    Label { id: id.into(), name: id.into(), shown: true, meter: Arc::default() }
}

fn input(input: impl Input + 'static) -> Arc<InputNode> {
    let identity = input.identity();
    Arc::new(InputNode {
        label: label(&identity),
        input: Box::new(input),
        source: identity.as_str().into(),
        identity,
        decoration: Default::default(),
    })
}

fn filter(id: &str, apply: fn(&mut Event, &mut Vec<Event>) -> Outcome) -> Node<FilterNode> {
    Node::Plugin(FilterNode {
        label: label(id),
        filter: FilterPlugin::Local(Arc::new(FilterFn(apply))),
        decoration: Default::default(),
    })
}

fn output(id: &str, output: Output) -> Node<Arc<OutputNode>> {
    Node::Plugin(Arc::new(OutputNode { label: label(id), output }))
}

fn local(index: &'static str) -> Node<Arc<OutputNode>> {
    output(index, Output::Local(Arc::new(IndexOutput(index))))
}

fn graph(
    inputs: Vec<Arc<InputNode>>,
    filters: Vec<Node<FilterNode>>,
    outputs: Vec<Node<Arc<OutputNode>>>,
) -> Graph {
    Graph { inputs, filters, outputs }
}

fn settings(workers: usize) -> Settings {
    Settings { workers, batch_size: 50, batch_delay: Duration::from_millis(1), ordered: EventOrder::Auto }
}

fn start(graph: Graph, settings: Settings, store: &Arc<Memory>) -> Pipeline {
    let compute = Compute::start(2).unwrap();
    Pipeline::start(
        "test",
        graph,
        settings,
        Arc::clone(store) as Arc<dyn Store>,
        compute,
        Budget::default().share(),
    )
}

/// One batch by hand: no position.
#[derive(Debug)]
struct ManualBatch(Mutex<Option<Vec<Batch>>>);

impl ManualBatch {
    fn from_batches(batches: Vec<Batch>) -> Arc<InputNode> {
        input(Self(Mutex::new(Some(batches))))
    }
}

#[async_trait]
impl Input for ManualBatch {
    fn identity(&self) -> String {
        "hand".to_owned()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let batches = self.0.lock().take().unwrap_or_default();
        for batch in batches {
            let _ = context.batches.send(batch).await;
        }
        Ok(())
    }
}

fn batch(events: Vec<Value>) -> (Batch, tokio::sync::oneshot::Receiver<Result<(), NotStored>>) {
    let (ack, told) = Ack::channel();
    (
        Batch {
            events: events.into_iter().map(event).collect(),
            position: None,
            ack,
            held: Reservation::default(),
        },
        told,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_arrive_in_order_and_once_though_the_store_refuses() {
    for workers in [1, 4] {
        let store = Arc::new(Memory { refuse_one_in: 5, ..Memory::default() });
        let numbers = Numbers { name: "numbers", partitions: vec!["a", "b", "c"], total: 700, ends: true };
        let slow = filter("slow", |event, _| {
            if event.fields()["n"].as_u64().unwrap().is_multiple_of(97) {
                std::thread::yield_now();
            }
            Outcome::Matched
        });
        let pipeline =
            start(graph(vec![input(numbers)], vec![slow], vec![local("docs")]), settings(workers), &store);
        pipeline.ended().await;
        pipeline.stop(Duration::from_secs(30)).await;
        for partition in ["a", "b", "c"] {
            assert_eq!(
                store.numbers(partition),
                (0..700).collect::<Vec<_>>(),
                "{workers} workers, {partition}"
            );
        }
        let figures = pipeline.figures();
        assert_eq!((figures.events_in, figures.filtered, figures.events_out), (2_100, 2_100, 2_100));
        assert!(pipeline.trouble().unwrap().0.contains("the memory is full"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_are_told_after_the_write() {
    let store = Arc::new(Memory::default());
    store.held.send_replace(true);
    let (batch, mut told) = batch(vec![json!({"n": 1})]);
    let pipeline = start(
        graph(vec![ManualBatch::from_batches(vec![batch])], vec![], vec![local("docs")]),
        settings(1),
        &store,
    );
    pipeline.ended().await;
    while pipeline.figures().filtered == 0 {
        tokio::task::yield_now().await;
    }
    assert!((&mut told).now_or_never().is_none(), "nothing is stored yet");
    store.held.send_replace(false);
    assert_eq!(told.await.unwrap(), Ok(()));
    assert_eq!(store.state.lock().docs.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_comes_to_its_end_however_long_it_takes() {
    for patient in [true, false] {
        let store = Arc::new(Memory::default());
        store.held.send_replace(true);
        let (batch, told) = batch(vec![json!({"n": 1})]);
        let pipeline = start(
            graph(vec![ManualBatch::from_batches(vec![batch])], vec![], vec![local("docs")]),
            settings(1),
            &store,
        );
        pipeline.ended().await;
        let (give_up, given_up) = tokio::sync::oneshot::channel::<()>();
        let stop = pipeline.stop_unless(given_up.map(drop));
        tokio::pin!(stop);
        while pipeline.figures().filtered == 0 {
            assert!((&mut stop).now_or_never().is_none(), "nothing is stored yet");
            tokio::task::yield_now().await;
        }
        if patient {
            store.held.send_replace(false);
            assert!(stop.await);
            assert_eq!(told.await.unwrap(), Ok(()));
        } else {
            give_up.send(()).unwrap();
            assert!(!stop.await);
            assert!(told.await.is_err() || store.state.lock().docs.is_empty());
        }
        assert_eq!(store.state.lock().docs.len(), usize::from(patient));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_written_on_while_the_disk_is_slow() {
    let store = Arc::new(Memory::default());
    store.volatile.send_replace(true);
    let numbers = Numbers { name: "numbers", partitions: vec!["a"], total: 300, ends: true };
    let graph = graph(vec![input(numbers)], vec![], vec![local("docs")]);
    let pipeline = start(graph, Settings { batch_size: 1, ..settings(2) }, &store);
    while store.writes.load(Ordering::Relaxed) < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(pipeline.figures().events_out, 0, "nothing is durable yet");
    store.volatile.send_replace(false);
    pipeline.ended().await;
    pipeline.stop(Duration::from_secs(30)).await;
    assert_eq!(store.numbers("a"), (0..300).collect::<Vec<_>>());
    assert_eq!(pipeline.figures().events_out, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_through_at_the_end_is_told_so() {
    let store = Arc::new(Memory::default());
    store.held.send_replace(true);
    let (batch, told) = batch(vec![json!({"n": 1})]);
    let pipeline = start(
        graph(vec![ManualBatch::from_batches(vec![batch])], vec![], vec![local("docs")]),
        settings(1),
        &store,
    );
    pipeline.ended().await;
    pipeline.stop(Duration::ZERO).await;
    assert!(told.await.unwrap_or(Err(NotStored::Ended)).is_err());
    assert_eq!(store.state.lock().docs.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_position_is_the_trouble_of_its_batch_alone() {
    let store = Arc::new(Memory::default());
    store.held.send_replace(true);
    let moved = Move {
        source: "other".to_owned(),
        partition: "0".to_owned(),
        previous: Some(Bytes::from_static(b"gone")),
        new: Bytes::from_static(b"new"),
        owner_epoch: 1,
    };
    // The first is on its way while the others are taken together.
    let (first, first_told) = batch(vec![json!({"n": 0})]);
    let (one, one_told) = batch(vec![json!({"n": 1})]);
    let (mut two, two_told) = batch(vec![json!({"n": 2})]);
    two.position = Some(moved);
    let (three, three_told) = batch(vec![json!({"n": 3})]);
    let hand = ManualBatch::from_batches(vec![first, one, two, three]);
    let pipeline = start(graph(vec![hand], vec![], vec![local("docs")]), settings(1), &store);
    pipeline.ended().await;
    store.held.send_replace(false);
    assert_eq!(first_told.await.unwrap(), Ok(()));
    assert_eq!(one_told.await.unwrap(), Ok(()));
    assert_eq!(two_told.await.unwrap(), Err(NotStored::Moved));
    assert_eq!(three_told.await.unwrap(), Ok(()));
    let docs: Vec<Value> = store.state.lock().docs.iter().map(|(_, doc)| doc["n"].clone()).collect();
    assert_eq!(docs, [json!(0), json!(1), json!(3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_stored_becomes_a_dead_letter_with_its_reason() {
    let store = Arc::new(Memory::default());
    let panics = filter("panics", |event, _| {
        assert!(!event.fields().contains_key("poison"), "poisoned");
        Outcome::Matched
    });
    let definition =
        language::parse("input { x { } } filter { if [n] > 0 { x { } } }", &Default::default()).unwrap();
    let Some(language::Statement::Branch(branch)) = definition.filters.into_iter().next() else { panic!() };
    let condition = branch.arms.into_iter().next().unwrap().condition;
    let arms = vec![(
        condition,
        vec![filter("positive", |event, _| {
            event.tag("positive");
            Outcome::Matched
        })],
    )];
    let branch = Node::Branch(Arms { id: "if_line_1".into(), arms, otherwise: vec![] });
    let (batch, told) = batch(vec![
        json!({"n": 1}),
        json!({"n": 2, "poison": true}),
        json!({"n": "three"}),
        json!({"n": 4, "unfit": true}),
        json!({"n": 0}),
    ]);
    let outputs = vec![local("docs"), local("strict")];
    let graph = graph(vec![ManualBatch::from_batches(vec![batch])], vec![panics, branch], outputs);
    let pipeline = start(graph, settings(1), &store);
    assert_eq!(told.await.unwrap(), Ok(()));
    let state = store.state.lock();
    let docs: Vec<&Value> = state.docs.iter().map(|(_, doc)| doc).collect();
    assert_eq!(docs, [&json!({"n": 1, "tags": ["positive"]}), &json!({"n": 0})]);
    let mut letters: BTreeMap<String, usize> = BTreeMap::new();
    for (_, letter) in &state.letters {
        *letters.entry(format!("{}: {}", letter["plugin"], letter["reason"])).or_default() += 1;
    }
    let expected = [
        ("\"docs\": \"no index\"", 1),
        ("\"docs,strict\": \"does not fit\"", 2),
        ("\"if_line_1\": \"[n] > 0 has no answer for a text and a number\"", 1),
        ("\"panics\": \"the filter failed: poisoned\"", 1),
        ("\"strict\": \"no index\"", 1),
    ];
    assert_eq!(letters, expected.into_iter().map(|(letter, count)| (letter.to_owned(), count)).collect());
    drop(state);
    drop(pipeline);
}

#[derive(Debug)]
struct Elsewhere {
    seen: Mutex<Vec<(u64, Option<String>)>>,
    down: watch::Sender<bool>,
}

#[async_trait]
impl Sink for Elsewhere {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let mut down = self.down.subscribe();
        tokio::select! {
            _ = down.wait_for(|down| !down) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return Err(SinkInterrupted),
        }
        let mut refused = Vec::new();
        for (number, (event, id)) in events.iter().enumerate() {
            match event.fields()["n"].as_u64() {
                Some(13) => refused.push(RefusedEvent { event: number, reason: "unlucky".to_owned() }),
                n => self.seen.lock().push((n.unwrap(), id.clone())),
            }
        }
        Ok(refused)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_is_down_holds_its_source_and_loses_nothing() {
    let store = Arc::new(Memory::default());
    let sink = Arc::new(Elsewhere { seen: Mutex::default(), down: watch::Sender::new(true) });
    let make = |ends| {
        let numbers = Numbers { name: "numbers", partitions: vec!["a"], total: 100, ends };
        let sink: Arc<dyn Sink> = sink.clone();
        graph(vec![input(numbers)], vec![], vec![output("sink", Output::Sink(sink)), local("docs")])
    };
    let pipeline = start(make(false), settings(4), &store);
    while pipeline.figures().filtered == 0 {
        tokio::task::yield_now().await;
    }
    pipeline.stop(Duration::ZERO).await;
    assert_eq!(store.state.lock().docs.len(), 0, "nothing is stored before the sink has it");
    drop(pipeline);

    sink.down.send_replace(false);
    let pipeline = start(make(true), settings(4), &store);
    pipeline.ended().await;
    pipeline.stop(Duration::from_secs(30)).await;
    assert_eq!(store.numbers("a"), (0..100).collect::<Vec<_>>());
    let seen = sink.seen.lock();
    assert_eq!(
        seen.iter().map(|(n, _)| *n).collect::<Vec<_>>(),
        (0..100).filter(|n| *n != 13).collect::<Vec<_>>()
    );
    let ids: std::collections::HashSet<_> = seen.iter().map(|(_, id)| id.clone().unwrap()).collect();
    assert_eq!(ids.len(), 99);
    let letters = &store.state.lock().letters;
    assert_eq!((letters.len(), &letters[0].1["reason"]), (1, &json!("unlucky")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_the_same_when_events_are_read_again_in_other_batches() {
    let store = Arc::new(Memory::default());
    let sink = Arc::new(Elsewhere { seen: Mutex::default(), down: watch::Sender::new(false) });
    let make = |ends| {
        let numbers = Numbers { name: "numbers", partitions: vec!["a"], total: 60, ends };
        let sink: Arc<dyn Sink> = sink.clone();
        graph(vec![input(numbers)], vec![], vec![output("sink", Output::Sink(sink)), local("docs")])
    };
    let mut all = std::collections::HashSet::new();
    for batch_size in [1, 3, 50] {
        // Sent, but not stored.
        store.held.send_replace(true);
        let pipeline = start(make(false), Settings { batch_size, ..settings(1) }, &store);
        while sink.seen.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        pipeline.stop(Duration::ZERO).await;
        all.extend(sink.seen.lock().drain(..));
        store.held.send_replace(false);
    }
    let pipeline = start(make(true), settings(4), &store);
    pipeline.ended().await;
    pipeline.stop(Duration::from_secs(30)).await;
    all.extend(sink.seen.lock().drain(..));
    assert_eq!(all.len(), 59, "each number has one id");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_under_load_loses_nothing_and_doubles_nothing() {
    const TOTAL: u64 = 3_000;
    let store = Arc::new(Memory { refuse_one_in: 11, ..Memory::default() });
    let make = |round: usize| {
        // One goes on all the time, one is written anew each time, one comes and goes.
        let mut inputs = vec![
            input(Numbers { name: "stays", partitions: vec!["a", "b"], total: TOTAL, ends: false }),
            input(Numbers { name: "changes", partitions: vec!["c"], total: TOTAL, ends: false }),
        ];
        if let Some(node) = Arc::get_mut(&mut inputs[1]) {
            node.identity.push_str(&round.to_string());
        }
        if round.is_multiple_of(2) {
            inputs.push(input(Numbers { name: "comes", partitions: vec!["d"], total: TOTAL, ends: false }));
        }
        graph(inputs, vec![], vec![local(if round.is_multiple_of(2) { "even" } else { "odd" })])
    };
    let pipeline = start(make(0), settings(3), &store);
    for round in 1..9 {
        let wanted = round * 300;
        store.until(|state| state.docs.len() >= wanted).await;
        pipeline.reload(make(round), Duration::from_secs(30)).await;
        pipeline.set(settings(1 + round % 4));
    }
    store.until(|state| state.docs.len() as u64 >= 4 * TOTAL).await;
    pipeline.stop(Duration::from_secs(30)).await;
    for partition in ["a", "b", "c", "d"] {
        assert_eq!(store.numbers(partition), (0..TOTAL).collect::<Vec<_>>(), "{partition}");
    }
    let indices: std::collections::HashSet<String> =
        store.state.lock().docs.iter().map(|(index, _)| index.clone()).collect();
    assert_eq!(indices.len(), 2, "both graphs had their part");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_input_learns_of_another_batch_size() {
    #[derive(Debug)]
    struct Watches;
    #[async_trait]
    impl Input for Watches {
        fn identity(&self) -> String {
            "watches".to_owned()
        }
        async fn run(&self, context: Context) -> Result<(), InputError> {
            while context.batch_size.get() != 7 {
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    }
    let pipeline = start(graph(vec![input(Watches)], vec![], vec![]), settings(1), &Arc::default());
    assert_eq!(pipeline.running_inputs(), 1);
    pipeline.set(Settings { batch_size: 7, ..settings(1) });
    pipeline.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_that_panics_is_run_again() {
    #[derive(Debug)]
    struct Panics(AtomicUsize);
    #[async_trait]
    impl Input for Panics {
        fn identity(&self) -> String {
            "panics".to_owned()
        }
        async fn run(&self, _: Context) -> Result<(), InputError> {
            assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
            Ok(())
        }
    }
    let pipeline =
        start(graph(vec![input(Panics(AtomicUsize::new(0)))], vec![], vec![]), settings(1), &Arc::default());
    pipeline.ended().await;
    assert!(pipeline.trouble().unwrap().0.contains("panicked"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_events_follow_and_dropped_ones_end() {
    let store = Arc::new(Memory::default());
    let split = filter("split", |event, made| {
        let n = event.fields()["n"].as_u64().unwrap();
        made.extend((1..=n).map(|part| self::event(json!({"n": n, "part": part}))));
        if n == 2 { Outcome::Dropped } else { Outcome::Unmatched }
    });
    let (batch, told) = batch(vec![json!({"n": 1}), json!({"n": 2}), json!({"n": 0})]);
    let pipeline = start(
        graph(vec![ManualBatch::from_batches(vec![batch])], vec![split], vec![local("docs")]),
        settings(1),
        &store,
    );
    told.await.unwrap().unwrap();
    let docs: Vec<Value> = store.state.lock().docs.iter().map(|(_, doc)| doc.clone()).collect();
    let expected = [
        json!({"n": 1}),
        json!({"n": 0}),
        json!({"n": 1, "part": 1}),
        json!({"n": 2, "part": 1}),
        json!({"n": 2, "part": 2}),
    ];
    assert_eq!(docs, expected);
    drop(pipeline);
}
