//! The change feed read back from what is stored, where the log is gone: rows of segments and memtables in the order in
//! which they came, across shards and indices.
//!
//! Of data that is only added it gives the frames that the log had. Deletions have no row, and what was deleted or
//! replaced since has none any more: such sequence numbers are counted ([`Missing`]).
//!
//! Who wants few of the documents chooses them, segment by segment ([`Choice`]): only their rows are read then.
//!
//! A cursor a shard reads a window of rows at a time; together they have a bounded number of bytes. A large frame comes in
//! pieces. Each step is a job of its own on a compute thread, so that a reader that goes away leaves one step at most.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use millrace_catalog::frame::{AppliedFrame, FrameNumber, ShardOps};
use millrace_catalog::metadata::IndexMeta;
use millrace_runtime::{Error, Priority, Result};
use millrace_segment::{RequestedRows, RowOrigin, Segment, SegmentView};
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::index::Index;
use super::{Engine, Inner};

/// Bytes of rows that the windows of all shards are to have together, about.
const WINDOW_BYTES: u64 = 32 << 20;
/// Rows of a window, at least, however many shards there are, and at most.
const WINDOW_ROWS: Range<usize> = 16..8_192;
/// Rows of an item, at most, and of all items of a step.
const PIECE_ROWS: usize = 1_024;
/// Bytes of an item's documents, about, beyond which it ends, and with it a step.
const PIECE_BYTES: usize = 1 << 20;
/// Segments of which rows are chosen at a time: others who choose, and compactions, have threads meanwhile.
const CHOSEN_AT_A_TIME: usize = 2;

/// Tells which rows of a segment of an index are wanted; it blocks, on a compute thread.
pub type Choice = Arc<dyn Fn(Uuid, &Segment) -> Result<RoaringBitmap> + Send + Sync>;

/// Every time that a frame may have.
const ALL_TIMES: Range<i64> = i64::MIN..i64::MAX;

/// Operations of a shard that left nothing that could be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Uuid of the index.
    pub index: Uuid,
    /// Shard number.
    pub shard: u32,
    /// Number of sequence numbers without a row: deletions, and documents that were deleted or replaced since. The frame of each
    /// is not known any more: the number counts for the frame of the next row, or, behind the last row, for that of the last.
    /// Rows that are deleted are there until a compaction: of two readings one after another, both may count some.
    pub count: u64,
}

/// Frames read back from what is stored; see [`Engine::read_back`].
#[derive(Debug)]
pub struct ReadBack {
    inner: Arc<Inner>,
    /// `None` while a step is on its way.
    merge: Option<Merge>,
    ready: VecDeque<Arc<AppliedFrame>>,
    end: FrameNumber,
    missing: Option<Vec<Missing>>,
    priority: Priority,
}

impl Engine {
    /// Begins to read frames back from what is stored of some indices; those that are not durable and applied yet are left out
    /// ([`ReadBack::end`]). Refreshes the indices.
    ///
    /// # Errors
    /// A damaged shard, a failing refresh.
    pub async fn read_back(&self, indices: &[Arc<Index>], frames: Range<FrameNumber>) -> Result<ReadBack> {
        let (frames, shards) = self.history(indices, frames).await?;
        Ok(self.reading(frames, ALL_TIMES, shards))
    }

    /// Begins to read all documents of an index back, those that a snapshot brought among them. Refreshes the index.
    ///
    /// # Errors
    /// As [`Engine::read_back`].
    pub async fn read_back_stored(&self, index: &Arc<Index>) -> Result<ReadBack> {
        let (_, mut shards) = self.history(std::slice::from_ref(index), 0..FrameNumber::MAX).await?;
        for shard in &mut shards {
            (shard.expected, shard.taken) = (0, 0);
        }
        // Documents of a snapshot have frames of another log.
        Ok(self.reading(0..FrameNumber::MAX, ALL_TIMES, shards))
    }

