//! Rules at work over a real engine.

mod alerts;
mod faults;
mod fixture;
mod rights;
mod rules;
