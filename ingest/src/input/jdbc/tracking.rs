//! Progress of a statement: the greatest value of its tracking column, and the rows at that value, or within the lag before it,
//! that were read.
//!
//! Rows of one value of the tracking column have no order, and a transaction that commits late adds rows
//! at values that were passed already. So reading begins again at the lower end of a window of values, and
//! rows that were read are told by their hashes: a multiset of them, for a table may have equal rows.
//!
//! A value that more rows have than a window may hold is read in one go ([`Window::pass`]), and then counts as passed: reading goes on above it.

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use sqlx::types::BigDecimal;

use super::statement::Literal;
use super::value::DatabaseTimestamp;

/// Greatest number of rows in a window.
pub(super) const MAX_ROWS: usize = 100_000;
const HASH_BYTES: usize = 16;
/// Longest number in a tracking column.
const MAX_DIGITS: usize = 1000;

/// Type of a tracking column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrackingType {
    Numeric,
    Timestamp,
}

impl TrackingType {
    /// Returns its name in the options.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Numeric => "numeric",
            Self::Timestamp => "timestamp",
        }
    }
}

/// Distance before the greatest value at which rows are read again.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lag {
    Number(BigDecimal),
    Time(TimeDelta),
}

/// A value of the tracking column, comparable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(BigDecimal),
    Time(NaiveDateTime),
}

impl Key {
    fn parse(text: &str, of: TrackingType) -> Option<Self> {
        match of {
            TrackingType::Numeric if text.len() > MAX_DIGITS => None,
            TrackingType::Numeric => {
                let number = BigDecimal::from_str(text).ok()?;
                // Written out, an exponent could have any length.
                (number.fractional_digit_count().unsigned_abs() <= MAX_DIGITS as u64)
                    .then_some(Self::Number(number))
            }
            TrackingType::Timestamp => {
                DatabaseTimestamp::parse(text).map(|moment| Self::Time(moment.ordered()))
            }
        }
    }
}

/// Rows of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    /// The value as the database writes it.
    text: String,
    hashes: Vec<u128>,
}

/// Fate of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOutcome {
    /// It is new; so many equal rows were there before it.
    New { occurrence: u32 },
    /// It was read before.
    Before,
    /// The window is full of rows of its value.
    TooManyAlike,
}

/// Why a row cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TrackingError {
    #[error(
        "the tracking column has the value [{0}], which is not a {1}: set tracking_column_type to what it is"
    )]
    Type(String, &'static str),
}

/// Progress of a statement.
#[derive(Clone, Debug)]
pub(super) struct Window {
    of: TrackingType,
    lag: Lag,
    groups: BTreeMap<Key, Group>,
    rows: usize,
    /// Number of rows of the window by hash.
    counts: HashMap<u128, u32>,
    /// Rows of the window that this reading has not met yet.
    expected: HashMap<u128, u32>,
    narrowed: bool,
    /// A value up to which everything counts as read.
    passed: Option<(Key, String)>,
}

/// The form in which a position is stored.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredPosition {
    /// Begin of the run that stored it, in milliseconds.
    ran: i64,
    /// Values, each with the hashes of its rows; empty where there is no tracking column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rows: Vec<(String, String)>,
    /// `true` if rows within the lag are missing, because they were too many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    narrowed: bool,
    /// A value up to which everything counts as read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passed: Option<String>,
}

impl Window {
    pub(super) fn new(of: TrackingType, lag: Lag) -> Self {
        let (counts, expected) = (HashMap::new(), HashMap::new());
        Self { of, lag, groups: BTreeMap::new(), rows: 0, counts, expected, narrowed: false, passed: None }
    }

    /// Returns the number of rows that a reading from the window's lower end meets again.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Begins to read from the lower end on.
    pub(super) fn begin(&mut self) {
        self.expected.clone_from(&self.counts);
    }

