use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::executor::block_on;
use millrace_catalog::frame::{Entry, Frame};
use millrace_runtime::disk::{Disk, SimulatedDisk, SystemDisk};
use millrace_runtime::{Error, Kind};

use super::super::{Wal, encoding};
use super::{DIR, LARGE, Options, SMALL, append, check, files, frame, open, remove_below, size};

#[test]
fn numbering_goes_on_after_restarts() {
    let disk = SimulatedDisk::new(1);
    let (wal, frames) = open(&disk, LARGE).unwrap();
    assert!(frames.is_empty());
    assert_eq!((wal.next_frame(), wal.durable_frame(), wal.first_frame()), (1, None, 1));
    append(&wal, 3);
    assert_eq!((wal.next_frame(), wal.durable_frame()), (4, Some(3)));
    wal.close().unwrap();
    wal.close().unwrap();
    assert!(matches!(wal.append(&Frame::default()), Err(Error::Stopped(_))));
    assert!(matches!(block_on(wal.synced(4)), Err(Error::Stopped(_))));
    block_on(wal.synced(3)).unwrap();

    // Restarts without writes leave no files behind.
    for _ in 0..3 {
        let (wal, frames) = open(&disk, LARGE).unwrap();
        check(&frames, 1, 3);
        assert_eq!(wal.next_frame(), 4);
    }
    assert_eq!(files(&disk).len(), 2);
    let (wal, _) = open(&disk, LARGE).unwrap();
    append(&wal, 2);
    drop(wal);
    let (wal, frames) = open(&disk, LARGE).unwrap();
    check(&frames, 1, 5);
    remove_below(&wal, 6).unwrap();
    drop(wal);
    // Nothing is left but the name of the newest file.
    let (wal, frames) = open(&disk, LARGE).unwrap();
    assert!(frames.is_empty());
    assert_eq!((wal.next_frame(), wal.first_frame(), wal.durable_frame()), (6, 6, Some(5)));
}

#[test]
fn it_rolls_and_removes_only_what_is_below() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open(&disk, SMALL).unwrap();
    append(&wal, 30);
    let before = files(&disk);
    assert!(before.len() > 5);
    assert!(wal.bytes() >= before.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() - 25);
    remove_below(&wal, 12).unwrap();
    let first = wal.first_frame();
    assert!(first > 1 && first <= 12);
    assert!(files(&disk).len() < before.len());
    assert!(matches!(wal.read(first - 1, 1), Err(Error::IllegalArgument(_))));
    drop(wal);
    check(&open(&disk, SMALL).unwrap().1, first, 30);
}

#[test]
fn readers_get_durable_frames_from_anywhere() {
    for (options, disk) in [(SMALL, SimulatedDisk::new(1)), (LARGE, SimulatedDisk::new(2))] {
        let (wal, _) = open(&disk, options).unwrap();
        append(&wal, 40);
        for from in 1..=40 {
            check(&wal.read(from, usize::MAX).unwrap(), from, 40);
            assert_eq!(wal.read(from, 0).unwrap().len(), 1);
            let some = wal.read(from, 500).unwrap();
            check(&some, from, from + some.len() as u64 - 1);
        }
        assert!(wal.read(41, usize::MAX).unwrap().is_empty());
        append(&wal, 1);
        check(&wal.read(41, 10).unwrap(), 41, 41);
        drop(wal);
        let (wal, _) = open(&disk, options).unwrap();
        check(&wal.read(7, usize::MAX).unwrap(), 7, 41);
    }
}

#[test]
fn small_frames_are_read_wherever_a_read_of_the_disk_ends() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open(&disk, LARGE).unwrap();
    // The first byte of each record is zero.
    let padding = |number| {
        let counted = |size| 9 + encoding::encoded_len(&frame(number, size));
        (0..600).find(|size| counted(*size) % 256 == 0).unwrap()
    };
    for number in 1..=40 {
        let appended = wal.append(&frame(number, padding(number))).unwrap();
        block_on(wal.synced(appended.applied())).unwrap();
    }
    for most in 0..12_000 {
        let read = wal.read(1, most).unwrap();
        assert!((1..).zip(&read).all(|(expected, (number, _))| expected == *number));
    }
    assert_eq!(wal.read(1, usize::MAX / 2).unwrap().len(), 40);
}

