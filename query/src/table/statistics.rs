//! Statistics of scored terms: looked up once a shard, shared by the partitions of a scan.

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
        for segment in &snapshot.segments {
            if !self.global && segment.shard != shard {
                continue;
            }
            let Some(Some(theirs)) = resolved.get(segment.index) else { continue };
            let documents = segment.reader.inverted()?;
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
        let function =
            |(sum, wanted): (&Statistics, &TermStatistics)| Arc::new(Bm25::new(wanted.boost, *sum));
        let functions = Arc::new(sums.iter().zip(&own.statistics).map(function).collect::<Vec<_>>());
        // Partitions that came here together computed the same.
        Ok(Arc::clone(cell.get_or_init(|| functions)))
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
            let docs = u64::from(inverted.exists_count(wanted.path)?);
            sum.docs += docs;
            sum.tokens += docs;
            sum.doc_freq += u64::from(inverted.exact_count(wanted.path, value)?);
        }
    }
    Ok(())
}
