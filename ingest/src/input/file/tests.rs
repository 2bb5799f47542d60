mod charsets;
mod room;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::JoinHandle;

use super::*;
use crate::batch::NotStored;
use crate::codec::Charset;
use crate::input::testing::{OptionValue, Pipeline, StoredPositions, options, refuse};

fn input(path: &str, given: &[(&str, OptionValue)]) -> Tail {
    let mut all: Vec<(&str, OptionValue)> = vec![("path", path.into()), ("stat_interval", "10 ms".into())];
    if !given.iter().any(|(name, _)| *name == "discover_interval") {
        all.push(("discover_interval", "2".into()));
    }
    all.extend(given.iter().cloned());
    Tail::new(options("file", &all)).unwrap()
}

/// A running input and its pipeline.
struct RunningInput {
    pipeline: Pipeline,
    ended: JoinHandle<Result<(), InputError>>,
}

fn start(tail: Tail, stored: &Arc<StoredPositions>) -> RunningInput {
    let mut pipeline = Pipeline::with(2, Arc::clone(stored));
    let context = pipeline.context();
    let ended = tokio::spawn(async move { tail.run(context).await });
    RunningInput { pipeline, ended }
}

impl RunningInput {
    /// Stores batches until there are so many events.
    async fn until(&mut self, events: usize) {
        while self.pipeline.events.len() < events {
            let stored = self.pipeline.take().await;
            let stored =
                stored.unwrap_or_else(|| panic!("ended with {} of {events}", self.pipeline.events.len()));
            // What was refused before is read again.
            assert!(matches!(stored, Ok(()) | Err(NotStored::Moved)), "{stored:?}");
        }
        assert_eq!(self.pipeline.events.len(), events);
    }

    /// Stores what comes until the input ends.
    async fn until_end(&mut self) {
        while self.pipeline.take().await.is_some() {}
    }

    async fn stop(mut self) -> Vec<String> {
        self.pipeline.stop.send_replace(true);
        // What was on its way is not stored any more.
        while self.pipeline.next().await.is_some() {}
        self.ended.await.unwrap().unwrap();
        self.pipeline.messages()
    }
}

fn append(path: &Path, lines: impl IntoIterator<Item = usize>) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for line in lines {
        writeln!(file, "line {line}").unwrap();
    }
}

fn lines(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|line| format!("line {line}")).collect()
}

fn beginning() -> Vec<(&'static str, OptionValue)> {
    vec![("start_position", "beginning".into())]
}

#[tokio::test]
async fn lines_are_read_once_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    let name = path.display().to_string();
    let mut all = Vec::new();
    append(&path, 0..1000);
    for (round, least) in [200, 200, 200, 100].into_iter().enumerate() {
        let mut running = start(input(&name, &beginning()), &stored);
        running.until_at_least(least).await;
        all.extend(running.stop().await);
        append(&path, 1000 + round * 10..1010 + round * 10);
    }
    let mut running = start(input(&name, &beginning()), &stored);
    running.until(1040 - all.len()).await;
    let event = running.pipeline.events[0].clone();
    assert_eq!(event.fields()["path"], name.as_str());
    assert_eq!(event.metadata()["path"], name.as_str());
    assert_eq!(event.fields()["host"], host_name());
    all.extend(running.stop().await);
    assert_eq!(all, lines(0..1040));
}

#[tokio::test]
async fn what_is_there_first_is_left_out_and_what_comes_later_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    append(&path, 0..10);
    let name = format!("{}/*.log", dir.path().display());
    let mut running = start(input(&name, &[]), &stored);
    // The end that it begins at is stored, without events.
    running.pipeline.take().await.unwrap().unwrap();
    append(&path, 10..12);
    running.until(2).await;
    // A file that is new is read from its beginning.
    append(&dir.path().join("new.log"), 12..13);
    running.until(3).await;
    assert_eq!(running.stop().await, lines(10..13));
    append(&path, 13..14);
    let mut running = start(input(&name, &[]), &stored);
    running.until(1).await;
    assert_eq!(running.stop().await, lines(13..14));
}

