//! Continuous rules: alerts over what arrives, once each, replayable.
//!
//! This crate is the core: synchronous and pure, without runtime, clock, randomness, storage or search engine.
//! [`definition`] reads rules as users write them, `operator` has a file for what each rule type does with events,
//! [`engine`] runs many rules over frames of the change feed, [`cases`] tests a rule by events and the alerts that they
//! are expected to raise. Who reads the feed hands over frames and who matches filters; operations come back, to be
//! committed in one frame with the position. `docs/internals/rules.md` has the promises and the reasons,
//! `docs/rules.md` is the users' side.

mod alert;
pub mod cases;
pub mod definition;
pub mod engine;
mod error;
mod event;
mod fields;
mod mutation;
mod operator;
#[cfg(test)]
mod simulation;
pub mod template;
mod time;

pub use alert::for_roles;
pub use error::{Error, Kind, Result};
pub use event::{Event, Origin, Times};
pub use fields::{cut, hex};
pub use operator::{Bounds, OperatorStats, Timing};
pub use time::{Span, Time};