    /// The lower end, as the statement around the user's wants it, and whether it is read itself; `None` before the first row.
    pub(super) fn from(&self) -> Option<(Literal, bool)> {
        let low = self.low();
        let low_key = low.as_deref().and_then(|low| Key::parse(low, self.of));
        let text = match &self.passed {
            Some((passed, text)) if low_key.is_none_or(|low| low <= *passed) => {
                return Some((self.literal(text.clone()), false));
            }
            _ => low?,
        };
        Some((self.literal(text), true))
    }

    /// The lower end by the rows that were read.
    fn low(&self) -> Option<String> {
        let (last, group) = self.groups.last_key_value()?;
        let (first, lowest) = self.groups.first_key_value()?;
        if self.narrowed {
            return Some(lowest.text.clone());
        }
        Some(match (&self.lag, last, first) {
            (Lag::Number(lag), Key::Number(last), _) if *lag > BigDecimal::default() => {
                (last - lag).to_plain_string()
            }
            (Lag::Time(lag), ..) if !lag.is_zero() => DatabaseTimestamp::parse(&group.text)?.earlier(*lag),
            _ => group.text.clone(),
        })
    }

    /// The greatest value that was read.
    pub(super) fn last(&self) -> Option<Literal> {
        let last = self.groups.last_key_value().map(|(_, group)| &group.text);
        let last = last.or(self.passed.as_ref().map(|(_, text)| text))?;
        Some(self.literal(last.clone()))
    }

    /// Compares a value with the greatest that was read; one that cannot be compared counts as less.
    pub(super) fn compare(&self, text: &str) -> Ordering {
        match (Key::parse(text, self.of), self.groups.last_key_value()) {
            (Some(key), Some((last, _))) => key.cmp(last),
            _ => Ordering::Less,
        }
    }

    /// Lets everything up to the greatest value count as read: all its rows were.
    pub(super) fn pass(&mut self) {
        if let Some((key, group)) = self.groups.pop_last() {
            self.passed = Some((key, group.text));
        }
        self.groups.clear();
        self.counts.clear();
        self.expected.clear();
        self.rows = 0;
        self.narrowed = false;
    }

    /// The value of `:sql_last_value`: below the lower end, so that a `>` in the user's statement lets
    /// through what lies at it.
    pub(super) fn last_value(&self) -> Option<Literal> {
        let (Literal::Text(from) | Literal::Number(from), _) = self.from()? else { return None };
        let below = match Key::parse(&from, self.of)? {
            Key::Number(number) => (number - BigDecimal::from(1)).to_plain_string(),
            Key::Time(_) => DatabaseTimestamp::parse(&from)?.earlier(TimeDelta::milliseconds(1)),
        };
        Some(self.literal(below))
    }

    fn literal(&self, text: String) -> Literal {
        match self.of {
            TrackingType::Numeric => Literal::Number(text),
            TrackingType::Timestamp => Literal::Text(text),
        }
    }

    /// Takes a row.
    ///
    /// # Errors
    /// Its value does not fit.
    pub(super) fn take(&mut self, text: &str, hash: u128) -> Result<RowOutcome, TrackingError> {
        if self.expects(hash) {
            return Ok(RowOutcome::Before);
        }
        let key = Key::parse(text, self.of).ok_or_else(|| {
            let wanted = if self.of == TrackingType::Numeric { "number" } else { "timestamp" };
            TrackingError::Type(text.chars().take(64).collect(), wanted)
        })?;
        if self.passed.as_ref().is_some_and(|(passed, _)| key <= *passed) {
            return Ok(RowOutcome::Before);
        }
        if self.rows >= MAX_ROWS && self.groups.len() == 1 && self.groups.contains_key(&key) {
            return Ok(RowOutcome::TooManyAlike);
        }
        let greatest = self.groups.last_key_value().is_none_or(|(last, _)| key >= *last);
        let group =
            self.groups.entry(key).or_insert_with(|| Group { text: text.to_owned(), hashes: Vec::new() });
        group.hashes.push(hash);
        self.rows += 1;
        let count = self.counts.entry(hash).or_default();
        let occurrence = *count;
        *count += 1;
        if greatest {
            self.prune();
        }
        while self.rows > MAX_ROWS
            && let Some((_, group)) = self.groups.pop_first()
        {
            self.drop_rows(&group);
            self.narrowed = true;
        }
        Ok(RowOutcome::New { occurrence })
    }