#[tokio::test]
async fn a_line_is_read_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    let mut file = File::create(&path).unwrap();
    file.write_all(b"one\ntw").unwrap();
    let mut running = start(input(&path.display().to_string(), &beginning()), &stored);
    running.until(1).await;
    file.write_all(b"o\n\nthree").unwrap();
    running.until(3).await;
    assert_eq!(running.stop().await, ["one", "two", ""]);
}

#[tokio::test]
async fn rotation_under_load_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    let name = path.display().to_string();
    let writer = {
        let (path, dir) = (path.clone(), dir.path().to_owned());
        // A line at once, as loggers write: of a renamed file whose writer is between two parts of a line, the first one is a line.
        std::thread::spawn(move || {
            let mut line = 0;
            for rotation in 0..10 {
                let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
                for _ in 0..700 {
                    file.write_all(format!("line {line}\n").as_bytes()).unwrap();
                    line += 1;
                }
                std::fs::rename(&path, dir.join(format!("app.log.{rotation}"))).unwrap();
                // The writer notices later.
                for _ in 0..50 {
                    file.write_all(format!("line {line}\n").as_bytes()).unwrap();
                    line += 1;
                }
                std::thread::yield_now();
            }
            let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            file.write_all(format!("line {line}\n").as_bytes()).unwrap();
        })
    };
    // All names, so that files that come and go between two looks are found, too.
    let pattern = format!("{name}*");
    let mut all = Vec::new();
    for events in [900, 1500, 2300] {
        let mut running = start(input(&pattern, &beginning()), &stored);
        running.until_at_least(events).await;
        all.extend(running.stop().await);
    }
    writer.join().unwrap();
    let mut running = start(input(&pattern, &beginning()), &stored);
    running.until(7501 - all.len()).await;
    all.extend(running.stop().await);
    all.sort_by_key(|line| line[5..].parse::<usize>().unwrap());
    assert_eq!(all, lines(0..7501));
}

impl RunningInput {
    async fn until_at_least(&mut self, events: usize) {
        while self.pipeline.events.len() < events {
            let _ = self.pipeline.take().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_that_was_renamed_while_nobody_looked_is_read_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    let name = path.display().to_string();
    append(&path, 0..10);
    let mut running = start(input(&name, &beginning()), &stored);
    running.until(10).await;
    running.stop().await;
    append(&path, 10..20);
    std::fs::rename(&path, dir.path().join("app.log.1")).unwrap();
    append(&path, 20..30);
    // None of the input's.
    append(&dir.path().join("other"), 90..99);
    let mut running = start(input(&name, &[]), &stored);
    running.until(10).await;
    append(&path, 30..31);
    let read = running.stop().await;
    assert_eq!(read, lines(10..20));
}

#[tokio::test]
async fn a_truncated_file_is_read_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    append(&path, 0..10);
    let mut running = start(input(&path.display().to_string(), &beginning()), &stored);
    running.until(10).await;
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    append(&path, 10..12);
    running.until(12).await;
    // As long as before, or longer, with something else.
    file.set_len(0).unwrap();
    append(&path, 12..40);
    running.until(40).await;
    assert_eq!(running.stop().await, lines(0..40));
}

#[tokio::test]
async fn lines_behind_a_truncation_are_told_from_those_before() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    append(&path, 0..10);
    let mut running = start(input(&path.display().to_string(), &beginning()), &stored);
    running.until(10).await;
    // The same again, and less of it.
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    append(&path, 0..9);
    running.until(19).await;
    let from = |running: &RunningInput| -> std::collections::HashSet<_> {
        running.pipeline.events.iter().map(|event| event.provenance().unwrap()).collect()
    };
    let before = from(&running);
    assert_eq!(before.len(), 19);
    assert_eq!(running.stop().await, [lines(0..10), lines(0..9)].concat());
    // Also while nobody looks.
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    append(&path, 0..8);
    let mut running = start(input(&path.display().to_string(), &beginning()), &stored);
    running.until(8).await;
    assert!(before.is_disjoint(&from(&running)));
    running.stop().await;
}

