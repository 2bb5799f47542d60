//! Objects of a bucket in memory.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use object_store::memory::InMemory;

use super::*;
use crate::budget::Budget;
use crate::input::testing::{Pipeline, StoredPositions, options};

fn input(store: &Arc<InMemory>, backup: Option<&str>, deletes: bool) -> S3 {
    let given = [
        ("bucket", "b".into()),
        ("prefix", "logs/2".into()),
        ("exclude_pattern", "skip".into()),
        ("watch_for_new_files", "false".into()),
        ("access_key_id", "k".into()),
        ("secret_access_key", "s".into()),
    ];
    let mut input = S3::new(options("s3", &given)).unwrap();
    input.store = Arc::clone(store) as Arc<dyn ObjectStore>;
    input.settings.backup = backup.map(str::to_owned);
    input.settings.deletes = deletes;
    input
}

async fn put(store: &InMemory, key: &str, text: &[u8]) {
    store.put(&Path::from(key), text.to_vec().into()).await.unwrap();
}

/// Reads as if all objects had been there for long.
async fn read(input: &S3, pipeline: &mut Pipeline) -> Result<(), InputError> {
    read_watching(input, pipeline, || {}).await
}

/// Reads, and calls a function for each batch before it is stored.
async fn read_watching(
    input: &S3,
    pipeline: &mut Pipeline,
    mut watch: impl FnMut(),
) -> Result<(), InputError> {
    let context = pipeline.context();
    let partition = "b/logs/2".to_owned();
    let run = async {
        let mut delivery = Delivery::claim(context, partition).await?;
        let mut all: Vec<_> = input.store.list(None).try_collect::<Vec<_>>().await.unwrap();
        all.retain(|object| object.location.as_ref().starts_with("logs/2"));
        let mut new: Vec<_> = all.into_iter().map(|object| (ObjectOrder::of(&object), object)).collect();
        new.sort_by_key(|(place, _)| *place);
        for (place, object) in
            new.into_iter().filter(|(place, _)| !delivery.read.contains(*place)).collect::<Vec<_>>()
        {
            let result = input.read(&mut delivery, place, &object).await;
            let result = match result {
                Ok(true) => input.clean_up(&mut delivery, &object).await,
                Ok(false) => Ok(()),
                Err(end) => Err(end),
            };
            match result {
                Ok(()) => {}
                Err(RunEnd::Stopped) => return Ok(()),
                Err(RunEnd::Failed(error)) => return Err(error),
            }
        }
        match delivery.drain().await {
            Err(RunEnd::Failed(error)) => Err(error),
            _ => Ok(()),
        }
    };
    let take = async {
        while let Some(batch) = pipeline.next().await {
            watch();
            pipeline.store(batch).unwrap();
        }
    };
    let (ended, ()) = tokio::join!(run, take);
    ended
}

#[tokio::test]
async fn each_object_is_read_once() {
    let store = Arc::new(InMemory::new());
    put(&store, "logs/2024-a", b"#Version: 1.0\n#Fields: a b\none\ntwo").await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(b"three\nfour\n").unwrap();
    put(&store, "logs/2025.gz", &gzip.finish().unwrap()).await;
    put(&store, "logs/1", b"other").await;
    put(&store, "logs/2-damaged.gz", b"no gzip").await;
    let input = input(&store, None, false);
    let stored: Arc<StoredPositions> = Arc::default();
    let mut pipeline = Pipeline::with(4, Arc::clone(&stored));
    read(&input, &mut pipeline).await.unwrap();
    let mut messages = pipeline.messages();
    messages.sort();
    assert_eq!(messages, ["four", "one", "three", "two"]);
    let one = pipeline.events.iter().find(|event| event.fields()["message"] == "one").unwrap();
    assert_eq!(
        (&one.fields()["cloudfront_version"], &one.fields()["cloudfront_fields"]),
        (&"1.0".into(), &"a b".into())
    );
    assert_eq!(one.metadata()["s3"]["key"], "logs/2024-a");
    assert!(one.provenance().is_some());
    put(&store, "logs/2026", b"five").await;
    let mut pipeline = Pipeline::with(4, stored);
    read(&input, &mut pipeline).await.unwrap();
    assert_eq!(pipeline.messages(), ["five"]);
}

