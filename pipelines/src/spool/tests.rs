use std::collections::BTreeSet;
use std::io::Write;

use async_trait::async_trait;
use bytes::Bytes;
use millrace_ingest::batch::NotStored;
use millrace_ingest::budget::{Budget, Reservation};
use millrace_ingest::input::{BatchSize, Context, Input, InputError, Positions};
use millrace_ingest::{Batch, FieldReference};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::source::Source;
use super::*;

/// Positions and what was stored with them.
#[derive(Default)]
struct Stored {
    position: Mutex<(Option<Bytes>, u64)>,
    numbers: Mutex<Vec<u64>>,
}

#[async_trait]
impl Positions for Stored {
    async fn claim(&self, _source: &str, _partition: &str) -> Result<(Option<Bytes>, u64), InputError> {
        let mut position = self.position.lock();
        position.1 += 1;
        Ok(position.clone())
    }

    async fn list(&self, _source: &str) -> Result<Vec<(String, Bytes)>, InputError> {
        Ok(Vec::new())
    }
}

impl Stored {
    /// What the store does with a batch.
    fn take(&self, batch: Batch) {
        let mut position = self.position.lock();
        let moved = batch.position.expect("the queue has positions");
        if (moved.previous, moved.owner_epoch) != *position {
            return batch.ack.tell(Err(NotStored::Moved));
        }
        position.0 = Some(moved.new);
        self.numbers.lock().extend(batch.events.iter().map(number));
        batch.ack.tell(Ok(()));
    }
}

fn event(number: u64) -> Event {
    let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
    event.fields_mut().insert("n".to_owned(), json!(number));
    event
}

fn number(event: &Event) -> u64 {
    event.fields()["n"].as_u64().expect("a number")
}

fn open(directory: &TempDir, max_bytes: u64) -> Arc<Spool> {
    Spool::open(directory.path().join("queue"), max_bytes, Arc::new(|why| panic!("{why}"))).expect("a queue")
}

async fn append(spool: &Spool, numbers: std::ops::Range<u64>) {
    let (ack, durable) = Ack::channel();
    assert!(spool.append(numbers.map(event).collect(), ack, Reservation::default(), |_| {}).await.is_ok());
    durable.await.expect("an answer").expect("it is on disk");
}

struct Reading {
    batches: mpsc::Receiver<Batch>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), InputError>>,
}

fn read(spool: &Arc<Spool>, stored: &Arc<Stored>) -> Reading {
    let (sender, batches) = mpsc::channel(4);
    let (stop, stopping) = watch::channel(false);
    let context = Context {
        batches: sender,
        source: Arc::from("queue"),
        siblings: Vec::new(),
        former: Vec::new(),
        positions: Arc::clone(stored) as _,
        stopping,
        batch_size: BatchSize::new(10),
        budget: Budget::default().share(),
    };
    let source = Source { spool: Arc::clone(spool) };
    Reading { batches, stop, task: tokio::spawn(async move { source.run(context).await }) }
}

