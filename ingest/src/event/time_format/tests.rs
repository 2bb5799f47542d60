use chrono::{DateTime, TimeZone, Utc};
use proptest::prelude::*;

use super::{TimeFormat, Zone, iso8601};

fn time(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn joda(pattern: &str, at: &str) -> String {
    written(&TimeFormat::joda(pattern).unwrap(), at)
}

fn written(format: &TimeFormat, at: &str) -> String {
    let mut out = String::new();
    format.format(time(at), Zone::UTC, &mut out);
    out
}

#[test]
fn joda_patterns_are_written() {
    let at = "2013-01-02T03:04:05.678Z";
    for (pattern, expected) in [
        ("yyyy.MM.dd", "2013.01.02"),
        ("YYYY-MM-dd", "2013-01-02"),
        ("yy M d", "13 1 2"),
        ("HH:mm:ss.SSS", "03:04:05.678"),
        ("SSSSSS", "678000"),
        ("EEE EEEE E", "Wed Wednesday Wed"),
        ("MMM MMMM", "Jan January"),
        ("D DDD e", "2 002 3"),
        ("h a K k", "3 AM 3 3"),
        ("Z ZZ ZZZ z", "+0000 +00:00 UTC UTC"),
        ("'o''clock' yyyy", "o'clock 2013"),
        ("yyyy'T'HH''", "2013T03'"),
        ("G CC", "AD 20"),
    ] {
        assert_eq!(joda(pattern, at), expected, "{pattern}");
    }
    assert_eq!(joda("h K k a", "2013-01-02T00:00:00Z"), "12 0 24 AM");
}

#[test]
fn years_of_weeks_differ_from_years() {
    assert_eq!(joda("xxxx.ww yyyy", "2012-12-31T00:00:00Z"), "2013.01 2012");
    assert_eq!(joda("xxxx.ww", "2010-01-03T00:00:00Z"), "2009.53");
    let java = TimeFormat::java("YYYY-ww").unwrap();
    assert_eq!(written(&java, "2026-12-27T00:00:00Z"), "2027-01");
    assert_eq!(written(&java, "2026-01-04T00:00:00Z"), "2026-02");
}

#[test]
fn java_patterns_are_written() {
    let at = "2013-11-02T13:04:05.678Z";
    for (pattern, expected) in [
        ("yyyy-MM-dd", "2013-11-02"),
        ("uuuu-MM-dd'T'HH:mm:ss.SSSXXX", "2013-11-02T13:04:05.678Z"),
        ("QQQ q", "Q4 4"),
        ("MMMMM LLL", "N Nov"),
        ("x xx xxx Z", "+00 +0000 +00:00 +0000"),
        ("h a", "1 PM"),
        ("n", "678000000"),
    ] {
        assert_eq!(written(&TimeFormat::java(pattern).unwrap(), at), expected, "{pattern}");
    }
}

#[test]
fn bad_patterns_are_named() {
    for pattern in ["", "yyyy 'open", "yyyy-bb", "J"] {
        assert!(TimeFormat::joda(pattern).is_err(), "{pattern}");
    }
    assert!(TimeFormat::joda("yyyy-bb").unwrap_err().contains("[bb]"));
    assert!(TimeFormat::java("[yyyy]").is_err());
}

fn read(pattern: &str, text: &str) -> Option<String> {
    let now = time("2026-06-15T12:00:00Z");
    let parsed = TimeFormat::joda(pattern).unwrap().parse(text, 2026)?;
    Some(parsed.instant(Zone::UTC, now)?.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
}

#[test]
fn texts_are_read() {
    for (pattern, text, expected) in [
        ("dd/MMM/yyyy:HH:mm:ss Z", "10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36Z"),
        ("dd/MMM/yyyy:HH:mm:ss Z", "10/oct/2000:13:55:36 Z", "2000-10-10T13:55:36Z"),
        ("MMM  d HH:mm:ss", "Nov  5 00:01:02", "2026-11-05T00:01:02Z"),
        ("MMM dd HH:mm:ss", "Nov 24 00:01:02", "2026-11-24T00:01:02Z"),
        ("yyyyMMddHHmmss", "20130102030405", "2013-01-02T03:04:05Z"),
        ("yyMMdd", "461231", "2046-12-31T00:00:00Z".replace("2046", "1946").as_str()),
        ("yy", "45", "2045-01-01T00:00:00Z"),
        ("YYYY-MM-dd HH:mm:ss,SSS", "2013-1-2 3:04:05,678", "2013-01-02T03:04:05.678Z"),
        ("hh:mm a dd.MM.yyyy", "12:05 am 01.02.2003", "2003-02-01T00:05:00Z"),
        ("hh:mm a dd.MM.yyyy", "01:05 PM 01.02.2003", "2003-02-01T13:05:00Z"),
        ("EEE MMM dd HH:mm:ss yyyy", "Wed Feb 05 17:11:19 2025", "2025-02-05T17:11:19Z"),
        ("EEEE, dd MMMM yyyy", "Wednesday, 05 February 2025", "2025-02-05T00:00:00Z"),
        ("yyyy-DDD", "2024-366", "2024-12-31T00:00:00Z"),
        ("xxxx-'W'ww-e", "2009-W53-7", "2010-01-03T00:00:00Z"),
        ("yyyy-MM-dd HH:mm:ss ZZZ", "2013-06-02 03:04:05 Europe/Berlin", "2013-06-02T01:04:05Z"),
        ("yyyy-MM-dd HH:mm:ss ZZ", "2013-06-02 03:04:05 +02:00", "2013-06-02T01:04:05Z"),
        ("yyyy-MM-dd HH:mm z", "2013-01-02 03:04 PST", "2013-01-02T11:04:00Z"),
        ("HH:mm", "07:08", "2026-01-01T07:08:00Z"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "2020-01-02T03:04:05.123456", "2020-01-02T03:04:05.123456Z"),
    ] {
        assert_eq!(read(pattern, text).as_deref(), Some(expected), "{pattern} of {text}");
    }
}

#[test]
fn texts_that_do_not_follow_the_pattern_are_refused() {
    for (pattern, text) in [
        ("yyyy-MM-dd", "2013-13-01"),
        ("yyyy-MM-dd", "2013-02-30"),
        ("yyyy-MM-dd", "2013-02-03 "),
        ("yyyy-MM-dd", "2013-02"),
        ("HH:mm", "24:00"),
        ("MMM", "Foo"),
        ("SSS", "x"),
        ("yyyy-MM-dd HH:mm:ss ZZZ", "2013-06-02 03:04:05 Mars/Olympus"),
        ("yyyy", "2013ä"),
    ] {
        assert_eq!(read(pattern, text), None, "{pattern} of {text}");
    }
}

#[test]
fn years_that_are_missing_are_the_nearest() {
    let parsed = |month: &str| {
        TimeFormat::joda("MMM dd HH:mm:ss").unwrap().parse(&format!("{month} 31 23:59:59"), 2026)
    };
    let instant = |month: &str, now: &str| parsed(month).unwrap().instant(Zone::UTC, time(now)).unwrap();
    assert_eq!(instant("Dec", "2026-01-01T00:00:10Z"), time("2025-12-31T23:59:59Z"));
    assert_eq!(instant("Jan", "2026-12-31T23:59:59Z"), time("2027-01-31T23:59:59Z"));
    assert_eq!(instant("Dec", "2026-12-31T23:59:59Z"), time("2026-12-31T23:59:59Z"));
    assert_eq!(instant("Mar", "2026-12-31T23:59:59Z"), time("2026-03-31T23:59:59Z"));
}

#[test]
fn zones_decide_where_clocks_are() {
    let berlin = Zone::named("Europe/Berlin").unwrap();
    let parsed = TimeFormat::joda("yyyy-MM-dd HH:mm").unwrap();
    let at = |text: &str| parsed.parse(text, 2026).unwrap().instant(berlin, time("2026-06-15T12:00:00Z"));
    assert_eq!(at("2026-07-01 12:00"), Some(time("2026-07-01T10:00:00Z")));
    assert_eq!(at("2026-10-25 02:30"), Some(time("2026-10-25T00:30:00Z")), "the first of two");
    assert_eq!(at("2026-03-29 02:30"), None, "clocks skip it");
    assert_eq!(Zone::named("+05:30"), Some(Zone::Fixed(chrono::FixedOffset::east_opt(19800).unwrap())));
    assert_eq!(Zone::named("Nowhere"), None);
}

#[test]
fn iso8601_is_read_loosely() {
    for (text, expected) in [
        ("2015-01-02", "2015-01-02T00:00:00Z"),
        ("2015-01", "2015-01-01T00:00:00Z"),
        ("2015-123", "2015-05-03T00:00:00Z"),
        ("2015-01-02T03", "2015-01-02T03:00:00Z"),
        ("2015-01-02T03:04", "2015-01-02T03:04:00Z"),
        ("2015-01-02 03:04:05,678", "2015-01-02T03:04:05.678Z"),
        ("2015-01-02T03:04:05.123456789Z", "2015-01-02T03:04:05.123456789Z"),
        ("2015-01-02T03:04:05+0100", "2015-01-02T02:04:05Z"),
        ("2015-01-02T03:04:05.678-07:00", "2015-01-02T10:04:05.678Z"),
        ("2015-01-02T03:04:05+01", "2015-01-02T02:04:05Z"),
    ] {
        let read =
            iso8601(text, Zone::UTC).map(|time| time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true));
        assert_eq!(read.as_deref(), Some(expected), "{text}");
    }
    for text in ["", "2015-01-02T03:04:05x", "15-01-02", "2015-1x", "2015-01-02T25:00", "Jan 2 2015"] {
        assert_eq!(iso8601(text, Zone::UTC), None, "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(seconds in 0i64..4_000_000_000, nanos in 0u32..1_000_000_000) {
        let at = Utc.timestamp_opt(seconds, nanos).unwrap();
        for pattern in [
            "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSSZZ",
            "EEEE, d. MMMM yyyy, h:mm:ss.SSSSSSSSS a Z",
            "xxxx-ww-e kk:mm:ss,SSSSSSSSS",
            "yyyyDDDHHmmssSSSSSSSSS",
        ] {
            let format = TimeFormat::joda(pattern).unwrap();
            let mut text = String::new();
            format.format(at, Zone::UTC, &mut text);
            let read = format.parse(&text, 2026).and_then(|parsed| parsed.instant(Zone::UTC, at));
            prop_assert_eq!(read, Some(at), "{} as {}", pattern, text);
        }
    }

    #[test]
    fn nothing_panics(pattern in "[yMdHhkKmsSEeaZzxwDGC':. ä]{1,12}", text in "\\PC{0,30}") {
        let _ = iso8601(&text, Zone::UTC);
        let _ = TimeFormat::java(&pattern);
        if let Ok(format) = TimeFormat::joda(&pattern) {
            let now = Utc.timestamp_opt(0, 0).unwrap();
            let mut written = String::new();
            format.format(now, Zone::UTC, &mut written);
            for text in [&text, &written] {
                if let Some(parsed) = format.parse(text, 2026) {
                    let _ = parsed.instant(Zone::Local, now);
                }
            }
        }
    }
}
