//! The log as its users rely on it, over simulated disks.

mod damage;
mod encoding;
mod running;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{Entry, Frame, FrameNumber, Op, ShardOps};
use millrace_runtime::Result;
use millrace_runtime::disk::{Disk, SimulatedDisk};
use uuid::Uuid;

use super::{Options, Wal};

const DIR: &str = "/data/wal";
const SMALL: Options = Options { file_bytes: 700, recent_bytes: 64 << 10 };
const LARGE: Options = Options { file_bytes: 64 << 20, recent_bytes: 64 << 10 };

/// A frame that tells its number and has about `size` bytes.
fn frame(number: FrameNumber, size: usize) -> Frame {
    let op = Op {
        id: Bytes::from(format!("id-{number}")),
        generated: false,
        created: true,
        version: number,
        routing: None,
        source: Some(Bytes::from(vec![number as u8; size])),
    };
    let index = Uuid::from_u128(7);
    let shard = ShardOps { index, shard: 0, primary_term: 1, first_seq_no: number, ops: vec![op] };
    // Does not end in zeros, which is how a torn frame may end.
    let time_ms = i64::MAX - (1 << 20) + i64::try_from(number).unwrap();
    Frame { time_ms, origin: Origin::User, entries: vec![Entry::Ops(shard)] }
}

fn size(number: FrameNumber) -> usize {
    (number as usize * 37) % 200
}

type ReplayedFrames = Vec<(FrameNumber, Frame)>;

fn open(disk: &SimulatedDisk, options: Options) -> Result<(Wal, ReplayedFrames)> {
    let mut frames = Vec::new();
    let wal = Wal::open_with(Arc::new(disk.clone()), Path::new(DIR), options, &mut |number, frame| {
        frames.push((number, frame));
        Ok(())
    })?;
    Ok((wal, frames))
}

fn append(wal: &Wal, count: u64) {
    for _ in 0..count {
        let number = wal.next_frame();
        assert_eq!(wal.append(&frame(number, size(number))).unwrap().applied(), number);
        block_on(wal.synced(number)).unwrap();
    }
}

/// Removes all files that may be.
fn remove_below(wal: &Wal, number: FrameNumber) -> Result<()> {
    while wal.oldest_removable(number).is_some() {
        wal.remove_oldest(number)?;
    }
    Ok(())
}

/// Checks that frames are dense, hold what [`append`] wrote, and end with `last`.
fn check(frames: &ReplayedFrames, first: FrameNumber, last: FrameNumber) {
    let numbers: Vec<FrameNumber> = frames.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
    for (number, found) in frames {
        assert_eq!(*found, frame(*number, size(*number)));
    }
}

fn files(disk: &SimulatedDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(DIR);
    let read = |name: PathBuf| (dir.join(&name), disk.read(&dir.join(&name)).unwrap());
    disk.list(dir).unwrap().into_iter().map(read).collect()
}

fn disk_with(files: &[(PathBuf, Vec<u8>)]) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    disk.create_dir_all(Path::new(DIR)).unwrap();
    for (path, bytes) in files {
        disk.create(path).unwrap().append(bytes).unwrap();
    }
    disk
}
