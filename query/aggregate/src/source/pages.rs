//! Bounds of the pages of a column: of pages whose rows are all of one bucket, the rows need only be counted.

use std::ops::Range;

use millrace_segment::{NumberBounds, list_rows};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::statistics::ends;
use super::{Question, SegmentRows, Source, SourceCost};
use crate::field::{FieldSource, ValueKind, Values};
use crate::keys::{KeyForm, KeyRule, interval_key};

/// The statistics of pages. Their rows are read where they straddle buckets.
pub(super) struct PageStatistics;

impl Source for PageStatistics {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        match question {
            Question::Keys(rule) if !rule.null => of_keys(rule, at),
            Question::Ranges(values, ranges) => {
                let Some(place) = place(values, at) else { return Ok(None) };
                bid(place, at, &mut |bounds| of_ranges(ranges, ends(place, bounds)?))
            }
            _ => Ok(None),
        }
    }
}

/// The column of a field, where its pages may tell.
fn place<'a>(values: &'a Values, at: SegmentRows<'a>) -> Option<&'a FieldSource> {
    let place = values.place_in(at.segment.index)?;
    let list = at.segment.source.reader.is_list(place.field.column);
    (!list && !place.is_inside() && place.kind != ValueKind::Text).then_some(place)
}

fn of_keys<'a>(rule: &'a KeyRule, at: SegmentRows<'a>) -> Result<Option<SourceCost<'a>>> {
    let Some(place) = place(&rule.values, at) else { return Ok(None) };
    match &rule.form {
        KeyForm::Dates { rounding, bounds } if place.kind == ValueKind::Long => {
            let mut spans = rounding.cached();
            bid(place, at, &mut |of_page| {
                let NumberBounds::I64(min, max) = of_page else { return None };
                let span = spans.round_all(place.long(*min), place.long(*max))?;
                let within = bounds.is_none_or(|(least, most)| least <= span && span <= most);
                Some(within.then_some(span as u64))
            })
        }
        KeyForm::Interval { interval, offset, bounds } => bid(place, at, &mut |of_page| {
            let (min, max) = ends(place, of_page)?;
            let number = |value: f64| ((value - offset) / interval).floor();
            (number(min) == number(max)).then(|| interval_key(min, *interval, *offset, *bounds))
        }),
        KeyForm::Dates { .. } | KeyForm::Terms(_) => Ok(None),
    }
}

/// The ranges that numbers between two lie in; `None` where not all of them do so alike.
fn of_ranges(ranges: &[(f64, f64)], (min, max): (f64, f64)) -> Option<Vec<u64>> {
    let mut own = Vec::new();
    for (slot, (from, to)) in (0..).zip(ranges) {
        match (*from <= min && max < *to, max < *from || min >= *to) {
            (true, _) => own.push(slot),
            (false, true) => {}
            (false, false) => return None,
        }
    }
    Some(own)
}

/// Returns the cost of a number of rows of straddling pages, in rows: a third more than in a pass, as they are read by
/// themselves. So where less than a quarter of the rows is in pages that tell their bucket, a pass is the cheaper one.
fn cost_of_reading(rows: u64) -> u64 {
    rows + rows / 3
}

/// Prices the pages of a column, of which `of_page` tells the buckets of all their rows by their bounds, if these are the same.
fn bid<'a, B: IntoIterator<Item = u64> + 'a>(
    place: &FieldSource,
    at: SegmentRows<'a>,
    of_page: &mut dyn FnMut(&NumberBounds) -> Option<B>,
) -> Result<Option<SourceCost<'a>>> {
    let mut decided: Vec<(Range<u32>, B)> = Vec::new();
    let (mut straddling, mut known, mut read) = (RoaringBitmap::new(), 0, 0);
    for page in at.segment.source.reader.pages(place.field.column)? {
        let rows = at.priced_in(page.rows.clone());
        match if page.full { of_page(&page.values) } else { None } {
            Some(buckets) => {
                known += rows;
                decided.push((page.rows, buckets));
            }
            None => {
                read += rows;
                straddling.insert_range(page.rows);
            }
        }
    }
    if known == 0 {
        return Ok(None);
    }
    Ok(SourceCost::new(cost_of_reading(read), move |sink| {
        for (page, buckets) in decided {
            let rows = at.rows.count_in(page);
            for bucket in buckets.into_iter().filter(|_| rows > 0) {
                sink.group(bucket, rows)?;
            }
        }
        at.rows.restrict(&mut straddling);
        at.read(&list_rows(&straddling, 0..u32::MAX), sink)
    }))
}
