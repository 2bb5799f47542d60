//! The worst key that still competes for the first places, as far as the parts of a scan have found by now.
//!
//! A key is compared as a number, its code ([`super::codes`]), or as the string that it is. Once there are enough rows,
//! the worst of the best of them is the threshold: what comes behind it need not be read, row, page, term or segment. Rows
//! with the threshold's own key stay in where later keys decide among them; where addresses do, those behind the
//! threshold's row are left out too. Where rows are grouped, only the best row of each group counts.

use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::common::ScalarValue;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;

use super::codes;
use super::top_keys::{Contest, Text, TextOrder};
use crate::table::keys::{Key, KeyKind};

/// Request for the first rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopRowsRequest {
    /// Number of requested rows, or of groups whose best rows are requested.
    pub limit: usize,
    /// `true` if only the best row of each group counts.
    pub grouped: bool,
    /// `true` if the greatest key comes first.
    pub descending: bool,
    /// `true` if addresses alone decide among rows of one key.
    pub by_address: bool,
    /// Code of the point where the search goes on; rows before it are of no interest.
    pub after: Option<u64>,
}

/// Returns the address of a row as one number.
pub(super) fn address(segment: u32, row: u32) -> u64 {
    u64::from(segment) << 32 | u64::from(row)
}

/// The worst key that still competes.
#[derive(Debug)]
pub(super) struct Threshold {
    asked: TopRowsRequest,
    kind: KeyKind,
    best: TopThresholds,
}

#[derive(Debug)]
enum TopThresholds {
    Codes(Mutex<Contest<u64>>),
    Texts(TextOrder, Mutex<Contest<Text>>),
}

/// Keys of rows as they are compared.
#[derive(Debug)]
pub(super) enum ComparableKeys {
    Codes(Vec<u64>),
    Texts(StringViewArray),
}

impl Threshold {
    /// Makes a threshold of codes that nothing has met yet, as those of scores and addresses are.
    pub(super) fn of_codes(asked: TopRowsRequest) -> Self {
        Self {
            asked,
            kind: KeyKind::U64,
            best: TopThresholds::Codes(Mutex::new(Contest::new(asked.limit, asked.grouped))),
        }
    }

    /// Makes a threshold of keys that nothing has met yet; `None` for a kind that has none.
    pub(super) fn of_key(key: &Key, asked: TopRowsRequest) -> Option<Self> {
        let best = match key.kind {
            KeyKind::I64 | KeyKind::U64 | KeyKind::F64 => {
                return Some(Self { kind: key.kind, ..Self::of_codes(asked) });
            }
            KeyKind::Ip => return None,
            KeyKind::Str => {
                let order = TextOrder { descending: asked.descending, nulls_first: key.nulls_first };
                TopThresholds::Texts(order, Mutex::new(Contest::new(asked.limit, asked.grouped)))
            }
        };
        Some(Self { asked, kind: key.kind, best })
    }

    /// Returns the request.
    pub(super) fn asked(&self) -> &TopRowsRequest {
        &self.asked
    }

    /// Returns whether it tells what does not compete, or will once more rows are met: not where groups are few.
    pub(super) fn tells(&self) -> bool {
        match &self.best {
            TopThresholds::Codes(best) => best.lock().tells(),
            TopThresholds::Texts(_, best) => best.lock().tells(),
        }
    }

    /// Returns the code and the address of the worst row that competes, once there are enough.
    pub(super) fn worst(&self) -> Option<(u64, u64)> {
        match &self.best {
            TopThresholds::Codes(best) => best.lock().worst().copied(),
            TopThresholds::Texts(..) => None,
        }
    }

    /// Returns keys as they are compared.
    ///
    /// # Errors
    /// Keys of another kind, numbers that are missing.
    pub(super) fn compared(&self, keys: &ArrayRef) -> Result<ComparableKeys> {
        let compared = match self.best {
            TopThresholds::Codes(_) => codes::of_keys(keys, self.asked.descending).map(ComparableKeys::Codes),
            TopThresholds::Texts(..) => keys.as_string_view_opt().cloned().map(ComparableKeys::Texts),
        };
        compared.ok_or_else(|| Error::Execution("a sort key has no number".to_owned()))
    }

    /// Takes rows of a segment into account, of which `groups` has the groups where they are grouped, and tells which of
    /// them compete.
    ///
    /// # Errors
    /// A group that cannot be read.
    pub(super) fn admit(
        &self,
        segment: u32,
        rows: &[u32],
        keys: &ComparableKeys,
        groups: Option<&ArrayRef>,
    ) -> Result<Vec<bool>> {
        let group = |at: usize| match groups {
            Some(groups) => Ok(ScalarValue::try_from_array(groups, at)?),
            None => Ok(ScalarValue::Null),
        };
        let place = |row: u32| if self.asked.by_address { address(segment, row) } else { 0 };
        let places = rows.iter().map(|row| place(*row));
        match (&self.best, keys) {
            (TopThresholds::Codes(best), ComparableKeys::Codes(codes)) => {
                let mut best = best.lock();
                for (at, (code, place)) in codes.iter().zip(places.clone()).enumerate() {
                    // Whether rows of the point's own code are behind it is not known here.
                    let is_behind = self.asked.after.is_none_or(|after| *code > after);
                    if is_behind && best.worst().is_none_or(|worst| (*code, place) < *worst) {
                        best.meet(*code, place, || group(at))?;
                    }
                }
                let worst = best.worst().copied().unwrap_or((u64::MAX, u64::MAX));
                let after = self.asked.after.unwrap_or(0);
                Ok(codes
                    .iter()
                    .zip(places)
                    .map(|(code, place)| *code >= after && (*code, place) <= worst)
                    .collect())
            }
            (TopThresholds::Texts(order, best), ComparableKeys::Texts(texts)) => {
                let mut best = best.lock();
                for (at, (text, place)) in texts.iter().zip(places.clone()).enumerate() {
                    let text = text.map(str::as_bytes);
                    if best.worst().is_none_or(|worst| order.place_cmp((text, place), worst).is_lt()) {
                        best.meet(order.text(text), place, || group(at))?;
                    }
                }
                let competes = |(text, place): (Option<&str>, u64)| {
                    let text = text.map(str::as_bytes);
                    best.worst().is_none_or(|worst| order.place_cmp((text, place), worst).is_le())
                };
                Ok(texts.iter().zip(places).map(competes).collect())
            }
            _ => Err(Error::Execution("sort keys are not of the kind that is compared".to_owned())),
        }
    }

    /// Returns whether a run of rows may have one that competes, by the address of the first, and their least and greatest code.
    pub(super) fn admits_run(&self, first: u64, codes: (u64, u64)) -> bool {
        let first = if self.asked.by_address { first } else { 0 };
        self.worst().is_none_or(|worst| (codes.0, first) <= worst)
            && self.asked.after.is_none_or(|after| codes.1 >= after)
    }

    /// Returns whether rows of a term may compete, by the address of the first.
    pub(super) fn admits_term(&self, first: u64, term: &[u8]) -> bool {
        match &self.best {
            TopThresholds::Codes(_) => match codes::of_term(self.kind, term, self.asked.descending) {
                Some(code) => self.admits_run(first, (code, code)),
                None => true,
            },
            TopThresholds::Texts(order, best) => {
                let first = if self.asked.by_address { first } else { 0 };
                best.lock().worst().is_none_or(|worst| order.place_cmp((Some(term), first), worst).is_le())
            }
        }
    }
}

#[cfg(test)]
mod tests;
