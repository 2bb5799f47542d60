//! Assigns rows to a fixed number of buckets.

use arrow::array::AsArray;
use millrace_work::error::Result;

use crate::batch::{Batch, Positions, Selection};
use crate::field::{MissingValue, ValueKind, Values};
use crate::metric::Ordinals;
use crate::ordinals::NONE;
use crate::segment::RowBits;

/// Numbers that are compared with one bound after the other: they stay in the nearest cache.
const COMPARED_ROWS: usize = 1_024;

/// Rule that assigns rows to buckets.
#[derive(Debug)]
pub(crate) enum Rule {
    /// All rows to the one.
    All,
    /// Those of a filter.
    Filters {
        /// Numbers of filters.
        filters: Vec<usize>,
        /// `true` if the last bucket is of those that no filter matches.
        other: bool,
    },
    /// Those of filters and of pairs of them, in the order 0, 0&1, 0&2, …, 1, 1&2, ….
    Pairs(Vec<usize>),
    /// Those without a value.
    Missing(Values),
    /// Those with a number from, and before.
    Numbers(Values, Vec<(f64, f64)>),
    /// Those with an address from, and before; open where absent.
    Addresses(Values, Vec<AddressRange>),
}

/// Addresses from one, and before another.
pub(crate) type AddressRange = (Option<[u8; 16]>, Option<[u8; 16]>);

/// Takes a row's place in a batch, its bucket of the level above, and its bucket here.
type RowVisitor<'a> = dyn FnMut(u32, u32, usize) + 'a;

impl Rule {
    /// Calls `each` with rows, their bucket of the level above, and the number of each bucket here.
    pub(super) fn place(
        &self,
        batch: &Batch<'_>,
        selection: Selection<'_>,
        each: &mut RowVisitor<'_>,
    ) -> Result<()> {
        match self {
            Self::All => selection.for_each(|at, parent| each(at, parent, 0)),
            Self::Filters { filters, other } => {
                matching(&filter_rows(batch, filters)?, *other, batch, selection, each);
            }
            Self::Pairs(filters) => matching_pairs(&filter_rows(batch, filters)?, batch, selection, each),
            Self::Missing(values) => return without_value(values, batch, selection, each),
            Self::Numbers(values, ranges) => return within_numbers(values, ranges, batch, selection, each),
            Self::Addresses(values, ranges) => within_addresses(values, ranges, batch, selection, each),
        }
        Ok(())
    }

    /// Counts the rows of ranges of numbers, where each row of the batch has one number and all are of one bucket of the level
    /// above: how many lie below each bound, as processors compare many numbers with one at once. `None` otherwise.
    pub(super) fn counted(
        &self,
        batch: &Batch<'_>,
        selection: Selection<'_>,
    ) -> Result<Option<(u32, Vec<u64>)>> {
        let Selection { positions: Positions::All(_), ordinals: Ordinals::One(parent) } = selection else {
            return Ok(None);
        };
        let Self::Numbers(values, ranges) = self else { return Ok(None) };
        let Some((_, column)) =
            values.column(batch).filter(|(_, column)| parent != NONE && column.is_plain())
        else {
            return Ok(None);
        };
        let numbers = column.doubles()?.values();
        let mut bounds: Vec<f64> = ranges.iter().flat_map(|(from, to)| [*from, *to]).collect();
        bounds.sort_unstable_by(f64::total_cmp);
        bounds.dedup();
        let mut below = vec![0; bounds.len()];
        for chunk in numbers.chunks(COMPARED_ROWS) {
            for (bound, below) in bounds.iter().zip(&mut below) {
                *below += chunk.iter().map(|value| u64::from(value < bound)).sum::<u64>();
            }
        }
        let below = |bound: &f64| {
            let at = bounds.iter().position(|known| known == bound);
            at.map_or(0, |at| below[at])
        };
        let count = |(from, to): &(f64, f64)| below(to).saturating_sub(below(from));
        Ok(Some((parent, ranges.iter().map(count).collect())))
    }
}

fn filter_rows<'b>(batch: &'b Batch<'_>, filters: &[usize]) -> Result<Vec<&'b RowBits>> {
    let mut found = Vec::with_capacity(filters.len());
    for filter in filters {
        found.extend(batch.segment.filter(*filter)?);
    }
    Ok(found)
}

