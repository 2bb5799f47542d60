use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

fn minutes(minutes: i64) -> Interval {
    Interval::Fixed(minutes * 60_000)
}

const DAYS: Interval = Interval::Calendar(CalendarUnit::Day);
const HOURS: Interval = Interval::Calendar(CalendarUnit::Hour);

#[test]
fn spans_begin_where_they_should() {
    let cases = [
        (Interval::Fixed(10), "Z", 0, "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.990Z"),
        (DAYS, "Europe/Berlin", 0, "2024-07-01T21:59:59Z", "2024-06-30T22:00:00Z"),
        (Interval::Calendar(CalendarUnit::Week), "Z", 0, "2024-05-05T12:00:00Z", "2024-04-29T00:00:00Z"),
        (
            Interval::Calendar(CalendarUnit::Month),
            "Europe/Berlin",
            0,
            "2024-03-31T22:00:00Z",
            "2024-03-31T22:00:00Z",
        ),
        (Interval::Calendar(CalendarUnit::Quarter), "Z", 0, "2024-05-05T12:00:00Z", "2024-04-01T00:00:00Z"),
        (Interval::Calendar(CalendarUnit::Year), "Z", 0, "2024-05-05T12:00:00Z", "2024-01-01T00:00:00Z"),
        (DAYS, "Z", 6 * HOUR, "2024-05-05T05:00:00Z", "2024-05-04T06:00:00Z"),
        (Interval::Fixed(DAY), "+01:00", 0, "2024-05-05T23:30:00Z", "2024-05-05T23:00:00Z"),
        (HOURS, "Europe/Berlin", 0, "2024-10-27T01:30:00Z", "2024-10-27T01:00:00Z"),
        (HOURS, "Europe/Berlin", 0, "2024-10-27T00:30:00Z", "2024-10-27T00:00:00Z"),
        // New York has daylight saving in 2150, too.
        (DAYS, "America/New_York", 0, "2150-07-01T03:30:00Z", "2150-06-30T04:00:00Z"),
    ];
    for (interval, name, offset_ms, instant, expected) in cases {
        let rounding = Rounding { interval, zone: zone(name), offset_ms };
        let start = rounding.round(at(instant));
        assert_eq!(start, at(expected), "{interval:?} {instant}");
        assert_eq!(rounding.round(start), start);
        assert!(rounding.next(start) > at(instant));
        assert_eq!(rounding.round(rounding.next(start)), rounding.next(start));
        assert_eq!(rounding.cached().round(at(instant)), start);
    }
}

