//! Cases of date formats and date math.

use super::{DateFormat, Instant};

fn millis(format: &str, text: &str, round_up: bool) -> Option<i64> {
    DateFormat::parse(format).unwrap().read(text, round_up).and_then(Instant::millis)
}

#[test]
fn formats_read_what_they_name() {
    let cases: &[(&str, &str, Option<i64>)] = &[
        ("strict_date_optional_time", "1970-01-01T00:00:00Z", Some(0)),
        ("strict_date_optional_time", "1970-01-01", Some(0)),
        ("strict_date_optional_time", "1970", Some(0)),
        ("strict_date_optional_time", "1970-02", Some(31 * 86_400_000)),
        ("strict_date_optional_time", "2024-02-29T12:34:56.789Z", Some(1_709_210_096_789)),
        ("strict_date_optional_time", "2024-02-29T12:34:56,789Z", Some(1_709_210_096_789)),
        ("strict_date_optional_time", "2024-02-29T12:34:56.789123456+02:00", Some(1_709_202_896_789)),
        ("strict_date_optional_time", "2024-02-29T12:34:56+0200", Some(1_709_202_896_000)),
        ("strict_date_optional_time", "2024-02-29T12:34Z", Some(1_709_210_040_000)),
        ("strict_date_optional_time", "2024-02-29T12", Some(1_709_208_000_000)),
        ("strict_date_optional_time", "2023-02-29", None),
        ("strict_date_optional_time", "2023-13-01", None),
        ("strict_date_optional_time", "2023-1-1", None),
        ("strict_date_optional_time", "20230101", None),
        ("strict_date_optional_time", "2024-02-29T25:00:00Z", None),
        ("strict_date_optional_time", "2024-02-29 12:34:56", None),
        ("strict_date_optional_time", "1969-12-31T23:59:59.999Z", Some(-1)),
        ("date_optional_time", "2023-1-1", Some(1_672_531_200_000)),
        ("epoch_millis", "1420070400001", Some(1_420_070_400_001)),
        ("epoch_millis", "-5", Some(-5)),
        ("epoch_millis", "12.5", Some(12)),
        ("epoch_millis", "1e3", None),
        ("epoch_second", "1420070400", Some(1_420_070_400_000)),
        ("epoch_second", "1420070400.5", Some(1_420_070_400_500)),
        ("basic_date", "20240229", Some(1_709_164_800_000)),
        ("basic_date_time", "20240229T123456.789Z", Some(1_709_210_096_789)),
        ("basic_ordinal_date", "2024060", Some(1_709_164_800_000)),
        ("basic_week_date", "2024W094", Some(1_709_164_800_000)),
        ("week_date", "2024-W09-4", Some(1_709_164_800_000)),
        ("ordinal_date", "2024-060", Some(1_709_164_800_000)),
        ("year_month", "2024-02", Some(1_706_745_600_000)),
        ("strict_year", "2024", Some(1_704_067_200_000)),
        ("hour_minute_second", "00:00:01", Some(1000)),
        ("yyyy-MM-dd HH:mm:ss", "2024-02-29 12:34:56", Some(1_709_210_096_000)),
        ("yyyy-MM-dd || HH:mm:ss", "2024-02-29", Some(1_709_164_800_000)),
        ("yyyy-MM-dd || HH:mm:ss", "00:00:01", Some(1_000)),
        ("dd/MMM/yyyy:HH:mm:ss Z", "29/Feb/2024:14:34:56 +0200", Some(1_709_210_096_000)),
        ("EEE MMM dd HH:mm:ss yyyy", "Thu Feb 29 12:34:56 2024", Some(1_709_210_096_000)),
        ("yyyyMMddHHmmss", "20240229123456", Some(1_709_210_096_000)),
        ("yyyyMMddHHmmssSSS", "20240229123456789", Some(1_709_210_096_789)),
        ("hh:mm a, dd.MM.yy", "01:34 PM, 29.02.24", Some(1_709_213_640_000)),
        ("yyyy-MM-dd HH:mm:ss z", "2024-02-29 13:34:56 Europe/Berlin", Some(1_709_210_096_000)),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-29T14:34:56+02:00", Some(1_709_210_096_000)),
        ("yyyy/MM/dd HH:mm:ss||yyyy/MM/dd||epoch_millis", "2024/02/29", Some(1_709_164_800_000)),
        ("yyyy/MM/dd HH:mm:ss||yyyy/MM/dd||epoch_millis", "17", Some(17)),
        ("d/M/yyyy[ HH:mm]", "9/2/2024", Some(1_707_436_800_000)),
        ("d/M/yyyy[ HH:mm]", "29/12/2024 01:00", Some(1_735_434_000_000)),
        ("yyyy-MM-dd", "2024-02-29x", None),
        ("yyyy-MM-dd", "", None),
    ];
    for (format, text, expected) in cases {
        assert_eq!(millis(format, text, false), *expected, "{format}: {text}");
    }
}