    /// Begins to read the documents back that a snapshot brought, of frames of its own log that were written at some times (in
    /// milliseconds; frames of other times may come, too). Indices of other snapshots are left out, and documents that are not
    /// chosen. Refreshes the indices.
    ///
    /// # Errors
    /// As [`Engine::read_back_chosen`].
    pub async fn read_back_restored(
        &self,
        snapshot: &Uuid,
        indices: &[Arc<Index>],
        (frames, times): (Range<FrameNumber>, Range<i64>),
        choice: Option<&Choice>,
    ) -> Result<ReadBack> {
        let is_restored = |index: &&Arc<Index>| index.meta().is_restored_from(snapshot);
        let restored: Vec<Arc<Index>> = indices.iter().filter(is_restored).cloned().collect();
        let metas: HashMap<Uuid, Arc<IndexMeta>> =
            restored.iter().map(|index| (index.meta().uuid, index.meta())).collect();
        let (_, mut shards) = self.history(&restored, 0..FrameNumber::MAX).await?;
        for shard in &mut shards {
            let own = metas.get(&shard.index).map_or(0..0, |meta| meta.restored_seq_nos(shard.number));
            (shard.expected, shard.taken, shard.until) = (own.start, own.start, Some(own.end));
        }
        if let Some(choice) = choice {
            self.choose(&mut shards, choice).await?;
        }
        Ok(self.reading(frames, times, shards))
    }

    /// Begins to read those documents back that are chosen, of frames that were written at some times (in milliseconds; frames
    /// of other times may come, too). Of these nothing is told to be missing. Refreshes the indices.
    ///
    /// # Errors
    /// As [`Engine::read_back`]; those of the choice.
    pub async fn read_back_chosen(
        &self,
        indices: &[Arc<Index>],
        frames: Range<FrameNumber>,
        times: Range<i64>,
        choice: &Choice,
    ) -> Result<ReadBack> {
        let (frames, mut shards) = self.history(indices, frames).await?;
        self.choose(&mut shards, choice).await?;
        Ok(self.reading(frames, times, shards))
    }

    /// Chooses the rows of each segment.
    async fn choose(&self, shards: &mut [Cursor], choice: &Choice) -> Result<()> {
        let compute = &self.inner.env().compute;
        let mut asked = Vec::new();
        for shard in &*shards {
            for view in &shard.segments {
                let (index, segment, choice) = (shard.index, view.segment.clone(), Arc::clone(choice));
                asked.push(compute.run(Priority::Background, move || choice(index, &segment)));
            }
        }
        // Polled, one queues its job.
        let chosen = stream::iter(asked).buffered(CHOSEN_AT_A_TIME);
        let mut chosen = chosen.try_collect::<Vec<_>>().await?.into_iter();
        for shard in shards {
            shard.chosen = Some(chosen.by_ref().take(shard.segments.len()).collect());
        }
        Ok(())
    }

    /// Returns which of the frames are durable and applied, and the shards with what they have.
    async fn history(
        &self,
        indices: &[Arc<Index>],
        frames: Range<FrameNumber>,
    ) -> Result<(Range<FrameNumber>, Vec<Cursor>)> {
        // Asked first: the effect of what is below is in what is refreshed next.
        let end = frames.end.min(self.inner.wal()?.applied_below());
        let frames = frames.start.min(end)..end;
        self.refresh(indices).await?;
        let mut shards = Vec::new();
        for index in indices {
            let meta = index.meta();
            for shard in index.shards() {
                let state = shard.read();
                state.check()?;
                let (segments, below) = state.history();
                let restored = meta.restored_seq_nos(shard.number).end;
                shards.push(Cursor::new((shard.index, shard.number), segments, below, restored));
            }
        }
        // The order of the parts of a frame.
        shards.sort_unstable_by_key(|shard| (shard.index, shard.number));
        shards.dedup_by_key(|shard| (shard.index, shard.number));
        Ok((frames, shards))
    }

    fn reading(&self, frames: Range<FrameNumber>, times: Range<i64>, shards: Vec<Cursor>) -> ReadBack {
        let end = frames.end;
        let window_bytes = WINDOW_BYTES / shards.len().max(1) as u64;
        let merge = Merge { window_bytes, frames, times, shards, heads: None };
        let (inner, ready) = (Arc::clone(&self.inner), VecDeque::new());
        ReadBack { inner, merge: Some(merge), ready, end, missing: None, priority: Priority::Background }
    }
}

