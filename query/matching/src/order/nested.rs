//! The elements whose values are a sort key, over all indices of a table.

use std::sync::Arc;

use millrace_dsl::query::{NestedQuery, NestedScore, Query};
use millrace_dsl::sort::NestedSort;
use millrace_work::error::{Error, Result};

use super::taken;
use crate::lower;
use crate::table::derived_key::{NestedKey, NestedLevel};
use crate::table::resolve::{IndexContext, resolve};
use crate::table::snapshot::TableSnapshot;
use crate::table::statistics::Functions;

/// Makes the elements of a sort; failures of single indices go to `failed`.
pub(super) fn nested_key(
    sort: &NestedSort,
    snapshot: &TableSnapshot,
    now_ms: i64,
    failed: &mut Vec<(usize, Error)>,
) -> Result<Arc<NestedKey>> {
    let levels = sort.levels();
    if levels.iter().skip(1).any(|level| level.max_children.is_some()) {
        return Err(query_shard("max_children is only supported on top level of nested sort".to_owned()));
    }
    let mut made = Vec::with_capacity(levels.len());
    for (depth, level) in levels.iter().enumerate() {
        let filter = level.filter.clone().unwrap_or_else(Query::match_all);
        let around = levels[..depth].iter().rev();
        let query = around.fold(nested(&level.path, filter), |inner, outer| nested(&outer.path, inner));
        let predicate = lower::lower_filter(&query);
        let mut resolved = Vec::with_capacity(snapshot.indices.len());
        for (at, index) in snapshot.indices.iter().enumerate() {
            let mapping = &index.mapping;
            let own = match mapping.nested_id(&level.path) {
                Some(_) => resolve(&predicate, IndexContext { meta: &index.meta, mapping, now_ms }),
                None if mapping.is_object(&level.path) => Err(query_shard(format!(
                    "[nested] nested object under path [{}] is not of nested type",
                    level.path
                ))),
                None => Err(query_shard(format!(
                    "[nested] failed to find nested object under path [{}]",
                    level.path
                ))),
            };
            resolved.push(taken(own, at, failed));
        }
        made.push(NestedLevel { resolved, functions: Functions::new(snapshot.shards, false) });
    }
    Ok(Arc::new(NestedKey { levels: made, max_children: sort.max_children.unwrap_or(usize::MAX).max(1) }))
}

fn nested(path: &str, query: Query) -> Query {
    NestedQuery {
        path: path.to_owned(),
        query,
        score_mode: NestedScore::None,
        ignore_unmapped: false,
        inner_hits: None,
        common: Default::default(),
    }
    .into()
}

fn query_shard(reason: String) -> Error {
    Error::QueryShard { reason, caused_by: None }
}
