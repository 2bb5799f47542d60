//! Statements against databases for filters, by the connections and the options that the input `jdbc` has.

pub use crate::input::jdbc::lookup::{DatabaseLookup, MAX_CONNECTIONS};
