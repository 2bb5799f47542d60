//! Rows of a part are fed to collectors: a source answers some without a pass over the rows, and one pass feeds the others.

use datafusion::execution::memory_pool::MemoryReservation;
use millrace_work::error::Result;

use super::backgrounds::Background;
use super::batch::Batch;
use super::collector::{SubCollector, SubCollectors};
use super::segment::{Rows, SegmentContext};
use super::source::{self, Question, SegmentRows, Sink, all_of};
use super::tree::Root;

/// Elements that are read at a time.
const READ_ELEMENTS: usize = 4_096;
/// Bytes by which states grow without being accounted for.
const UNACCOUNTED_BYTES: usize = 1 << 20;

/// Rows of a part of a segment.
pub(crate) struct PartRows<'a> {
    /// The segment.
    pub segment: &'a SegmentContext<'a>,
    /// The rows.
    pub rows: &'a Rows,
    /// Their scores, where these are wanted.
    pub scores: &'a [f32],
    /// Sources of groups.
    pub sources: &'a [&'a dyn source::Source],
    /// Accounts for the memory of states.
    pub reservation: &'a MemoryReservation,
}

impl PartRows<'_> {
    /// Feeds the rows to collectors, and to those counts over other documents that are given.
    ///
    /// # Errors
    /// Files that cannot be read, what an aggregation refuses, memory that is not there.
    pub(crate) fn feed(
        &self,
        roots: &[Root],
        subs: &mut SubCollectors,
        backgrounds: &mut [Background],
    ) -> Result<()> {
        if self.rows.len() == 0 {
            return Ok(());
        }
        let Self { segment, rows, sources, .. } = *self;
        let at = SegmentRows { segment, rows, sources };
        let answer = &mut |question: &Question<'_>, sink: &mut dyn Sink| source::answer(question, sink, at);
        let mut pass = FullPass { fed: self, seen: 0, held: 0, subs: Vec::new(), backgrounds: Vec::new() };
        let mut columns = Vec::new();
        for (sub, root) in subs.0.iter_mut().zip(roots) {
            segment.check_cancelled()?;
            if !sub.collector.ask(segment, answer)? {
                columns.extend(root.slots.get(segment.index).into_iter().flatten().copied());
                pass.subs.push(sub);
            }
        }
        for background in backgrounds {
            if background.scope != 0 {
                self.elements(background)?;
            } else if !background.ask(answer)? {
                columns.extend(background.slot_in(segment.index));
                pass.backgrounds.push(background);
            }
        }
        if !pass.subs.is_empty() || !pass.backgrounds.is_empty() {
            columns.sort_unstable();
            columns.dedup();
            source::answer(&Question::Columns(&columns), &mut pass, at)?;
        }
        Ok(())
    }

    /// Counts the elements of rows for a background within a nested path.
    fn elements(&self, background: &mut Background) -> Result<()> {
        let scope = background.scope;
        let Some((_, nested)) = self.segment.scope(scope)? else { return Ok(()) };
        let parents = nested.parents().iter().enumerate();
        let own: Vec<u32> =
            parents.filter(|(_, row)| self.rows.contains(**row)).map(|(element, _)| element as u32).collect();
        for elements in own.chunks(READ_ELEMENTS) {
            self.segment.with_rows(scope, elements, None, None, &mut |batch| background.collect(batch))?;
        }
        Ok(())
    }
}

/// Those that see every row.
struct FullPass<'a> {
    fed: &'a PartRows<'a>,
    /// Rows that were fed.
    seen: usize,
    /// Bytes of states that are accounted for.
    held: usize,
    subs: Vec<&'a mut SubCollector>,
    backgrounds: Vec<&'a mut Background>,
}

impl Sink for FullPass<'_> {
    fn batch(&mut self, batch: &Batch<'_>) -> Result<()> {
        let scores = self.fed.scores.get(self.seen..self.seen + batch.rows.len());
        self.seen += batch.rows.len();
        let Batch { segment, scope, rows, columns, outer, .. } = *batch;
        let batch = Batch { segment, scope, rows, columns, scores, outer };
        // A batch of many aggregations takes long.
        for sub in &mut self.subs {
            segment.check_cancelled()?;
            sub.collector.collect(&batch, all_of(&batch))?;
        }
        for background in &mut self.backgrounds {
            segment.check_cancelled()?;
            background.collect(&batch)?;
        }
        // What this pass holds is accounted for on the way; other states are when the segment ends.
        let now: usize = self.subs.iter().map(|sub| sub.collector.memory()).sum();
        if now > self.held + UNACCOUNTED_BYTES {
            self.held = now;
            if self.fed.reservation.size() < now {
                self.fed.reservation.try_resize(now)?;
            }
        }
        Ok(())
    }
}
