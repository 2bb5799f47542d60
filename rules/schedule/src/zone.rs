//! The zones of [`millrace_time`] as `chrono` takes them, so that `croner` reads the same time zone database as all else.

use std::fmt;

use chrono::{DateTime, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone, Utc};
use millrace_time::{LocalOffset, Region, Zone};

/// A time zone of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleZone(Zone);

/// Offset of a [`ScheduleZone`] at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneOffset {
    zone: ScheduleZone,
    offset: FixedOffset,
}

impl ScheduleZone {
    pub(crate) const UTC: Self = Self(Zone::Prefixed("UTC", 0));

    /// Finds a zone by its name in the time zone database.
    pub(crate) fn find(name: &str) -> Option<Self> {
        match name {
            "UTC" => Some(Self::UTC),
            _ => Region::find(name).map(|region| Self(Zone::Named(region))),
        }
    }

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            Zone::Named(region) => region.name(),
            Zone::Prefixed(name, _) => name,
            Zone::Fixed(_) => "Z",
        }
    }

    /// Returns the first instant of a time that clocks show; the end of the gap where they skip it.
    pub(crate) fn first_instant(self, local: NaiveDateTime) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.0.first_instant(local.and_utc().timestamp_millis()))
    }

    fn with_offset(self, seconds: i32) -> ZoneOffset {
        let offset = FixedOffset::east_opt(seconds).expect("offsets of zones are shorter than a day");
        ZoneOffset { zone: self, offset }
    }
}

impl TimeZone for ScheduleZone {
    type Offset = ZoneOffset;

    fn from_offset(offset: &ZoneOffset) -> Self {
        offset.zone
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> LocalResult<ZoneOffset> {
        self.offset_from_local_datetime(&local.and_time(chrono::NaiveTime::MIN))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> LocalResult<ZoneOffset> {
        match self.0.local(local.and_utc().timestamp()) {
            LocalOffset::Single(offset) => LocalResult::Single(self.with_offset(offset)),
            LocalOffset::Overlap(first, second) => {
                LocalResult::Ambiguous(self.with_offset(first), self.with_offset(second))
            }
            LocalOffset::Gap { .. } => LocalResult::None,
        }
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> ZoneOffset {
        self.offset_from_utc_datetime(&utc.and_time(chrono::NaiveTime::MIN))
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> ZoneOffset {
        self.with_offset(self.0.span(utc.and_utc().timestamp()).offset)
    }
}

impl Offset for ZoneOffset {
    fn fix(&self) -> FixedOffset {
        self.offset
    }
}

impl fmt::Display for ZoneOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.offset.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Duration;

    use super::*;

    fn local(text: &str) -> NaiveDateTime {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap()
    }

    #[test]
    fn chrono_reads_gaps_and_overlaps() {
        // The times since the epoch of what clocks show, as chrono finds them, and as the first instant.
        for (name, shown, instants, first) in [
            ("Europe/Warsaw", "2026-07-01 12:00:00", vec!["10:00"], "2026-07-01T10:00:00Z"),
            ("Europe/Warsaw", "2026-03-29 02:30:00", vec![], "2026-03-29T01:00:00Z"),
            ("Europe/Warsaw", "2026-10-25 02:30:00", vec!["00:30", "01:30"], "2026-10-25T00:30:00Z"),
            ("Australia/Lord_Howe", "2026-10-04 02:15:00", vec![], "2026-10-03T15:30:00Z"),
            ("Australia/Lord_Howe", "2026-04-05 01:45:00", vec!["14:45", "15:15"], "2026-04-04T14:45:00Z"),
            ("Pacific/Apia", "2011-12-30 00:00:00", vec![], "2011-12-30T10:00:00Z"),
            ("Pacific/Apia", "2011-12-30 23:59:59", vec![], "2011-12-30T10:00:00Z"),
            ("Pacific/Apia", "2011-12-31 00:00:00", vec!["10:00"], "2011-12-30T10:00:00Z"),
            ("America/Havana", "2024-03-10 00:30:00", vec![], "2024-03-10T05:00:00Z"),
            ("America/Havana", "2024-11-03 00:30:00", vec!["04:30", "05:30"], "2024-11-03T04:30:00Z"),
            ("UTC", "2026-03-29 02:30:00", vec!["02:30"], "2026-03-29T02:30:00Z"),
        ] {
            let zone = ScheduleZone::find(name).unwrap();
            let found = match zone.from_local_datetime(&local(shown)) {
                LocalResult::None => vec![],
                LocalResult::Single(at) => vec![at],
                LocalResult::Ambiguous(first, second) => vec![first, second],
            };
            for at in &found {
                assert_eq!(at.naive_local(), local(shown), "{name}");
                assert_eq!(at.to_utc().with_timezone(&zone), *at, "{name}");
            }
            let found: Vec<String> = found.iter().map(|at| at.to_utc().format("%H:%M").to_string()).collect();
            assert_eq!(found, instants, "{name} {shown}");
            let first = DateTime::parse_from_rfc3339(first).unwrap();
            assert_eq!(zone.first_instant(local(shown)), Some(first.to_utc()), "{name} {shown}");
        }
    }

    #[test]
    fn every_instant_comes_back_around_changes_of_the_clock() {
        for name in
            ["America/Havana", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Monrovia", "Antarctica/Troll"]
        {
            let zone = ScheduleZone::find(name).unwrap();
            for start in
                ["1972-01-06 00:00:00", "2011-12-29 00:00:00", "2026-10-03 00:00:00", "2026-10-31 00:00:00"]
            {
                for minutes in (0..3 * 1440).step_by(15) {
                    let at = (local(start) + Duration::minutes(minutes)).and_utc();
                    let shown = at.with_timezone(&zone).naive_local();
                    let found = zone.from_local_datetime(&shown);
                    let (earliest, latest) = (found.earliest().unwrap(), found.latest().unwrap());
                    assert!(earliest == at || latest == at, "{name} {at}");
                }
            }
        }
    }

    #[test]
    fn names_are_those_of_the_database() {
        assert_eq!(ScheduleZone::find("UTC"), Some(ScheduleZone::UTC));
        assert_eq!(ScheduleZone::find("America/Havana").map(ScheduleZone::name), Some("America/Havana"));
        for name in ["mon", "+01:00", "", "Europe/Nowhere", "5"] {
            assert_eq!(ScheduleZone::find(name), None, "{name}");
        }
    }
}
