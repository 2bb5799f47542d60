//! Rows with the columns that are read of them.

use millrace_work::error::Result;

use super::{Question, SegmentRows, Sink, Source, SourceCost};
use crate::segment::Rows;

/// Rows of a batch where no column is read.
const BATCH_ROWS: usize = 8_192;

/// The columns of a segment, of which every row can be read.
pub(super) struct Columns;

impl Source for Columns {
    fn name(&self) -> &'static str {
        "columns"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let Question::Columns(places) = question else { return Ok(None) };
        Ok(SourceCost::new(at.rows.len(), move |sink| match places.is_empty() {
            true => without_columns(at, sink),
            false => read(places, at, sink),
        }))
    }
}

fn without_columns(at: SegmentRows<'_>, sink: &mut dyn Sink) -> Result<()> {
    let columns: Vec<_> = at.placed(&[], []);
    for rows in at.rows.list(0..u32::MAX).chunks(BATCH_ROWS) {
        sink.batch(&at.batch(rows, &columns))?;
        if at.stopped() {
            break;
        }
    }
    Ok(())
}

fn read(places: &[usize], at: SegmentRows<'_>, sink: &mut dyn Sink) -> Result<()> {
    let reader = &at.segment.source.reader;
    let selected = match at.rows {
        Rows::All(own) if own.len() == reader.rows() as usize => None,
        Rows::All(own) => Some(own.clone().collect()),
        Rows::Some(rows) => Some(rows.clone()),
    };
    let mut done = Ok(());
    reader.read(&at.columns_at(places), selected, &mut |batch| {
        let columns = at.placed(places, &batch.columns);
        done = sink.batch(&at.batch(&batch.rows, &columns));
        done.is_ok() && !at.stopped()
    })?;
    done
}