/// Rows of a table of tab-separated columns.
fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{line}")))
}

/// An instant as the tables have it.
fn display(instant: Option<Instant>) -> String {
    let format = DateFormat::parse("uuuu-MM-dd'T'HH:mm:ss.SSSSSSSSS").unwrap();
    instant.map_or_else(|| "-".to_owned(), |instant| format.format_nanos(instant.0))
}

#[test]
fn texts_mean_a_first_and_a_last_instant() {
    for [format, text, first, last] in rows(include_str!("tests/texts.tsv")) {
        let format = DateFormat::parse(format).unwrap();
        let read = [format.read(text, false), format.read(text, true)].map(display);
        assert_eq!(read, [first, last], "{}: {text}", format.as_str());
    }
}

#[test]
fn letters_write_and_read() {
    const INSTANT: i128 = 1_719_964_496_123_456_789;
    for row in include_str!("tests/letters.tsv").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [letters, text, expected] = columns[..] else { panic!("{row}") };
        let format = format!("uuuu-MM-dd HH:mm:ss.SSSSSSSSS|{letters}");
        if text == "!" {
            let reason = DateFormat::parse(&format).unwrap_err();
            assert!(reason.ends_with(&format!("]: {expected}")), "{letters}: {reason}");
            continue;
        }
        let format = DateFormat::parse(&format).unwrap();
        let written = format.format_nanos_at(INSTANT, -7 * 3600, "America/Los_Angeles");
        assert_eq!(written.split_once('|').unwrap().1, text, "{letters}");
        assert_eq!(display(format.read(&written, false)), expected, "{letters}");
    }
}

#[test]
fn missing_time_is_rounded_up_beside_any_fields() {
    for (format, text, expected) in [
        ("week_date", "2024-W09-4", "2024-02-29T23:59:59.999999999"),
        ("basic_week_date", "2024W094", "2024-02-29T23:59:59.999999999"),
        ("hh:mm a d.M.uuuu", "12:34 AM 9.2.2024", "2024-02-09T00:34:59.999999999"),
        ("KK:mm a d.M.uuuu", "00:34 PM 9.2.2024", "2024-02-09T12:34:59.999999999"),
        ("kk:mm d.M.uuuu", "24:34 9.2.2024", "2024-02-09T00:34:59.999999999"),
        ("uuuu-MM W e", "2024-02 5 4", "2024-02-29T23:59:59.999999999"),
        ("uuuu-MM-dd A", "2024-02-29 5", "2024-02-29T00:00:00.005999999"),
        ("uuuu-MM-dd N", "2024-02-29 5", "2024-02-29T00:00:00.000000005"),
        ("g", "60369", "2024-02-29T23:59:59.999999999"),
        ("epoch_millis", "-5", "1969-12-31T23:59:59.995999999"),
        ("epoch_micros", "5", "1970-01-01T00:00:00.000005999"),
    ] {
        assert_eq!(
            display(DateFormat::parse(format).unwrap().read(text, true)),
            expected,
            "{format}: {text}"
        );
    }
}

#[test]
fn zones_have_short_names() {
    let format = DateFormat::parse("z").unwrap();
    for (seconds, offset, zone, expected) in [
        (1_709_210_096, 0, "Z", "Z"),
        (1_709_210_096, 0, "UTC", "UTC"),
        (1_709_210_096, 7200, "+02:00", "+02:00"),
        (1_709_210_096, 3600, "Europe/Oslo", "CET"),
        (1_719_964_496, 7200, "Europe/Oslo", "CEST"),
        (1_719_964_496, 3600, "Europe/London", "BST"),
        (1_709_210_096, -18_000, "America/New_York", "EST"),
        (1_719_964_496, -14_400, "America/New_York", "EDT"),
        (1_719_964_496, 19_800, "Asia/Kolkata", "IST"),
        // The time zone database has numbers in place of these names.
        (1_709_210_096, -10_800, "America/Sao_Paulo", "BRT"),
        (1_541_300_400, -7200, "America/Sao_Paulo", "BRST"),
        (1_709_210_096, 14_400, "Asia/Dubai", "GST"),
        (1_709_210_096, -10_800, "Etc/GMT+3", "Etc/GMT+3"),
    ] {
        let written = format.format_nanos_at(i128::from(seconds) * 1_000_000_000, offset, zone);
        assert_eq!(written, expected, "{zone}");
    }
}

#[test]
fn bad_formats_are_refused() {
    for (format, reason) in [
        ("yyyy-QQQQQQ", "Too many pattern letters: Q"),
        ("foo", "Unknown pattern letter: f"),
        ("yyyy||", "Cannot have empty element"),
        ("yyyy|| ", "Cannot have empty element"),
        ("yyyy[-MM", "Some"),
        ("yyyy]", "without previous ["),
        ("yyyy'T", "incomplete string literal"),
        ("", "No date pattern"),
    ] {
        match DateFormat::parse(format) {
            Ok(_) => assert_eq!(reason, "Some", "{format} is let through"),
            Err(message) => assert!(message.contains(reason), "{format}: {message}"),
        }
    }
}

