//! The term dictionary of a segment: which values a field has, and how many rows have each.

use std::ops::ControlFlow;

use millrace_segment::bundle::{ValueWalker, Walk};
use millrace_work::error::Result;

use super::{Question, SegmentRows, Sink, Source, SourceCost};
use crate::field::{FieldSource, ValueKind};
use crate::keys::KeyForm;
use crate::segment::SegmentContext;

/// Cost of a term whose rows are counted, in rows: of each row a pass would have to find the group.
const COUNTED_TERM: u64 = 1;
/// Cost of a term that is only told apart from others. Where the first terms have one row each, the column is read sooner than
/// the dictionary (cardinality of nearly unique fields).
const DISTINCT_TERM: u64 = 2;
/// Terms by which it is estimated how many there are.
const SAMPLED_TERMS: u64 = 1_024;

/// The term dictionary, which is told where all rows of a segment are asked about.
pub(super) struct Dictionary;

impl Source for Dictionary {
    fn name(&self) -> &'static str {
        "dictionary"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let Some(lead) = at.rows.lead() else { return Ok(None) };
        let (place, cost) = match question {
            Question::Keys(rule) if matches!(rule.form, KeyForm::Terms(_)) && !rule.null => {
                let Some(place) = at.listed(&rule.values) else { return Ok(None) };
                // No more terms than rows, whatever they are: looking at some would cost as much as it tells.
                (place, at.priced() * COUNTED_TERM)
            }
            Question::Distinct(values) => {
                let strings = |place: &&FieldSource| matches!(place.kind, ValueKind::Text | ValueKind::Ip);
                let Some(place) = at.listed(values).filter(strings) else { return Ok(None) };
                let terms = at.priced() * DISTINCT_TERM;
                (place, terms.div_ceil(rows_of_a_term(place, at.segment)?.max(1)))
            }
            _ => return Ok(None),
        };
        if cost > most {
            return Ok(None);
        }
        Ok(SourceCost::of_segment(cost, move |sink| {
            sink.rows(at.rows.len());
            if lead { tell(place, at, sink) } else { Ok(()) }
        }))
    }
}

fn tell(place: &FieldSource, at: SegmentRows<'_>, sink: &mut dyn Sink) -> Result<()> {
    let mut done = Ok(());
    at.segment.source.inverted.for_each_value(place.field.id, &mut |term, rows| {
        done = sink.term(place.kind, term, u64::from(rows)).map(drop);
        match done.is_err() || at.stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    done
}

/// Estimates how many rows a term of a field has on average.
pub(crate) fn rows_of_a_term(place: &FieldSource, segment: &SegmentContext<'_>) -> Result<u64> {
    let mut sample = Sample::default();
    segment.source.inverted.walk_values(place.field.id, &mut sample)?;
    Ok(sample.rows.div_ceil(sample.terms.max(1)))
}

/// Looks at the first terms.
#[derive(Default)]
struct Sample {
    terms: u64,
    rows: u64,
}

impl ValueWalker for Sample {
    fn value(&mut self, _value: &[u8], rows: u32) -> Walk {
        if self.terms == SAMPLED_TERMS {
            return Walk::Stop;
        }
        self.terms += 1;
        self.rows += u64::from(rows);
        Walk::Pass
    }

    fn rows(&mut self, _rows: &[u32]) {}
}