/// Each instant with the beginning of its bucket, as OpenSearch 2.19.3 answers.
#[test]
fn buckets_around_changes_of_the_clock() {
    let cases = [
        // Clocks go back by half an hour: the hour is longer.
        (HOURS, "Australia/Lord_Howe", "2024-04-06T15:20:00Z", "2024-04-06T14:00:00Z"),
        (HOURS, "Australia/Lord_Howe", "2024-04-06T15:40:00Z", "2024-04-06T15:30:00Z"),
        // Forward by half an hour: the rest of the hour belongs to the one before.
        (HOURS, "Australia/Lord_Howe", "2024-10-05T15:40:00Z", "2024-10-05T14:30:00Z"),
        (HOURS, "Australia/Lord_Howe", "2024-10-05T16:00:00Z", "2024-10-05T16:00:00Z"),
        (HOURS, "America/Caracas", "2007-12-09T07:10:00Z", "2007-12-09T06:00:00Z"),
        (HOURS, "Asia/Pyongyang", "2018-05-04T14:50:00Z", "2018-05-04T14:30:00Z"),
        (minutes(45), "America/New_York", "2024-11-03T05:20:00Z", "2024-11-03T04:45:00Z"),
        (minutes(45), "America/New_York", "2024-11-03T06:25:00Z", "2024-11-03T05:30:00Z"),
        (minutes(45), "America/New_York", "2024-11-03T06:50:00Z", "2024-11-03T06:30:00Z"),
        (minutes(90), "Europe/Berlin", "2024-03-31T00:40:00Z", "2024-03-31T00:30:00Z"),
        // A midnight that clocks skip, and one that comes twice.
        (DAYS, "America/Havana", "2024-03-10T05:30:00Z", "2024-03-10T05:00:00Z"),
        (DAYS, "America/Havana", "2024-11-03T05:30:00Z", "2024-11-03T04:00:00Z"),
        // Clocks went back a minute behind midnight: the day before goes on.
        (DAYS, "America/St_Johns", "2010-11-07T02:30:30Z", "2010-11-07T02:30:00Z"),
        (DAYS, "America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-06T02:30:00Z"),
        (DAYS, "America/St_Johns", "2010-11-07T03:30:00Z", "2010-11-07T02:30:00Z"),
        (DAYS, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z"),
    ];
    for (interval, name, instant, expected) in cases {
        let rounding = Rounding { interval, zone: zone(name), offset_ms: 0 };
        let start = Timestamp::from_millisecond(rounding.round(at(instant))).unwrap();
        assert_eq!(start, expected.parse::<Timestamp>().unwrap(), "{interval:?} {name} {instant}");
    }
}

#[test]
fn buckets_follow_one_another() {
    let cases = [
        (HOURS, "Australia/Lord_Howe", "2024-04-06T14:00:00Z", "2024-04-06T15:30:00Z"),
        (HOURS, "Australia/Lord_Howe", "2024-10-05T14:30:00Z", "2024-10-05T16:00:00Z"),
        (minutes(45), "America/New_York", "2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z"),
        (DAYS, "Pacific/Apia", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
        (DAYS, "America/Havana", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"),
        (
            Interval::Calendar(CalendarUnit::Month),
            "Europe/London",
            "2024-02-29T00:00:00Z",
            "2024-03-01T00:00:00Z",
        ),
    ];
    for (interval, name, start, expected) in cases {
        let rounding = Rounding { interval, zone: zone(name), offset_ms: 0 };
        assert_eq!(rounding.next(at(start)), at(expected), "{interval:?} {name} {start}");
    }
}

const ZONES: [&str; 14] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Monrovia",
    "America/Caracas",
    "America/Havana",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Europe/London",
    "Pacific/Apia",
    "Pacific/Chatham",
    "-03:30",
];

fn roundings() -> impl Strategy<Value = Rounding> {
    const UNITS: [CalendarUnit; 6] = [
        CalendarUnit::Minute,
        CalendarUnit::Hour,
        CalendarUnit::Day,
        CalendarUnit::Week,
        CalendarUnit::Month,
        CalendarUnit::Year,
    ];
    let interval = prop_oneof![
        prop::sample::select(&UNITS[..]).prop_map(Interval::Calendar),
        prop::sample::select(&[7i64, 14, 30, 45, 90, 180, 660, 1440, 2160, 10_080][..]).prop_map(minutes),
    ];
    let offset = prop::sample::select(&[0, 0, 90 * 60_000, -18 * HOUR, 1][..]);
    (interval, prop::sample::select(&ZONES[..]), offset).prop_map(|(interval, name, offset_ms)| Rounding {
        interval,
        zone: zone(name),
        offset_ms,
    })
}

/// Instants near the changes of the clock of a zone.
fn near_changes(zone: Zone, seed: Vec<(i64, i64)>) -> Vec<i64> {
    let near = |(around, beside): (i64, i64)| {
        let change = zone.span(around).to;
        let change = if change == i64::MAX { around } else { change };
        change * 1000 + beside
    };
    seed.into_iter().map(near).collect()
}

proptest! {
    /// The bucket of an instant is the same after any earlier rounding.
    #[test]
    fn order_does_not_change_buckets(
        rounding in roundings(),
        seed in prop::collection::vec((0i64..1_700_000_000, -100_000_000i64..100_000_000), 1..60),
    ) {
        let instants = near_changes(rounding.zone, seed);
        let mut cached = rounding.cached();
        for at in &instants {
            prop_assert_eq!(cached.round(*at), rounding.round(*at));
        }
        let mut sorted = instants.clone();
        sorted.sort_unstable();
        let mut cached = rounding.cached();
        for at in &sorted {
            prop_assert_eq!(cached.round(*at), rounding.round(*at));
        }
        for pair in sorted.windows(2) {
            if let Some(start) = cached.round_all(pair[0], pair[1]) {
                prop_assert_eq!(start, rounding.round(pair[0]));
                prop_assert_eq!(start, rounding.round(pair[0].midpoint(pair[1])));
                prop_assert_eq!(start, rounding.round(pair[1]));
            }
        }
    }

    /// A bucket begins at or before its instants, with an instant of its own, and the next one is behind it.
    #[test]
    fn buckets_have_a_beginning(
        rounding in roundings(),
        seed in (0i64..1_700_000_000, -100_000_000i64..100_000_000),
    ) {
        let at = near_changes(rounding.zone, vec![seed])[0];
        let start = rounding.round(at);
        prop_assert!(start <= at);
        prop_assert_eq!(rounding.round(start), start);
        let next = rounding.next(start);
        prop_assert!(next > start);
        prop_assert_eq!(rounding.round(next), next);
    }

    #[test]
    fn any_instant_rounds(rounding in roundings(), at in any::<i64>()) {
        let mut cached = rounding.cached();
        prop_assert_eq!(cached.round(at), rounding.round(at));
        rounding.next(rounding.round(at));
    }
}
