//! Filters that wait for other servers, and filters that the clock flushes.

use millrace_ingest::budget::AnswerAllowance;

use super::*;
use crate::filter::{Flush, RemoteFilter};

/// Waits as many seconds as an event says; a negative number is a defect.
#[derive(Debug)]
struct Waiting;

#[async_trait]
impl RemoteFilter for Waiting {
    async fn apply(&self, event: &mut Event, _allowance: &AnswerAllowance) -> Outcome {
        let seconds = event.fields()["n"].as_i64().unwrap();
        let seconds = u64::try_from(seconds).expect("no time is negative");
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        event.set_text("waited", "yes");
        Outcome::Matched
    }

    fn concurrency(&self) -> usize {
        2
    }
}

/// Counts events; flushes make an event of the count.
#[derive(Debug, Default)]
struct Counting {
    count: AtomicUsize,
    /// `true` if flushes by the clock make nothing.
    waits_for_end: AtomicBool,
}

impl Filter for Counting {
    fn apply(&self, _event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        self.count.fetch_add(1, Ordering::Relaxed);
        Outcome::Dropped
    }

    fn flush(&self, flush: Flush, made: &mut Vec<Event>) {
        let is_final = flush == Flush::Final;
        if !is_final && self.waits_for_end.load(Ordering::Relaxed) {
            return;
        }
        let count = self.count.swap(0, Ordering::Relaxed);
        if count > 0 {
            made.push(event(json!({"count": count, "is_final": is_final})));
        }
    }

    fn is_flushed(&self) -> bool {
        true
    }
}

fn node(id: &str, filter: FilterPlugin) -> Node<FilterNode> {
    Node::Plugin(FilterNode { label: label(id), filter, decoration: Default::default() })
}

fn docs(store: &Memory) -> Vec<Value> {
    store.state.lock().docs.iter().map(|(_, doc)| doc.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn events_keep_their_order_while_they_wait() {
    let store = Arc::new(Memory::default());
    let (batch, told) = batch([5, 1, -1, 0, 3].iter().map(|n| json!({"n": n})).collect());
    let waiting = node("waiting", FilterPlugin::Remote(Arc::new(Waiting)));
    let pipeline = start(
        graph(vec![ManualBatch::from_batches(vec![batch])], vec![waiting], vec![local("docs")]),
        settings(1),
        &store,
    );
    told.await.unwrap().unwrap();
    let numbers: Vec<(Value, Value)> =
        docs(&store).iter().map(|doc| (doc["n"].clone(), doc["waited"].clone())).collect();
    assert_eq!(numbers, [5, 1, 0, 3].map(|n| (json!(n), json!("yes"))));
    assert_eq!(store.state.lock().letters.len(), 1, "a defect costs its event alone");
    drop(pipeline);
}

#[tokio::test(start_paused = true)]
async fn the_clock_and_the_end_flush_filters() {
    let store = Arc::new(Memory::default());
    let (first, first_told) = batch(vec![json!({"n": 1}), json!({"n": 2})]);
    let counting = Arc::new(Counting::default());
    let behind = filter("behind", |event, _| {
        event.set_text("behind", "yes");
        Outcome::Matched
    });
    let plugin = FilterPlugin::Local(Arc::clone(&counting) as Arc<dyn Filter>);
    let branch =
        Node::Branch(Arms { id: "if".into(), arms: Vec::new(), otherwise: vec![node("counting", plugin)] });
    let pipeline = start(
        graph(vec![ManualBatch::from_batches(vec![first])], vec![branch, behind], vec![local("docs")]),
        settings(2),
        &store,
    );
    first_told.await.unwrap().unwrap();
    assert_eq!(docs(&store), [json!({"count": 2, "is_final": false, "behind": "yes"})]);
    // Without events, the clock flushes.
    counting.count.store(7, Ordering::Relaxed);
    while docs(&store).len() < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(docs(&store)[1]["count"], 7);
    // The clock of the test goes on while threads compute: it has no time limit, and would flush before the end.
    counting.waits_for_end.store(true, Ordering::Relaxed);
    counting.count.store(3, Ordering::Relaxed);
    assert!(pipeline.stop_unless(std::future::pending()).await);
    assert_eq!(docs(&store)[2], json!({"count": 3, "is_final": true, "behind": "yes"}));
}
