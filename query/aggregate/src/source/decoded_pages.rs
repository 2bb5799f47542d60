//! Rows with the numbers of columns that are kept decoded, page by page.

use millrace_segment::list_rows;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::{Question, SegmentRows, Source, SourceCost};
use crate::segment::{Rows, numbers};

/// Of one row in more than so many, all numbers are taken at once: runs would look at every page for each.
const FEW_SHARE: u64 = 8;
/// Rows whose numbers are taken at a time otherwise.
const RUN_ROWS: u32 = 65_536;
/// Bytes that a number takes in a decoded page, about, and those of all that may be decoded for an answer: so that what is
/// needed last does not drive out what is needed first, and is decoded again for the next.
const NUMBER_BYTES: u64 = 4;
const MOST_BYTES: u64 = 96 << 20;
/// Cost of a row beside one whose columns are read. Where its numbers stay decoded it is no more, and less the next time; where
/// they do not, they are decoded and let go.
const STAYS: u64 = 1;
const IS_DRIVEN_OUT: u64 = 2;

/// The numbers of decoded pages.
pub(super) struct DecodedPages;

impl Source for DecodedPages {
    fn name(&self) -> &'static str {
        "decoded pages"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let Question::Columns(places) = question else { return Ok(None) };
        let (all, rows) = (at.segment.source.reader.rows(), at.rows.len());
        let few = matches!(at.rows, Rows::Some(_)) && rows < u64::from(all) / FEW_SHARE;
        let stays = few || rows * places.len() as u64 * NUMBER_BYTES <= MOST_BYTES;
        let cost = rows * if stays { STAYS } else { IS_DRIVEN_OUT };
        if cost > most || places.is_empty() {
            return Ok(None);
        }
        let columns = at.columns_at(places);
        let mut runs = RowRuns { at, length: if few { all } else { RUN_ROWS }, from: at.rows.span().start };
        let Some(first) = runs.next() else { return Ok(None) };
        // Whether numbers are kept at all is told by the first.
        let Some(kept) = numbers(&at.segment.source, &columns, &first)? else { return Ok(None) };
        Ok(SourceCost::new(cost, move |sink| {
            let mut next = Some((first, kept));
            while let Some((rows, kept)) = next {
                let (rows, placed) = (list_rows(&rows, 0..u32::MAX), at.placed(places, &kept));
                sink.batch(&at.batch(&rows, &placed))?;
                let Some(rows) = runs.next().filter(|_| !at.stopped()) else { break };
                let kept = numbers(&at.segment.source, &columns, &rows)?;
                next = Some((
                    rows,
                    kept.ok_or_else(|| Error::Execution("numbers are kept no more".to_owned()))?,
                ));
            }
            Ok(())
        }))
    }
}

/// Walks over rows, so many of the segment at a time.
struct RowRuns<'a> {
    at: SegmentRows<'a>,
    length: u32,
    from: u32,
}

impl Iterator for RowRuns<'_> {
    type Item = RoaringBitmap;

    fn next(&mut self) -> Option<RoaringBitmap> {
        let end = self.at.rows.span().end;
        while self.from < end {
            let run = self.from..end.min(self.from.saturating_add(self.length));
            self.from = run.end;
            let rows = self.at.rows.within(run);
            if !rows.is_empty() {
                return Some(rows);
            }
        }
        None
    }
}