#[tokio::test]
async fn reading_goes_on_within_an_object() {
    let store = Arc::new(InMemory::new());
    // Several steps of the reader.
    let line = format!("{}\n", "x".repeat(1_000));
    let text: String = (0..1_000).map(|number| format!("{number} {line}")).collect();
    put(&store, "logs/2", text.as_bytes()).await;
    let input = input(&store, None, false);
    let stored: Arc<StoredPositions> = Arc::default();
    let mut pipeline = Pipeline::with(1, Arc::clone(&stored));
    let context = pipeline.context();
    let mut first = 0;
    {
        let store = Arc::clone(&store);
        let reading = async {
            let mut delivery = Delivery::claim(context, "b/logs/2".to_owned()).await.unwrap();
            let object = store.list(None).try_next().await.unwrap().unwrap();
            let _ = input.read(&mut delivery, ObjectOrder::of(&object), &object).await;
        };
        let killed = async {
            pipeline.take().await.unwrap().unwrap();
            first = pipeline.events.len();
            pipeline.stop.send_replace(true);
            // What is under way is lost.
            while pipeline.next().await.is_some() {}
        };
        tokio::join!(reading, killed);
    }
    assert!(first > 0 && first < 1_000, "{first}");
    let mut again = Pipeline::with(4, stored);
    read(&input, &mut again).await.unwrap();
    assert_eq!(first + again.events.len(), 1_000);
    let numbers = pipeline.messages().into_iter().chain(again.messages());
    let numbers: Vec<usize> =
        numbers.map(|message| message.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_compressed_object_takes_no_more_memory_than_is_reserved() {
    let store = Arc::new(InMemory::new());
    // Short lines, and an array of JSON in one line.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&b"{}\n".repeat(5_000)).unwrap();
    put(&store, "logs/2025.gz", &gzip.finish().unwrap()).await;
    let array = format!("[{}{{}}]\n", "{},".repeat(4_999));
    put(&store, "logs/2026", array.as_bytes()).await;
    let mut input = input(&store, None, false);
    input.codec = codec::build(options("json_lines", &[])).unwrap();
    let mut pipeline = Pipeline::new(1);
    pipeline.budget = Budget::new(4 << 20);
    let (budget, mut most) = (pipeline.budget.clone(), 0);
    read_watching(&input, &mut pipeline, || most = most.max(budget.used())).await.unwrap();
    assert_eq!(pipeline.events.len(), 10_000);
    assert!(most <= 1 << 20, "{most}");
}

#[tokio::test]
async fn objects_are_moved_once_they_are_stored() {
    let store = Arc::new(InMemory::new());
    put(&store, "logs/2/a", b"one").await;
    let mut pipeline = Pipeline::new(4);
    read(&input(&store, Some("done/"), true), &mut pipeline).await.unwrap();
    assert_eq!(pipeline.messages(), ["one"]);
    let left: Vec<_> = store.list(None).try_collect::<Vec<_>>().await.unwrap();
    let keys: Vec<&str> = left.iter().map(|object| object.location.as_ref()).collect();
    assert_eq!(keys, ["done/logs/2/a"]);
}

#[tokio::test]
async fn new_objects_wait_and_others_are_left_out() {
    let store = Arc::new(InMemory::new());
    put(&store, "logs/2", b"new").await;
    let input = input(&store, None, false);
    assert_eq!(
        input.list(&ReadObjects::default()).await.unwrap().len(),
        0,
        "its time may not be in order yet"
    );
    assert!(matches(input.settings.exclude.as_ref().unwrap(), "logs/2/skipped"));
    assert!(matches(&input.settings.gzip, "a.gz") && !matches(&input.settings.gzip, "a.gz.txt"));
}

#[test]
fn options_are_checked() {
    let given = [
        ("backup_to_bucket", "other".into()),
        ("backup_to_dir", "/tmp".into()),
        ("exclude_pattern", "(".into()),
    ];
    let faults = S3::new(options("s3", &given)).unwrap_err();
    for expected in ["option [bucket]", "[backup_to_bucket]", "[backup_to_dir]", "[exclude_pattern]"] {
        assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
    }
}
