use std::path::PathBuf;

use millrace_runtime::Error;
use millrace_runtime::disk::SimulatedDisk;

use super::super::record::{FILE_HEADER, FileHeader, Kind, MARK, read_record};
use super::{LARGE, SMALL, append, check, disk_with, files, open};

/// Starts and kinds of the records of a file.
fn records(bytes: &[u8]) -> Vec<(usize, Kind)> {
    let id = FileHeader::decode(bytes).unwrap().id;
    let mut at = FILE_HEADER;
    let mut records = Vec::new();
    while at < bytes.len() {
        let record = read_record(&bytes[at..], id).unwrap();
        records.push((at, record.kind));
        at += record.len;
    }
    records
}

/// The files of a log of frames 1 to `count`, closed properly; each frame was synced on its own.
fn written(options: super::Options, count: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open(&disk, options).unwrap();
    append(&wal, count);
    wal.close().unwrap();
    files(&disk)
}

/// Cuts the mark off that a log which is idle or closed ends with.
fn without_last_mark(bytes: &mut Vec<u8>) {
    assert_eq!(records(bytes).last().unwrap().1, Kind::Mark);
    bytes.truncate(bytes.len() - MARK);
}

#[test]
fn a_torn_tail_is_cut_wherever_it_is_torn() {
    let mut log = written(LARGE, 4);
    without_last_mark(&mut log[0].1);
    let starts = records(&log[0].1);
    // The last group is a mark and the frame.
    let (group, last) = (starts[starts.len() - 2], starts[starts.len() - 1]);
    assert_eq!((group.1, last.1), (Kind::Mark, Kind::Frame));
    let whole = log[0].1.clone();
    for cut in group.0..whole.len() {
        for (tail, name) in [(0, "cut"), (3000, "zeros")] {
            log[0].1 = whole[..cut].to_vec();
            log[0].1.resize(cut + tail, 0);
            let disk = disk_with(&log);
            let (wal, frames) = open(&disk, LARGE).unwrap_or_else(|error| panic!("{name} at {cut}: {error}"));
            check(&frames, 1, 3);
            append(&wal, 2);
            drop(wal);
            check(&open(&disk, LARGE).unwrap().1, 1, 5);
        }
    }
}

#[test]
fn sectors_of_a_lost_group_may_be_there_in_any_combination() {
    // Two frames in one group: the first lost, the second there, as a power loss may leave it.
    let mut log = written(LARGE, 2);
    without_last_mark(&mut log[0].1);
    let starts = records(&log[0].1);
    let id = FileHeader::decode(&log[0].1).unwrap().id;
    let mut bytes = log[0].1[..starts[0].0].to_vec();
    bytes.extend_from_slice(&super::super::record::mark(1, FILE_HEADER as u64, id));
    bytes.extend(vec![0; 60]);
    let frame = &log[0].1[starts[starts.len() - 1].0..];
    bytes.extend_from_slice(frame);
    log[0].1 = bytes;
    let (wal, frames) = open(&disk_with(&log), LARGE).unwrap();
    assert!(frames.is_empty() && wal.next_frame() == 1);
}

fn assert_corrupt(log: &[(PathBuf, Vec<u8>)], file: usize, offset: usize, what: &str) {
    match open(&disk_with(log), SMALL) {
        Err(Error::Corrupt { file: named, offset: at, .. }) => {
            assert_eq!((named, at), (log[file].0.display().to_string(), offset as u64), "{what}");
        }
        other => panic!("{what}: {:?}", other.map(|(_, frames)| frames.len())),
    }
}

#[test]
fn a_flipped_byte_is_found_with_file_and_offset() {
    let mut log = written(SMALL, 14);
    assert!(log.len() >= 3);
    for file in 0..log.len() {
        let starts = records(&log[file].1);
        let last_file = file + 1 == log.len();
        for at in 0..log[file].1.len() {
            let record = starts.iter().rev().map(|(start, _)| *start).find(|start| *start <= at);
            log[file].1[at] ^= 1 << (at % 8);
            if last_file && record == starts.last().map(|(start, _)| *start) {
                // Nothing comes after the last mark; it holds no data, and is cut off.
                check(&open(&disk_with(&log), SMALL).unwrap().1, 1, 14);
            } else {
                assert_corrupt(&log, file, record.unwrap_or(0), &format!("byte {at} of file {file}"));
            }
            log[file].1[at] ^= 1 << (at % 8);
        }
    }
}

#[test]
fn without_a_mark_behind_it_the_last_group_counts_as_torn() {
    let mut log = written(LARGE, 5);
    without_last_mark(&mut log[0].1);
    let starts = records(&log[0].1);
    // The mark that begins the last group vouches for everything before it but an idle log's mark.
    let (group, _) = starts[starts.len() - 2];
    let id = FileHeader::decode(&log[0].1).unwrap().id;
    let vouched = read_record(&log[0].1[group..], id).unwrap().durable_len().unwrap() as usize;
    for (start, _) in starts {
        log[0].1[start + 12] ^= 0x10;
        if start < vouched {
            assert_corrupt(&log, 0, start, &format!("record at {start}"));
        } else {
            check(&open(&disk_with(&log), LARGE).unwrap().1, 1, 4);
        }
        log[0].1[start + 12] ^= 0x10;
    }
}

#[test]
fn files_that_are_cut_missing_or_exchanged_are_damage() {
    let log = written(SMALL, 20);
    assert!(log.len() >= 4);
    let mut cut = log.clone();
    let len = cut[1].1.len();
    let last = records(&cut[1].1).last().unwrap().0;
    cut[1].1.truncate(len - 1);
    assert_corrupt(&cut, 1, last, "cut");
    cut[1].1.truncate(10);
    assert_corrupt(&cut, 1, 0, "cut within the header");
    let mut missing = log.clone();
    missing.remove(1);
    assert_corrupt(&missing, 1, 0, "missing");
    let mut exchanged = log.clone();
    exchanged[2].1 = log[1].1.clone();
    assert_corrupt(&exchanged, 2, 0, "exchanged");
    let mut foreign = log;
    foreign[0].1[..8].copy_from_slice(b"PAR1PAR1");
    assert_corrupt(&foreign, 0, 0, "foreign");
}
