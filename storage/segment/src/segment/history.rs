//! Rows of a segment in the order in which they came: the change feed, read back where the log is gone.
//!
//! In a shard, later sequence numbers come with later frames, so that the order of a shard's rows is that of their sequence
//! numbers. Rows of a sorted segment lie otherwise; they are chosen a bounded number at a time, by their numbers alone
//! ([`Segment::next_rows`]), and only those are read ([`Segment::came`]).

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{TimestampMillisecondType, UInt8Type, UInt64Type};
use bytes::Bytes;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{FrameNumber, Op};
use millrace_runtime::{Error, Result};
use parquet::file::statistics::Statistics;
use roaring::RoaringBitmap;

use super::order::SORTED;
use super::stored::StoredSegment;
use super::{Kind, Segment, layout};

/// Rows around a range of frames, deleted ones that are still there included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRangeRows {
    /// Sequence number behind the last row before the range.
    pub before: u64,
    /// Sequence number behind the last row before the end of the range.
    pub below_end: u64,
    /// `true` if there is a row behind the range.
    pub behind: bool,
}

impl FrameRangeRows {
    fn see(&mut self, frames: &Range<FrameNumber>, frame: FrameNumber, seq_no: u64) {
        if frame < frames.start {
            self.before = self.before.max(seq_no + 1);
        }
        match frame < frames.end {
            true => self.below_end = self.below_end.max(seq_no + 1),
            false => self.behind = true,
        }
    }
}

/// Rows of which some are wanted.
#[derive(Clone, Debug)]
pub struct RequestedRows<'a> {
    /// Rows of other frames are left out.
    pub frames: &'a Range<FrameNumber>,
    /// Rows that are left out.
    pub deleted: &'a RoaringBitmap,
    /// Rows with smaller sequence numbers are left out.
    pub from: u64,
    /// Largest number.
    pub most: usize,
    /// Rows of which some are wanted; all are where nothing is said.
    pub among: Option<&'a RoaringBitmap>,
    /// Times of frames, in milliseconds: of other ones, rows are left out as far as that costs nothing.
    pub times: &'a Range<i64>,
}

/// Origin of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOrigin {
    /// Sequence number.
    pub seq_no: u64,
    /// Number of the frame of the log.
    pub frame: FrameNumber,
    /// Milliseconds from the epoch to the append of the frame.
    pub time_ms: i64,
    /// Source of the write.
    pub origin: Origin,
    /// Primary term of the shard.
    pub primary_term: u64,
    /// The operation.
    pub op: Op,
}

/// A row and its sequence number.
type SequencedRow = (u64, u32);

impl Segment {
    /// Looks at what lies around a range of frames, on the calling thread.
    pub fn around(&self, frames: &Range<FrameNumber>) -> Result<FrameRangeRows> {
        let mut around = FrameRangeRows::default();
        match &*self.kind {
            Kind::Memory(memory) => {
                let numbers = Numbers::new(&memory.rows.batch)?;
                (0..numbers.len()).for_each(|at| around.see(frames, numbers.frame(at), numbers.seq_no(at)));
            }
            Kind::Stored(stored) => {
                for group in stored.numbered_groups()? {
                    match &group.bounds {
                        // All on one side of each end: the last one speaks for them.
                        Some(bounds)
                            if (bounds.last_frame < frames.start || bounds.first_frame >= frames.start)
                                && (bounds.last_frame < frames.end || bounds.first_frame >= frames.end) =>
                        {
                            around.see(frames, bounds.last_frame, bounds.last_seq_no);
                        }
                        _ => stored.numbers(&group, |at, numbers| {
                            around.see(frames, numbers.frame(at), numbers.seq_no(at));
                            true
                        })?,
                    }
                }
            }
        }
        Ok(around)
    }

    /// Finds the wanted rows with the least sequence numbers, in the order of these, on the calling thread.
    pub fn next_rows(&self, wanted: &RequestedRows<'_>) -> Result<Vec<SequencedRow>> {
        match &*self.kind {
            Kind::Memory(memory) => {
                let numbers = Numbers::new(&memory.rows.batch)?;
                // In their order, but for rows that never were documents, which are deleted.
                let start = numbers.seq_nos().partition_point(|seq_no| *seq_no < wanted.from);
                let mut rows: Vec<SequencedRow> = Vec::new();
                for at in start..numbers.len() {
                    if rows.len() == wanted.most || numbers.frame(at) >= wanted.frames.end {
                        break;
                    }
                    rows.extend(numbers.wanted(at, at as u32, wanted));
                }
                Ok(rows)
            }
            Kind::Stored(stored) => stored.next_rows(wanted),
        }
    }

