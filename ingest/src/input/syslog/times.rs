//! Times of messages of RFC 3164: `Jan  1 00:00:00`, without a year, or with a year behind the day as some devices have it.
//!
//! The usual form is read byte by byte. Messages that come together mostly have the time of the one before, which is kept.

use chrono::{DateTime, Datelike, TimeDelta, Utc};

use crate::event::time_format::{ParsedTime, TimeFormat, TimeNames, Zone, iso8601};

/// Bytes of a time in the usual form.
const USUAL_TIME: usize = 15;
/// Time for which the instant of the last time is kept: its year depends on the time at which it is read.
const MAX_AGE: TimeDelta = TimeDelta::seconds(60);
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Reads times of messages.
#[derive(Clone, Debug)]
pub(super) struct TimeReader {
    zone: Zone,
    formats: Vec<TimeFormat>,
    /// `true` if months have their English names, which are read byte by byte.
    is_english: bool,
}

/// Reads times of messages that come together.
#[derive(Debug)]
pub(super) struct TimeLookup<'t> {
    reader: &'t TimeReader,
    now: DateTime<Utc>,
    last: Option<LastTime>,
}

/// Time in the usual form that was read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastTime {
    text: [u8; USUAL_TIME],
    instant: DateTime<Utc>,
    read_at: DateTime<Utc>,
}

impl TimeReader {
    /// Makes one for times without a zone, which are of this one. Names of months are English without others.
    pub(super) fn new(zone: Zone, names: Option<&'static TimeNames>) -> Self {
        let patterns = ["MMM d HH:mm:ss", "MMM  d HH:mm:ss", "MMM d yyyy HH:mm:ss", "MMM  d yyyy HH:mm:ss"];
        let formats = patterns.iter().filter_map(|pattern| TimeFormat::joda(pattern).ok());
        let formats = formats.map(|format| format.with_names(names)).collect();
        Self { zone, formats, is_english: names.is_none() }
    }

    /// Begins to read times at a moment.
    pub(super) fn at(&self, now: DateTime<Utc>) -> TimeLookup<'_> {
        TimeLookup { reader: self, now, last: None }
    }

    /// Begins to read times at a moment, behind those of which this was the last.
    pub(super) fn resume(&self, now: DateTime<Utc>, last: Option<LastTime>) -> TimeLookup<'_> {
        let last = last.filter(|last| (now - last.read_at).abs() < MAX_AGE);
        TimeLookup { last, ..self.at(now) }
    }

    /// Reads a time in the usual form.
    fn read_usual(&self, text: &[u8; USUAL_TIME], now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if self.is_english {
            return parse_usual(text)?.instant(self.zone, now);
        }
        let text = Some(text).filter(|text| has_usual_form(text))?;
        self.read(std::str::from_utf8(text).ok()?, now)
    }

    /// Reads a time; its year is the one that is near, where it has none.
    fn read(&self, text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut parsed = self.formats.iter().filter_map(|format| format.parse(text, now.year()));
        parsed.find_map(|time| time.instant(self.zone, now))
    }
}

impl TimeLookup<'_> {
    /// Reads a time of RFC 3164, or of ISO 8601.
    pub(super) fn read(&self, text: &str) -> Option<DateTime<Utc>> {
        self.reader.read(text, self.now).or_else(|| iso8601(text, self.reader.zone))
    }

    /// Reads the time that a text begins with; returns its length, too.
    pub(super) fn read_leading(&mut self, text: &str) -> Option<(usize, DateTime<Utc>)> {
        let ends_at =
            |length: usize| text.as_bytes().get(length).is_none_or(|byte| matches!(byte, b' ' | b':'));
        if let Some(usual) = text.as_bytes().first_chunk::<USUAL_TIME>()
            && ends_at(USUAL_TIME)
        {
            if let Some(last) = &self.last
                && last.text == *usual
            {
                return Some((USUAL_TIME, last.instant));
            }
            if let Some(instant) = self.reader.read_usual(usual, self.now) {
                self.last = Some(LastTime { text: *usual, instant, read_at: self.now });
                return Some((USUAL_TIME, instant));
            }
        }
        // Names of other languages have up to five letters, of up to two bytes.
        (14..=26).rev().filter(|length| ends_at(*length)).find_map(|length| {
            let instant = self.reader.read(text.get(..length)?, self.now)?;
            Some((length, instant))
        })
    }

    /// Returns the time that was read last.
    pub(super) fn into_last(self) -> Option<LastTime> {
        self.last
    }
}

/// Returns whether bytes have the form `Jan  1 00:00:00`, with any letters for the month.
fn has_usual_form(bytes: &[u8; USUAL_TIME]) -> bool {
    let has_form = |(byte, form): (&u8, &u8)| match form {
        b'a' => byte.is_ascii_alphabetic(),
        b'0' => byte.is_ascii_digit(),
        b'_' => byte.is_ascii_digit() || *byte == b' ',
        form => byte == form,
    };
    bytes.iter().zip(b"aaa _0 00:00:00").all(has_form)
}

