//! Rules at work over a real engine.

mod alerts;
mod faults;
mod fixture;
mod replay;
mod rights;
mod rules;
