//! The rows of each integer of a column, which a segment counts once and keeps where the integers are few.

use std::sync::Arc;

use millrace_segment::Tally;
use millrace_work::error::Result;

use super::{Question, SegmentRows, Source, SourceCost};
use crate::field::{FieldSource, ValueKind, Values};
use crate::keys::{KeyForm, interval_key};

/// Cost of an integer that is put into its interval, and of a bound that is looked up, in rows: as much as one row, at most.
const COUNTED_VALUE: u64 = 1;

/// Rows by value, which are told where all rows of a segment are asked about. The first time it reads the column, which is
/// what a pass would; of that no account is taken.
pub(super) struct TallyOfValues;

impl Source for TallyOfValues {
    fn name(&self) -> &'static str {
        "tally"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        match question {
            Question::Keys(rule) if !rule.null => {
                let KeyForm::Interval { interval, offset, bounds } = rule.form else { return Ok(None) };
                let Some((lead, place, tally)) = tally(&rule.values, at)? else { return Ok(None) };
                let (values, _) = tally.iter().size_hint();
                Ok(SourceCost::of_segment(values as u64 * COUNTED_VALUE, move |sink| {
                    for (value, count) in tally.iter().filter(|_| lead) {
                        if let Some(key) = interval_key(place.long(value) as f64, interval, offset, bounds) {
                            sink.group(key, u64::from(count))?;
                        }
                    }
                    Ok(())
                }))
            }
            Question::Ranges(values, ranges) => {
                let Some((lead, place, tally)) = tally(values, at)? else { return Ok(None) };
                Ok(SourceCost::of_segment(2 * ranges.len() as u64 * COUNTED_VALUE, move |sink| {
                    let below = |bound: f64| tally.count_first(|value| (place.long(value) as f64) < bound);
                    let mut ranges = (0..).zip(*ranges).filter(|_| lead);
                    ranges.try_for_each(|(slot, (from, to))| {
                        sink.group(slot, below(*to).saturating_sub(below(*from)))
                    })
                }))
            }
            _ => Ok(None),
        }
    }
}

/// The rows of a whole segment by value, and whether they are told here.
fn tally<'a>(values: &'a Values, at: SegmentRows<'a>) -> Result<Option<(bool, &'a FieldSource, Arc<Tally>)>> {
    let (Some(lead), Some(place)) = (at.rows.lead(), values.place_in(at.segment.index)) else {
        return Ok(None);
    };
    if place.kind != ValueKind::Long || place.is_inside() || values.missing().is_some() {
        return Ok(None);
    }
    let tally = at.segment.source.reader.tally(place.field.column)?;
    Ok(tally.map(|tally| (lead, place, tally)))
}