#[test]
fn large_frames_go_through_whole() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open(&disk, LARGE).unwrap();
    let sizes = [10, 3_000_000, 300_000, 10, 1_000_000, 5];
    for (number, size) in (1..).zip(sizes) {
        wal.append(&frame(number, size)).unwrap().applied();
    }
    block_on(wal.synced(6)).unwrap();
    for from in 1..=6 {
        let read = wal.read(from, usize::MAX).unwrap();
        assert_eq!(read.len() as u64, 7 - from);
        assert!(read.iter().all(|(number, found)| *found == frame(*number, sizes[*number as usize - 1])));
    }
    drop(wal);
    let (_, frames) = open(&disk, LARGE).unwrap();
    assert!(frames.iter().all(|(number, found)| *found == frame(*number, sizes[*number as usize - 1])));
    assert_eq!(frames.len(), 6);
}

#[test]
fn concurrent_appenders_are_ordered_and_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wal");
    let open = |replay: &mut dyn FnMut(u64, Frame) -> millrace_runtime::Result<()>| {
        Wal::open_with(
            Arc::new(SystemDisk::new()),
            &path,
            Options { file_bytes: 20_000, recent_bytes: 64 << 10 },
            replay,
        )
    };
    let wal = open(&mut |_, _| Ok(())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let wal = &wal;
            scope.spawn(move || {
                for turn in 0..25 {
                    let number = wal.append(&frame(thread * 1000 + turn, 300)).unwrap().applied();
                    block_on(wal.synced(number)).unwrap();
                    assert!(wal.durable_frame() >= Some(number));
                }
            });
        }
    });
    drop(wal);
    let mut seen = Vec::new();
    let mut numbers = Vec::new();
    open(&mut |number, frame| {
        let Entry::Ops(shard) = &frame.entries[0] else { panic!("{frame:?}") };
        seen.push(shard.ops[0].version);
        numbers.push(number);
        Ok(())
    })
    .unwrap();
    assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
    // Each thread's frames are in the order in which it appended them, and all are there.
    for thread in 0..8 {
        let of_thread: Vec<u64> = seen.iter().copied().filter(|version| version / 1000 == thread).collect();
        assert_eq!(of_thread, (thread * 1000..thread * 1000 + 25).collect::<Vec<_>>());
    }
}

#[test]
fn one_sync_serves_all_who_wait() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open(&disk, LARGE).unwrap();
    append(&wal, 1);
    // The writer waits for space while the others queue up.
    disk.set_capacity(disk.used_bytes());
    let before = disk.sync_count();
    for number in 2..=101 {
        wal.append(&frame(number, size(number))).unwrap().applied();
    }
    disk.set_capacity(1 << 40);
    block_on(wal.synced(101)).unwrap();
    assert!(disk.sync_count() - before <= 2, "{} syncs for 100 frames", disk.sync_count() - before);
}

#[test]
fn a_full_disk_is_refused_first_waited_for_then_over() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open(&disk, SMALL).unwrap();
    append(&wal, 5);
    wal.admit(1000).unwrap();
    disk.set_capacity(disk.used_bytes() + 30);
    let refused = wal.admit(1000).unwrap_err();
    assert_eq!(refused.kind(), Kind::Overloaded);
    assert!(refused.to_string().contains("disk full"), "{refused}");

    // What was accepted before is written once there is space.
    wal.append(&frame(6, size(6))).unwrap().applied();
    wal.append(&frame(7, size(7))).unwrap().applied();
    check(&wal.read(1, usize::MAX).unwrap(), 1, 5);
    disk.set_capacity(1 << 40);
    block_on(wal.synced(7)).unwrap();
    wal.admit(1000).unwrap();
    append(&wal, 20);
    drop(wal);
    check(&open(&disk, SMALL).unwrap().1, 1, 27);

    // Closing does not wait for space, and says what is lost.
    let (wal, _) = open(&disk, SMALL).unwrap();
    disk.set_capacity(disk.used_bytes());
    wal.append(&frame(28, 10)).unwrap().applied();
    assert!(matches!(wal.close(), Err(Error::Stopped(_))));
    disk.set_capacity(1 << 40);
    check(&open(&disk, SMALL).unwrap().1, 1, 27);
}

#[test]
fn a_log_opens_on_a_full_disk() {
    let disk = SimulatedDisk::new(1);
    let (wal, _) = open(&disk, LARGE).unwrap();
    append(&wal, 5);
    drop(wal);
    disk.set_capacity(disk.used_bytes());
    let (wal, frames) = open(&disk, LARGE).unwrap();
    check(&frames, 1, 5);
    check(&wal.read(2, usize::MAX).unwrap(), 2, 5);
    assert!(matches!(wal.admit(1), Err(Error::Rejected(_))));
    disk.set_capacity(1 << 40);
    append(&wal, 2);
    drop(wal);
    check(&open(&disk, LARGE).unwrap().1, 1, 7);
}