#[tokio::test]
async fn what_is_not_stored_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    append(&path, 0..2000);
    for nowhere in [false, true] {
        let mut given = beginning();
        if nowhere {
            given.push(("sincedb_path", "/dev/null".into()));
        }
        let mut running = start(input(&path.display().to_string(), &given), &stored);
        for refused in 0..3 {
            for _ in 0..refused {
                let batch = running.pipeline.next().await.unwrap();
                assert_eq!(running.pipeline.store(batch), Ok(()));
            }
            // With those behind it, which come from there.
            let first = running.pipeline.next().await.unwrap();
            refuse(first, NotStored::Overloaded("full".to_owned()));
            if nowhere {
                break;
            }
            loop {
                let batch = running.pipeline.next().await.unwrap();
                match running.pipeline.store(batch) {
                    Ok(()) => break,
                    Err(refused) => assert_eq!(refused, NotStored::Moved),
                }
            }
        }
        if nowhere {
            let distinct = |running: &RunningInput| {
                running.pipeline.messages().into_iter().collect::<std::collections::HashSet<_>>().len()
            };
            while distinct(&running) < 2000 {
                let _ = running.pipeline.take().await.unwrap();
            }
            let mut read = running.stop().await;
            read.sort_by_key(|line| line[5..].parse::<usize>().unwrap());
            read.dedup();
            assert_eq!(read, lines(0..2000));
        } else {
            running.until(2000).await;
            assert_eq!(running.stop().await, lines(0..2000));
        }
    }
}

#[tokio::test]
async fn files_that_are_read_once_are_done_with_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let stored = Arc::default();
    append(&dir.path().join("a.log"), 0..300);
    std::fs::write(dir.path().join("b.log"), "line 300\nline 301").unwrap();
    std::fs::write(dir.path().join("empty.log"), "").unwrap();
    let mut gzip = GzEncoder::new(File::create(dir.path().join("c.gz")).unwrap(), Compression::default());
    // Either kind of line ends.
    lines(302..600).iter().enumerate().for_each(|(at, line)| {
        write!(gzip, "{line}{}", if at % 2 == 0 { "\r\n" } else { "\n" }).unwrap();
    });
    gzip.finish().unwrap();
    let log = dir.path().join("done").display().to_string();
    let given = [
        ("mode", "read".into()),
        ("exit_after_read", "true".into()),
        ("file_completed_action", "log".into()),
        ("file_completed_log_path", log.clone().into()),
    ];
    let pattern = format!("{}/*.{{log,gz}}", dir.path().display());
    // Interrupted in between.
    let mut running = start(input(&pattern, &given), &stored);
    running.until_at_least(200).await;
    let mut all = running.stop().await;
    let mut running = start(input(&pattern, &given), &stored);
    running.until_end().await;
    all.extend(running.stop().await);
    all.sort();
    let mut expected = lines(0..600);
    expected.sort();
    assert_eq!(all, expected);
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 4);
    // Nothing is left; the default is to delete.
    let delete = [("mode", "read".into()), ("exit_after_read", "true".into())];
    let mut running = start(input(&pattern, &delete), &stored);
    running.until_end().await;
    assert_eq!(running.stop().await, [""; 0]);
    assert!(!dir.path().join("a.log").exists() && !dir.path().join("c.gz").exists());
}

