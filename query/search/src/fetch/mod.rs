//! The last step of a search: ids, versions and sources of the final rows, and of no others.

mod column_values;
pub mod decimal;
pub(crate) mod phases;
pub(crate) mod source_values;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use millrace_dsl::query::{Query, java_hash};
use millrace_dsl::source_filter::SourceFilter;
use millrace_matching::lower;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::statistics::{self, Functions};
use millrace_matching::table::{TableSegment, TableSnapshot};
use millrace_scoring::collect::Address;
use millrace_scoring::node::ResolvedPredicate;
use millrace_scoring::prepare::prepare;
use millrace_scoring::source::Source;
use millrace_scoring::steps::in_steps;
use millrace_segment::{RowParts, StoredRow};
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};

pub use self::phases::{Extras, Phases};
use crate::response::Hit;

/// Segments read from at the same time.
const CONCURRENT_SEGMENTS: usize = 8;

/// Bytes of the name of a clause that a hit matches: the text is shared, and lists grow to twice their length.
const MATCHED_BYTES: usize = 2 * size_of::<(Arc<str>, f32)>();

/// Reads the rows at the given addresses, in their order, for some work, which holds them.
pub async fn rows(
    snapshot: &TableSnapshot,
    addresses: &[Address],
    parts: RowParts,
    compute: &Compute,
    work: &QueryContext,
) -> Result<Vec<StoredRow>> {
    let holder = work.clone();
    let read = move |segment: &TableSegment, rows: &[u32]| {
        let mut found = Vec::with_capacity(rows.len());
        in_steps(segment.reader.as_ref(), rows, parts, &holder, |stored, bytes| {
            holder.hold(bytes)?;
            found.extend(stored);
            Ok(())
        })?;
        Ok(found)
    };
    let mut rows = by_segment(snapshot, addresses, compute, work, read).await?;
    for (row, address) in rows.iter_mut().zip(addresses).filter(|(row, _)| !row.ignored.is_empty()) {
        let place = segment(snapshot, address.segment)?.index;
        let rules = snapshot.indices.get(place).map(|index| index.mapping.field_rules());
        row.ignored.retain(|path| rules.is_none_or(|rules| rules.iter().all(|rules| rules.shows(path))));
    }
    Ok(rows)
}

/// Reads something of each of the rows at the given addresses, several segments at a time, and returns it in their order.
/// `read` gets the rows of a segment, which ascend.
pub(crate) async fn by_segment<T: Clone + Send + 'static>(
    snapshot: &TableSnapshot,
    addresses: &[Address],
    compute: &Compute,
    work: &QueryContext,
    read: impl Fn(&TableSegment, &[u32]) -> Result<Vec<T>> + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let fetched: Vec<(Vec<usize>, Vec<T>)> = stream::iter(grouped(addresses))
        .map(|(number, (mut places, _))| {
            places.sort_unstable_by_key(|place| addresses[*place].row);
            let rows: Vec<u32> = places.iter().map(|place| addresses[*place].row).collect();
            let (read, work) = (read.clone(), work.clone());
            async move {
                let segment = segment(snapshot, number)?.clone();
                let read = move || {
                    work.check()?;
                    let found = read(&segment, &rows)?;
                    if found.len() != rows.len() {
                        let (wanted, found) = (rows.len(), found.len());
                        let reason = format!("segment {number} returned {found} of {wanted} rows");
                        return Err(Error::Execution(reason));
                    }
                    Ok(found)
                };
                Ok::<_, Error>((places, compute.run(read).await?))
            }
        })
        .buffer_unordered(CONCURRENT_SEGMENTS)
        .try_collect()
        .await?;
    let mut ordered = vec![None; addresses.len()];
    for (places, found) in fetched {
        for (place, row) in places.into_iter().zip(found) {
            ordered[place] = Some(row);
        }
    }
    ordered
        .into_iter()
        .map(|row| row.ok_or_else(|| Error::Execution("a hit was not fetched".to_owned())))
        .collect()
}

/// Leaves out of hits what the mappings of their indices do not let be shown of sources, for some work.
pub(crate) async fn conceal(
    snapshot: &TableSnapshot,
    addresses: &[Address],
    mut hits: Vec<Hit>,
    compute: &Compute,
    work: &QueryContext,
) -> Result<Vec<Hit>> {
    let mut filters: HashMap<usize, Arc<SourceFilter>> = HashMap::new();
    let mut allowed: Vec<Arc<SourceFilter>> = Vec::with_capacity(hits.len());
    for address in addresses {
        let place = segment(snapshot, address.segment)?.index;
        let filter = filters.entry(place).or_insert_with(|| {
            let index = snapshot.indices.get(place);
            Arc::new(index.map_or(SourceFilter::All, |index| SourceFilter::of_mapping(&index.mapping)))
        });
        allowed.push(Arc::clone(filter));
    }
    if filters.values().all(|filter| **filter == SourceFilter::All) {
        return Ok(hits);
    }
    let work = work.clone();
    let conceal = move || {
        for (hit, filter) in hits.iter_mut().zip(allowed) {
            let row = &mut hit.row;
            match filter.as_ref() {
                SourceFilter::All => {}
                SourceFilter::None => row.source = Bytes::new(),
                _ if row.source.is_empty() => {}
                filter => {
                    work.check()?;
                    let _text = work.part_of(row.source.len())?;
                    let shown = filter
                        .apply_to_text(&row.source)
                        .ok_or_else(|| Error::Execution(format!("the source of [{}] is not JSON", row.id)))?;
                    row.source = Bytes::from(shown);
                }
            }
        }
        Ok(hits)
    };
    compute.run(conceal).await
}

