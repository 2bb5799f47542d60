//! `sampler`: only the best documents of each shard.
//!
//! While rows are collected the best of each bucket above are kept, by score; when the shard ends,
//! they are read once more and handed down.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

use millrace_dsl::aggs::Sampler;
use millrace_scoring::collect::{Address, RowHit};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::nested::Single;
use crate::batch::{Batch, Positions, Selection};
use crate::collector::{Collector, Reduction, ShardReader, SubCollectors, same};
use crate::metric::Ordinals;
use crate::result::{Outcome, SingleKind};

/// Specification of the sample.
#[derive(Debug)]
pub(crate) struct SamplerSpec {
    /// Most documents of a shard.
    most: usize,
}

/// Takes over the request.
pub(crate) fn compile(sampler: &Arc<Sampler>) -> Arc<SamplerSpec> {
    Arc::new(SamplerSpec { most: sampler.shard_size })
}

/// The state.
#[derive(Debug)]
pub(crate) struct SamplerCollector {
    shape: Arc<SamplerSpec>,
    /// The best rows of the shard at hand by bucket above, the worst on top.
    best: HashMap<u32, BinaryHeap<RowHit>>,
    single: Single,
}

impl SamplerCollector {
    /// Makes an empty state.
    pub(crate) fn new(shape: &Arc<SamplerSpec>, subs: SubCollectors) -> Self {
        Self { shape: Arc::clone(shape), best: HashMap::new(), single: Single::new(subs) }
    }
}

impl Collector for SamplerCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let (most, best) = (self.shape.most, &mut self.best);
        selection.for_each(|at, parent| {
            let score = batch.scores.and_then(|scores| scores.get(at as usize)).copied().unwrap_or(0.0);
            let row = batch.rows[at as usize];
            let found = RowHit { score, address: Address { segment: batch.segment.number, row } };
            let heap = best.entry(parent).or_default();
            if heap.len() < most {
                heap.push(found);
            } else if let Some(mut worst) = heap.peek_mut()
                && found < *worst
            {
                *worst = found;
            }
        });
        Ok(())
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.shape, self.single.subs.fresh()))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        match same::<Self>(other) {
            Some(other) => self.single.merge(other.single, map, work),
            None => Ok(()),
        }
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        self.single.reduce(SingleKind::Sampler, parents, reduction)
    }

    fn memory(&self) -> usize {
        let kept: usize = self.best.values().map(BinaryHeap::len).sum();
        self.single.memory() + kept * size_of::<RowHit>()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        let mut rows: BTreeMap<Address, (f32, Vec<u32>)> = BTreeMap::new();
        for (parent, heap) in std::mem::take(&mut self.best) {
            for found in heap {
                let (score, parents) = rows.entry(found.address).or_default();
                *score = found.score;
                parents.push(parent);
                self.single.add(parent, 1);
            }
        }
        let addresses: Vec<Address> = rows.keys().copied().collect();
        let subs = &mut self.single.subs;
        segments.read(&addresses, &mut |batch| {
            let (mut positions, mut ordinals, mut scores) = (Vec::new(), Vec::new(), Vec::new());
            for (at, row) in batch.rows.iter().enumerate() {
                let address = Address { segment: batch.segment.number, row: *row };
                let Some((score, parents)) = rows.get(&address) else { continue };
                scores.push(*score);
                for parent in parents {
                    positions.push(at as u32);
                    ordinals.push(*parent);
                }
            }
            let scored = Batch {
                segment: batch.segment,
                scope: batch.scope,
                rows: batch.rows,
                columns: batch.columns,
                scores: Some(&scores),
                outer: batch.outer,
            };
            let selection =
                Selection { positions: Positions::Some(&positions), ordinals: Ordinals::Each(&ordinals) };
            subs.collect(&scored, selection)
        })?;
        self.single.subs.end_shard(segments)
    }
}
