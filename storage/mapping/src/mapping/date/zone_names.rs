//! Names of time zones in date texts: ids such as `Europe/Oslo`, short names such as `CEST`.
//!
//! Short names are those that Java's `COMPAT` locale data gives; [`NAMES`] lists them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use millrace_time::{Region, Zone};

/// Short names, one pair a line; its first lines say which column holds what.
const NAMES: &str = include_str!("zone_names.tsv");
/// Longest id or name of a zone.
const MAX_NAME: usize = 32;

/// Short names and the zones that they belong to.
struct ShortNames {
    zones: HashMap<&'static str, &'static Region>,
    /// Standard and summer name of zones that have none in the time zone database.
    names: HashMap<&'static str, (&'static str, &'static str)>,
}

static SHORT_NAMES: LazyLock<ShortNames> = LazyLock::new(|| {
    let mut short = ShortNames { zones: HashMap::new(), names: HashMap::new() };
    for line in NAMES.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or("-");
        let (standard, summer, zone, written_for) = (next(), next(), next(), next());
        if let Some(zone) = Region::find(zone) {
            short.zones.extend([standard, summer].map(|name| (name, zone)));
        }
        short.names.extend(written_for.split(' ').map(|zone| (zone, (standard, summer))));
    }
    short
});

/// Finds the longest id of a zone that a text starts with, and its length.
pub(super) fn find_id(text: &str) -> Option<(Zone, usize)> {
    find(text, Region::find)
}

/// Finds the longest id or short name of a zone that a text starts with, and its length.
pub(super) fn find_name(text: &str) -> Option<(Zone, usize)> {
    find(text, |name| SHORT_NAMES.zones.get(name).copied().or_else(|| Region::find(name)))
}

fn find(text: &str, zone: impl Fn(&str) -> Option<&'static Region>) -> Option<(Zone, usize)> {
    let in_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+');
    let run = text.bytes().take(MAX_NAME).take_while(in_name).count();
    (1..=run).rev().find_map(|length| Some((Zone::Named(zone(&text[..length])?), length)))
}

/// Returns the short name of a zone at a time in seconds since the epoch; its id where it has no name.
pub(super) fn short_name(zone: &str, at: i64) -> Cow<'_, str> {
    let Some(region) = Region::find(zone) else { return zone.into() };
    let abbreviation = region.abbreviation(at);
    // Without a name the time zone database has the offset in its place.
    if abbreviation.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return abbreviation.text.into();
    }
    match SHORT_NAMES.names.get(zone) {
        Some((standard, _)) if !abbreviation.is_summer => (*standard).into(),
        Some((_, summer)) => (*summer).into(),
        None => zone.into(),
    }
}
