//! Selects the stored documents that rules may match: by the index, so that no other is read.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_engine::{Choice, Index};
use millrace_query::filters::{Filter, IndexView};
use millrace_query::{Error as QueryError, QueryContext};
use millrace_runtime::Error;
use millrace_segment::Segment;
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::{MatchRequest, Matching};

impl Matching {
    /// Returns the indices that the rules watch, and the choice of the rows there that may match. What cannot be told by the index
    /// may match: filters that go by the time at which a document comes, segments that a filter cannot be asked of as a whole.
    pub fn stored(&mut self, work: &QueryContext) -> (Vec<Arc<Index>>, Choice) {
        let (indices, mut filters) = (self.watched(), HashMap::new());
        for index in &indices {
            let uuid = index.meta().uuid;
            let Some((_, rules)) = self.targets.rules_for(&uuid) else { continue };
            // Those that cannot be compiled are told of when documents are asked.
            let of_index: Vec<Filter> = rules.iter().filter_map(|rule| self.filter(rule, index)).collect();
            filters.insert(uuid, of_index);
        }
        let work = work.clone();
        (indices, Arc::new(move |index: Uuid, segment: &Segment| chosen(&filters, index, segment, &work)))
    }

    /// Returns the indices that rules watch.
    pub fn watched(&mut self) -> Vec<Arc<Index>> {
        self.targets.refresh(&self.rules, &mut self.to_tell);
        let metas = self.engine.metadata();
        let watched = metas.indices().filter_map(|meta| {
            let (name, _) = self.targets.rules_for(&meta.uuid)?;
            self.engine.index(name).ok().filter(|index| index.meta().uuid == meta.uuid)
        });
        watched.collect()
    }

    fn filter(&self, rule: &MatchRequest, index: &Index) -> Option<Filter> {
        let owner = self.targets.owners().get(&rule.owner)?.as_ref()?;
        let meta = index.meta();
        let access = owner.privileges().on(&meta.name);
        let view = IndexView::new(meta, index.mapping(), &access).and_then(|view| view.named_by(&rule.parts));
        Filter::compile(&rule.body, &Arc::new(view.ok()?)).ok()
    }
}

/// Finds the rows of a segment that some filter may match.
fn chosen(
    filters: &HashMap<Uuid, Vec<Filter>>,
    index: Uuid,
    segment: &Segment,
    work: &QueryContext,
) -> millrace_runtime::Result<RoaringBitmap> {
    let mut all = RoaringBitmap::new();
    for filter in filters.get(&index).into_iter().flatten() {
        match filter.stored_rows(segment, work) {
            Ok(Some(rows)) => all |= rows,
            Err(QueryError::TimedOut) => return Err(Error::Internal("nobody waits any more".to_owned())),
            Err(QueryError::Storage(error)) => return Err(error),
            Ok(None) | Err(_) => {
                all.insert_range(0..segment.rows());
                break;
            }
        }
    }
    Ok(all)
}
