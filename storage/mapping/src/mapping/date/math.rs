//! Date math of queries: an anchor (`now`, or a date before `||`), then steps such as `+1M`, `-7d`, `/w`.
//!
//! Dates that do not name their zone are local times of a zone, in which the steps are taken, too.

use millrace_time::{Zone, date_math};

use super::{DateFormat, Instant};

/// Evaluates an expression in a zone.
pub(super) fn evaluate(
    format: &DateFormat,
    text: &str,
    now: Instant,
    round_up: bool,
    zone: Zone,
) -> Result<Instant, String> {
    if let Some(steps) = text.strip_prefix("now") {
        return date_math::apply(now.0, steps, zone, round_up).map(Instant);
    }
    let anchor = |text: &str, round_up: bool| {
        let (instant, is_local) = format.read_local(text, round_up).ok_or_else(|| {
            format!("failed to parse date field [{text}] with format [{}]", format.as_str())
        })?;
        Ok::<_, String>(if is_local { date_math::instant_of(instant.0, zone) } else { instant.0 })
    };
    match text.split_once("||") {
        None => anchor(text, round_up).map(Instant),
        Some((text, steps)) => date_math::apply(anchor(text, false)?, steps, zone, round_up).map(Instant),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOS: i128 = 1_000_000_000;

    fn read(format: &str, text: &str, zone: &str, round_up: bool) -> Result<Instant, String> {
        let zone = Zone::parse(zone).unwrap();
        let now = Instant::from_millis(1_710_085_500_000);
        DateFormat::parse(format).unwrap().parse_math_in(text, now, round_up, zone)
    }

    #[test]
    fn dates_are_local_times_unless_they_name_their_zone() {
        const ISO: &str = "strict_date_optional_time";
        const SPACED: &str = "yyyy-MM-dd HH:mm:ssXXX";
        let cases = [
            (ISO, "2024-07-01", "Europe/London", "2024-06-30T23:00:00Z"),
            (ISO, "2024-01-10", "Atlantic/Azores", "2024-01-10T01:00:00Z"),
            (ISO, "2024-07-01T00:00:00", "Europe/London", "2024-06-30T23:00:00Z"),
            (ISO, "2024-07-01T00:00:00Z", "Europe/London", "2024-07-01T00:00:00Z"),
            (ISO, "2024-07-01T00:00:00-05:00", "Europe/London", "2024-07-01T05:00:00Z"),
            (ISO, "2024-07-01T05Z", "Europe/London", "2024-07-01T05:00:00Z"),
            // A format without a T names its offset, too.
            (SPACED, "2024-07-01 00:00:00+05:00", "Europe/London", "2024-06-30T19:00:00Z"),
            (SPACED, "2024-07-01 00:00:00Z", "Europe/London", "2024-07-01T00:00:00Z"),
            ("dd/MM/yyyy", "01/07/2024", "Europe/London", "2024-06-30T23:00:00Z"),
            // Counts since the epoch are instants.
            ("epoch_millis", "1719792000000", "Europe/London", "2024-07-01T00:00:00Z"),
            ("epoch_second", "1719792000||/d", "Europe/London", "2024-06-30T23:00:00Z"),
            // Clocks skip or repeat the time.
            (ISO, "2024-03-31T02:30", "Europe/Berlin", "2024-03-31T01:30:00Z"),
            (ISO, "2024-10-27T02:30", "Europe/Berlin", "2024-10-27T00:30:00Z"),
            (ISO, "2024-03-10", "America/Havana", "2024-03-10T05:00:00Z"),
            // Steps are taken in the zone.
            (ISO, "2024-03-15T10:00:00Z||/d", "America/New_York", "2024-03-15T04:00:00Z"),
            (ISO, "2024-03-15T06:00:00-04:00||+1d/d", "America/New_York", "2024-03-16T04:00:00Z"),
            (ISO, "2024-03-10||+12h", "America/New_York", "2024-03-10T17:00:00Z"),
            (ISO, "2024-03-10T13:00:00||-24h", "America/New_York", "2024-03-09T17:00:00Z"),
            // Now is 2024-03-10T15:45:00Z.
            (ISO, "now-24h", "America/New_York", "2024-03-09T15:45:00Z"),
            (ISO, "now-1d", "America/New_York", "2024-03-09T16:45:00Z"),
            (ISO, "now/d", "America/New_York", "2024-03-10T05:00:00Z"),
            (ISO, "now/h", "Asia/Kolkata", "2024-03-10T15:30:00Z"),
        ];
        for (format, text, zone, expected) in cases {
            let expected = DateFormat::parse(ISO).unwrap().read(expected, false).unwrap();
            assert_eq!(read(format, text, zone, false), Ok(expected), "{text} in {zone}");
        }
    }

    #[test]
    fn the_end_of_a_day_is_local() {
        let start = |zone| read("yyyy-MM-dd", "2024-03-10", zone, false).unwrap().0;
        for (zone, hours) in [("America/New_York", 23), ("Europe/London", 24)] {
            let end = read("yyyy-MM-dd", "2024-03-10", zone, true).unwrap().0;
            assert_eq!(end - start(zone), hours * 3600 * NANOS - 1, "{zone}");
            assert_eq!(read("yyyy-MM-dd", "2024-03-10||/d", zone, true).unwrap().0, end, "{zone}");
        }
    }
}
