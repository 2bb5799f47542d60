//! Time zones, and what turns local times into instants.
//!
//! [`Zone`] reads the ids of zones and answers offsets from their transitions. [`Rounding`] finds the bucket of a histogram that
//! an instant is in. [`date_math`] evaluates steps such as `+1M`, `-7d`, `/w` in a zone; [`calendar`] has the arithmetic of dates.
//! The crate uses no other crate of the workspace. Storage hands it the dates of queries, aggregations the values of rows.
//!
//! Rules for local times are those of OpenSearch: a time that clocks show twice is the earlier instant, a time that they skip is
//! read with the offset before the gap, and a day begins with its first instant.

pub mod calendar;
pub mod date_math;
mod rounding;
mod zone;

pub use rounding::{CachedRounding, CalendarUnit, Interval, Rounding};
pub use zone::{Abbreviation, LocalOffset, OffsetSpan, Region, Zone};