/// Names the clauses of queries that each row matches, of those that carry a name, with their scores
/// where these are asked for.
pub(crate) async fn matched_queries(
    snapshot: &TableSnapshot,
    queries: &[&Query],
    with_scores: bool,
    addresses: &[Address],
    compute: &Compute,
    now_ms: i64,
    work: &QueryContext,
) -> Result<Vec<Vec<(Arc<str>, f32)>>> {
    let mut named: Vec<(Arc<str>, Predicate)> = Vec::new();
    queries.iter().for_each(|query| {
        query.walk(&mut |clause| {
            let Some(name) = &clause.common().name else { return };
            let predicate = match with_scores {
                true => lower::lower(clause),
                false => lower::lower_filter(clause),
            };
            // Of clauses of one name the last is reported.
            match named.iter_mut().find(|(known, _)| **known == **name) {
                Some(known) => known.1 = predicate,
                None => named.push((name.as_str().into(), predicate)),
            }
        });
    });
    let mut matched = vec![Vec::new(); addresses.len()];
    if named.is_empty() {
        return Ok(matched);
    }
    let buckets = (named.len() * 4 / 3 + 1).next_power_of_two().max(16);
    named.sort_by_key(|(name, _)| hashed(name) & (buckets - 1));
    for (number, (mut places, mut rows)) in grouped(addresses) {
        let segment = segment(snapshot, number)?;
        let Some(index) = snapshot.indices.get(segment.index) else { continue };
        // Scorers go forward only.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|at| rows[*at]);
        places = order.iter().map(|at| places[*at]).collect();
        rows.sort_unstable();
        let (reader, shard_number) = (Arc::clone(&segment.reader), snapshot.shard_number(segment));
        let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms };
        let mut resolved = Vec::with_capacity(named.len());
        for (name, predicate) in &named {
            resolved.push((name, resolve(predicate, context)?));
        }
        let (names, nodes): (Vec<&Arc<str>>, Vec<_>) = resolved.into_iter().unzip();
        // Scores need statistics of the whole shard.
        let scored =
            nodes.iter().any(|own| with_scores || own.node.scores_decide()).then(|| snapshot.clone());
        let (of_index, of_shard, ruled) = (segment.index, segment.shard, segment.ruled.clone());
        let shard: Vec<_> =
            snapshot.segments.iter().filter(|other| other.shard == segment.shard).cloned().collect();
        let holder = work;
        let work = work.part();
        let hits = compute
            .run(move || {
                let inverted = reader.inverted()?;
                let functions = Arc::default();
                let mut source =
                    Source { number, shard: shard_number, reader, inverted, functions, ruled, work };
                let rows_of = |own: &ResolvedPredicate| {
                    source.functions = match &scored {
                        Some(snapshot) if with_scores || own.node.scores_decide() => {
                            let mut resolved = vec![None; snapshot.indices.len()];
                            resolved[of_index] = Some(own.clone());
                            let functions = Functions::new(snapshot.shards, false);
                            functions.of(snapshot, &resolved, of_index, of_shard, true, &source.work)?
                        }
                        _ => statistics::expanded(&own.expansions, &shard, &source.work)?,
                    };
                    let prepared = prepare(&own.node, &source, None)?;
                    let mut scorer = prepared.scorer(source.inverted.as_ref(), source.reader.rows())?;
                    let score = |row: &u32| match scorer.seek(*row) == *row {
                        true => Some(if with_scores { scorer.score() } else { 0.0 }),
                        false => None,
                    };
                    Ok(rows.iter().map(score).collect::<Vec<Option<f32>>>())
                };
                nodes.iter().map(rows_of).collect::<Result<Vec<_>>>()
            })
            .await?;
        for (name, hits) in names.into_iter().zip(hits) {
            let matching = hits.iter().flatten().count();
            holder.hold(matching.saturating_mul(MATCHED_BYTES))?;
            for (place, score) in places.iter().zip(hits) {
                if let Some(score) = score {
                    matched[*place].push((Arc::clone(name), score));
                }
            }
        }
    }
    Ok(matched)
}

/// Hashes a name as Java's `HashMap` does: OpenSearch lists matched names in the order of one.
fn hashed(name: &str) -> usize {
    let hash = java_hash(name) as u32;
    (hash ^ hash >> 16) as usize
}

pub(crate) fn segment(snapshot: &TableSnapshot, number: u32) -> Result<&TableSegment> {
    snapshot
        .segments
        .get(number as usize)
        .ok_or_else(|| Error::Execution(format!("segment {number} is not in the snapshot")))
}

/// Groups addresses by segment: places in the list, and rows.
pub(crate) fn grouped(addresses: &[Address]) -> HashMap<u32, (Vec<usize>, Vec<u32>)> {
    let mut groups: HashMap<u32, (Vec<usize>, Vec<u32>)> = HashMap::new();
    for (place, address) in addresses.iter().enumerate() {
        let (places, rows) = groups.entry(address.segment).or_default();
        places.push(place);
        rows.push(address.row);
    }
    groups
}
