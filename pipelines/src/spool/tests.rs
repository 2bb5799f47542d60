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
struct StoredPositions {
    position: Mutex<(Option<Bytes>, u64)>,
    numbers: Mutex<Vec<u64>>,
}

#[async_trait]
impl Positions for StoredPositions {
    async fn claim(&self, _source: &str, _partition: &str) -> Result<(Option<Bytes>, u64), InputError> {
        let mut position = self.position.lock();
        position.1 += 1;
        Ok(position.clone())
    }

    async fn list(&self, _source: &str) -> Result<Vec<(String, Bytes)>, InputError> {
        Ok(Vec::new())
    }
}

impl StoredPositions {
    /// Applies a batch as the store does.
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

struct QueueReader {
    batches: mpsc::Receiver<Batch>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), InputError>>,
}

fn read(spool: &Arc<Spool>, stored: &Arc<StoredPositions>) -> QueueReader {
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
    QueueReader { batches, stop, task: tokio::spawn(async move { source.run(context).await }) }
}

impl QueueReader {
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
        let stored = Arc::new(StoredPositions::default());
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
    let stored = Arc::new(StoredPositions::default());
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
    let stored = Arc::new(StoredPositions::default());
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

fn only_file(directory: &TempDir) -> PathBuf {
    fs::read_dir(directory.path().join("queue")).unwrap().next().unwrap().unwrap().path()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Opens a queue that tells what is lost.
fn open_told(directory: &TempDir) -> (Arc<Spool>, Arc<Mutex<Vec<String>>>) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&told);
    let note = Arc::new(move |what| noted.lock().push(what));
    (Spool::open(directory.path().join("queue"), MAX_BYTES, note).unwrap(), told)
}

/// Reads until a number comes.
async fn read_to(spool: &Arc<Spool>, last: u64) -> Vec<u64> {
    let stored = Arc::new(StoredPositions::default());
    let mut reading = read(spool, &stored);
    while stored.numbers.lock().last() != Some(&last) {
        stored.take(reading.batches.recv().await.unwrap());
    }
    reading.stop().await;
    stored.numbers.lock().clone()
}

#[tokio::test]
async fn a_flipped_byte_costs_its_record_and_is_told() {
    let record = segment::encode(&[event(3), event(4)]).unwrap().len();
    // In the length (that one is made up for), in the checksum, in a time, in a length of fields, in the fields.
    for (at, lost) in [(0, 0), (1, 0), (3, 0), (4, 2), (9, 2), (21, 2), (26, 2)] {
        for (first, restart) in [(0, false), (0, true), (1, false), (1, true), (2, true)] {
            let directory = tempfile::tempdir().unwrap();
            let (before, told_before) = open_told(&directory);
            for number in 0..3 {
                append(&before, number * 2 + 1..number * 2 + 3).await;
            }
            let file = only_file(&directory);
            assert_eq!(fs::metadata(&file).unwrap().len() as usize, 3 * record);
            if restart {
                before.close().await;
            }
            flip(&file, first * record + at);
            let (spool, told) = if restart { open_told(&directory) } else { (before, told_before) };
            append(&spool, 7..8).await;
            let numbers = read_to(&spool, 7).await;
            let gone = if lost > 0 { first as u64 * 2 + 1..first as u64 * 2 + 3 } else { 0..0 };
            let expected: Vec<u64> = (1..8).filter(|number| !gone.contains(number)).collect();
            assert_eq!(numbers, expected, "byte {at} of record {first}, restart {restart}");
            let told = told.lock().join("\n");
            assert_eq!(told.is_empty(), lost == 0, "{told}");
            if lost > 0 {
                let place = format!("are damaged from offset {} on", first * record);
                assert!(told.contains(&place) && told.contains(file.to_str().unwrap()), "{told}");
                assert!(told.contains("2 events lost") || at == 21, "{told}");
            }
        }
    }
}

#[tokio::test]
async fn a_queue_that_is_damaged_at_its_end_moves_on() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, told) = open_told(&directory);
    append(&spool, 1..3).await;
    flip(&only_file(&directory), 26);
    let stored = Arc::new(StoredPositions::default());
    let mut reading = read(&spool, &stored);
    let batch = reading.batches.recv().await.unwrap();
    assert!(batch.events.is_empty());
    stored.take(batch);
    reading.stop().await;
    assert!(told.lock().join("").contains("2 events lost"));
    // Neither told nor read again.
    append(&spool, 3..4).await;
    let mut reading = read(&spool, &stored);
    stored.take(reading.batches.recv().await.unwrap());
    reading.stop().await;
    assert_eq!((stored.numbers.lock().clone(), told.lock().len()), (vec![3], 1));
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
        let item = segment::next(&File::open(path).unwrap(), 0, record.len() as u64).unwrap();
        let segment::Item::Record { payload, length } = item else { panic!("{item:?}") };
        prop_assert_eq!(length as usize, record.len());
        prop_assert_eq!(segment::decode(&payload).unwrap(), events);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = segment::decode(&bytes);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let end = bytes.len() as u64;
        let mut offset = 0;
        while offset < end {
            let before = offset;
            offset = match segment::next(&file, offset, end).unwrap() {
                segment::Item::Record { length, .. } => offset + length,
                segment::Item::Damaged(damage) => damage.end(),
            };
            prop_assert!(before < offset && offset <= end);
        }
    }

    #[test]
    fn damage_costs_the_records_that_it_is_in(
        sizes in prop::collection::vec(1u64..6, 1..12),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1u8..=255), 1..4),
    ) {
        let mut file = Vec::new();
        let mut records = Vec::new();
        let mut next = 0;
        for size in sizes {
            let record = segment::encode(&(next..next + size).map(event).collect::<Vec<_>>()).unwrap();
            records.push((file.len()..file.len() + record.len(), next..next + size));
            file.extend_from_slice(&record);
            next += size;
        }
        let whole = file.clone();
        for (at, mask) in &damage {
            let at = at.index(file.len());
            file[at] ^= mask;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("00000000000000000001.events");
        fs::write(&path, &file).unwrap();
        let end = file.len() as u64;
        let opened = File::open(&path).unwrap();
        let (mut offset, mut found) = (0, Vec::new());
        while offset < end {
            offset = match segment::next(&opened, offset, end).unwrap() {
                segment::Item::Record { payload, length } => {
                    found.extend(segment::decode(&payload).unwrap().iter().map(number));
                    offset + length
                }
                segment::Item::Damaged(damage) => damage.end(),
            };
        }
        for (bytes, numbers) in records {
            if file[bytes.clone()] == whole[bytes] {
                prop_assert!(numbers.clone().all(|number| found.contains(&number)), "{numbers:?} of {found:?}");
            }
        }
        prop_assert!(found.is_sorted() && found.iter().all(|number| *number < next));
    }
}
