//! `date`: reads times from fields.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Utc};
use millrace_ingest::event::time_format::{
    TimeFormat, TimeNames, Zone, iso8601, tai64n, unix_millis, unix_seconds,
};
use millrace_ingest::event::{TIMESTAMP, text_of};
use millrace_ingest::{Event, Fault, FieldReference, Options, Template};
use serde_json::Value;

use super::settings::texts_or;
use super::{Filter, Outcome};

/// Last second that a text without a unit stands for: milliseconds are no seconds.
const LAST_SECOND: i64 = i32::MAX as i64;

#[derive(Debug)]
struct Date {
    source: FieldReference,
    patterns: Vec<Pattern>,
    zone: ZoneOption,
    target: FieldReference,
    tags_on_failure: Vec<String>,
    clock: fn() -> DateTime<Utc>,
}

#[derive(Debug)]
enum ZoneOption {
    Fixed(Zone),
    PerEvent(Template),
}

#[derive(Debug)]
enum Pattern {
    Iso8601,
    Unix,
    UnixMillis,
    Tai64n,
    Format(TimeFormat),
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "ISO8601" => Self::Iso8601,
            "UNIX" => Self::Unix,
            "UNIX_MS" => Self::UnixMillis,
            "TAI64N" => Self::Tai64n,
            pattern => {
                let format = TimeFormat::joda(pattern)?;
                format.check_parse()?;
                Self::Format(format)
            }
        })
    }

    fn read(&self, text: &str, is_number: bool, zone: Zone, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Iso8601 => iso8601(text, zone),
            Self::Unix => unix_seconds(text, LAST_SECOND),
            Self::UnixMillis => unix_millis(text, is_number),
            Self::Tai64n => tai64n(text),
            Self::Format(format) => format.parse(text, now.year())?.instant(zone, now),
        }
    }
}

impl Pattern {
    fn has_names(&self) -> bool {
        matches!(self, Self::Format(format) if format.has_names())
    }

    fn with_names(self, names: Option<&'static TimeNames>) -> Self {
        match self {
            Self::Format(format) => Self::Format(format.with_names(names)),
            other => other,
        }
    }
}

pub(super) fn build(options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    Ok(Arc::new(Date::read(options, Utc::now)?))
}

impl Date {
    fn read(mut options: Options, clock: fn() -> DateTime<Utc>) -> Result<Self, Vec<Fault>> {
        let mut matching = options.texts("match").into_iter();
        let source = matching
            .next()
            .and_then(|field| FieldReference::parse(&field).map_err(|fault| options.fault_here(fault)).ok());
        let mut patterns = Vec::new();
        for text in matching {
            match Pattern::parse(&text) {
                Ok(pattern) => patterns.push(pattern),
                Err(fault) => options.fault_here(fault),
            }
        }
        if source.is_none() || patterns.is_empty() {
            options.fault_here(
                "[date] needs the option [match] with a field and its patterns, as in match => [\"time\", \"ISO8601\"]",
            );
        }
        let zone = match options.template("timezone") {
            None => ZoneOption::Fixed(Zone::Local),
            Some(template) if template.is_constant() => match Zone::named(template.as_str()) {
                Some(zone) => ZoneOption::Fixed(zone),
                None => {
                    options.fault_here(format!(
                        "there is no time zone [{}]; ids such as Europe/Berlin and offsets such as +02:00 are",
                        template.as_str()
                    ));
                    ZoneOption::Fixed(Zone::UTC)
                }
            },
            Some(template) => ZoneOption::PerEvent(template),
        };
        if let Some(locale) = options.text("locale") {
            match TimeNames::find(&locale) {
                Some(names) => {
                    patterns = patterns.into_iter().map(|pattern| pattern.with_names(names)).collect()
                }
                None if patterns.iter().any(Pattern::has_names) => options.fault_here(format!(
                    "[date] reads names of months and days in the languages [{}], not in those of [{locale}]",
                    TimeNames::languages()
                )),
                None => {}
            }
        }
        let target = options.field("target");
        let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_dateparsefailure"]);
        let timestamp = FieldReference::parse(TIMESTAMP);
        options.finish()?;
        let (Some(source), Ok(timestamp)) = (source, timestamp) else { return Err(Vec::new()) };
        Ok(Self { source, patterns, zone, target: target.unwrap_or(timestamp), tags_on_failure, clock })
    }

