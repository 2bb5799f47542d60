//! From fields that were read to an instant.

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Utc, Weekday};

use super::Zone;

/// Fields of a time that a text had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedTime {
    pub(super) before_christ: bool,
    pub(super) year: Option<i32>,
    pub(super) week_year: Option<i32>,
    pub(super) month: Option<u32>,
    pub(super) week: Option<u32>,
    pub(super) day: Option<u32>,
    pub(super) day_of_year: Option<u32>,
    /// Monday is 1.
    pub(super) day_of_week: Option<u32>,
    pub(super) hour: Option<Hour>,
    pub(super) half_day: Option<HalfDay>,
    pub(super) minute: Option<u32>,
    pub(super) second: Option<u32>,
    pub(super) nanosecond: Option<u32>,
    pub(super) zone: Option<Zone>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hour {
    /// 0 to 23.
    Day(u32),
    /// 1 to 24.
    ClockDay(u32),
    /// 0 to 11.
    HalfDay(u32),
    /// 1 to 12.
    ClockHalfDay(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HalfDay {
    Am,
    Pm,
}

impl ParsedTime {
    /// Makes the time of a month and a day, and of an hour, a minute and a second.
    pub(crate) fn of_clock((month, day): (u32, u32), (hour, minute, second): (u32, u32, u32)) -> Self {
        Self {
            month: Some(month),
            day: Some(day),
            hour: Some(Hour::Day(hour)),
            minute: Some(minute),
            second: Some(second),
            ..Self::default()
        }
    }

    /// The instant, in the zone that the text names or else in `zone`. A year that is missing is the one in
    /// which the time is nearest to now by its month: December read in January is last year's, January read
    /// in December next year's. `None` where there is no such time.
    pub fn instant(&self, zone: Zone, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let zone = self.zone.unwrap_or(zone);
        let local_now = now.with_timezone(&zone.offset_at(now));
        let time = self.date(local_now.year(), local_now.month())?.and_time(self.time()?);
        zone.instant(time)
    }

    fn date(&self, this_year: i32, this_month: u32) -> Option<NaiveDate> {
        if let Some(week) = self.week {
            let weekday = match self.day_of_week {
                Some(day) => Weekday::try_from(u8::try_from(day.checked_sub(1)?).ok()?).ok()?,
                None => Weekday::Mon,
            };
            return NaiveDate::from_isoywd_opt(
                self.week_year.or(self.year).unwrap_or(this_year),
                week,
                weekday,
            );
        }
        let month = self.month.unwrap_or(1);
        let year = match self.year.or(self.week_year) {
            Some(year) if self.before_christ => 1 - year,
            Some(year) => year,
            None => match (this_month, month) {
                (12, 1) => this_year + 1,
                (1, 12) => this_year - 1,
                _ => this_year,
            },
        };
        match self.day_of_year {
            Some(day) => NaiveDate::from_yo_opt(year, day),
            None => NaiveDate::from_ymd_opt(year, month, self.day.unwrap_or(1)),
        }
    }

    fn time(&self) -> Option<NaiveTime> {
        let half =
            |hour: u32| (hour < 12).then(|| hour + if self.half_day == Some(HalfDay::Pm) { 12 } else { 0 });
        let hour = match self.hour {
            None => half(0)?,
            Some(Hour::Day(hour)) => hour,
            Some(Hour::ClockDay(hour)) => (1..=24).contains(&hour).then_some(hour % 24)?,
            Some(Hour::HalfDay(hour)) => half(hour)?,
            Some(Hour::ClockHalfDay(hour)) => (1..=12).contains(&hour).then(|| half(hour % 12))??,
        };
        NaiveTime::from_hms_nano_opt(
            hour,
            self.minute.unwrap_or(0),
            self.second.unwrap_or(0),
            self.nanosecond.unwrap_or(0),
        )
    }
}
