//! Rules from outside of the crate: worked cases, the rules of `deploy/rules`, a real log.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod cases;
mod filter;
mod openssh;
