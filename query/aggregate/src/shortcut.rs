//! Segments that are counted without reading their rows, or most of them.
//!
//! - Terms and cardinality of all rows come from the term dictionary, which knows how many rows each term has.
//! - Histograms and ranges of integers of all rows are made of the rows a value, which a segment keeps where these are few.
//! - Histograms and ranges need the values only of pages that straddle buckets: of others the statistics tell the
//!   bucket, and the rows need only be counted.
//! - Histograms over times of all rows are made of the rows a minute, which a segment keeps.
//! - Rows are found term by term where that is cheaper than finding the bucket of each row ([`super::by_term`]).
//! - Extremes and counts of values of all rows come from statistics, filters from the lengths of posting lists.
//!
//! Each is decided for a segment by itself: a deletion in one does not slow the others. Deleted rows are in
//! dictionaries and statistics, so only segments without any are told by these alone.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_storage::segment::{NumberBounds, PageBounds, Tally, list_rows};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::batch::{Positions, Selection};
use super::bucket::keyed::{Keyed, KeyedCollector, Kind};
use super::bucket::slots::{Rule, SlotCollector, Slots};
use super::by_term;
use super::collector::Collector;
use super::field::{Place, ValueKind, Values};
use super::keys::{Form, interval_key};
use super::metric::Ordinals;
use super::rounding::Rounding;
use super::segment::{Rows, SegmentContext};

/// Rows that are read at a time where pages straddle buckets.
const READ_ROWS: usize = 16_384;
/// Where the pages whose bucket the statistics tell have less than this share of the rows, all rows are read.
const DECIDED_SHARE: u64 = 4;

/// A field whose terms are in the dictionary of a segment, each as its column holds it.
pub(crate) fn listed<'v>(values: &'v Values, segment: &SegmentContext<'_>) -> Option<&'v Place> {
    let place = values.place_in(segment.index)?;
    let plain = values.missing().is_none() && !values.mixed && Some(place.kind) == values.kind;
    let listed = place.field.index
        && !place.is_inside()
        && !place.field.field_type.is_text()
        && segment.source.inverted.has_exact(place.field.id);
    (plain && listed).then_some(place)
}

/// Counts a segment for an aggregation over values.
pub(crate) fn keyed(
    collector: &mut KeyedCollector,
    keyed: &Keyed,
    segment: &SegmentContext<'_>,
    rows: &Rows,
) -> Result<bool> {
    if let (Kind::Composite(shape), [first, ..]) = (&keyed.kind, keyed.rules.as_slice()) {
        return by_term::page(collector, shape, first, segment, rows);
    }
    let [rule] = keyed.rules.as_slice() else { return Ok(false) };
    if keyed.list || rule.null {
        return Ok(false);
    }
    if !collector.only_counts() {
        return by_term::all(collector, rule, segment, rows);
    }
    match &rule.form {
        Form::Terms(_) => dictionary(collector, &rule.values, segment, rows),
        Form::Dates { rounding, bounds } => {
            let Some(place) =
                rule.values.place_in(segment.index).filter(|place| place.kind == ValueKind::Long)
            else {
                return Ok(false);
            };
            if dates(collector, (&rule.values, place), (rounding, *bounds), segment, rows)? {
                return Ok(true);
            }
            let mut spans = rounding.cached();
            let mut bucket = |bounds_of: &NumberBounds| {
                let NumberBounds::I64(min, max) = bounds_of else { return None };
                let (first, last) = (spans.round(place.long(*min)), spans.round(place.long(*max)));
                let within = bounds.is_none_or(|(least, most)| least <= first && first <= most);
                (first == last).then(|| within.then_some(first as u64))
            };
            let Some(straddling) = pages(place, segment, rows, &mut bucket, &mut |key, count| {
                if let Some(key) = key {
                    collector.add(0, key, count);
                }
            })?
            else {
                return Ok(false);
            };
            read(collector, segment, &list_rows(&straddling, 0..u32::MAX))
        }
        Form::Interval { interval, offset, bounds } => {
            let Some(place) = rule.values.place_in(segment.index) else { return Ok(false) };
            if let Some((lead, tally)) = tally(&rule.values, segment, rows)? {
                for (value, count) in tally.iter().filter(|_| lead) {
                    if let Some(key) = interval_key(place.long(value) as f64, *interval, *offset, *bounds) {
                        collector.add(0, key, u64::from(count));
                    }
                }
                return Ok(true);
            }
            let mut bucket = |of: &NumberBounds| {
                let (min, max) = ends(place, of)?;
                let key = |value| interval_key(value, *interval, *offset, *bounds);
                let same = ((min - offset) / interval).floor() == ((max - offset) / interval).floor();
                same.then(|| key(min))
            };
            let Some(straddling) = pages(place, segment, rows, &mut bucket, &mut |key, count| {
                if let Some(key) = key {
                    collector.add(0, key, count);
                }
            })?
            else {
                return Ok(false);
            };
            read(collector, segment, &list_rows(&straddling, 0..u32::MAX))
        }
    }
}

