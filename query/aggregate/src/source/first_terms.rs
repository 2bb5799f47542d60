//! Rows of terms in the order of these, as far as they are wanted: those of a page of `composite`.

use std::ops::ControlFlow;

use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::{FirstValues, Question, SegmentRows, Source, SourceCost};
use crate::field::ValueKind;
use crate::keys::KeyRule;
use crate::result::Key;

/// Cost of a step of the walk, over a term or a row of it, in rows. Where a quarter of the rows was walked over for a page,
/// reading them all would have been the cheaper way.
const STEP: u64 = 4;
/// Steps that are made in any case: so many take less than to decide about them.
const FREE_STEPS: u64 = 4_096;

/// The postings of the first values of a field. What they cost is known once they were walked over: it is done up to the
/// bound, and the rows that were found are those of the answer. Others cannot be on the page, also where other segments have
/// more of the same terms.
pub(super) struct FirstTerms;

impl Source for FirstTerms {
    fn name(&self) -> &'static str {
        "first terms"
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        let Question::First(first) = question else { return Ok(None) };
        let work = at.segment.source.work.part();
        let Some((cost, found)) = walk(first, at, most, &work)? else { return Ok(None) };
        Ok(SourceCost::new(cost, move |sink| {
            let _held = work;
            at.read(&found, sink)
        }))
    }
}

/// Rows for which memory is taken at first; each time that they are too few, it is for as many again.
const HELD_ROWS: usize = 1_024;

/// Finds the rows of the first terms, ascending, which `work` holds, and what that cost; `None` where it would cost more than
/// `most`.
fn walk(
    first: &FirstValues<'_>,
    at: SegmentRows<'_>,
    most: u64,
    work: &QueryContext,
) -> Result<Option<(u64, Vec<u32>)>> {
    let Some(place) = at.listed(first.values) else { return Ok(None) };
    // A row of several terms would come up at each.
    if at.segment.source.reader.is_list(place.field.column) {
        return Ok(None);
    }
    for rule in first.others {
        if !has_every_row(rule, at)? {
            return Ok(None);
        }
    }
    let from = match (place.kind, first.from) {
        (ValueKind::Text, Some(Key::Text(text))) => Some(text.as_bytes()),
        (ValueKind::Ip, Some(Key::Ip(address))) => Some(address.as_slice()),
        (ValueKind::Text | ValueKind::Ip, None) => None,
        _ => return Ok(None),
    };
    let cost = |steps: u64| steps.saturating_sub(FREE_STEPS) * STEP;
    let span = at.rows.span();
    let (mut found, mut terms, mut steps) = (Vec::new(), 0, 0);
    let mut held = Ok(());
    at.segment.source.inverted.for_each_rows(place.field.id, from, !first.ascending, &mut |_, term| {
        let before = found.len();
        // A term counts as a row, whether or not it has rows in the span.
        steps += 1;
        let mut row = term.seek_row(span.start);
        while row < span.end && cost(steps) <= most {
            steps += 1;
            if at.rows.contains(row) {
                if found.len() == found.capacity() {
                    let more = found.len().max(HELD_ROWS);
                    held = work.hold(more * size_of::<u32>());
                    if held.is_err() {
                        return ControlFlow::Break(());
                    }
                    found.reserve_exact(more);
                }
                found.push(row);
            }
            row = term.seek_row(row + 1);
        }
        terms += usize::from(found.len() > before);
        match terms < first.wanted && cost(steps) <= most && !at.stopped() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    held?;
    found.sort_unstable();
    Ok((cost(steps) <= most).then_some((cost(steps), found)))
}

/// Returns whether every row has a key of a rule: else rows of a term may be none of the answer, and there are not enough of
/// those that were wanted.
fn has_every_row(rule: &KeyRule, at: SegmentRows<'_>) -> Result<bool> {
    let values = &rule.values;
    if rule.null || values.missing().is_some() || values.constant_in(at.segment.index).is_some() {
        return Ok(true);
    }
    let place = values.place_in(at.segment.index).filter(|place| !place.is_inside());
    let Some(place) = place else { return Ok(false) };
    let source = &at.segment.source;
    Ok(source.inverted.exists_count(place.field.id)? == source.reader.rows())
}