    /// Returns whether a row was read before; each that was counts once.
    pub(super) fn expects(&mut self, hash: u128) -> bool {
        let count = self.expected.get_mut(&hash).filter(|count| **count > 0);
        count.is_some_and(|count| {
            *count -= 1;
            true
        })
    }

    /// Returns whether the lag covers more rows than a window may have, so that it is shorter than wanted.
    pub(super) fn narrowed(&self) -> bool {
        self.narrowed
    }

    /// Drops what lies before the lag.
    fn prune(&mut self) {
        let Some((last, _)) = self.groups.last_key_value() else { return };
        let low = match (&self.lag, last) {
            (Lag::Number(lag), Key::Number(last)) => Key::Number(last - lag),
            (Lag::Time(lag), Key::Time(last)) => Key::Time(last.checked_sub_signed(*lag).unwrap_or(*last)),
            (_, last) => last.clone(),
        };
        while let Some(first) =
            self.groups.first_entry().filter(|first| first.key().cmp(&low) == Ordering::Less)
        {
            let group = first.remove();
            self.drop_rows(&group);
            self.narrowed = false;
        }
        if self.passed.as_ref().is_some_and(|(passed, _)| *passed < low) {
            self.passed = None;
        }
    }

    /// Counts the rows of a group off that left the window.
    fn drop_rows(&mut self, group: &Group) {
        self.rows -= group.hashes.len();
        for hash in &group.hashes {
            if let Entry::Occupied(mut count) = self.counts.entry(*hash) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// The window as a position.
    pub(super) fn store(&self, ran: DateTime<Utc>) -> Bytes {
        let rows = self.groups.values().map(|group| {
            let bytes: Vec<u8> = group.hashes.iter().flat_map(|hash| hash.to_be_bytes()).collect();
            (group.text.clone(), STANDARD.encode(bytes))
        });
        let passed = self.passed.as_ref().map(|(_, text)| text.clone());
        encode(&StoredPosition {
            ran: ran.timestamp_millis(),
            rows: rows.collect(),
            narrowed: self.narrowed,
            passed,
        })
    }

    /// Reads what was stored. Answers when the run that stored it began.
    ///
    /// # Errors
    /// It is not a position of this kind of column, told as text.
    pub(super) fn restore(&mut self, position: &[u8]) -> Result<DateTime<Utc>, String> {
        let wrong =
            || "the stored position of the statement cannot be read; set clean_run to begin anew".to_owned();
        let stored: StoredPosition = serde_json::from_slice(position).map_err(|_| wrong())?;
        self.groups.clear();
        self.counts.clear();
        self.rows = 0;
        self.narrowed = stored.narrowed;
        let key = |text: &str| {
            Key::parse(text, self.of).ok_or_else(|| {
                format!("the stored position [{text}] does not fit tracking_column_type; set clean_run to begin anew")
            })
        };
        self.passed = stored.passed.map(|text| Ok::<_, String>((key(&text)?, text))).transpose()?;
        for (text, hashes) in stored.rows {
            let key = key(&text)?;
            let bytes = STANDARD.decode(hashes).map_err(|_| wrong())?;
            let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
            if !rest.is_empty() {
                return Err(wrong());
            }
            let hashes: Vec<u128> = hashes.iter().map(|hash| u128::from_be_bytes(*hash)).collect();
            self.rows += hashes.len();
            for hash in &hashes {
                *self.counts.entry(*hash).or_default() += 1;
            }
            self.groups.insert(key, Group { text, hashes });
        }
        DateTime::from_timestamp_millis(stored.ran).ok_or_else(wrong)
    }
}

/// The position of a statement without a tracking column: when its last run began.
pub(super) fn store_run(ran: DateTime<Utc>) -> Bytes {
    encode(&StoredPosition { ran: ran.timestamp_millis(), ..StoredPosition::default() })
}

/// Reads such a position.
///
/// # Errors
/// It is none.
pub(super) fn restore_run(position: &[u8]) -> Result<DateTime<Utc>, String> {
    Window::new(TrackingType::Numeric, Lag::Number(0.into())).restore(position)
}

/// Returns the begin of the run that stored a position, in milliseconds; the least where it is none.
pub(super) fn ran_ms(position: &[u8]) -> i64 {
    serde_json::from_slice::<StoredPosition>(position).map_or(i64::MIN, |stored| stored.ran)
}

fn encode(stored: &StoredPosition) -> Bytes {
    // A structure of texts and numbers can always be written.
    Bytes::from(serde_json::to_vec(stored).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const NEW: RowOutcome = RowOutcome::New { occurrence: 0 };

    fn numbers(lag: i64) -> Window {
        Window::new(TrackingType::Numeric, Lag::Number(lag.into()))
    }

    #[test]
    fn rows_of_one_value_are_read_once_each() {
        let mut window = numbers(0);
        assert_eq!(window.take("1", 10), Ok(NEW));
        assert_eq!(window.take("2", 20), Ok(NEW));
        assert_eq!(window.take("2", 20), Ok(RowOutcome::New { occurrence: 1 }));
        assert_eq!(window.from(), Some((Literal::Number("2".to_owned()), true)));
        assert_eq!(window.last_value(), Some(Literal::Number("1".to_owned())));
        window.begin();
        let third = RowOutcome::New { occurrence: 2 };
        for (hash, seen) in [(20, RowOutcome::Before), (21, NEW), (20, RowOutcome::Before), (20, third)] {
            assert_eq!(window.take("2", hash), Ok(seen));
        }
        assert_eq!(window.rows(), 4);
    }

    #[test]
    fn a_late_row_within_the_lag_is_new() {
        let lag = Lag::Time(TimeDelta::seconds(10));
        let mut window = Window::new(TrackingType::Timestamp, lag.clone());
        for (at, hash) in [(1, 1), (5, 2), (12, 3)] {
            let text = format!("2024-01-01 00:00:{at:02}");
            assert_eq!(window.take(&text, hash), Ok(NEW));
        }
        assert_eq!(window.from(), Some((Literal::Text("2024-01-01 00:00:02".to_owned()), true)));
        let mut again = Window::new(TrackingType::Timestamp, lag);
        let ran = DateTime::from_timestamp_millis(1_700_000_000_123).expect("a time");
        assert_eq!(again.restore(&window.store(ran)), Ok(ran));
        again.begin();
        assert_eq!(again.take("2024-01-01 00:00:03", 9), Ok(NEW));
        assert_eq!(again.take("2024-01-01 00:00:05", 2), Ok(RowOutcome::Before));
        assert_eq!(again.take("2024-01-01 00:00:12", 3), Ok(RowOutcome::Before));
        assert_eq!(again.rows(), 3);
    }

    #[test]
    fn bounds_hold() {
        let mut window = numbers(1_000_000);
        for row in 0..MAX_ROWS as u128 + 10 {
            assert_eq!(window.take(&row.to_string(), row), Ok(NEW));
        }
        assert!(window.narrowed() && window.rows() == MAX_ROWS);
        assert_eq!(window.from(), Some((Literal::Number("10".to_owned()), true)));
        let mut window = numbers(0);
        let first = (0..=MAX_ROWS as u128).find(|row| window.take("7", *row) == Ok(RowOutcome::TooManyAlike));
        assert_eq!((first, window.rows()), (Some(MAX_ROWS as u128), MAX_ROWS));
    }

    #[test]
    fn times_with_an_offset_are_ordered_as_instants() {
        let mut window = Window::new(TrackingType::Timestamp, Lag::Time(TimeDelta::zero()));
        // Clocks are put back between the two.
        for (text, hash) in [("2024-10-27 02:50:00+02", 1), ("2024-10-27 02:10:00+01", 2)] {
            assert_eq!(window.take(text, hash), Ok(NEW));
        }
        let last = Literal::Text("2024-10-27 02:10:00+01".to_owned());
        assert_eq!((window.from(), window.rows()), (Some((last, true)), 1));
    }

    #[test]
    fn what_has_passed_is_not_read_again() {
        let passed = |window: &Window, above: &str| {
            let mut again = numbers(10);
            again.restore(&window.store(DateTime::UNIX_EPOCH)).expect("a position");
            assert_eq!(again.from(), Some((Literal::Number(above.to_owned()), false)));
        };
        let mut window = numbers(10);
        assert_eq!(window.take("3", 1), Ok(NEW));
        assert_eq!(window.take("7", 2), Ok(NEW));
        window.pass();
        assert_eq!((window.rows(), window.last()), (0, Some(Literal::Number("7".to_owned()))));
        passed(&window, "7");
        // It lies within the lag, and is not looked at for it.
        assert_eq!(window.take("12", 3), Ok(NEW));
        passed(&window, "7");
        assert_eq!(window.take("18", 4), Ok(NEW));
        assert_eq!(window.from(), Some((Literal::Number("8".to_owned()), true)));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(matches!(numbers(0).take("2024-01-01", 1), Err(TrackingError::Type(..))));
        let mut window = numbers(0);
        assert!(window.restore(b"{}").is_err());
        assert!(window.restore(br#"{"ran":1,"rows":[["x",""]]}"#).is_err());
        assert!(window.restore(br#"{"ran":1,"rows":[["1","AAAA"]]}"#).is_err());
    }

    proptest! {
        // Rows become visible in any order within the lag, and reading stops and is restored anywhere:
        // each row is read exactly once.
        #[test]
        fn each_row_is_read_once(
            rows in prop::collection::vec((0i64..20, 0i64..3), 1..40),
            pages in prop::collection::vec(1usize..6, 1..60),
        ) {
            let mut visible: Vec<(i64, u128)> = Vec::new();
            let mut waiting: Vec<(i64, i64, u128)> = rows
                .iter().enumerate().map(|(at, (value, late))| (*value, value + late, at as u128)).collect();
            waiting.sort_by_key(|(_, shown, _)| *shown);
            let mut waiting = waiting.into_iter().peekable();
            let mut position: Option<Bytes> = None;
            let mut read = Vec::new();
            // At the end, time enough to read the rest.
            for clock in 0..24 + rows.len() as i64 {
                while let Some((value, _, hash)) = waiting.next_if(|(_, shown, _)| *shown <= clock) {
                    visible.push((value, hash));
                }
                visible.sort();
                for limit in &pages {
                    let mut window = numbers(3);
                    if let Some(position) = &position {
                        window.restore(position).expect("a position");
                    }
                    let low = match window.from() {
                        Some((Literal::Number(low), _)) => low.parse().expect("a number"),
                        _ => i64::MIN,
                    };
                    window.begin();
                    let limit = limit + window.rows();
                    for (value, hash) in visible.iter().filter(|(value, _)| *value >= low).take(limit) {
                        if window.take(&value.to_string(), *hash) == Ok(NEW) {
                            read.push(*hash);
                        }
                    }
                    if window.rows() > 0 {
                        position = Some(window.store(DateTime::UNIX_EPOCH));
                    }
                }
            }
            prop_assert_eq!(read.len(), rows.len());
            prop_assert_eq!(read.iter().collect::<HashSet<_>>().len(), rows.len());
        }
    }
}