/// Starts an input among others.
fn start_among(tail: Tail, stored: &Arc<StoredPositions>, names: &[&'static str]) -> RunningInput {
    let mut pipeline = Pipeline::with(2, Arc::clone(stored));
    pipeline.names = names.to_vec();
    let context = pipeline.context();
    let ended = tokio::spawn(async move { tail.run(context).await });
    RunningInput { pipeline, ended }
}

#[tokio::test]
async fn inputs_of_one_pipeline_leave_each_others_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let stored = Arc::default();
    let pattern = |name: &str| format!("{}/{name}*.log", dir.path().display());
    let files = ["a", "b"].map(|name| dir.path().join(format!("{name}.log")));
    append(&files[0], 0..10);
    append(&files[1], 100..110);
    let mut a = start_among(input(&pattern("a"), &beginning()), &stored, &["a", "b"]);
    let mut b = start_among(input(&pattern("b"), &beginning()), &stored, &["b", "a"]);
    a.until(10).await;
    b.until(10).await;
    a.stop().await;
    b.stop().await;
    // Both have positions now, and there is more in both files; the first comes to look first, twice.
    append(&files[1], 110..120);
    for more in [10..15, 15..20] {
        append(&files[0], more.clone());
        let mut a = start_among(input(&pattern("a"), &beginning()), &stored, &["a", "b"]);
        a.until(5).await;
        assert_eq!(a.stop().await, lines(more));
    }
    let mut b = start_among(input(&pattern("b"), &beginning()), &stored, &["b", "a"]);
    b.until(10).await;
    assert_eq!(b.stop().await, lines(110..120));
}

#[tokio::test]
async fn positions_of_an_earlier_version_and_of_other_paths_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::<StoredPositions>::default());
    append(&path, 0..10);
    let name = path.display().to_string();
    // As they were stored before: without an input.
    let file = File::open(&path).unwrap();
    let inode = position::Inode::new(&file.metadata().unwrap());
    let first = position::first_bytes(&file, &Delimiter::new("\n", Charset::Utf8), false).unwrap().unwrap();
    let position = position::Position {
        offset: 28,
        before: position::hash_before(&file, 28).unwrap(),
        complete: false,
        truncations: 0,
        seconds: 1,
    };
    let moved = crate::Move {
        source: "file".to_owned(),
        partition: inode.file(&first),
        previous: None,
        new: position.encode(),
        owner_epoch: 0,
    };
    stored.apply(&moved).unwrap();
    let mut running = start_among(input(&name, &beginning()), &stored, &["one"]);
    running.until(6).await;
    assert_eq!(running.stop().await, lines(4..10));
    // The path of the input was changed meanwhile.
    append(&path, 10..12);
    let mut running = start_among(input(&name, &beginning()), &stored, &["two", "other"]);
    running.until(2).await;
    assert_eq!(running.stop().await, lines(10..12));
    append(&path, 12..13);
    let mut running = start_among(input(&name, &beginning()), &stored, &["two", "other"]);
    running.until(1).await;
    assert_eq!(running.stop().await, lines(12..13));
}

#[tokio::test]
async fn what_a_stopped_input_has_under_way_is_not_stored_besides() {
    let dir = tempfile::tempdir().unwrap();
    // With and without a position from before.
    for (name, known) in [("new", 0), ("known", 4)] {
        let (path, stored) = (dir.path().join(name), Arc::<StoredPositions>::default());
        append(&path, 0..known);
        let file = path.display().to_string();
        if known > 0 {
            let mut running = start_among(input(&file, &beginning()), &stored, &["old"]);
            running.until(known).await;
            running.stop().await;
        }
        append(&path, known..10);
        let mut old = start_among(input(&file, &beginning()), &stored, &["old"]);
        let mut under_way = old.pipeline.next().await.unwrap();
        while under_way.events.is_empty() {
            old.pipeline.store(under_way).unwrap();
            under_way = old.pipeline.next().await.unwrap();
        }
        // The reload: the input has another id now.
        let mut pipeline = Pipeline::with(2, Arc::clone(&stored));
        (pipeline.names, pipeline.former) = (vec!["new"], vec!["old"]);
        let context = pipeline.context();
        let tail = input(&file, &beginning());
        let ended = tokio::spawn(async move { tail.run(context).await });
        let mut new = RunningInput { pipeline, ended };
        let first = new.pipeline.next().await.unwrap();
        assert_eq!(old.pipeline.store(under_way), Err(NotStored::Moved), "{name}");
        new.pipeline.store(first).unwrap();
        new.until(10 - known).await;
        assert_eq!(new.stop().await, lines(known..10), "{name}");
        assert_eq!(old.stop().await, [""; 0], "{name}");
    }
}

