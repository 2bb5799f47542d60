//! Counts documents of a segment that match filters by the lengths of posting lists.

use millrace_work::error::Result;

use super::{Question, SegmentRows, Source, SourceCost};

/// Counts that the index knows: their cost is the lookup, for which no row is read.
pub(super) struct FilterCounts;

impl Source for FilterCounts {
    fn name(&self) -> &'static str {
        "filter counts"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let (Question::Filters(filters), Some(lead)) = (question, at.rows.lead()) else { return Ok(None) };
        let mut counts = Vec::with_capacity(filters.len());
        for filter in *filters {
            match at.segment.known_count(*filter)? {
                Some(count) => counts.push(count),
                None => return Ok(None),
            }
        }
        Ok(SourceCost::of_segment(0, move |sink| {
            let mut counts = (0..).zip(counts).filter(|_| lead);
            counts.try_for_each(|(place, count)| sink.group(place, count))
        }))
    }
}