#[test]
fn a_failed_sync_or_write_stops_the_log() {
    for fail in [SimulatedDisk::fail_sync, SimulatedDisk::fail_append] {
        let disk = SimulatedDisk::new(1);
        let (wal, _) = open(&disk, LARGE).unwrap();
        append(&wal, 2);
        // The mark behind an idle log is an append too.
        fail(&disk, 1);
        let mut stopped = None;
        for number in 3..10 {
            match wal.append(&frame(number, size(number))) {
                Ok(frame) => stopped = block_on(wal.synced(frame.applied())).err(),
                Err(error) => stopped = Some(error),
            }
            if stopped.is_some() {
                break;
            }
        }
        let cause = stopped.unwrap().to_string();
        assert!(cause.contains("simulated") && cause.contains(DIR), "{cause}");
        assert!(matches!(wal.append(&Frame::default()), Err(Error::Stopped(_))));
        assert!(matches!(wal.admit(1), Err(Error::Stopped(_))));
        block_on(wal.synced(2)).unwrap();
        drop(wal);
        let (_, frames) = open(&disk.power_loss(), LARGE).unwrap();
        assert!(frames.len() >= 2);
        check(&frames, 1, frames.len() as u64);
    }
}

/// Appends, waits, rolls and removes until the disk gives up; returns the greatest frame that was
/// acknowledged and the bound below which frames may be gone.
fn work(wal: &Wal, rounds: u64, acknowledged: &mut u64, removed: &mut u64) -> millrace_runtime::Result<()> {
    for round in 0..rounds {
        let mut last = 0;
        for _ in 0..round % 3 + 1 {
            let number = wal.next_frame();
            last = wal.append(&frame(number, size(number) * 3))?.applied();
        }
        block_on(wal.synced(last))?;
        *acknowledged = last;
        if round % 4 == 3 {
            *removed = last.saturating_sub(4);
            remove_below(wal, *removed)?;
        }
    }
    wal.close()
}

#[test]
fn power_loss_at_every_operation_keeps_what_was_synced() {
    let check = |disk: &SimulatedDisk, acknowledged: u64, removed: u64, context: &str| {
        let (wal, frames) = open(disk, SMALL).unwrap_or_else(|error| panic!("{context}: {error}"));
        let next = wal.next_frame();
        assert!(next > acknowledged, "{context}: frame {acknowledged} of {next} is lost");
        let first = frames.first().map_or(next, |(number, _)| *number);
        assert!(first <= removed.max(1), "{context}: first is {first}, removed below {removed}");
        for (expected, (number, found)) in (first..).zip(&frames) {
            assert_eq!(*number, expected, "{context}");
            assert_eq!(*found, frame(*number, size(*number) * 3), "{context}");
        }
        assert_eq!(first + frames.len() as u64, next, "{context}");
        wal
    };
    for crash in 0.. {
        let mut finished = false;
        for seed in 0..5 {
            let context = format!("crash at {crash}, seed {seed}");
            let disk = SimulatedDisk::new(seed * 7919 + crash);
            disk.crash_after(crash);
            let (mut acknowledged, mut removed) = (0, 0);
            finished = open(&disk, SMALL)
                .and_then(|(wal, _)| work(&wal, 12, &mut acknowledged, &mut removed))
                .is_ok();
            // The next process may come up with the cache still there, or the machine with the
            // disk only; and it may lose power again.
            let disk = if seed % 2 == 0 { disk.power_loss() } else { disk.kill() };
            let wal = check(&disk, acknowledged, removed, &context);
            acknowledged = wal.next_frame() - 1;
            work(&wal, 3, &mut acknowledged, &mut removed).unwrap();
            drop(wal);
            check(&disk.power_loss(), acknowledged, removed, &context);
        }
        if finished {
            return;
        }
    }
}

#[test]
fn what_does_not_belong_to_the_log_is_left_alone() {
    let disk = SimulatedDisk::new(1);
    drop(open(&disk, LARGE).unwrap());
    let (stray, unfinished) = (Path::new(DIR).join("notes.txt"), Path::new(DIR).join("5.log.new"));
    disk.create(&stray).unwrap();
    disk.create(&unfinished).unwrap();
    open(&disk, LARGE).unwrap();
    let names: Vec<PathBuf> = files(&disk).into_iter().map(|(path, _)| path).collect();
    assert!(names.contains(&stray) && !names.contains(&unfinished));
}
