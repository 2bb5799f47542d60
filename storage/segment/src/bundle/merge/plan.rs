//! Plan of a merge, decided before a posting is read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hashbrown::HashSet;
use millrace_mapping::PathId;
use millrace_runtime::{Error, Result};

use super::{Bundle, DROPPED, RowMap, misfit};
use crate::bundle::contents::Text;
use crate::bundle::postings::Record;
use crate::bundle::reader::unreadable;
use crate::bundle::rows::after_prefix;
use crate::bundle::{MAX_DISTINCT_NUMBERS, is_low_cardinality};

/// See the [module](self).
pub(super) struct Plan<'a> {
    pub(super) inputs: Vec<Input<'a>>,
    pub(super) rows: u32,
    /// The rows of the inputs, one after another, ascend in the output.
    pub(super) ordered: bool,
    /// Text fields of the output, with whether norms are kept and which inputs have the field.
    pub(super) texts: BTreeMap<PathId, TextPlan>,
    /// Integer paths that stay terms.
    pub(super) numbers: Vec<PathId>,
    /// Paths without terms in the output.
    pub(super) inexact: Vec<PathId>,
}

/// One bundle and where its rows go.
pub(super) struct Input<'a> {
    pub(super) bundle: &'a Bundle,
    pub(super) map: &'a RowMap,
    /// Rows that are kept keep their order.
    pub(super) ascending: bool,
}

/// A text field across the inputs.
pub(super) struct TextPlan {
    pub(super) record: Record,
    pub(super) norms: bool,
    /// Sums over the inputs, deleted rows included.
    pub(super) doc_count: u64,
    pub(super) total_tokens: u64,
}

impl Input<'_> {
    /// Returns the row of the output, [`DROPPED`] for none; `None` for a row that the input has not.
    #[inline]
    pub(super) fn target(&self, row: u32) -> Option<u32> {
        match self.map {
            RowMap::Offset(base) => (row < self.bundle.rows()).then(|| base + row),
            RowMap::Table(table) => table.get(row as usize).copied(),
        }
    }
}

impl<'a> Plan<'a> {
    pub(super) fn new(inputs: &'a [(&'a Bundle, RowMap)], rows: u32) -> Result<Self> {
        let mut targets = Targets { taken: vec![0; (rows as usize).div_ceil(64)], rows, count: 0 };
        let mut ordered = true;
        let mut end = None;
        let mut planned = Vec::with_capacity(inputs.len());
        for (bundle, map) in inputs {
            let mut ascending = true;
            let mut last = None;
            let mut least = None;
            let mut visit = |target: u32| {
                ascending &= last.is_none_or(|last| last < target);
                last = Some(target);
                least = least.min(Some(target)).or(Some(target));
                targets.take(target)
            };
            match map {
                RowMap::Offset(base) => {
                    base.checked_add(bundle.rows()).ok_or_else(|| misfit("row numbers exceed 32 bits"))?;
                    (0..bundle.rows()).try_for_each(|row| visit(base + row))?;
                }
                RowMap::Table(table) => {
                    if table.len() != bundle.rows() as usize {
                        return Err(misfit(format!(
                            "[{}] has {} rows, its row map {}",
                            bundle.name(),
                            bundle.rows(),
                            table.len()
                        )));
                    }
                    table.iter().filter(|&&row| row != DROPPED).try_for_each(|&row| visit(row))?;
                }
            }
            ordered &= ascending && (least.is_none() || end.is_none() || end < least);
            end = end.max(last);
            planned.push(Input { bundle, map, ascending });
        }
        if targets.count != rows {
            return Err(misfit(format!("{} rows are kept, {rows} were expected", targets.count)));
        }
        let texts = texts(inputs)?;
        let mut inexact: BTreeSet<PathId> = BTreeSet::new();
        let mut numbers: BTreeSet<PathId> = BTreeSet::new();
        for (bundle, _) in inputs {
            inexact.extend(&bundle.contents().inexact);
            numbers.extend(&bundle.contents().numbers);
        }
        for path in numbers.difference(&inexact.clone()) {
            let mut present = 0;
            for (bundle, _) in inputs {
                present += bundle.exists_count(*path)? as usize;
            }
            if !is_low_cardinality(distinct(inputs, *path)?, present, rows) {
                inexact.insert(*path);
            }
        }
        Ok(Self {
            inputs: planned,
            rows,
            ordered,
            texts,
            numbers: numbers.difference(&inexact).copied().collect(),
            inexact: inexact.into_iter().collect(),
        })
    }
}

/// Checks that every row of the output is given once.
struct Targets {
    taken: Vec<u64>,
    rows: u32,
    count: u32,
}

impl Targets {
    fn take(&mut self, row: u32) -> Result<()> {
        if row >= self.rows {
            return Err(misfit(format!("row {row} is none of the {} rows of the output", self.rows)));
        }
        let (word, bit) = (row as usize / 64, 1 << (row % 64));
        if self.taken[word] & bit != 0 {
            return Err(misfit(format!("two rows become row {row}")));
        }
        self.taken[word] |= bit;
        self.count += 1;
        Ok(())
    }
}

fn texts(inputs: &[(&Bundle, RowMap)]) -> Result<BTreeMap<PathId, TextPlan>> {
    let mut texts: BTreeMap<PathId, TextPlan> = BTreeMap::new();
    for (bundle, _) in inputs {
        for Text { path, record, doc_count, total_tokens, norms, .. } in &bundle.contents().texts {
            let text = texts.entry(*path).or_insert(TextPlan {
                record: *record,
                norms: true,
                doc_count: 0,
                total_tokens: 0,
            });
            if text.record != *record {
                return Err(misfit(format!(
                    "text field {} has {:?} in [{}] and {:?} elsewhere",
                    path.0,
                    record,
                    bundle.name(),
                    text.record
                )));
            }
            // Once a segment is without norms, its rows cannot get them back.
            text.norms &= norms.is_some();
            text.doc_count += u64::from(*doc_count);
            text.total_tokens += total_tokens;
        }
    }
    Ok(texts)
}

/// Counts the distinct integers of a path over the inputs, as far as it matters.
fn distinct(inputs: &[(&Bundle, RowMap)], path: PathId) -> Result<usize> {
    let start = path.0.to_be_bytes();
    let after = after_prefix(&start).unwrap_or_default();
    let mut values: HashSet<Vec<u8>> = HashSet::new();
    for (bundle, _) in inputs {
        let dictionary = bundle.dictionary_of(Record::Rows);
        let visited = dictionary.visit(Bound::Included(&start), Bound::Excluded(&after), |key, _| {
            if !values.contains(&key[start.len()..]) {
                values.insert(key[start.len()..].to_vec());
            }
            Ok(values.len() <= MAX_DISTINCT_NUMBERS)
        });
        visited.map_err(|error: std::io::Error| -> Error { unreadable(bundle.name(), &error) })?;
    }
    Ok(values.len())
}
