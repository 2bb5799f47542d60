//! Instants of times that clocks of a zone show.

use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;

/// Longest gap that is looked across, in hours: a zone may leave out a day.
const MAX_GAP_HOURS: i64 = 26;

/// Returns the instant of a time that clocks show: the first where they show it twice, the end of the gap where they leave it out.
pub(crate) fn instant(zone: Tz, clock: NaiveDateTime) -> Option<DateTime<Utc>> {
    match zone.from_local_datetime(&clock) {
        LocalResult::Single(at) | LocalResult::Ambiguous(at, _) => Some(at.to_utc()),
        LocalResult::None => end_of_gap(zone, clock),
    }
}

/// Returns the instant at which a gap ends that a time lies in.
fn end_of_gap(zone: Tz, clock: NaiveDateTime) -> Option<DateTime<Utc>> {
    let shown = |hours: i64| {
        let clock = clock.checked_add_signed(TimeDelta::hours(hours))?;
        zone.from_local_datetime(&clock).single()
    };
    let mut before = (1..=MAX_GAP_HOURS).find_map(|hours| shown(-hours))?.to_utc();
    let mut after = (1..=MAX_GAP_HOURS).find_map(shown)?.to_utc();
    let offset = |at: DateTime<Utc>| zone.offset_from_utc_datetime(&at.naive_utc()).fix();
    let former = offset(before);
    while after - before > TimeDelta::seconds(1) {
        let middle = before + TimeDelta::seconds((after - before).num_seconds() / 2);
        if offset(middle) == former { before = middle } else { after = middle }
    }
    Some(after)
}
