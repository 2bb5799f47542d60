//! `range`, `date_range` and `ip_range`: buckets between bounds, of which the lower belongs to them.

use std::sync::Arc;

use millrace_dsl::aggs::{DateBound, DateRange, IpRange, NumericRange, Range};
use millrace_time::Zone;
use millrace_work::error::Result;

use super::slot_rule::Rule;
use super::slots::{Answer, Slots};
use crate::compiler::{Compiler, Context};
use crate::field::{AcceptedTypes, Values, date_format};
use crate::result::{BucketsKind, Detail, Format, Key};

/// Makes buckets between numbers.
pub(crate) fn range(compiler: &mut Compiler<'_>, context: Context, range: &Range) -> Result<Arc<Slots>> {
    let values = compiler.values(context, &range.source, "range", AcceptedTypes::Numbers)?;
    numbers(values, range.ranges.clone(), BucketsKind::Range, range.keyed)
}

/// Makes buckets between dates.
pub(crate) fn date_range(
    compiler: &mut Compiler<'_>,
    context: Context,
    range: &DateRange,
) -> Result<Arc<Slots>> {
    let mut values = compiler.values(context, &range.source, "date_range", AcceptedTypes::Dates)?;
    let zone = range.source.time_zone.unwrap_or(Zone::UTC);
    let unformatted = !matches!(values.format, Format::Date(..));
    if unformatted && values.field_type.is_some() && range.source.format.is_none() {
        // Numbers are milliseconds.
        values.format = Format::Date(Arc::new(date_format("strict_date_optional_time||epoch_millis")?), zone);
    }
    let Format::Date(format, zone) = values.format.clone() else {
        return numbers(values, Vec::new(), BucketsKind::DateRange, range.keyed);
    };
    let mut ranges = Vec::with_capacity(range.ranges.len());
    for item in &range.ranges {
        let mut read = |bound: &Option<DateBound>| {
            let read = match bound.as_ref()? {
                DateBound::Number(number) => match format.as_str().contains("epoch_second") {
                    true => compiler.date(&format, zone, &format!("{}", *number as i64), false),
                    false => Ok(*number as i64),
                },
                DateBound::Text(text) => compiler.date(&format, zone, text, false),
            };
            match read {
                Ok(instant) => Some(instant as f64),
                Err(error) => {
                    compiler.fail_all(error);
                    None
                }
            }
        };
        let (from, to) = (read(&item.from), read(&item.to));
        ranges.push(NumericRange { key: item.key.clone(), from, to });
    }
    numbers(values, ranges, BucketsKind::DateRange, range.keyed)
}

fn numbers(
    values: Values,
    mut ranges: Vec<NumericRange>,
    shape: BucketsKind,
    keyed: bool,
) -> Result<Arc<Slots>> {
    let low = |range: &NumericRange| range.from.unwrap_or(f64::NEG_INFINITY);
    let high = |range: &NumericRange| range.to.unwrap_or(f64::INFINITY);
    ranges.sort_by(|a, b| low(a).total_cmp(&low(b)).then(high(a).total_cmp(&high(b))));
    let buckets = ranges
        .iter()
        .map(|range| (named(range.key.as_deref()), Detail::Range { from: range.from, to: range.to }));
    let buckets = buckets.collect();
    let format = values.format.clone();
    let rule = Rule::Numbers(values, ranges.iter().map(|range| (low(range), high(range))).collect());
    Ok(slots(rule, buckets, shape, keyed, format))
}

/// Makes buckets between addresses.
pub(crate) fn ip_range(compiler: &mut Compiler<'_>, context: Context, range: &IpRange) -> Result<Arc<Slots>> {
    let values = compiler.values(context, &range.source, "ip_range", AcceptedTypes::Addresses)?;
    let mut ranges = range.ranges.clone();
    // An open upper bound is the last.
    ranges.sort_by_key(|range| (range.from, range.to.is_none(), range.to));
    let buckets = ranges
        .iter()
        .map(|range| (named(range.key.as_deref()), Detail::IpRange { from: range.from, to: range.to }));
    let buckets = buckets.collect();
    let rule = Rule::Addresses(values, ranges.iter().map(|range| (range.from, range.to)).collect());
    Ok(slots(rule, buckets, BucketsKind::IpRange, range.keyed, Format::Ip))
}

/// The key of a bucket that the request may name.
fn named(key: Option<&str>) -> Key {
    key.map_or(Key::Null, |key| Key::Text(key.into()))
}

fn slots(
    rule: Rule,
    buckets: Vec<(Key, Detail)>,
    shape: BucketsKind,
    keyed: bool,
    format: Format,
) -> Arc<Slots> {
    let slots = buckets.len().max(1);
    Arc::new(Slots { slots, rule, answer: Answer::Several { buckets, shape, keyed, empty: true }, format })
}