#[test]
fn date_math() {
    let format = DateFormat::parse("strict_date_optional_time||epoch_millis").unwrap();
    let now = format.read("2024-03-15T13:45:30.123Z", false).unwrap();
    for (text, round_up, expected) in [
        ("now", false, "2024-03-15T13:45:30.123Z"),
        ("now-1d", false, "2024-03-14T13:45:30.123Z"),
        ("now-1d/d", false, "2024-03-14T00:00:00.000Z"),
        ("now/d", true, "2024-03-15T23:59:59.999Z"),
        ("now/M", true, "2024-03-31T23:59:59.999Z"),
        ("now/w", false, "2024-03-11T00:00:00.000Z"),
        ("now/y", false, "2024-01-01T00:00:00.000Z"),
        ("now+1h-30m", false, "2024-03-15T14:15:30.123Z"),
        ("2024-01-31||+1M/d", false, "2024-02-29T00:00:00.000Z"),
        ("2024-01-01||+1M/d", true, "2024-02-01T23:59:59.999Z"),
        ("2024-02-29||-1y", false, "2023-02-28T00:00:00.000Z"),
        ("2024-01", true, "2024-01-01T23:59:59.999Z"),
    ] {
        let instant = format.parse_math(text, now, round_up).unwrap();
        let millis = i128::from(instant.millis().unwrap()) * 1_000_000;
        assert_eq!(format.format_nanos(millis), expected, "{text}");
    }
    for text in
        ["now+", "now+1", "now+1x", "now*2d", "now/2d", "nope", "nope||+1d", "now+99999999999y", "now+1é"]
    {
        assert!(format.parse_math(text, now, false).is_err(), "{text}");
    }
}

#[test]
fn formats_write_what_they_read() {
    for (format, text) in [
        ("strict_date_optional_time", "2024-02-29T12:34:56.789Z"),
        ("epoch_millis", "1709210096789"),
        ("epoch_second", "1709210096"),
        ("epoch_second", "1709210096.79"),
        ("epoch_millis", "1709210096789.123456"),
        ("epoch_millis", "-0.5"),
        ("epoch_micros", "1709210096789123.456"),
        ("strict_date_time", "2024-02-29T12:34:56.123456789Z"),
        ("date_time_no_millis", "2024-02-29T12:34:56Z"),
        ("rfc3339_lenient", "2024-02-29T12:34:56.789Z"),
        ("basic_week_date", "2024W094"),
        ("year", "24"),
        ("epoch_second", "-1.5"),
        ("yyyy-MM-dd HH:mm:ss", "2024-02-29 12:34:56"),
        ("dd/MMM/yyyy:HH:mm:ss Z", "29/Feb/2024:12:34:56 +0000"),
        ("basic_date", "20240229"),
        ("week_date", "2024-W09-4"),
        ("strict_date_optional_time_nanos", "2024-02-29T12:34:56.123456789Z"),
    ] {
        let parsed = DateFormat::parse(format).unwrap();
        assert_eq!(parsed.format_nanos(parsed.read(text, false).unwrap().0), text, "{format}");
    }
}

#[test]
fn years_of_more_than_four_digits_have_a_sign() {
    let format = DateFormat::parse("strict_date_optional_time").unwrap();
    let nanos = 4_853_905_054_219_893 * 1_000_000;
    assert_eq!(format.format_nanos(nanos), "+155784-02-16T15:30:19.893Z");
}

proptest::proptest! {
    #[test]
    fn reading_never_panics(
        format in "[GuyDMLQqgYwWdEecFaBhKkHmsSAnNVvzOXxZp'\\[\\]/: .|-]{0,20}",
        text in "\\PC{0,30}",
        nanos in proptest::num::i64::ANY,
    ) {
        if let Ok(format) = DateFormat::parse(&format) {
            format.read(&text, true);
            let _ = format.parse_math(&text, Instant(0), true);
            let written = format.format_nanos_at(i128::from(nanos) * 1000, 3600, "Europe/Oslo");
            format.read(&written, false);
        }
    }

    #[test]
    fn iso_agrees_with_chrono(millis in -62_000_000_000_000i64..250_000_000_000_000) {
        let text = chrono::DateTime::from_timestamp_millis(millis)
            .unwrap()
            .to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let format = DateFormat::parse("strict_date_optional_time").unwrap();
        proptest::prop_assert_eq!(format.read(&text, false).and_then(Instant::millis), Some(millis));
        proptest::prop_assert_eq!(format.format_nanos(i128::from(millis) * 1_000_000), text);
    }
}
