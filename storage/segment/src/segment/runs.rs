//! Sorting the entries of a sidecar in bounded memory: runs that fit are sorted and spilled to scratch
//! files, and read back side by side by the merge.
//!
//! [`super::merge`] needs it where a segment without a sidecar, all of whose ids were generated, is
//! merged with one that has client-chosen ids: its entries come in row order, however many there are.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use millrace_runtime::{Error, Result};

use super::ids::{Entry, Fingerprint};

/// Entries sorted in memory at a time: 10 MB.
const RUN_ENTRIES: usize = 1 << 18;
/// Bytes of a spilled entry.
const SPILLED: usize = 40;

/// Takes entries in any order and gives them back as sorted runs.
#[derive(Debug)]
pub(super) struct Sorter<'a> {
    scratch: &'a Path,
    run_entries: usize,
    entries: Vec<Entry>,
    runs: Vec<SortRun>,
}

/// A sorted run.
#[derive(Debug)]
pub(super) enum SortRun {
    Memory(std::vec::IntoIter<Entry>),
    Spilled(SpilledRun),
}

/// A run in a file, which goes with it.
#[derive(Debug)]
pub(super) struct SpilledRun {
    file: BufReader<File>,
    path: PathBuf,
    left: usize,
}

impl Drop for SpilledRun {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl<'a> Sorter<'a> {
    /// Starts with scratch files in `scratch`.
    pub(super) fn new(scratch: &'a Path) -> Self {
        Self { scratch, run_entries: RUN_ENTRIES, entries: Vec::new(), runs: Vec::new() }
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, entry: Entry) -> Result<()> {
        self.entries.push(entry);
        if self.entries.len() < self.run_entries {
            return Ok(());
        }
        self.spill()
    }

    fn spill(&mut self) -> Result<()> {
        self.entries.sort_unstable_by_key(|entry| entry.fingerprint);
        let path = self.scratch.join(format!("{}-run", uuid::Uuid::new_v4().simple()));
        let write = || -> std::io::Result<File> {
            let file = File::create_new(&path)?;
            let mut out = BufWriter::with_capacity(256 << 10, file);
            for entry in &self.entries {
                out.write_all(&encode(entry))?;
            }
            out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            File::open(&path)
        };
        let written = write();
        let left = self.entries.len();
        self.entries.clear();
        match written {
            Ok(file) => {
                let file = BufReader::with_capacity(64 << 10, file);
                self.runs.push(SortRun::Spilled(SpilledRun { file, path, left }));
                Ok(())
            }
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(Error::io("write scratch file", path, error))
            }
        }
    }

    /// Returns the runs. What follows on spilled ones is spilled as well: memory is needed by other
    /// inputs of the merge.
    pub(super) fn finish(mut self) -> Result<Vec<SortRun>> {
        if self.runs.is_empty() {
            self.entries.sort_unstable_by_key(|entry| entry.fingerprint);
            self.runs.push(SortRun::Memory(self.entries.into_iter()));
        } else if !self.entries.is_empty() {
            self.spill()?;
        }
        Ok(self.runs)
    }
}

impl SortRun {
    /// Takes the next entry.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        match self {
            Self::Memory(entries) => Ok(entries.next()),
            Self::Spilled(SpilledRun { left: 0, .. }) => Ok(None),
            Self::Spilled(SpilledRun { file, path, left }) => {
                let mut bytes = [0; SPILLED];
                let read = file.read_exact(&mut bytes);
                read.map_err(|error| Error::io("read scratch file", &*path, error))?;
                *left -= 1;
                Ok(Some(decode(&bytes)))
            }
        }
    }
}

fn encode(entry: &Entry) -> [u8; SPILLED] {
    let Entry { fingerprint, row, version, seq_no, primary_term } = entry;
    let (high, low) = fingerprint.parts();
    let mut bytes = [0; SPILLED];
    bytes[..8].copy_from_slice(&high.to_le_bytes());
    bytes[8..12].copy_from_slice(&low.to_le_bytes());
    bytes[12..16].copy_from_slice(&row.to_le_bytes());
    bytes[16..24].copy_from_slice(&version.to_le_bytes());
    bytes[24..32].copy_from_slice(&seq_no.to_le_bytes());
    bytes[32..].copy_from_slice(&primary_term.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; SPILLED]) -> Entry {
    let number = |range: std::ops::Range<usize>| {
        bytes[range].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    Entry {
        fingerprint: Fingerprint::from_parts(number(0..8), number(8..12) as u32),
        row: number(12..16) as u32,
        version: number(16..24),
        seq_no: number(24..32),
        primary_term: number(32..40),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(i: u32) -> Entry {
        let fingerprint = Fingerprint::new(&format!("id-{i}"));
        Entry {
            fingerprint,
            row: i,
            version: u64::from(i) << 33,
            seq_no: u64::MAX - u64::from(i),
            primary_term: 7,
        }
    }

    #[test]
    fn runs_hold_every_entry_once_and_in_order() {
        for (count, runs) in [(0u32, 1), (5, 1), (10, 1), (11, 2), (35, 4)] {
            let scratch = tempfile::tempdir().unwrap();
            let mut sorter = Sorter { run_entries: 10, ..Sorter::new(scratch.path()) };
            (0..count).for_each(|i| sorter.push(entry(i)).unwrap());
            let mut sorted = sorter.finish().unwrap();
            assert_eq!(sorted.len(), runs, "{count} entries");
            let mut found = Vec::new();
            for run in &mut sorted {
                let before = found.len();
                while let Some(entry) = run.next().unwrap() {
                    found.push(entry);
                }
                assert!(found[before..].is_sorted_by_key(|entry| entry.fingerprint));
            }
            found.sort_by_key(|entry| entry.row);
            assert_eq!(found, (0..count).map(entry).collect::<Vec<_>>());
            drop(sorted);
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "scratch files are gone");
        }
    }
}