    /// The time of a value, by the first pattern that it follows.
    fn time(&self, event: &Event, value: &Value) -> Option<DateTime<Utc>> {
        let zone = match &self.zone {
            ZoneOption::Fixed(zone) => *zone,
            ZoneOption::PerEvent(template) => Zone::named(&template.render(event))?,
        };
        let now = (self.clock)();
        let (text, is_number) = (text_of(value), value.is_number());
        self.patterns.iter().find_map(|pattern| pattern.read(&text, is_number, zone, now))
    }
}

impl Filter for Date {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let time = match event.get(&self.source).as_deref() {
            None | Some(Value::Null) => return Outcome::Unmatched,
            Some(Value::Array(elements)) => match elements.first() {
                Some(first) => self.time(event, first),
                None => return Outcome::Unmatched,
            },
            Some(value) => self.time(event, value),
        };
        let set = time.is_some_and(|time| {
            if matches!(self.target.path(), [name] if name == TIMESTAMP) {
                event.set_timestamp(time);
                return true;
            }
            let text = Event::new(time).timestamp_text();
            event.set(&self.target, Value::String(text)).is_ok()
        });
        if set {
            return Outcome::Matched;
        }
        self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
        Outcome::Unmatched
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use millrace_ingest::options::{Location, Setting};
    use millrace_ingest::{Event, Options};
    use serde_json::Value;

    use super::{Date, LAST_SECOND, tai64n, unix_millis, unix_seconds};
    use crate::filter::Filter as _;

    fn time(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    #[test]
    fn epochs_are_read() {
        for (text, expected) in [
            ("0", "1970-01-01T00:00:00Z"),
            ("1478207457", "2016-11-03T21:10:57Z"),
            ("1478207457.456", "2016-11-03T21:10:57.456Z"),
            ("-1.5", "1969-12-31T23:59:58.5Z"),
            ("2147483647.123456789", "2038-01-19T03:14:07.123456789Z"),
        ] {
            assert_eq!(unix_seconds(text, LAST_SECOND), Some(time(expected)), "{text}");
        }
        assert_eq!(unix_millis("1000000000123", false), Some(time("2001-09-09T01:46:40.123Z")));
        for text in ["", "-", "x", "1.x", "1.", "1e3", "inf", "NaN", "2147483648", "1478207457456"] {
            assert_eq!(unix_seconds(text, LAST_SECOND), None, "{text}");
        }
        for (text, is_number, read) in [("1.5", false, false), ("1.5", true, true), ("x", true, false)] {
            assert_eq!(unix_millis(text, is_number).is_some(), read, "{text}");
        }
        assert_eq!(tai64n("@4000000050d506482dbdf024"), Some(time("2012-12-22T01:00:46.767422500Z")));
        assert_eq!(tai64n("4000000050d506482dbdf024"), Some(time("2012-12-22T01:00:46.767422500Z")));
        assert_eq!(tai64n("@4000"), None);
    }

    #[test]
    fn the_year_comes_from_the_clock() {
        let texts = ["time", "MMM d HH:mm:ss", "MMM dd HH:mm:ss"].map(|text| Setting::Text(text.to_owned()));
        let given = |name: &str, setting| (name.to_owned(), Location::default(), setting);
        let options = [
            given("match", Setting::Array(texts.to_vec())),
            given("timezone", Setting::Text("America/New_York".to_owned())),
        ];
        let options = Options::new("date", Location::default(), options);
        let date = Date::read(options, || time("2026-01-01T02:00:00Z")).unwrap();
        let mut event = Event::new(Utc::now());
        event.fields_mut().insert("time".to_owned(), Value::String("Dec 31 20:59:00".to_owned()));
        date.apply(&mut event, &mut Vec::new());
        // In New York it is still December.
        assert_eq!(event.timestamp(), time("2026-01-01T01:59:00Z"));
    }
}
