//! Rows of an index that lacks the field: all have the same key, so later keys and addresses decide.

use millrace_work::error::Result;

use super::threshold::Threshold;
use super::{Candidates, KeyPart, RowRun, SourceStep};

/// Matches that all have the key of a missing field.
pub(super) struct MissingFieldRows<'a> {
    place: KeyPart<'a>,
    is_done: bool,
}

impl<'a> MissingFieldRows<'a> {
    /// Offers the matches of a part.
    pub(super) fn open(place: KeyPart<'a>) -> Self {
        Self { place, is_done: false }
    }
}

impl Candidates for MissingFieldRows<'_> {
    fn cost(&self) -> u64 {
        // No other source has such rows.
        0
    }

    fn next(&mut self, threshold: &Threshold) -> Result<SourceStep> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(SourceStep::Done);
        }
        let (all, asked) = (self.place.matches.all()?, threshold.asked());
        // Where addresses decide, as many as are wanted will do.
        let first_will_do = asked.by_address && !asked.grouped && asked.after.is_none();
        Ok(SourceStep::Run(RowRun::new(match first_will_do {
            true => all.iter().take(asked.limit).collect(),
            false => all.clone(),
        })))
    }
}