fn matching(
    filters: &[&RowBits],
    other: bool,
    batch: &Batch<'_>,
    selection: Selection<'_>,
    each: &mut RowVisitor<'_>,
) {
    selection.for_each(|at, parent| {
        let row = batch.rows[at as usize];
        let mut any = false;
        for (slot, _) in filters.iter().enumerate().filter(|(_, rows)| rows.contains(row)) {
            any = true;
            each(at, parent, slot);
        }
        if other && !any {
            each(at, parent, filters.len());
        }
    });
}

fn matching_pairs(
    filters: &[&RowBits],
    batch: &Batch<'_>,
    selection: Selection<'_>,
    each: &mut RowVisitor<'_>,
) {
    selection.for_each(|at, parent| {
        let row = batch.rows[at as usize];
        let mut slot = 0;
        for (place, own) in filters.iter().enumerate() {
            if !own.contains(row) {
                slot += filters.len() - place;
                continue;
            }
            each(at, parent, slot);
            slot += 1;
            for other in &filters[place + 1..] {
                if other.contains(row) {
                    each(at, parent, slot);
                }
                slot += 1;
            }
        }
    });
}

fn without_value(
    values: &Values,
    batch: &Batch<'_>,
    selection: Selection<'_>,
    each: &mut RowVisitor<'_>,
) -> Result<()> {
    if values.constant_in(batch.segment.index).is_some() || values.missing().is_some() {
        return Ok(());
    }
    match values.column(batch) {
        None => selection.for_each(|at, parent| each(at, parent, 0)),
        Some((place, column)) if place.kind == ValueKind::Text && !place.is_verbatim(column)? => {
            let strings = column.strings()?;
            selection.for_each(|at, parent| {
                if !column.row(at as usize).any(|at| place.string(strings.value(at)).is_some()) {
                    each(at, parent, 0);
                }
            });
        }
        Some((_, column)) => selection.for_each(|at, parent| {
            if column.row(at as usize).is_empty() {
                each(at, parent, 0);
            }
        }),
    }
    Ok(())
}

fn within_numbers(
    values: &Values,
    ranges: &[(f64, f64)],
    batch: &Batch<'_>,
    selection: Selection<'_>,
    each: &mut RowVisitor<'_>,
) -> Result<()> {
    let mut one = |at: u32, parent: u32, own: &[f64]| {
        for (slot, (from, to)) in ranges.iter().enumerate() {
            if own.iter().any(|value| from <= value && value < to) {
                each(at, parent, slot);
            }
        }
    };
    let filled = match values.missing() {
        Some(MissingValue::Long(value)) => Some(*value as f64),
        Some(MissingValue::Double(value)) => Some(*value),
        _ => None,
    };
    let filled = filled.as_slice();
    match values.column(batch) {
        None => selection.for_each(|at, parent| one(at, parent, filled)),
        Some((_, column)) => {
            let numbers = column.doubles()?.values();
            selection.for_each(|at, parent| {
                let row = column.row(at as usize);
                one(at, parent, if row.is_empty() { filled } else { &numbers[row] });
            });
        }
    }
    Ok(())
}

fn within_addresses(
    values: &Values,
    ranges: &[AddressRange],
    batch: &Batch<'_>,
    selection: Selection<'_>,
    each: &mut RowVisitor<'_>,
) {
    let within = |address: &[u8], (from, to): &AddressRange| {
        from.as_ref().is_none_or(|from| address >= from.as_slice())
            && to.as_ref().is_none_or(|to| address < to.as_slice())
    };
    let filled = match values.missing() {
        Some(MissingValue::Ip(address)) => Some(*address),
        _ => None,
    };
    let column = values.column(batch);
    let addresses = column.and_then(|(_, column)| Some((column, column.values.as_fixed_size_binary_opt()?)));
    selection.for_each(|at, parent| {
        let row = addresses.map_or(0..0, |(column, _)| column.row(at as usize));
        for (slot, range) in ranges.iter().enumerate() {
            let found = match (row.is_empty(), addresses) {
                (false, Some((_, addresses))) => row.clone().any(|at| within(addresses.value(at), range)),
                _ => filled.as_ref().is_some_and(|address| within(address, range)),
            };
            if found {
                each(at, parent, slot);
            }
        }
    });
}