    /// Reads how rows came, in the order given, on the calling thread.
    pub fn came(&self, rows: &[SequencedRow]) -> Result<Vec<RowOrigin>> {
        let mut found = Vec::with_capacity(rows.len());
        match &*self.kind {
            Kind::Memory(memory) => {
                for (_, row) in rows {
                    found.push(came(&memory.rows.batch, *row as usize)?);
                }
            }
            Kind::Stored(stored) => {
                let names = [
                    layout::ID,
                    layout::SEQ_NO,
                    layout::VERSION,
                    layout::PRIMARY_TERM,
                    layout::FRAME,
                    layout::FRAME_TIME,
                    layout::FRAME_ORIGIN,
                    layout::CREATED,
                    layout::ROUTING,
                    layout::SOURCE,
                ];
                let selected: RoaringBitmap = rows.iter().map(|(_, row)| *row).collect();
                let mut failed = None;
                stored.read_named(&names, Some(&selected), |batch| {
                    for at in 0..batch.num_rows() {
                        match came(batch, at) {
                            Ok(row) => found.push(row),
                            Err(error) => failed = Some(error),
                        }
                    }
                    failed.is_none()
                })?;
                if let Some(error) = failed {
                    return Err(error);
                }
                found.sort_unstable_by_key(|row| row.seq_no);
            }
        }
        Ok(found)
    }
}

/// A row group, and what its statistics say of the numbers in it.
struct Group {
    number: usize,
    first_row: u32,
    rows: u32,
    bounds: Option<Bounds>,
}

impl Group {
    /// Returns whether any of some rows of the segment is in it.
    fn has_any(&self, rows: &RoaringBitmap) -> bool {
        rows.range_cardinality(self.first_row..self.first_row.saturating_add(self.rows)) > 0
    }
}

struct Bounds {
    first_frame: FrameNumber,
    last_frame: FrameNumber,
    first_seq_no: u64,
    last_seq_no: u64,
    /// First and last time of a frame, where each row has one.
    times: Option<(i64, i64)>,
}

impl Bounds {
    /// Returns whether rows may be of wanted times. What the version before wrote has no time, and is of none.
    fn may_be_of(&self, times: &Range<i64>) -> bool {
        self.times.is_none_or(|(first, last)| first < times.end && last >= times.start)
    }
}

impl StoredSegment {
    fn numbered_groups(&self) -> Result<Vec<Group>> {
        let data = self.data()?;
        let (_, metadata) = data.parts();
        // The columns in front of both have a single leaf each.
        let leaf = |name: &str| layout::metadata_root(metadata.schema().fields(), name);
        let (seq_nos, frames, times) = (leaf(layout::SEQ_NO), leaf(layout::FRAME), leaf(layout::FRAME_TIME));
        let mut first_row = 0u32;
        let groups = metadata.metadata().row_groups().iter().enumerate().map(|(number, group)| {
            let bounds = |leaf: Option<usize>| match group.columns().get(leaf?)?.statistics()? {
                Statistics::Int64(bounds) => {
                    Some((bounds.min_opt()?.cast_unsigned(), bounds.max_opt()?.cast_unsigned()))
                }
                _ => None,
            };
            let times = match times.and_then(|leaf| group.columns().get(leaf)?.statistics()) {
                Some(Statistics::Int64(times)) if times.null_count_opt() == Some(0) => {
                    times.min_opt().copied().zip(times.max_opt().copied())
                }
                _ => None,
            };
            let bounds = bounds(frames).zip(bounds(seq_nos)).map(|(frames, seq_nos)| Bounds {
                first_frame: frames.0,
                last_frame: frames.1,
                first_seq_no: seq_nos.0,
                last_seq_no: seq_nos.1,
                times,
            });
            let rows = u32::try_from(metadata.metadata().row_group(number).num_rows()).unwrap_or(0);
            let group = Group { number, first_row, rows, bounds };
            first_row += rows;
            group
        });
        Ok(groups.collect())
    }

