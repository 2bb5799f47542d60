use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures::TryStreamExt as _;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt as _};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::*;
use crate::input::testing::options;

const MINUTE: Duration = Duration::from_secs(60);
const GATHERED: Rotation = Rotation { max_bytes: 1 << 20, max_age: Some(Duration::from_secs(900)) };

fn events(users: &[&str]) -> Vec<(Arc<Event>, Option<String>)> {
    let event = |user: &&str| {
        let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
        event.fields_mut().insert("user".to_owned(), json!(user));
        (Arc::new(event), None)
    };
    users.iter().map(event).collect()
}

fn names(run: &str, is_gzip: bool) -> ObjectNames {
    ObjectNames { is_gzip, tags: "a.b".to_owned(), run: run.to_owned() }
}

/// Makes an output and starts it.
fn start(store: Arc<dyn ObjectStore>, directory: &TempDir, rotation: Rotation, names: ObjectNames) -> S3 {
    let encoder = ObjectEncoder {
        prefix: Template::parse("of/%{user}"),
        codec: codec::build(Options::new("json_lines", crate::Location::default(), [])).unwrap(),
        names,
    };
    let output = S3::new(
        Uploader { bucket: "b".to_owned(), store, concurrency: 2 },
        "b".to_owned(),
        encoder,
        rotation,
    );
    output.start(directory.path());
    output
}

async fn send(output: &S3, users: &[&str]) {
    let running = watch::Sender::new(false);
    let sent = output.send(&events(users), running.subscribe(), OrderTicket::new().0).await;
    assert_eq!(sent, Ok(Vec::new()));
}

/// Returns the objects by their keys.
async fn written(store: &InMemory) -> Vec<(String, Bytes)> {
    let mut all = Vec::new();
    let list: Vec<_> = store.list(None).try_collect().await.unwrap();
    for object in list {
        let content = store.get(&object.location).await.unwrap().bytes().await.unwrap();
        all.push((object.location.to_string(), content));
    }
    all.sort();
    all
}

/// Returns the users of the objects, in the order of the keys.
async fn users(store: &InMemory) -> Vec<String> {
    let mut users = Vec::new();
    for (_, content) in written(store).await {
        let mut text = String::new();
        if content.starts_with(&[0x1f, 0x8b]) {
            GzDecoder::new(&content[..]).read_to_string(&mut text).unwrap();
        } else {
            text = String::from_utf8(content.to_vec()).unwrap();
        }
        let user = |line: &str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["user"].as_str().unwrap().to_owned()
        };
        users.extend(text.lines().map(user));
    }
    users
}

/// Returns what the directories of outputs have.
fn files(directory: &TempDir) -> Vec<PathBuf> {
    let entries = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries(directory.path().join("s3")).flat_map(entries).collect()
}

#[tokio::test(start_paused = true)]
async fn deliveries_are_gathered_to_an_object_for_each_prefix() {
    let (store, directory) = (Arc::new(InMemory::new()), TempDir::new().unwrap());
    let output = start(store.clone(), &directory, GATHERED, names("run", false));
    send(&output, &["a", "b", "a", "../x"]).await;
    sleep(10 * MINUTE).await;
    send(&output, &["a"]).await;
    assert_eq!(written(&store).await, []);
    assert_eq!(files(&directory).len(), 3);
    sleep(6 * MINUTE).await;
    assert_eq!(users(&store).await, ["../x", "a", "a", "a", "b"]);
    let all = written(&store).await;
    assert!(all[1].0.starts_with("of/a/ls.s3.run."), "{all:?}");
    assert!(all.iter().all(|(name, _)| name.contains(".tag_a.b.part") && name.ends_with(".txt")), "{all:?}");
    assert!(all.iter().all(|(name, _)| !name.split('/').any(|part| part == "..")), "{all:?}");
    assert_eq!(files(&directory).len(), 0);
    send(&output, &["a"]).await;
    sleep(16 * MINUTE).await;
    assert_eq!(users(&store).await, ["../x", "a", "a", "a", "a", "b"]);
    assert_eq!(*output.spool.borrow().as_ref().unwrap().bytes().borrow(), 0);
}

