//! Provenance of an event, by which its source knows it again.

/// The record of a source that an event begins in: the same whenever it is read again, however reading is cut into batches.
/// Events of one part of a source have it to themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Provenance {
    /// The record: the offset of a line or a message, a hash of a row or a body.
    pub record: u128,
    /// Tells contents apart that have such a record each, because the source was cut or made again in between.
    pub incarnation: u64,
    /// Number of the event among those that begin in the record; number of the row among equal ones.
    pub ordinal: u32,
}

impl Provenance {
    /// The first event of a record.
    pub fn new(record: u128, incarnation: u64) -> Self {
        Self { record, incarnation, ordinal: 0 }
    }

    /// The next event of the record.
    #[must_use]
    pub fn next(self) -> Self {
        Self { ordinal: self.ordinal.wrapping_add(1), ..self }
    }
}
