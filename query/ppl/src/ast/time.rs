//! Lengths of spans (`5m`) and points in time relative to now (`-7d@d`).

use super::TextSpan;

/// The length of a bucket: `5m`, `1.5h`, `100`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanLength {
    /// The number of units; positive.
    pub count: f64,
    /// The unit of time; `None` for a plain number.
    pub unit: Option<SpanUnit>,
    /// The text as written.
    pub text: String,
    /// The position of the text.
    pub span: TextSpan,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanUnit {
    /// `us`
    Microsecond,
    /// `ms`, `millisecond`
    Millisecond,
    /// `cs`, a hundredth of a second
    Centisecond,
    /// `ds`, a tenth of a second
    Decisecond,
    /// `s`, `sec`, `second`
    Second,
    /// `m`, `min`, `minute`
    Minute,
    /// `h`, `hr`, `hour`
    Hour,
    /// `d`, `day`
    Day,
    /// `w`, `week`
    Week,
    /// `M`, `mon`, `month`
    Month,
    /// `q`, `qtr`, `quarter`
    Quarter,
    /// `y`, `yr`, `year`
    Year,
}

/// `earliest=…` or `latest=…`: a bound of `@timestamp`.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeModifier {
    /// The side that is bounded.
    pub bound: TimeBound,
    /// The point in time.
    pub value: TimeModifierValue,
    /// The text of the modifier.
    pub span: TextSpan,
}

/// A side of a range of time. Both sides are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBound {
    /// `earliest`
    Earliest,
    /// `latest`
    Latest,
}

/// A point in time of a time modifier.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeModifierValue {
    /// `now`, `now()`
    Now,
    /// Seconds since 1970, with fractions, as written.
    Epoch(String),
    /// A date or time as text.
    Absolute(String),
    /// Steps from now, in their order: `-7d@d`.
    Relative(Vec<TimeStep>),
}

/// A step away from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeStep {
    /// `-7d`, `+1h`
    Offset {
        /// The number of units, with its sign.
        count: i64,
        /// The unit.
        unit: SpanUnit,
    },
    /// `@d`: the start of the unit.
    Snap(SpanUnit),
    /// `@w3`: the last such day of the week, where 0 and 7 are Sunday.
    SnapToWeekday(u8),
}
