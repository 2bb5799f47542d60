//! The contents of a simulated file: what reads see, what is durable, and what lies between.

use rand::RngExt;
use rand::rngs::SmallRng;

const SECTOR: usize = 512;

#[derive(Clone, Default)]
pub(super) struct Contents {
    pub(super) cached: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) unsynced: Vec<UnsyncedChange>,
    pub(super) modified: u64,
}

#[derive(Clone)]
pub(super) enum UnsyncedChange {
    Write { at: usize, bytes: Vec<u8> },
    Cut { len: usize },
}

impl UnsyncedChange {
    pub(super) fn apply(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes: written } => put(bytes, at, &written),
            Self::Cut { len } => bytes.truncate(len),
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, written: &[u8]) {
    let end = at + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(written);
}

impl Contents {
    pub(super) fn after_power_loss(&self, rng: &mut SmallRng) -> Contents {
        let mut bytes = self.durable.clone();
        match rng.random_range(0..4) {
            0 => {}
            1 => bytes.clone_from(&self.cached),
            2 => {
                let whole = rng.random_range(0..=self.unsynced.len());
                for part in &self.unsynced[..whole] {
                    part.clone().apply(&mut bytes);
                }
                if let Some(UnsyncedChange::Write { at, bytes: written }) = self.unsynced.get(whole) {
                    put(&mut bytes, *at, &written[..rng.random_range(0..=written.len())]);
                }
            }
            _ => {
                for part in &self.unsynced {
                    match part {
                        UnsyncedChange::Cut { len } if rng.random_bool(0.5) => bytes.truncate(*len),
                        UnsyncedChange::Cut { .. } => {}
                        UnsyncedChange::Write { at, bytes: written } => {
                            keep_sectors(&mut bytes, *at, written, rng)
                        }
                    }
                }
                if rng.random_bool(0.5) && bytes.len() < self.cached.len() {
                    bytes.resize(self.cached.len(), 0);
                }
            }
        }
        Contents { cached: bytes.clone(), durable: bytes, unsynced: Vec::new(), modified: self.modified }
    }
}

fn keep_sectors(bytes: &mut Vec<u8>, at: usize, written: &[u8], rng: &mut SmallRng) {
    let mut from = 0;
    while from < written.len() {
        let to = (((at + from) / SECTOR + 1) * SECTOR - at).min(written.len());
        if rng.random_bool(0.5) {
            put(bytes, at + from, &written[from..to]);
        }
        from = to;
    }
}