impl ReadBack {
    /// Has its steps run at another priority than [`Priority::Background`]: where somebody waits for them.
    #[must_use]
    pub fn at(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Number of the first frame that is not among those that are read.
    pub fn end(&self) -> FrameNumber {
        self.end
    }

    /// Returns the next frame, or the next piece of a large one: items of one number follow one another. Frames without a row
    /// are left out, as are operations without one: each part has operations that follow one another. `None` at the end.
    ///
    /// A call that is dropped ends the reading.
    ///
    /// # Errors
    /// A segment cannot be read; a call before was dropped.
    pub async fn next(&mut self) -> Result<Option<Arc<AppliedFrame>>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some(frame));
            }
            if self.missing.is_some() {
                return Ok(None);
            }
            let ended = || Error::Internal("reading back ended before".to_owned());
            let mut merge = self.merge.take().ok_or_else(ended)?;
            let step = move || {
                let frames = merge.step()?;
                Ok((merge, frames))
            };
            let (merge, frames) = self.inner.env().compute.run(self.priority, step).await?;
            if frames.is_empty() {
                self.missing = Some(merge.missing());
            }
            self.ready.extend(frames);
            self.merge = Some(merge);
        }
    }

    /// Returns what is missing, shard by shard, of which some is; `None` before everything was read.
    pub fn missing(&self) -> Option<&[Missing]> {
        self.missing.as_deref().filter(|_| self.ready.is_empty())
    }
}

/// The rows of all shards in one order.
#[derive(Debug)]
struct Merge {
    frames: Range<FrameNumber>,
    times: Range<i64>,
    shards: Vec<Cursor>,
    /// Frame of the next row of each shard that has one; `None` before the first step.
    heads: Option<BinaryHeap<Reverse<(FrameNumber, usize)>>>,
    window_bytes: u64,
}

impl Merge {
    /// Returns some frames; none at the end.
    fn step(&mut self) -> Result<Vec<Arc<AppliedFrame>>> {
        let mut heads = match self.heads.take() {
            Some(heads) => heads,
            None => {
                let mut heads = BinaryHeap::with_capacity(self.shards.len());
                for (at, shard) in self.shards.iter_mut().enumerate() {
                    shard.begin(&self.frames)?;
                    let head = shard.head(&self.frames, &self.times, self.window_bytes)?;
                    heads.extend(head.map(|frame| Reverse((frame, at))));
                }
                heads
            }
        };
        let mut done = Vec::new();
        let mut open: Option<AppliedFrame> = None;
        let (mut rows, mut bytes) = (0, 0);
        while let Some(Reverse((frame, at))) = heads.pop() {
            let shard = &mut self.shards[at];
            while shard.head(&self.frames, &self.times, self.window_bytes)? == Some(frame)
                && rows < PIECE_ROWS
                && bytes < PIECE_BYTES
            {
                let Some(row) = shard.next_row() else { break };
                rows += 1;
                bytes += row.op.source.as_ref().map_or(0, |source| source.len());
                let (index, number) = (shard.index, shard.number);
                match &mut open {
                    Some(open) if open.number == frame => add(open, index, number, row),
                    _ => {
                        let mut next = AppliedFrame {
                            number: frame,
                            time_ms: row.time_ms,
                            origin: row.origin,
                            parts: Vec::new(),
                        };
                        add(&mut next, index, number, row);
                        done.extend(open.replace(next).map(Arc::new));
                    }
                }
            }
            let head = shard.head(&self.frames, &self.times, self.window_bytes)?;
            heads.extend(head.map(|frame| Reverse((frame, at))));
            if rows >= PIECE_ROWS || bytes >= PIECE_BYTES {
                break;
            }
        }
        done.extend(open.map(Arc::new));
        self.heads = Some(heads);
        Ok(done)
    }

    fn missing(&self) -> Vec<Missing> {
        if self.shards.iter().any(|shard| shard.chosen.is_some() || shard.until.is_some()) {
            return Vec::new();
        }
        let count = |shard: &Cursor| Missing {
            index: shard.index,
            shard: shard.number,
            count: shard.missing + shard.missing_at_the_end(&self.frames),
        };
        self.shards.iter().map(count).filter(|missing| missing.count > 0).collect()
    }
}

