//! Where an event is from, as its source knows it again.

/// The record of a source that an event begins in: the same whenever it is read again, however reading is cut into batches.
/// Events of one part of a source have it to themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Provenance {
    /// The record: the offset of a line or a message, a hash of a row or a body.
    pub record: u128,
    /// Tells contents apart that have such a record each, because the source was cut or made again in between.
    pub incarnation: u64,
    /// Which of the events that begin in the record; which of the rows that are equal.
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