#[tokio::test(start_paused = true)]
async fn files_of_their_size_are_objects_at_once() {
    for is_gzip in [false, true] {
        let (store, directory) = (Arc::new(InMemory::new()), TempDir::new().unwrap());
        // An event has about 70 bytes.
        let rotation = Rotation { max_bytes: 150, max_age: None };
        let output = start(store.clone(), &directory, rotation, names("run", is_gzip));
        let long = "l".repeat(400);
        send(&output, &["a"; 5]).await;
        send(&output, &["a", &long, "a", "b"]).await;
        sleep(MINUTE).await;
        let all = written(&store).await;
        assert_eq!(all.len(), 4, "{all:?}");
        let ending = if is_gzip { ".txt.gz" } else { ".txt" };
        assert!(all.iter().all(|(name, _)| name.ends_with(ending)), "{all:?}");
        drop(output);
        sleep(MINUTE).await;
        let mut all = users(&store).await;
        all.sort();
        assert_eq!(all, [vec!["a"; 7], vec!["b", long.as_str()]].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn large_objects_are_written_in_parts() {
    let (store, directory) = (Arc::new(InMemory::new()), TempDir::new().unwrap());
    let rotation = Rotation { max_bytes: 1 << 30, max_age: None };
    let output = start(store.clone(), &directory, rotation, names("run", false));
    let mut started = output.spool.subscribe();
    let spool = started.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    // Events of 1 to 6 MiB: some are longer than a record.
    let ends: Vec<usize> = (1..7).map(|number| (number * (number + 1) / 2) << 20).collect();
    let text: Vec<u8> = (0..21 << 20).map(|at| (at / 1_000) as u8).collect();
    let texts = BTreeMap::from([("p".to_owned(), EncodedEvents { text: text.clone(), ends })]);
    offload(move || spool.append(&texts)).await.unwrap();
    drop(output);
    sleep(MINUTE).await;
    let all = written(&store).await;
    assert!(
        all.len() == 1 && all[0].1 == text,
        "{:?}",
        all.first().map(|(name, content)| (name, content.len()))
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_no_key_has_room_for_is_refused_alone() {
    let (store, directory) = (Arc::new(InMemory::new()), TempDir::new().unwrap());
    let output = start(store.clone(), &directory, GATHERED, names("run", false));
    let (long, running) = ("u".repeat(2_000), watch::Sender::new(false));
    let all = events(&["a", &long, "b"]);
    let refused = output.send(&all, running.subscribe(), OrderTicket::new().0).await.unwrap();
    assert_eq!(refused.iter().map(|refused| refused.event).collect::<Vec<_>>(), [1]);
    drop(output);
    sleep(MINUTE).await;
    assert_eq!(users(&store).await, ["a", "b"]);
    // The last object was written at the end of the output, and its directory is gone.
    assert_eq!(fs::read_dir(directory.path().join("s3")).unwrap().count(), 0);
}

/// A runtime whose clock goes on when nothing else does.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[test]
fn what_a_crash_leaves_is_written_once() {
    let (store, directory) = (Arc::new(InMemory::new()), TempDir::new().unwrap());
    let crashed = runtime();
    let output = crashed.block_on(async {
        let output = start(store.clone(), &directory, GATHERED, names("one", false));
        send(&output, &["a", "b"]).await;
        send(&output, &["a"]).await;
        output
    });
    crashed.shutdown_background();
    drop(output);
    let mut left = files(&directory);
    left.sort();
    assert_eq!(left.len(), 2);
    // The last write was cut off, a file was only made, and another one was damaged.
    let mut torn = fs::OpenOptions::new().append(true).open(&left[0]).unwrap();
    torn.write_all(&[9, 0, 0, 0, 1, 2, 3, 4, b'{']).unwrap();
    fs::write(left[0].with_file_name("00000000000000000007.events"), b"").unwrap();
    fs::write(left[0].with_file_name("00000000000000000006.events"), b"cut off").unwrap();
    let damaged = left[0].with_file_name("00000000000000000008.events");
    fs::write(&damaged, [&[3, 0, 0, 0][..], b"no record of events"].concat()).unwrap();
    let foreign = directory.path().join("s3/c-one");
    fs::create_dir(&foreign).unwrap();
    fs::copy(&left[1], foreign.join("00000000000000000000.events")).unwrap();
    let next = runtime();
    next.block_on(async {
        let output = start(store.clone(), &directory, GATHERED, names("two", false));
        send(&output, &["a"]).await;
        sleep(MINUTE).await;
        assert_eq!(users(&store).await, ["a", "a", "b"]);
        assert!(written(&store).await.iter().all(|(name, _)| name.contains("/ls.s3.one.")));
        drop(output);
        sleep(MINUTE).await;
        assert_eq!(users(&store).await, ["a", "a", "a", "b"]);
    });
    let mut left = files(&directory);
    left.sort();
    assert_eq!(left, [damaged.with_extension("damaged"), foreign.join("00000000000000000000.events")]);
}

#[test]
fn what_cannot_be_written_at_the_end_of_an_output_is_for_the_next_one() {
    let (store, directory) = (Arc::new(InMemory::new()), TempDir::new().unwrap());
    // Nobody listens there.
    let given = [
        ("bucket", "b".into()),
        ("endpoint", "http://127.0.0.1:1".into()),
        ("access_key_id", "id".into()),
        ("secret_access_key", "secret".into()),
    ];
    runtime().block_on(async {
        let unreachable = s3_bucket::take(&mut options("s3", &given)).unwrap().store;
        let output = start(Arc::new(unreachable), &directory, GATHERED, names("one", false));
        send(&output, &["a"]).await;
        let next = start(store.clone(), &directory, GATHERED, names("two", false));
        // Before it ends, it tries on.
        sleep(10 * MINUTE).await;
        assert_eq!(users(&store).await, [""; 0]);
        assert!(!output.finish().await);
        drop(output);
        sleep(2 * MINUTE).await;
        assert_eq!(users(&store).await, ["a"]);
        send(&next, &["b"]).await;
        assert!(next.finish().await);
        assert_eq!(users(&store).await, ["a", "b"]);
    });
}

#[test]
fn of_a_delivery_that_cannot_be_written_nothing_stays() {
    let directory = TempDir::new().unwrap();
    let rotation = Rotation { max_bytes: 5, max_age: None };
    let (spool, mut finished) =
        ObjectSpool::open(directory.path(), "b", names("run", false), rotation).unwrap();
    let texts = |all: &[(&str, &str, &[usize])]| -> BTreeMap<String, EncodedEvents> {
        let one = |(prefix, text, ends): &(&str, &str, &[usize])| {
            ((*prefix).to_owned(), EncodedEvents { text: text.as_bytes().to_vec(), ends: ends.to_vec() })
        };
        all.iter().map(one).collect()
    };
    spool.append(&texts(&[("a", "1", &[1])])).unwrap();
    let all = texts(&[("a", "234567", &[1, 4, 6]), ("b", "8", &[1])]);
    // The second file of the first prefix can be made, that of the second prefix cannot.
    let obstacle = directory.path().join("b-run/00000000000000000002.events");
    fs::create_dir(&obstacle).unwrap();
    spool.append(&all).unwrap_err();
    fs::remove_dir(obstacle).unwrap();
    assert_eq!(fs::read_dir(directory.path().join("b-run")).unwrap().count(), 1);
    spool.append(&all).unwrap();
    spool.close();
    spool.append(&all).unwrap_err();
    let mut found = Vec::new();
    while let Ok(file) = finished.try_recv() {
        let mut reader = file.events();
        let mut text = Vec::new();
        while let Some(read) = reader.next().unwrap() {
            text.extend(read);
        }
        found.push((file.header.key.split('/').next().unwrap().to_owned(), String::from_utf8(text).unwrap()));
    }
    found.sort();
    let expected =
        [("a", "12345"), ("a", "67"), ("b", "8")].map(|(prefix, text)| (prefix.to_owned(), text.to_owned()));
    assert_eq!(found, expected);
}

#[test]
fn a_file_that_was_damaged_in_its_middle_stays() {
    let directory = TempDir::new().unwrap();
    let rotation = Rotation { max_bytes: 1 << 20, max_age: None };
    let (spool, _finished) = ObjectSpool::open(directory.path(), "b", names("one", false), rotation).unwrap();
    for text in ["1", "2", "3"] {
        let events = EncodedEvents { text: text.as_bytes().to_vec(), ends: vec![1] };
        spool.append(&BTreeMap::from([("p".to_owned(), events)])).unwrap();
    }
    drop(spool);
    let path = directory.path().join("b-one/00000000000000000000.events");
    let mut bytes = fs::read(&path).unwrap();
    // A record of one byte has nine.
    let second = bytes.len() - 10;
    assert_eq!(bytes[second], b'2');
    bytes[second] = b'x';
    fs::write(&path, bytes).unwrap();
    let (spool, mut finished) =
        ObjectSpool::open(directory.path(), "b", names("two", false), rotation).unwrap();
    spool.take_left().unwrap();
    let file = finished.try_recv().unwrap();
    let mut reader = file.events();
    assert_eq!(reader.next().unwrap(), Some(b"1".to_vec()));
    assert_eq!(reader.next().unwrap(), None);
    assert!(!spool.is_empty());
    spool.remove(&file);
    assert!(spool.is_empty() && !path.exists() && path.with_extension("damaged").exists());
}

#[test]
fn the_oldest_of_many_files_are_objects() {
    let directory = TempDir::new().unwrap();
    let rotation = Rotation { max_bytes: 1 << 30, max_age: None };
    let (spool, mut finished) =
        ObjectSpool::open(directory.path(), "b", names("run", false), rotation).unwrap();
    let one = |number: usize| (format!("{number:05}"), EncodedEvents { text: vec![b'x'], ends: vec![1] });
    spool.append(&(0..1_000).map(one).collect()).unwrap();
    assert!(finished.try_recv().is_err());
    spool.append(&(1_000..1_030).map(one).collect()).unwrap();
    let keys: Vec<_> = std::iter::from_fn(|| finished.try_recv().ok()).map(|file| file.header.key).collect();
    assert_eq!(keys.len(), 6);
    assert!(keys.iter().all(|key| key.starts_with("00")), "{keys:?}");
    assert_eq!(*spool.bytes().borrow(), 1_030 * (64 << 10));
}

#[test]
fn options_are_checked() {
    let given = [
        ("access_key_id", "k".into()),
        ("canned_acl", "public-read".into()),
        ("role_arn", "r".into()),
        ("additional_settings", [("x", "y")].into()),
    ];
    let faults = build(options("s3", &given)).unwrap_err();
    for expected in ["option [bucket]", "need each other", "[canned_acl", "[role_arn]", "has no [x]"] {
        assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
    }
    for (strategy, size, minutes, expected) in [
        ("size_and_time", "9", "1", (9, Some(60))),
        ("size", "0", "1", (SIZE.unsigned_abs(), None)),
        ("time", "9", "0", (MAX_SIZE.unsigned_abs(), Some(900))),
    ] {
        let given = [
            ("rotation_strategy", strategy.into()),
            ("size_file", size.into()),
            ("time_file", minutes.into()),
        ];
        let Rotation { max_bytes, max_age } = take_rotation(&mut options("s3", &given));
        assert_eq!((max_bytes, max_age.map(|age| age.as_secs())), expected, "{strategy}");
    }
}
