//! Rules at work over a real engine.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod alerts;
mod faults;
mod fixture;
mod kills;
mod mails;
mod notifications;
mod past;
mod receiver;
mod replay;
mod restored;
mod rights;
mod rules;
mod windows;
