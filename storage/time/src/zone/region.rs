//! Zones of the time zone database, each with the table of its changes of the clock.

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use parking_lot::RwLock;

use super::OffsetSpan;

/// Seconds of 400 years, after which the calendar repeats itself, weekdays included.
const CYCLE: i64 = 146_097 * 86_400;
/// The year 2100: rules alone say from then on how clocks change, and repeat themselves with the calendar.
const RULES_FROM: i64 = 4_102_444_800;

/// A zone of the time zone database.
///
/// Its changes of the clock are a table, made once: as the database has them, then by the zone's rule for 400 years, which stand
/// for all that follow.
#[derive(Debug)]
pub struct Region {
    name: Box<str>,
    /// Instants of the changes in seconds since the epoch, ascending.
    changes: Vec<i64>,
    /// The offset in seconds before the first change, then behind each.
    offsets: Vec<i32>,
    zone: TimeZone,
}

/// Short name of a zone at some time, such as `CEST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abbreviation {
    /// The name; an offset where the database has no name.
    pub text: String,
    /// True while clocks are ahead of standard time.
    pub is_summer: bool,
}

/// Zones that were asked for. They are never given back: the database bounds them.
static REGIONS: LazyLock<RwLock<HashMap<String, &'static Region>>> = LazyLock::new(RwLock::default);
/// The database that is built in, the same on every machine.
static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

impl PartialEq for Region {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Region {}

impl Region {
    /// Finds a zone by its name, in the case in which the database has it.
    pub fn find(name: &str) -> Option<&'static Self> {
        if let Some(known) = REGIONS.read().get(name) {
            return Some(known);
        }
        let zone = DATABASE.get(name).ok()?;
        if zone.is_unknown() || zone.iana_name() != Some(name) {
            return None;
        }
        Some(
            *REGIONS
                .write()
                .entry(name.to_owned())
                .or_insert_with(|| Box::leak(Box::new(Self::new(name, &zone)))),
        )
    }

    fn new(name: &str, zone: &TimeZone) -> Self {
        let (mut changes, mut offsets) = (Vec::new(), vec![zone.to_offset(Timestamp::MIN).seconds()]);
        for change in zone.following(Timestamp::MIN) {
            let at = change.timestamp().as_second();
            // One change more than a cycle, so that each within it has a span behind.
            if changes.last().is_some_and(|last| *last >= RULES_FROM + CYCLE) {
                break;
            }
            let offset = change.offset().seconds();
            if offsets.last() != Some(&offset) {
                changes.push(at);
                offsets.push(offset);
            }
        }
        Self { name: name.into(), changes, offsets, zone: zone.clone() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the offset where it never changes.
    pub(super) fn constant_offset(&self) -> Option<i32> {
        match self.offsets.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Returns the short name at an instant in seconds since the epoch.
    pub fn abbreviation(&self, seconds: i64) -> Abbreviation {
        let second = seconds - Self::shift(seconds);
        let at = Timestamp::from_second(second).unwrap_or(Timestamp::MIN);
        let info = self.zone.to_offset_info(at);
        Abbreviation { text: info.abbreviation().to_owned(), is_summer: info.dst().is_dst() }
    }

    /// Returns the seconds by which an instant is moved into the first cycle of the rules.
    fn shift(seconds: i64) -> i64 {
        match seconds.checked_sub(RULES_FROM + CYCLE) {
            Some(behind) if behind >= 0 => (behind / CYCLE + 1) * CYCLE,
            _ => 0,
        }
    }

    /// Returns the span of one offset that an instant in seconds since the epoch is in.
    pub(super) fn span(&self, seconds: i64) -> OffsetSpan {
        // The table begins anew behind the first cycle of the rules, whose first change has one before it.
        let shift = if self.last_change() >= RULES_FROM { Self::shift(seconds) } else { 0 };
        let index = self.changes.partition_point(|change| *change <= seconds - shift);
        let change = |index: usize| self.changes.get(index).map(|change| change.saturating_add(shift));
        let offset = |index: usize| self.offsets.get(index).copied().unwrap_or_default();
        OffsetSpan {
            from: index.checked_sub(1).and_then(change).unwrap_or(i64::MIN),
            to: change(index).unwrap_or(i64::MAX),
            offset: offset(index),
            before: offset(index.saturating_sub(1)),
        }
    }

    fn last_change(&self) -> i64 {
        self.changes.last().copied().unwrap_or(i64::MIN)
    }
}
