//! Statistics of scored terms: looked up once a shard, shared by the partitions of a scan.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::TableSnapshot;
use super::node::{Resolved, StatisticsTerm, TermStatistics};
use crate::error::Result;
use crate::score::bm25::{Bm25, Statistics};
use crate::score::reader::Inverted;

/// The scoring functions of each shard.
#[derive(Debug)]
pub(crate) struct Functions {
    shards: Vec<OnceLock<Arc<Vec<Arc<Bm25>>>>>,
    global: bool,
}

impl Functions {
    /// Makes the functions of so many shards; `global` joins the statistics of all of them.
    pub(crate) fn new(shards: u32, global: bool) -> Self {
        Self { shards: (0..shards).map(|_| OnceLock::new()).collect(), global }
    }

    /// Returns the functions of a shard of an index.
    pub(crate) fn of(
        &self,
        snapshot: &TableSnapshot,
        resolved: &[Option<Resolved>],
        index: usize,
        shard: u32,
    ) -> Result<Arc<Vec<Arc<Bm25>>>> {
        let Some(Some(own)) = resolved.get(index) else { return Ok(Arc::default()) };
        if own.statistics.is_empty() {
            return Ok(Arc::default());
        }
        let Some(cell) = self.shards.get(shard as usize) else { return Ok(Arc::default()) };
        if let Some(functions) = cell.get() {
            return Ok(Arc::clone(functions));
        }
        let mut sums = vec![Statistics::default(); own.statistics.len()];
        let mut rows = 0;
        for segment in &snapshot.segments {
            if !self.global && segment.shard != shard {
                continue;
            }
            let Some(Some(theirs)) = resolved.get(segment.index) else { continue };
            let documents = segment.reader.inverted()?;
            rows += u64::from(segment.reader.rows());
            for (sum, wanted) in sums.iter_mut().zip(&own.statistics) {
                let found = match segment.index == index {
                    true => Some(wanted),
                    // Another index numbers its paths otherwise: names join them.
                    false => theirs
                        .statistics
                        .iter()
                        .find(|other| other.field == wanted.field && other.term == wanted.term),
                };
                match found.map(|found| (found, found.nested)) {
                    None => {}
                    Some((found, None)) => add(sum, found, documents.as_ref())?,
                    Some((found, Some(path))) => {
                        if let Some(nested) = segment.reader.nested(path)? {
                            add(sum, found, nested.bundle().as_ref())?;
                        }
                    }
                }
            }
        }
        // Statistics that were joined before count as they are, as in OpenSearch.
        if !self.global {
            blend(&mut sums, &own.statistics, rows);
        }
        let function =
            |(sum, wanted): (&Statistics, &TermStatistics)| Arc::new(Bm25::new(wanted.boost, *sum));
        let functions = Arc::new(sums.iter().zip(&own.statistics).map(function).collect::<Vec<_>>());
        // Partitions that came here together computed the same.
        Ok(Arc::clone(cell.get_or_init(|| functions)))
    }
}

/// Lets terms that are one be as frequent as the most frequent of them, and a little more where they
/// are rarer, as Lucene's `BlendedTermQuery` does; `rows` is the number of documents of the shard.
fn blend(sums: &mut [Statistics], wanted: &[TermStatistics], rows: u64) {
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, wanted) in wanted.iter().enumerate() {
        if let Some(group) = wanted.blend {
            groups.entry(group).or_default().push(at);
        }
    }
    for mut group in groups.into_values() {
        let found = || group.iter().map(|at| sums[*at]).filter(|sum| sum.doc_freq > 0);
        let Some(most) = found().map(|sum| sum.doc_freq).max() else { continue };
        let rows = found().map(|sum| sum.tokens).fold(rows, u64::min);
        group.sort_by_key(|at| Reverse(sums[*at].doc_freq));
        let (mut doc_freq, mut before) = (most.min(rows), most);
        for at in group {
            let sum = &mut sums[at];
            if sum.doc_freq == 0 {
                break;
            }
            doc_freq += u64::from(before > sum.doc_freq);
            before = std::mem::replace(&mut sum.doc_freq, doc_freq.min(sum.docs).min(rows));
        }
    }
}

fn add(sum: &mut Statistics, wanted: &TermStatistics, inverted: &dyn Inverted) -> Result<()> {
    match &wanted.term {
        StatisticsTerm::Text(term) => {
            if let Some(text) = inverted.text(wanted.path) {
                sum.docs += u64::from(text.docs());
                sum.tokens += text.tokens();
                sum.doc_freq += u64::from(text.count(term)?);
            }
        }
        StatisticsTerm::Exact(value) => {
            sum.docs += u64::from(inverted.exists_count(wanted.path)?);
            // Lucene takes several values for a longer field, though it keeps no lengths here.
            sum.tokens += inverted.value_count(wanted.path)?;
            sum.doc_freq += u64::from(inverted.exact_count(wanted.path, value)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_storage::mapping::PathId;

    use super::*;

    #[test]
    fn blended_terms_share_their_frequency() {
        let term = |blend| TermStatistics {
            path: PathId(0),
            field: Arc::from("f"),
            term: StatisticsTerm::Text("t".to_owned()),
            boost: 1.0,
            blend,
        };
        let wanted = [term(Some(0)), term(None), term(Some(0)), term(Some(0)), term(Some(0))];
        let sum = |docs, doc_freq| Statistics { docs, doc_freq, tokens: 1_000 };
        let mut sums = [sum(50, 2), sum(100, 7), sum(100, 20), sum(4, 1), sum(9, 0)];
        blend(&mut sums, &wanted, 100);
        // The most frequent keeps its number, each rarer one has one more than the one before, none more
        // than its field has documents; what does not occur stays so.
        assert_eq!(sums.map(|sum| sum.doc_freq), [21, 7, 20, 4, 0]);
    }
}
