//! x
/// Object that says when the store was repaired last.
pub(crate) const REPAIRED: &str = "repair.json";
