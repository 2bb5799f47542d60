//! Fields of a date: the numbers that the items of a pattern read and write.

use millrace_time::Zone;

/// A field of a date or a time of day, as `java.time` names them. Those of a date stand before [`Field::HalfDay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Field {
    /// 0 before Christ, 1 since.
    Era,
    /// Proleptic year: 0 is 1 BC.
    Year,
    YearOfEra,
    Quarter,
    Month,
    Day,
    DayOfYear,
    /// Year of an ISO week.
    WeekYear,
    Week,
    WeekOfMonth,
    /// Day of the week, Monday is 1.
    Weekday,
    /// Days 1 to 7 of a month are 1 to 7, so are days 8 to 14.
    AlignedWeekday,
    /// Days since 1858-11-17.
    ModifiedJulianDay,
    /// 0 in the morning, 1 in the afternoon.
    HalfDay,
    Hour,
    /// Hours of 1 to 24.
    ClockHour,
    /// Hours of 0 to 11.
    HourOfHalfDay,
    /// Hours of 1 to 12.
    ClockHourOfHalfDay,
    Minute,
    Second,
    Nano,
    MilliOfDay,
    NanoOfDay,
    /// Seconds ahead of UTC.
    Offset,
}

const FIELDS: usize = Field::Offset as usize + 1;

/// Fields that are read of one text. The style of resolution decides which of them must agree.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    values: [i64; FIELDS],
    present: u32,
    pub(super) zone: Option<Zone>,
}

/// Fields that were set at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checkpoint {
    present: u32,
    zone: Option<Zone>,
}

impl Fields {
    /// Returns what [`Fields::restore`] leads back to.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        Checkpoint { present: self.present, zone: self.zone }
    }

    /// Removes the fields that were set since a checkpoint.
    pub(super) fn restore(&mut self, checkpoint: Checkpoint) {
        // Fields that are set keep their values, so those that were set before have them still.
        self.present = checkpoint.present;
        self.zone = checkpoint.zone;
    }

    /// Returns true where a field of a date is left that its day has not used up.
    pub(super) fn has_date(&self) -> bool {
        self.present & ((1 << Field::HalfDay as u32) - 1) != 0
    }

    /// Returns a field that was read.
    pub(super) fn get(&self, field: Field) -> Option<i64> {
        (self.present & (1 << field as u32) != 0).then(|| self.values[field as usize])
    }

    /// Returns and removes a field.
    pub(super) fn take(&mut self, field: Field) -> Option<i64> {
        let value = self.get(field);
        self.present &= !(1 << field as u32);
        value
    }

    /// Sets a field; `None` where it was read before as another value.
    pub(super) fn set(&mut self, field: Field, value: i64) -> Option<()> {
        if self.get(field).is_some_and(|before| before != value) {
            return None;
        }
        self.present |= 1 << field as u32;
        self.values[field as usize] = value;
        Some(())
    }
}
