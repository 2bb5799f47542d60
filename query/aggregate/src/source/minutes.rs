//! The rows of each minute of a column of times, which a segment counts once and keeps where the minutes are few.

use millrace_work::error::Result;

use super::{Question, SegmentRows, Source, SourceCost};
use crate::field::ValueKind;
use crate::keys::KeyForm;

/// Cost of a minute that is put into its span, in rows: it is rounded as the time of one row is.
const COUNTED_MINUTE: u64 = 1;

/// Rows by minute, which are told where all rows of a segment are asked about and no minute straddles spans. The first time
/// it reads the column, which is what a pass would; of that no account is taken.
pub(super) struct RowsByMinute;

impl Source for RowsByMinute {
    fn name(&self) -> &'static str {
        "minutes"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let (Question::Keys(rule), Some(lead)) = (question, at.rows.lead()) else { return Ok(None) };
        let KeyForm::Dates { rounding, bounds } = &rule.form else { return Ok(None) };
        let place = rule.values.place_in(at.segment.index);
        let Some(place) = place.filter(|place| place.kind == ValueKind::Long && !place.nanos) else {
            return Ok(None);
        };
        if place.is_inside() || rule.null || rule.values.missing().is_some() {
            return Ok(None);
        }
        let Some(minutes) = at.segment.source.reader.minutes(place.field.column)? else { return Ok(None) };
        let mut spans = rounding.cached();
        let mut found: Vec<(i64, u64)> = Vec::new();
        let mut cost = 0;
        for (first, last, count) in minutes.iter() {
            let Some(span) = spans.round_all(first, last) else { return Ok(None) };
            cost += COUNTED_MINUTE;
            match found.last_mut() {
                Some((before, sum)) if *before == span => *sum += u64::from(count),
                _ => found.push((span, u64::from(count))),
            }
        }
        let within = |span: i64| bounds.is_none_or(|(least, most)| least <= span && span <= most);
        Ok(SourceCost::of_segment(cost, move |sink| {
            let mut found = found.into_iter().filter(|(span, _)| lead && within(*span));
            found.try_for_each(|(span, count)| sink.group(span as u64, count))
        }))
    }
}
