//! The time zone in which a database tells times without one.

use chrono::{DateTime, FixedOffset, Local, LocalResult, NaiveDateTime, TimeDelta, TimeZone, Utc};
use millrace_time::{LocalOffset, Region};

use crate::event::time_format::Zone;

/// Longest gap of the machine's zone that is looked across, in hours: a zone may leave out a day.
const MAX_GAP_HOURS: i64 = 26;

/// A zone, and what an hour that occurs twice means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DatabaseZone {
    zone: Zone,
    /// `true` if the first of the two is meant, that of daylight-saving time.
    first_on_overlap: bool,
}

impl DatabaseZone {
    pub(super) fn utc() -> Self {
        Self { zone: Zone::Utc, first_on_overlap: true }
    }

    pub(super) fn local() -> Self {
        Self { zone: Zone::Local, first_on_overlap: true }
    }

    /// Reads `Europe/Berlin`, also with `[dst_enabled_on_overlap:true]` behind it.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, extension) = match text.split_once('[') {
            None => (text, None),
            Some((name, extension)) => (name, Some(extension.strip_suffix(']').unwrap_or(extension))),
        };
        let name = name.trim();
        let zone = match name {
            "UTC" => Zone::Utc,
            _ => Zone::Named(Region::find(name).ok_or_else(|| {
                format!("[{name}] is no time zone; name one as the tz database does, such as [Europe/Berlin]")
            })?),
        };
        let first_on_overlap = match extension.map(|text| text.split_once(':')) {
            None => true,
            Some(Some(("dst_enabled_on_overlap", "true"))) => true,
            Some(Some(("dst_enabled_on_overlap", "false"))) => false,
            Some(_) => {
                return Err(format!(
                    "[{text}] is no time zone; behind it only [dst_enabled_on_overlap:true] or [dst_enabled_on_overlap:false] may stand"
                ));
            }
        };
        Ok(Self { zone, first_on_overlap })
    }

    /// Returns the instant at which clocks of the zone show a time. A time that they skip counts from before the change.
    pub(super) fn instant(&self, local: NaiveDateTime) -> DateTime<Utc> {
        let offset = match self.zone {
            Zone::Utc => return local.and_utc(),
            Zone::Local => return self.instant_of_machine(local),
            Zone::Fixed(offset) => offset.local_minus_utc(),
            Zone::Named(region) => {
                match millrace_time::Zone::Named(region).local(local.and_utc().timestamp()) {
                    LocalOffset::Overlap(_, second) if !self.first_on_overlap => second,
                    other => other.first(),
                }
            }
        };
        let instant = local.checked_sub_signed(TimeDelta::seconds(offset.into()));
        instant.unwrap_or(local).and_utc()
    }

    fn instant_of_machine(&self, local: NaiveDateTime) -> DateTime<Utc> {
        match Local.from_local_datetime(&local) {
            LocalResult::Single(time) => time.to_utc(),
            LocalResult::Ambiguous(first, _) if self.first_on_overlap => first.to_utc(),
            LocalResult::Ambiguous(_, second) => second.to_utc(),
            LocalResult::None => {
                let before = (1..=MAX_GAP_HOURS).map(TimeDelta::hours).find_map(|gap| {
                    let before = Local.from_local_datetime(&local.checked_sub_signed(gap)?).latest()?;
                    before.to_utc().checked_add_signed(gap)
                });
                before.unwrap_or_else(|| local.and_utc())
            }
        }
    }

    /// Returns true for UTC.
    pub(super) fn is_utc(&self) -> bool {
        self.zone == Zone::Utc
    }

    /// Returns the name of the zone in the tz database; `None` for one that has none there, as that of this machine.
    pub(super) fn name(&self) -> Option<&'static str> {
        match self.zone {
            Zone::Utc => Some("UTC"),
            Zone::Named(region) => Some(region.name()),
            Zone::Local | Zone::Fixed(_) => None,
        }
    }

    /// Returns the offset of its clocks at an instant, in whole minutes.
    pub(super) fn offset(&self, instant: DateTime<Utc>) -> FixedOffset {
        let offset = self.zone.offset_at(instant);
        FixedOffset::east_opt(offset.local_minus_utc().div_euclid(60) * 60).unwrap_or(offset)
    }

    /// Writes an instant as the zone's clocks show it, with its offset where wanted.
    pub(super) fn show(&self, instant: DateTime<Utc>, offset: bool) -> String {
        let format = if offset { "%Y-%m-%d %H:%M:%S%.6f%:z" } else { "%Y-%m-%d %H:%M:%S%.6f" };
        instant.with_timezone(&self.zone.offset_at(instant)).format(format).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(zone: &str, text: &str) -> String {
        let local = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").expect("a time");
        DatabaseZone::parse(zone).expect("a zone").instant(local).to_rfc3339()
    }

    #[test]
    fn changes_of_the_clock_have_a_meaning() {
        let berlin = "Europe/Berlin";
        assert_eq!(at(berlin, "2024-07-01 12:00:00"), "2024-07-01T10:00:00+00:00");
        assert_eq!(at(berlin, "2024-10-27 02:30:00"), "2024-10-27T00:30:00+00:00");
        assert_eq!(
            at("Europe/Berlin[dst_enabled_on_overlap:false]", "2024-10-27 02:30:00"),
            "2024-10-27T01:30:00+00:00"
        );
        assert_eq!(at(berlin, "2024-03-31 02:30:00"), "2024-03-31T01:30:00+00:00");
        // Gaps of half an hour, of two hours and of a day.
        for (zone, local, instant) in [
            ("Australia/Lord_Howe", "2024-10-06 02:15:00", "2024-10-05T15:45:00+00:00"),
            ("Antarctica/Troll", "2024-03-31 02:30:00", "2024-03-31T02:30:00+00:00"),
            ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30T22:00:00+00:00"),
            ("Pacific/Apia", "2011-12-30 00:00:00", "2011-12-30T10:00:00+00:00"),
            ("Pacific/Apia", "2011-12-30 23:59:59", "2011-12-31T09:59:59+00:00"),
            ("America/Havana", "2024-03-10 00:30:00", "2024-03-10T05:30:00+00:00"),
            ("America/Havana", "2024-11-03 00:30:00", "2024-11-03T04:30:00+00:00"),
            (
                "America/Havana[dst_enabled_on_overlap:false]",
                "2024-11-03 00:30:00",
                "2024-11-03T05:30:00+00:00",
            ),
            // Rules go on behind the tables.
            ("America/New_York", "2150-07-01 12:00:00", "2150-07-01T16:00:00+00:00"),
        ] {
            assert_eq!(at(zone, local), instant, "{zone} {local}");
        }
    }

    #[test]
    fn offsets_are_those_at_an_instant() {
        let offset = |zone: &str, seconds: i64| {
            let instant = DateTime::from_timestamp(seconds, 0).expect("an instant");
            DatabaseZone::parse(zone).expect("a zone").offset(instant).to_string()
        };
        assert_eq!(offset("Asia/Kolkata", 1_700_000_000), "+05:30");
        assert_eq!(offset("America/New_York", 1_700_000_000), "-05:00");
        assert_eq!(offset("America/New_York", 1_720_000_000), "-04:00");
        // 44 minutes and a half.
        assert_eq!(offset("Africa/Monrovia", 0), "-00:45");
    }

    #[test]
    fn what_is_no_zone_is_named() {
        assert!(DatabaseZone::parse("Berlin").expect_err("no zone").contains("[Berlin]"));
        assert!(DatabaseZone::parse("Europe/Berlin[x]").is_err());
    }

    #[test]
    fn instants_are_shown_in_the_zone() {
        let instant = DateTime::from_timestamp(1_700_000_000, 123_456_000).expect("an instant");
        assert_eq!(DatabaseZone::utc().show(instant, false), "2023-11-14 22:13:20.123456");
        let berlin = DatabaseZone::parse("Europe/Berlin").expect("a zone");
        assert_eq!(berlin.show(instant, true), "2023-11-14 23:13:20.123456+01:00");
    }
}
