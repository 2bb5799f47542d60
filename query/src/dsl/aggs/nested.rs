//! `nested` and `reverse_nested`: to elements of a nested path, and back.

/// A `nested` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nested {
    /// The path whose elements are aggregated.
    pub path: String,
}

/// A `reverse_nested` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReverseNested {
    /// The path to go back to; the documents themselves where absent.
    pub path: Option<String>,
}