/// Adds a row to a frame: to its last part where it follows on that.
fn add(frame: &mut AppliedFrame, index: Uuid, shard: u32, row: RowOrigin) {
    if let Some(part) = frame.parts.last_mut()
        && (part.index, part.shard, part.primary_term) == (index, shard, row.primary_term)
        && part.first_seq_no + part.ops.len() as u64 == row.seq_no
    {
        part.ops.push(row.op);
        return;
    }
    let (primary_term, first_seq_no) = (row.primary_term, row.seq_no);
    frame.parts.push(ShardOps { index, shard, primary_term, first_seq_no, ops: vec![row.op] });
}

/// The rows of a shard in their order.
#[derive(Debug)]
struct Cursor {
    index: Uuid,
    number: u32,
    /// In the order of their sequence numbers.
    segments: VecDeque<SegmentView>,
    /// The rows that are wanted of each of these; all where nothing is chosen.
    chosen: Option<VecDeque<RoaringBitmap>>,
    /// Sequence number and frame below which operations are in these segments.
    below: (u64, FrameNumber),
    window: VecDeque<RowOrigin>,
    /// Sequence number of the next row, were none missing.
    expected: u64,
    /// Sequence number below which rows were taken into windows.
    taken: u64,
    /// Sequence number behind the last row, where those of a snapshot alone are read.
    until: Option<u64>,
    missing: u64,
    /// Sequence number behind the last row of these frames or earlier ones.
    end: u64,
    /// `true` if there is a row of a later frame.
    behind: bool,
}

impl Cursor {
    /// Makes a cursor that leaves out operations below the sequence number `restored`.
    fn new(
        (index, number): (Uuid, u32),
        segments: Vec<SegmentView>,
        below: (u64, FrameNumber),
        restored: u64,
    ) -> Self {
        Self {
            index,
            number,
            segments: segments.into(),
            chosen: None,
            below,
            window: VecDeque::new(),
            expected: restored,
            taken: restored,
            until: None,
            missing: 0,
            end: 0,
            behind: false,
        }
    }

    /// Finds out where the rows of the frames begin.
    fn begin(&mut self, frames: &Range<FrameNumber>) -> Result<()> {
        // Frames of rows behind those of a snapshot are of another log.
        if self.chosen.is_some() || self.until.is_some() {
            return Ok(());
        }
        for view in &self.segments {
            let around = view.segment.around(frames)?;
            self.expected = self.expected.max(around.before);
            self.end = self.end.max(around.below_end);
            self.behind |= around.behind;
        }
        self.taken = self.expected;
        Ok(())
    }

    /// Frame of the next row; reads on where need be.
    fn head(
        &mut self,
        frames: &Range<FrameNumber>,
        times: &Range<i64>,
        window_bytes: u64,
    ) -> Result<Option<FrameNumber>> {
        while self.window.is_empty() {
            let Some(view) = self.segments.front() else { return Ok(None) };
            let rows = usize::try_from(window_bytes / view.segment.row_bytes().max(1)).unwrap_or(usize::MAX);
            let wanted = RequestedRows {
                frames,
                deleted: &view.deleted,
                from: self.taken,
                most: rows.clamp(WINDOW_ROWS.start, WINDOW_ROWS.end),
                among: self.chosen.as_ref().and_then(VecDeque::front),
                times,
            };
            let mut rows = view.segment.next_rows(&wanted)?;
            if let Some(until) = self.until {
                let own = rows.partition_point(|(seq_no, _)| *seq_no < until);
                if own == 0 && !rows.is_empty() {
                    // Later segments have later operations alone.
                    self.segments.clear();
                    return Ok(None);
                }
                rows.truncate(own);
            }
            let Some((last, _)) = rows.last() else {
                self.segments.pop_front();
                self.chosen.as_mut().and_then(VecDeque::pop_front);
                continue;
            };
            self.taken = last + 1;
            self.window = view.segment.came(&rows)?.into();
        }
        Ok(self.window.front().map(|row| row.frame))
    }

    fn next_row(&mut self) -> Option<RowOrigin> {
        let row = self.window.pop_front()?;
        self.missing += row.seq_no.saturating_sub(self.expected);
        self.expected = row.seq_no + 1;
        Some(row)
    }

    /// Operations behind the last row that was read: up to the next one that is there, or, where the frames go on to the
    /// last one, all.
    fn missing_at_the_end(&self, frames: &Range<FrameNumber>) -> u64 {
        let end = if self.behind || frames.end < self.below.1 { self.end } else { self.below.0 };
        end.saturating_sub(self.expected)
    }
}