#[tokio::test]
async fn only_what_was_read_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let stored = Arc::default();
    let (path, other) = (dir.path().join("a.log"), dir.path().join("a.moved"));
    append(&path, 0..3);
    let given = [("mode", "read".into())];
    let mut running = start(input(&format!("{}/*.log", dir.path().display()), &given), &stored);
    let batch = running.pipeline.next().await.unwrap();
    // Before its events are stored, the name goes to another file.
    std::fs::rename(&path, &other).unwrap();
    append(&path, 3..5);
    running.pipeline.store(batch).unwrap();
    running.until(5).await;
    // That one is read and deleted; the one that was renamed is there.
    while path.exists() {
        tokio::task::yield_now().await;
    }
    assert!(other.exists());
    running.stop().await;
    // More was written to the file than was read.
    append(&path, 0..3);
    let mut running = start(input(&path.display().to_string(), &given), &Arc::default());
    let batch = running.pipeline.next().await.unwrap();
    append(&path, 3..5);
    running.pipeline.store(batch).unwrap();
    running.until(5).await;
    assert_eq!(running.pipeline.messages(), lines(0..5));
    while path.exists() {
        tokio::task::yield_now().await;
    }
    running.stop().await;
}

#[tokio::test]
async fn lines_that_belong_together_are_read_again_together() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    std::fs::write(&path, "a\n 1\nb\n 2\n").unwrap();
    let codec = Options::new(
        "multiline",
        crate::Location::default(),
        [("pattern", "^ "), ("what", "previous")].map(|(name, value)| {
            (name.to_owned(), crate::Location::default(), Setting::Text(value.to_owned()))
        }),
    );
    let mut given = beginning();
    given.push(("codec", OptionValue(Setting::Plugin(Box::new(codec)))));
    let mut running = start(input(&path.display().to_string(), &given), &stored);
    running.until(1).await;
    assert_eq!(running.stop().await, ["a\n 1"]);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b" 3\nc\n").unwrap();
    let mut running = start(input(&path.display().to_string(), &given), &stored);
    running.until(1).await;
    assert_eq!(running.stop().await, ["b\n 2\n 3"]);
}

#[test]
fn options_are_checked() {
    for (given, reason) in [
        (vec![("path", OptionValue::from("relative"))], "must be absolute"),
        (vec![], "needs the option [path]"),
        (vec![("path", "/a".into()), ("stat_interval", "1 year".into())], "must be a time"),
        (vec![("path", "/a".into()), ("exit_after_read", "true".into())], "needs [mode => \"read\"]"),
        (
            vec![("path", "/a".into()), ("mode", "read".into()), ("file_completed_action", "log".into())],
            "needs [file_completed_log_path]",
        ),
    ] {
        let faults = Tail::new(options("file", &given)).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains(reason)), "{reason}: {faults:?}");
    }
}

#[test]
fn times_have_units() {
    for (text, expected) in [
        ("1", Some(1.0)),
        ("1.5", Some(1.5)),
        ("2 weeks", Some(1_209_600.0)),
        ("10ms", Some(0.01)),
        ("x", None),
    ] {
        assert_eq!(seconds(&Setting::Text(text.to_owned())), expected, "{text}");
    }
}

#[tokio::test]
async fn a_name_that_is_another_files_by_now_is_looked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    append(&path, 0..3);
    let found = position::Inode::new(&std::fs::metadata(&path).unwrap());
    std::fs::rename(&path, dir.path().join("app.log.0")).unwrap();
    append(&path, 3..5);
    let tail = input(&path.display().to_string(), &beginning());
    let mut pipeline = Pipeline::with(2, Arc::default());
    let mut watch = watch::Watch::begin(Arc::clone(&tail.settings), pipeline.context()).await.unwrap();
    let candidate = |inode| watch::tracked::Candidate {
        inode,
        path: path.clone(),
        size: 0,
        start: steps::StartPosition::Beginning,
        closed: 0,
        name: String::new(),
        only: None,
    };
    let permit = || descriptors::Permit::take(0).unwrap();
    assert!(!watch.open(candidate(found), permit()).await);
    let now = position::Inode::new(&std::fs::metadata(&path).unwrap());
    assert!(watch.open(candidate(now), permit()).await);
}