    /// Feeds the numbers of a group's rows, which are counted from its start, until `see` returns false.
    fn numbers(&self, group: &Group, mut see: impl FnMut(usize, &Numbers<'_>) -> bool) -> Result<()> {
        self.numbered_rows(group, |_, at, numbers| see(at, numbers))
    }

    fn numbered_rows(
        &self,
        group: &Group,
        mut see: impl FnMut(u32, usize, &Numbers<'_>) -> bool,
    ) -> Result<()> {
        let mut roots = Vec::with_capacity(2);
        for name in [layout::SEQ_NO, layout::FRAME] {
            roots.extend(self.named_root(name)?);
        }
        let mut row = group.first_row;
        for batch in self.group_reader(&roots, group.number)? {
            let batch = batch.map_err(|error| self.read_error(error))?;
            let numbers = Numbers::new(&batch)?;
            for at in 0..numbers.len() {
                if !see(row, at, &numbers) {
                    return Ok(());
                }
                row += 1;
            }
        }
        Ok(())
    }

    fn next_rows(&self, wanted: &RequestedRows<'_>) -> Result<Vec<SequencedRow>> {
        let sorted = self.record.extra.get(SORTED) == Some(&serde_json::Value::Bool(true));
        let mut rows: Vec<SequencedRow> = Vec::new();
        for group in self.numbered_groups()? {
            if wanted.among.is_some_and(|among| !group.has_any(among)) {
                continue;
            }
            if let Some(bounds) = &group.bounds {
                let full = rows.len() >= wanted.most;
                let none = bounds.last_seq_no < wanted.from
                    || bounds.last_frame < wanted.frames.start
                    || bounds.first_frame >= wanted.frames.end
                    || !bounds.may_be_of(wanted.times)
                    || (full && rows.last().is_some_and(|(last, _)| *last < bounds.first_seq_no));
                if none {
                    continue;
                }
            }
            self.numbered_rows(&group, |row, at, numbers| {
                rows.extend(numbers.wanted(at, row, wanted));
                sorted || rows.len() < wanted.most
            })?;
            if sorted {
                rows.sort_unstable();
                rows.truncate(wanted.most);
            } else if rows.len() >= wanted.most {
                break;
            }
        }
        Ok(rows)
    }
}

/// Sequence numbers and frames of rows.
struct Numbers<'a> {
    seq_nos: &'a [u64],
    frames: &'a [u64],
}

impl<'a> Numbers<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self> {
        let column = |name: &str| {
            let found = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt64Type>());
            found.map(|column| &column.values()[..]).ok_or_else(|| lacks(name))
        };
        Ok(Self { seq_nos: column(layout::SEQ_NO)?, frames: column(layout::FRAME)? })
    }

    fn len(&self) -> usize {
        self.seq_nos.len().min(self.frames.len())
    }

    fn seq_nos(&self) -> &[u64] {
        self.seq_nos
    }

    fn seq_no(&self, at: usize) -> u64 {
        self.seq_nos[at]
    }

    fn frame(&self, at: usize) -> FrameNumber {
        self.frames[at]
    }

    /// Row `row`, whose numbers are at `at`, if it is wanted.
    fn wanted(&self, at: usize, row: u32, wanted: &RequestedRows<'_>) -> Option<SequencedRow> {
        let seq_no = self.seq_no(at);
        let fits = seq_no >= wanted.from && wanted.frames.contains(&self.frame(at));
        let is_among = || wanted.among.is_none_or(|among| among.contains(row));
        (fits && is_among() && !wanted.deleted.contains(row)).then_some((seq_no, row))
    }
}

fn lacks(column: &str) -> Error {
    Error::Columnar(format!("a segment lacks the column [{column}]"))
}

/// Reads how one row of a batch came. What the version before did not note has the same defaults as in its log: no time, no
/// origin, and version 1 created the document.
fn came(batch: &RecordBatch, at: usize) -> Result<RowOrigin> {
    let column = |name: &str| batch.column_by_name(name).filter(|column| column.is_valid(at));
    let number = |name: &str| {
        let value = column(name).and_then(|column| column.as_primitive_opt::<UInt64Type>());
        value.map(|column| column.value(at)).ok_or_else(|| lacks(name))
    };
    let text = |column: &ArrayRef| column.as_string_view_opt().map(|column| column.value(at).to_owned());
    let version = number(layout::VERSION)?;
    let time_ms = column(layout::FRAME_TIME)
        .and_then(|column| column.as_primitive_opt::<TimestampMillisecondType>())
        .map_or(0, |column| column.value(at));
    let origin = column(layout::FRAME_ORIGIN)
        .and_then(|column| column.as_primitive_opt::<UInt8Type>())
        .and_then(|column| Origin::of_code(column.value(at)))
        .unwrap_or_default();
    let created = column(layout::CREATED).and_then(|column| column.as_boolean_opt());
    let source = column(layout::SOURCE).and_then(|column| column.as_string_view_opt());
    let source = source.map(|column| Bytes::copy_from_slice(column.value(at).as_bytes()));
    Ok(RowOrigin {
        seq_no: number(layout::SEQ_NO)?,
        frame: number(layout::FRAME)?,
        time_ms,
        origin,
        primary_term: number(layout::PRIMARY_TERM)?,
        op: Op {
            id: column(layout::ID).and_then(text).ok_or_else(|| lacks(layout::ID))?.into(),
            generated: false,
            created: created.map_or(version == 1, |created| created.value(at)),
            version,
            routing: column(layout::ROUTING).and_then(text),
            source: Some(source.ok_or_else(|| lacks(layout::SOURCE))?),
        },
    })
}