/// Counts the rows of a whole segment by the minutes of their times, where no minute straddles buckets.
fn dates(
    collector: &mut KeyedCollector,
    (values, place): (&Values, &Place),
    (rounding, bounds): (&Rounding, Option<(i64, i64)>),
    segment: &SegmentContext<'_>,
    rows: &Rows,
) -> Result<bool> {
    let Some(lead) = rows.lead() else { return Ok(false) };
    let reader = &segment.source.reader;
    if place.nanos || place.is_inside() || values.missing().is_some() {
        return Ok(false);
    }
    let Some(minutes) = reader.minutes(place.field.column)? else { return Ok(false) };
    let mut spans = rounding.cached();
    let mut found: Vec<(i64, u64)> = Vec::new();
    for (first, last, count) in minutes.iter() {
        let bucket = spans.round(first);
        if spans.round(last) != bucket {
            return Ok(false);
        }
        match found.last_mut() {
            Some((before, sum)) if *before == bucket => *sum += u64::from(count),
            _ => found.push((bucket, u64::from(count))),
        }
    }
    found.retain(|(bucket, _)| bounds.is_none_or(|(least, most)| least <= *bucket && *bucket <= most));
    if lead {
        for (bucket, count) in found {
            collector.add(0, bucket as u64, count);
        }
    }
    Ok(true)
}

fn dictionary(
    collector: &mut KeyedCollector,
    values: &Values,
    segment: &SegmentContext<'_>,
    rows: &Rows,
) -> Result<bool> {
    let (Some(lead), Some(place)) = (rows.lead(), listed(values, segment)) else { return Ok(false) };
    if collector.counts_rows() {
        collector.add_rows(0, rows.len());
    }
    if !lead {
        return Ok(true);
    }
    let stop = &segment.table.handle.stop;
    segment.source.inverted.for_each_value(place.field.id, &mut |term, count| {
        let Some(reader) = collector.keys.one().filter(|_| !stop.requested()) else {
            return ControlFlow::Break(());
        };
        if let Some(key) = reader.wanted_key(place.kind, term) {
            collector.add(0, key, u64::from(count));
        }
        ControlFlow::Continue(())
    })?;
    Ok(true)
}

/// The rows of a whole segment by value, where it keeps them: those of integers of which there are few.
fn tally(values: &Values, segment: &SegmentContext<'_>, rows: &Rows) -> Result<Option<(bool, Arc<Tally>)>> {
    let (Some(lead), Some(place)) = (rows.lead(), values.place_in(segment.index)) else { return Ok(None) };
    if place.kind != ValueKind::Long || place.is_inside() || values.missing().is_some() {
        return Ok(None);
    }
    let tally = segment.source.reader.tally(place.field.column)?;
    Ok(tally.map(|tally| (lead, tally)))
}

/// The ends of bounds as numbers.
fn ends(place: &Place, bounds: &NumberBounds) -> Option<(f64, f64)> {
    match bounds {
        NumberBounds::I64(min, max) => Some((place.long(*min) as f64, place.long(*max) as f64)),
        NumberBounds::U64(min, max) => Some((*min as f64, *max as f64)),
        NumberBounds::F64(min, max) => Some((*min, *max)),
        NumberBounds::Empty | NumberBounds::Unknown => None,
    }
}

/// Counts the rows of pages that fall into one bucket, as `bucket` tells it of their bounds; returns the rows of the others.
/// `None` where there is nothing to gain.
fn pages<T>(
    place: &Place,
    segment: &SegmentContext<'_>,
    rows: &Rows,
    bucket: &mut dyn FnMut(&NumberBounds) -> Option<T>,
    count: &mut dyn FnMut(T, u64),
) -> Result<Option<RoaringBitmap>> {
    let reader = &segment.source.reader;
    if reader.is_list(place.field.column) || place.is_inside() || place.kind == ValueKind::Text {
        return Ok(None);
    }
    let pages = reader.pages(place.field.column)?;
    let decided: Vec<(&PageBounds, Option<T>)> =
        pages.iter().map(|page| (page, if page.full { bucket(&page.values) } else { None })).collect();
    let known = decided.iter().filter(|(_, bucket)| bucket.is_some());
    let known: u64 = known.map(|(page, _)| rows.count_in(page.rows.clone())).sum();
    if known * DECIDED_SHARE < rows.len() || known == 0 {
        return Ok(None);
    }
    let mut straddling = RoaringBitmap::new();
    for (page, bucket) in decided {
        match bucket {
            Some(bucket) => {
                let rows = rows.count_in(page.rows.clone());
                if rows > 0 {
                    count(bucket, rows);
                }
            }
            None => {
                straddling.insert_range(page.rows.clone());
            }
        }
    }
    rows.restrict(&mut straddling);
    Ok(Some(straddling))
}

