//! Answers from statistics of a column over all rows of a segment.

use millrace_segment::NumberBounds;
use millrace_work::error::Result;

use super::{Question, SegmentRows, Source, SourceCost};
use crate::field::{FieldSource, ValueKind};

/// Bounds and counts of columns, as the catalog has them: they cost nothing.
pub(super) struct Statistics;

impl Source for Statistics {
    fn name(&self) -> &'static str {
        "statistics"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let (reader, index) = (&at.segment.source.reader, at.segment.index);
        Ok(match question {
            Question::Count => SourceCost::new(0, move |sink| sink.group(0, at.rows.len())),
            Question::ValueCount(values) => values
                .place_in(index)
                .filter(|place| place.is_metadata() || place.kind != ValueKind::Text)
                .filter(|place| !reader.is_list(place.field.column))
                .filter(|place| reader.bounds(place.field.column).full)
                .and_then(|_| SourceCost::new(0, move |sink| sink.group(0, at.rows.len()))),
            // Parts of a segment tell the same.
            Question::Extremes(values) if at.rows.lead().is_some() && values.missing().is_none() => {
                values.place_in(index).and_then(|place| match reader.bounds(place.field.column).values {
                    NumberBounds::Empty => SourceCost::new(0, |_| Ok(())),
                    bounds => {
                        let (least, greatest) = ends(place, &bounds)?;
                        SourceCost::new(0, move |sink| sink.numbers(&[least, greatest]))
                    }
                })
            }
            _ => None,
        })
    }
}

/// The ends of bounds as numbers.
pub(super) fn ends(place: &FieldSource, bounds: &NumberBounds) -> Option<(f64, f64)> {
    match bounds {
        NumberBounds::I64(min, max) => Some((place.long(*min) as f64, place.long(*max) as f64)),
        NumberBounds::U64(min, max) => Some((*min as f64, *max as f64)),
        NumberBounds::F64(min, max) => Some((*min, *max)),
        NumberBounds::Empty | NumberBounds::Unknown => None,
    }
}
