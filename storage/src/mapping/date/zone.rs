//! Time zones of date texts: ids such as `Europe/Oslo`, short names such as `CEST`, offsets.
//!
//! Short names are those that Java's `COMPAT` locale data gives; [`NAMES`] lists them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use chrono::{DateTime, Offset, TimeDelta, TimeZone};
use chrono_tz::{OffsetComponents, OffsetName, Tz};

use super::field::Fields;
use super::pattern::{Item, OffsetLayout};
use super::reader;

/// Short names, one pair a line; its first lines say which column holds what.
const NAMES: &str = include_str!("zone_names.tsv");
/// Longest id or name of a zone.
const MAX_NAME: usize = 32;
/// Longest time that clocks skip, in steps of half an hour: a day, in Samoa.
const MAX_GAP_STEPS: i64 = 50;

/// A time zone or an offset in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
    Offset(i32),
    Region(Tz),
}

impl Zone {
    /// Reads a zone such as `Europe/Oslo`, `UTC+2`, `+02:00`, `+0200` or `+2`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut fields = Fields::default();
        if reader::read(&[Item::ZoneId], text, &mut fields) == Some("") {
            return fields.zone;
        }
        let (prefix, offset) = text.split_at(text.find(['+', '-'])?);
        let (sign, digits) = offset.split_at(1);
        let padded = if digits.len() == 1 { format!("{sign}0{digits}") } else { offset.to_owned() };
        let (seconds, "") = reader::read_offset(OffsetLayout::BASIC, &padded)? else { return None };
        matches!(prefix, "" | "UTC" | "UT" | "GMT").then_some(Self::Offset(seconds))
    }

    /// Seconds that a zone is ahead of UTC at a time in seconds since the epoch.
    pub(super) fn offset_seconds(self, at: i64) -> Option<i64> {
        Some(i64::from(match self {
            Self::Offset(seconds) => seconds,
            Self::Region(tz) => {
                let time = DateTime::from_timestamp(at, 0)?.naive_utc();
                tz.offset_from_utc_datetime(&time).fix().local_minus_utc()
            }
        }))
    }

    /// Turns seconds of local time into seconds since the epoch. A time that clocks show twice is the first of
    /// them; one that they skip is as long after the gap.
    pub(super) fn to_utc(self, local: i64) -> Option<i64> {
        let tz = match self {
            Self::Offset(seconds) => return Some(local - i64::from(seconds)),
            Self::Region(tz) => tz,
        };
        let naive = DateTime::from_timestamp(local, 0)?.naive_utc();
        if let Some(time) = tz.from_local_datetime(&naive).earliest() {
            return Some(time.timestamp());
        }
        let offset = (1..=MAX_GAP_STEPS).find_map(|steps| {
            let before = naive.checked_sub_signed(TimeDelta::minutes(30 * steps))?;
            tz.offset_from_local_datetime(&before).latest()
        })?;
        Some(local - i64::from(offset.fix().local_minus_utc()))
    }
}

/// Short names and the zones that they belong to.
struct ShortNames {
    zones: HashMap<&'static str, Tz>,
    /// Standard and summer name of zones that have none in the time zone database.
    names: HashMap<&'static str, (&'static str, &'static str)>,
}

static SHORT_NAMES: LazyLock<ShortNames> = LazyLock::new(|| {
    let mut short = ShortNames { zones: HashMap::new(), names: HashMap::new() };
    for line in NAMES.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or("-");
        let (standard, summer, zone, written_for) = (next(), next(), next(), next());
        if let Ok(zone) = zone.parse::<Tz>() {
            short.zones.extend([standard, summer].map(|name| (name, zone)));
        }
        short.names.extend(written_for.split(' ').map(|zone| (zone, (standard, summer))));
    }
    short
});

/// Finds the longest id of a zone that a text starts with, and its length.
pub(super) fn find_id(text: &str) -> Option<(Zone, usize)> {
    find(text, |name| name.parse().ok())
}

/// Finds the longest id or short name of a zone that a text starts with, and its length.
pub(super) fn find_name(text: &str) -> Option<(Zone, usize)> {
    find(text, |name| SHORT_NAMES.zones.get(name).copied().or_else(|| name.parse().ok()))
}

fn find(text: &str, zone: impl Fn(&str) -> Option<Tz>) -> Option<(Zone, usize)> {
    let in_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+');
    let run = text.bytes().take(MAX_NAME).take_while(in_name).count();
    (1..=run).rev().find_map(|length| Some((Zone::Region(zone(&text[..length])?), length)))
}

/// Returns the short name of a zone at a time in seconds since the epoch; its id where it has no name.
pub(super) fn short_name(zone: &str, at: i64) -> Cow<'_, str> {
    let Ok(tz) = zone.parse::<Tz>() else { return zone.into() };
    let Some(time) = DateTime::from_timestamp(at, 0) else { return zone.into() };
    let offset = tz.offset_from_utc_datetime(&time.naive_utc());
    // Without a name the time zone database has the offset in its place.
    if let Some(name) =
        offset.abbreviation().filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
    {
        return name.to_owned().into();
    }
    match SHORT_NAMES.names.get(zone) {
        Some((standard, _)) if offset.dst_offset().is_zero() => (*standard).into(),
        Some((_, summer)) => (*summer).into(),
        None => zone.into(),
    }
}