/// Reads the form `Jan  1 00:00:00`. Nothing longer that begins so is a time.
fn parse_usual(text: &[u8; USUAL_TIME]) -> Option<ParsedTime> {
    let [m, o, n, b' ', _, _, b' ', _, _, b':', _, _, b':', _, _] = text else { return None };
    let month = MONTHS.iter().position(|month| **month == [*m, *o, *n])?;
    let digit = |at: usize| {
        let byte = text.get(at)?;
        byte.is_ascii_digit().then(|| u32::from(byte - b'0'))
    };
    let number = |at: usize| Some(digit(at)? * 10 + digit(at + 1)?);
    let day = match text.get(4) {
        Some(b' ') => digit(5)?,
        _ => number(4)?,
    };
    let month = u32::try_from(month + 1).ok()?;
    Some(ParsedTime::of_clock((month, day), (number(7)?, number(10)?, number(13)?)))
}

#[cfg(test)]
mod tests {
    use super::super::message::parse;
    use super::*;

    #[test]
    fn times_of_messages_that_come_together_are_told_apart() {
        let reader = TimeReader::new(Zone::UTC, None);
        let mut times = reader.at("2026-03-01T00:00:00Z".parse().unwrap());
        for (text, expected) in [
            ("<1>Feb  3 04:05:06 a b", Some("2026-02-03T04:05:06Z")),
            ("<1>Feb  3 04:05:06 a b", Some("2026-02-03T04:05:06Z")),
            ("<1>Feb  3 04:05:07 a b", Some("2026-02-03T04:05:07Z")),
            ("<1>Feb  3 04:05:07: a b", Some("2026-02-03T04:05:07Z")),
            ("<1>Feb 3 2025 04:05:07 a b", Some("2025-02-03T04:05:07Z")),
            ("<1>Feb 3 04:05:07 a b", Some("2026-02-03T04:05:07Z")),
            ("<1>Feb 30 04:05:07 a b", None),
            ("<1>Feb  3 04:05:07x a b", None),
        ] {
            let instant = parse(text, &mut times).and_then(|message| message.instant);
            assert_eq!(instant, expected.map(|time| time.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn months_of_other_languages_are_read() {
        let reader = TimeReader::new(Zone::UTC, TimeNames::find("de_DE.UTF-8").unwrap());
        let mut times = reader.at("2026-03-01T00:00:00Z".parse().unwrap());
        for (text, expected) in [
            ("<1>Dez 26 15:19:25 a b", "2026-12-26T15:19:25Z"),
            ("<1>Dez 26 15:19:25 a b", "2026-12-26T15:19:25Z"),
            ("<1>Mär  1 04:05:06 a b", "2026-03-01T04:05:06Z"),
            ("<1>Jan  3 04:05:06 a b", "2026-01-03T04:05:06Z"),
        ] {
            let instant = parse(text, &mut times).and_then(|message| message.instant);
            assert_eq!(instant, Some(expected.parse().unwrap()), "{text}");
        }
        let french = TimeReader::new(Zone::UTC, TimeNames::find("fr").unwrap());
        let message = parse("<1>janv  3 04:05:06 a b", &mut french.at(times.now)).unwrap();
        assert_eq!(message.instant, Some("2026-01-03T04:05:06Z".parse().unwrap()));
    }

    #[test]
    fn usual_times_are_read_as_by_the_formats() {
        let reader = TimeReader::new(Zone::UTC, None);
        let now = "2026-12-31T23:59:00Z".parse().unwrap();
        for text in [
            "Jan  1 00:00:00",
            "Jan 01 00:00:00",
            "Dec 31 23:59:59",
            "Feb 29 12:00:00",
            "Feb  0 12:00:00",
            "Sep 10 24:00:00",
            "Sep 10 23:60:00",
            "Sep 10 23:59:60",
            "feb  3 04:05:06",
            "Foo  3 04:05:06",
            "Feb   3 4:05:06",
            "Feb  3 04:05.06",
            "Feb  3 04:05:0x",
        ] {
            let read = reader.at(now).read_leading(text).map(|(_, instant)| instant);
            assert_eq!(read, reader.read(text, now), "{text}");
        }
    }

    #[test]
    fn the_last_time_is_kept_for_a_while() {
        let reader = TimeReader::new(Zone::UTC, None);
        let time = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let mut times = reader.at(time("2025-12-31T23:59:50Z"));
        let text = "Jan  1 00:00:00";
        assert_eq!(times.read_leading(text), Some((15, time("2026-01-01T00:00:00Z"))));
        let last = times.into_last();
        // The clock of the sender stands.
        for (now, expected) in [
            ("2026-01-01T00:00:10Z", "2026-01-01T00:00:00Z"),
            ("2027-01-01T00:00:10Z", "2027-01-01T00:00:00Z"),
        ] {
            let mut times = reader.resume(time(now), last);
            assert_eq!(times.read_leading(text), Some((15, time(expected))), "{now}");
        }
    }
}
