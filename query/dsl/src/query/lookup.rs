//! Documents that clauses take values from, before a search is planned.

/// A document, and which of its values are taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    /// Index of the document.
    pub index: String,
    /// Its id.
    pub id: String,
    /// Path of the values in its source; the source as a whole where absent.
    pub path: Option<String>,
    /// Its routing value.
    pub routing: Option<String>,
    /// `true` if an index that does not exist has no such document, instead of being refused.
    pub lenient: bool,
}