impl Reading {
    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.expect("no panic").expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_disk_when_a_queue_is_closed_is_what_was_told_to_be() {
    for round in 0..40 {
        let directory = tempfile::tempdir().unwrap();
        let spool = open(&directory, MAX_BYTES);
        let mut told = tokio::task::JoinSet::new();
        for number in 0..16 {
            let spool = Arc::clone(&spool);
            told.spawn(async move {
                let (ack, durable) = Ack::channel();
                let taken =
                    spool.append(vec![event(number)], ack, Reservation::default(), |_| {}).await.is_ok();
                (taken && matches!(durable.await, Ok(Ok(())))).then_some(number)
            });
        }
        for _ in 0..round * 100 {
            tokio::task::yield_now().await;
        }
        spool.close().await;
        let mut durable: Vec<u64> = told.join_all().await.into_iter().flatten().collect();
        durable.sort_unstable();
        drop(spool);
        let spool = open(&directory, MAX_BYTES);
        append(&spool, 99..100).await;
        let stored = Arc::new(Stored::default());
        let mut reading = read(&spool, &stored);
        while !stored.numbers.lock().contains(&99) {
            stored.take(reading.batches.recv().await.unwrap());
        }
        reading.stop().await;
        let mut there = stored.numbers.lock().clone();
        there.sort_unstable();
        durable.push(99);
        assert_eq!(there, durable, "closed after {round} turns");
    }
}

#[tokio::test]
async fn what_was_taken_comes_once_over_restarts_refusals_and_torn_ends() {
    let directory = tempfile::tempdir().unwrap();
    let stored = Arc::new(Stored::default());
    let spool = open(&directory, MAX_BYTES);
    append(&spool, 0..7).await;
    append(&spool, 7..30).await;
    // Some is stored, some is refused, and the rest is under way when the process ends.
    let mut reading = read(&spool, &stored);
    stored.take(reading.batches.recv().await.unwrap());
    reading.batches.recv().await.unwrap().ack.tell(Err(NotStored::Moved));
    let again = reading.batches.recv().await.unwrap();
    // What was sent before the refusal was known does not fit any more, what comes then does.
    stored.take(again);
    reading.stop().await;
    drop(spool);
    let file = fs::read_dir(directory.path().join("queue")).unwrap().next().unwrap().unwrap().path();
    fs::File::options().append(true).open(&file).unwrap().write_all(&[9, 0, 0, 0, 1, 2]).unwrap();

    let spool = open(&directory, MAX_BYTES);
    let mut reading = read(&spool, &stored);
    append(&spool, 30..50).await;
    while stored.numbers.lock().last() != Some(&49) {
        stored.take(reading.batches.recv().await.unwrap());
    }
    while spool.fill().bytes > 0 {
        tokio::task::yield_now().await;
    }
    reading.stop().await;
    assert_eq!(*stored.numbers.lock(), (0..50).collect::<Vec<_>>());
    assert_eq!(fs::read_dir(directory.path().join("queue")).unwrap().count(), 1, "what is stored is deleted");
}

#[tokio::test]
async fn a_full_queue_makes_its_sources_wait() {
    let directory = tempfile::tempdir().unwrap();
    let stored = Arc::new(Stored::default());
    let spool = open(&directory, 1_500);
    append(&spool, 0..30).await;
    let (ack, mut durable) = Ack::channel();
    assert!(spool.append((30..60).map(event).collect(), ack, Reservation::default(), |_| {}).await.is_ok());
    assert!(
        tokio::time::timeout(Duration::from_millis(100), &mut durable).await.is_err(),
        "there is no room"
    );
    assert!(spool.fill().bytes <= 1_500);
    let mut reading = read(&spool, &stored);
    while stored.numbers.lock().len() < 60 {
        stored.take(reading.batches.recv().await.unwrap());
    }
    durable.await.expect("an answer").expect("it is on disk");
    reading.stop().await;
    assert_eq!(stored.numbers.lock().iter().collect::<BTreeSet<_>>().len(), 60);
}

#[tokio::test]
async fn what_cannot_be_read_back_is_handed_back() {
    let directory = tempfile::tempdir().unwrap();
    let spool = open(&directory, MAX_BYTES);
    let mut deep = json!(1);
    (0..150).for_each(|_| deep = json!([deep]));
    let mut event = event(1);
    event.fields_mut().insert("deep".to_owned(), deep);
    assert!(spool.append(vec![event], Ack::none(), Reservation::default(), |_| {}).await.is_err());
}

#[tokio::test]
async fn damage_in_the_middle_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let stored = Arc::new(Stored::default());
    let spool = open(&directory, MAX_BYTES);
    append(&spool, 0..30).await;
    let file = fs::read_dir(directory.path().join("queue")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    bytes[40] ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = read(&spool, &stored).task.await.unwrap().unwrap_err().0;
    assert!(error.contains("is damaged at offset 0") && error.contains("events"), "{error}");
}

#[test]
fn what_a_failed_write_left_behind_does_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let record = segment::encode(&[event(1)]).unwrap();
    let mut tail = Tail::default();
    tail.write(directory.path(), 0, &record).unwrap();
    // As after a sync that failed: all is in the file, and nothing counts.
    let torn = tail.open.take().unwrap();
    let path = segment::path(directory.path(), torn.number);
    File::options().append(true).open(&path).unwrap().write_all(&record).unwrap();
    tail.torn = Some(torn);
    tail.write(directory.path(), 1, &record).unwrap();
    let bytes: Vec<u64> =
        segment::list(directory.path()).unwrap().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(bytes, [record.len() as u64; 2]);
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(".{0,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn events_come_back_as_they_were(seconds in -60_000_000_000_i64..60_000_000_000, nanos in 0..1_000_000_000_u32,
                                     field in values(), metadata in values()) {
        let mut event = Event::new(chrono::DateTime::from_timestamp(seconds, nanos).unwrap());
        event.fields_mut().insert("field".to_owned(), field);
        event.set(&FieldReference::parse("[@metadata][m]").unwrap(), metadata).unwrap();
        let events = vec![event.clone(), event];
        let record = segment::encode(&events).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        fs::write(&path, &record).unwrap();
        let (payload, length) = segment::read(&File::open(path).unwrap(), 0).unwrap().unwrap();
        prop_assert_eq!(length as usize, record.len());
        prop_assert_eq!(segment::decode(&payload).unwrap(), events);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = segment::decode(&bytes);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        fs::write(&path, &bytes).unwrap();
        prop_assert!(segment::read(&File::open(path).unwrap(), 0).is_ok());
    }
}
