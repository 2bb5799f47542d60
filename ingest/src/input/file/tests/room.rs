//! More files than may be open at once.

use super::*;

/// Files of a directory that this process has open.
fn open_below(directory: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(directory))).count()
}

#[tokio::test]
async fn more_files_than_may_be_open_are_read_in_turns() {
    for (mode, given) in [("tail", beginning()), ("read", vec![("file_completed_action", "delete".into())])] {
        let dir = tempfile::tempdir().unwrap();
        let stored = Arc::default();
        for file in 0..9 {
            append(&dir.path().join(format!("{file}.log")), file * 100..file * 100 + 100);
        }
        let mut given = given;
        given.extend([("max_open_files", "2".into()), ("mode", mode.into())]);
        let mut running = start(input(&format!("{}/*.log", dir.path().display()), &given), &stored);
        let mut most = 0;
        while running.pipeline.events.len() < 900 {
            running.pipeline.take().await.unwrap().unwrap();
            most = most.max(open_below(dir.path()));
        }
        assert!((1..=2).contains(&most), "{most} files are open");
        let mut expected: Vec<String> = lines(0..900);
        if mode == "tail" {
            // Those that were closed are read on.
            for file in 0..9 {
                append(&dir.path().join(format!("{file}.log")), 900 + file..901 + file);
            }
            running.until(909).await;
            expected = lines(0..909);
        }
        let mut read = running.stop().await;
        read.sort();
        expected.sort();
        assert_eq!(read, expected, "{mode}");
    }
}

#[tokio::test]
async fn files_that_always_have_more_starve_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let stored = Arc::default();
    // Far more than a turn.
    for file in 0..3 {
        append(&dir.path().join(format!("{file}.log")), 0..12_000);
    }
    let mut given = beginning();
    given.push(("max_open_files", "1".into()));
    let mut running = start(input(&format!("{}/*.log", dir.path().display()), &given), &stored);
    let mut first = std::collections::BTreeMap::new();
    while running.pipeline.events.len() < 36_000 {
        running.pipeline.take().await.unwrap().unwrap();
        let event = running.pipeline.events.last().unwrap();
        let path = event.fields()["path"].as_str().unwrap().to_owned();
        first.entry(path).or_insert(running.pipeline.events.len());
    }
    assert_eq!(first.len(), 3);
    assert!(first.values().all(|at| *at < 12_000), "{first:?}");
    let mut read = running.stop().await;
    read.sort();
    let mut expected: Vec<String> = (0..3).flat_map(|_| lines(0..12_000)).collect();
    expected.sort();
    assert_eq!(read, expected);
}

#[tokio::test]
async fn a_file_that_made_room_is_found_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let stored = Arc::default();
    for file in 0..4 {
        append(&dir.path().join(format!("{file}.log")), file * 10..file * 10 + 10);
    }
    let mut given = beginning();
    given.push(("max_open_files", "1".into()));
    let mut running = start(input(&format!("{}/*.log", dir.path().display()), &given), &stored);
    running.until(40).await;
    for file in 0..4 {
        let path = dir.path().join(format!("{file}.log"));
        append(&path, 40 + file * 2..41 + file * 2);
        std::fs::rename(&path, dir.path().join(format!("{file}.log.1"))).unwrap();
        append(&path, 41 + file * 2..42 + file * 2);
    }
    running.until(48).await;
    let mut read = running.stop().await;
    read.sort();
    let mut expected = lines(0..48);
    expected.sort();
    assert_eq!(read, expected);
}
