//! Skips shards that cannot have a match, by the bounds of their values.
//!
//! Bounds of stored segments are known without reading them. What is still in memory has none, but is
//! small, so that its values are looked at. Blocks; runs on compute threads.

use std::sync::Arc;

use millrace_dsl::query::Query;
use millrace_mapping::PathId;
use millrace_matching::lower;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::{TableSegment, TableSnapshot};
use millrace_scoring::node::Node;
use millrace_scoring::ranges::range_rows;
use millrace_segment::{NumberBounds, ValueRange};
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use millrace_work::error::Result;

/// Counts the shards that cannot have a match; one is always left to answer.
pub(crate) async fn skipped(
    snapshot: &Arc<TableSnapshot>,
    query: &Query,
    now_ms: i64,
    compute: &Compute,
    work: &QueryContext,
) -> Result<u32> {
    let without = without_match(snapshot, query, now_ms, compute, work).await?;
    let count = without.iter().filter(|none| **none).count() as u32;
    Ok(count.min(snapshot.shards.saturating_sub(1)))
}

/// Returns whether no shard of an index, by its place in the snapshot, can have a match.
pub(crate) fn index_has_none(without: &[bool], snapshot: &TableSnapshot, place: usize) -> bool {
    let before: usize = snapshot.indices[..place].iter().map(|index| index.shards.len()).sum();
    let own = snapshot.indices[place].shards.len();
    without.get(before..before + own).is_some_and(|own| own.iter().all(|none| *none))
}

/// Tells for each shard whether it cannot have a match.
pub(crate) async fn without_match(
    snapshot: &Arc<TableSnapshot>,
    query: &Query,
    now_ms: i64,
    compute: &Compute,
    work: &QueryContext,
) -> Result<Vec<bool>> {
    let (snapshot, query, work) = (Arc::clone(snapshot), query.clone(), work.clone());
    compute.run(move || cannot_match(&snapshot, &query, now_ms, &work)).await
}

fn cannot_match(
    snapshot: &TableSnapshot,
    query: &Query,
    now_ms: i64,
    work: &QueryContext,
) -> Result<Vec<bool>> {
    let mut without = vec![false; snapshot.shards as usize];
    let predicate = lower::lower_filter(query);
    let nodes: Vec<Option<Node>> = snapshot
        .indices
        .iter()
        .map(|index| {
            let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms };
            // An index that refuses the query says so itself.
            resolve(&predicate, context).ok().map(|resolved| resolved.node)
        })
        .collect();
    for (shard, none) in without.iter_mut().enumerate() {
        work.check()?;
        let index = snapshot.shards().nth(shard).map(|(index, _)| index);
        let place = index
            .and_then(|index| snapshot.indices.iter().position(|own| std::ptr::eq(own, index)))
            .and_then(|place| nodes.get(place));
        let Some(Some(node)) = place else { continue };
        // Bounds of values are those of hidden documents, too.
        if index.is_some_and(|index| !index.seen.documents.is_empty()) {
            *none = matches!(node, Node::None);
            continue;
        }
        let mut own = snapshot.segments.iter().filter(|segment| segment.shard as usize == shard).peekable();
        *none = match own.peek() {
            None => !can_match(node, None, work),
            Some(_) => own.all(|segment| !can_match(node, Some(segment), work)),
        };
    }
    // What could not be looked at to its end may match.
    work.check()?;
    Ok(without)
}

/// Returns whether a segment can have a match; without one, whether something other than values decides.
fn can_match(node: &Node, segment: Option<&TableSegment>, work: &QueryContext) -> bool {
    match node {
        Node::None => false,
        Node::ColumnRange { column, range, .. } => {
            segment.is_some_and(|segment| overlaps(segment, *column, range, work))
        }
        Node::And(parts) => parts.iter().all(|part| can_match(part, segment, work)),
        Node::AtLeast(0, _) => true,
        Node::AtLeast(required, parts) => {
            parts.iter().filter(|part| can_match(part, segment, work)).count() >= *required
        }
        Node::Constant(_, part) => can_match(part, segment, work),
        _ => true,
    }
}

fn overlaps(segment: &TableSegment, column: PathId, range: &ValueRange, work: &QueryContext) -> bool {
    match (segment.reader.bounds(column).values, range) {
        (NumberBounds::Empty, _) => false,
        // What cannot be looked at may match.
        (NumberBounds::Unknown, range) => {
            let mut none = true;
            let looked = range_rows(segment.reader.as_ref(), column, range, None, work, &mut |rows| {
                none = rows.is_empty();
                none
            });
            looked.is_err() || !none
        }
        (NumberBounds::I64(least, greatest), ValueRange::I64(from, to)) => *from <= greatest && least <= *to,
        (NumberBounds::U64(least, greatest), ValueRange::U64(from, to)) => *from <= greatest && least <= *to,
        (NumberBounds::F64(least, greatest), ValueRange::F64(from, to)) => *from <= greatest && least <= *to,
        _ => true,
    }
}
