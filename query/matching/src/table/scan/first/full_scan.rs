//! All matches at once, where they are few.

use millrace_work::error::Result;

use super::threshold::Threshold;
use super::{Candidates, KeyPart, RowRun, SourceStep};

/// Most matches: more are looked through page by page, since the first pages may have enough.
pub(super) const MAX_ROWS: u64 = 65_536;

/// The matches of a part, whose keys are all read.
pub(super) struct FullScanRows<'a> {
    place: KeyPart<'a>,
    cost: u64,
    is_done: bool,
}

impl<'a> FullScanRows<'a> {
    /// Offers the matches of a part; `None` where they are too many, or it is not known how many they are.
    pub(super) fn open(place: KeyPart<'a>) -> Result<Option<Self>> {
        let matches = place.matches.estimate()?.filter(|matches| *matches <= MAX_ROWS);
        Ok(matches.map(|cost| Self { place, cost, is_done: false }))
    }
}

impl Candidates for FullScanRows<'_> {
    fn cost(&self) -> u64 {
        self.cost
    }

    fn next(&mut self, _threshold: &Threshold) -> Result<SourceStep> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(SourceStep::Done);
        }
        Ok(SourceStep::Run(RowRun::new(self.place.matches.all()?.clone())))
    }
}