/// Feeds rows to a collector of the top level.
pub(super) fn read(
    collector: &mut dyn Collector,
    segment: &SegmentContext<'_>,
    rows: &[u32],
) -> Result<bool> {
    for chunk in rows.chunks(READ_ROWS) {
        if segment.table.handle.stop.requested() {
            break;
        }
        let all = Selection { positions: Positions::All(chunk.len()), ordinals: Ordinals::One(0) };
        segment.with_rows(0, chunk, None, None, &mut |batch| collector.collect(batch, all))?;
    }
    Ok(true)
}

/// Counts a segment for an aggregation with a fixed number of buckets.
pub(crate) fn slots(
    collector: &mut SlotCollector,
    slots: &Slots,
    segment: &SegmentContext<'_>,
    rows: &Rows,
) -> Result<bool> {
    if !collector.only_counts() {
        return Ok(false);
    }
    match (&slots.rule, rows.lead()) {
        (Rule::All, _) => {
            collector.add(0, rows.len());
            Ok(true)
        }
        (Rule::Filters { filters, other: false }, Some(lead)) => {
            let mut counts = Vec::with_capacity(filters.len());
            for filter in filters {
                match segment.known_count(*filter)? {
                    Some(count) => counts.push(count),
                    None => return Ok(false),
                }
            }
            if lead {
                counts.into_iter().enumerate().for_each(|(slot, count)| collector.add(slot as u32, count));
            }
            Ok(true)
        }
        (Rule::Numbers(values, ranges), _) => {
            let Some(place) = values.place_in(segment.index) else { return Ok(false) };
            if let Some((lead, tally)) = tally(values, segment, rows)? {
                let below = |bound: f64| tally.count_first(|value| (place.long(value) as f64) < bound);
                for (slot, (from, to)) in ranges.iter().enumerate().filter(|_| lead) {
                    collector.add(slot as u32, below(*to).saturating_sub(below(*from)));
                }
                return Ok(true);
            }
            let mut bucket = |of: &NumberBounds| {
                let (min, max) = ends(place, of)?;
                let mut own = Vec::new();
                for (slot, (from, to)) in ranges.iter().enumerate() {
                    match (*from <= min && max < *to, max < *from || min >= *to) {
                        (true, _) => own.push(slot as u32),
                        (false, true) => {}
                        (false, false) => return None,
                    }
                }
                Some(own)
            };
            let Some(straddling) = pages(place, segment, rows, &mut bucket, &mut |slots, count| {
                slots.into_iter().for_each(|slot| collector.add(slot, count));
            })?
            else {
                return Ok(false);
            };
            read(collector, segment, &list_rows(&straddling, 0..u32::MAX))
        }
        _ => Ok(false),
    }
}

/// What statistics tell of a field over all rows of a segment.
pub(crate) enum Known {
    /// Least and greatest value.
    Ends(f64, f64),
    /// There are no values.
    Nothing,
}

/// Finds the least and greatest number of a field in a segment whose rows are all aggregated; parts of it tell the same.
pub(crate) fn known_ends(values: &Values, segment: &SegmentContext<'_>, rows: &Rows) -> Option<Known> {
    rows.lead()?;
    let place = values.place_in(segment.index).filter(|_| values.missing().is_none())?;
    match segment.source.reader.bounds(place.field.column).values {
        NumberBounds::Empty => Some(Known::Nothing),
        bounds => ends(place, &bounds).map(|(min, max)| Known::Ends(min, max)),
    }
}

/// Counts the values of a field in a segment, where every row aggregated is known to have one.
pub(crate) fn known_values(values: &Values, segment: &SegmentContext<'_>, rows: &Rows) -> Option<u64> {
    let place = values.place_in(segment.index)?;
    let reader = &segment.source.reader;
    let single = !reader.is_list(place.field.column) && place.kind != ValueKind::Text;
    (single && reader.bounds(place.field.column).full).then(|| rows.len())
}
