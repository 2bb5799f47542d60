//! The target of a search: an index expression as a pinned snapshot of tables.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use millrace_catalog::access::{Action, DocumentRules};
use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_catalog::routing;
use millrace_dsl::params::Scope;
use millrace_mapping::Mapping;
use millrace_mapping::fields::FieldRules;
use millrace_matching::aliases::Aliases;
use millrace_matching::rules;
use millrace_matching::table::access_snapshot::AccessSnapshot;
use millrace_matching::table::ruled::attach_ruled_rows;
use millrace_matching::table::{TableIndex, TableSegment, TableSnapshot};
use millrace_scoring::reader::SegmentReader;
use millrace_session::{SearchIndex, SearchSession, Snapshot};
use millrace_work::error::Result;

/// Indices that a search refreshes at a time.
const REFRESHES: usize = 32;

/// Resolves an expression and pins a snapshot of every index it stands for.
pub async fn pin(session: &dyn SearchSession, expression: &str, scope: &Scope) -> Result<TableSnapshot> {
    let indices = resolve(session, expression, &scope.options)?;
    let parts = Metadata::expression_parts(expression, session.clock().now_ms())?;
    let parts: Vec<String> =
        parts.into_iter().filter(|(_, excluded)| !excluded).map(|(part, _)| part).collect();
    let mut table = TableSnapshot::default();
    // Side by side: each may have to be refreshed first.
    let pinned: Vec<_> = indices.into_iter().map(|index| index.snapshot()).collect();
    let mut pinned = stream::iter(pinned).buffered(REFRESHES);
    while let Some(snapshot) = pinned.try_next().await? {
        let aliases = Aliases::new(&snapshot.meta, &parts)?;
        let searched = searched_shards(&snapshot.meta, scope, &aliases);
        let (seen, mapping) = seen(session, &snapshot.meta.name, Arc::clone(&snapshot.mapping))?;
        let index = TableIndex {
            meta: Arc::clone(&snapshot.meta),
            mapping,
            filter: aliases.filter,
            seen,
            shards: searched,
            boost: 1.0,
        };
        add(&mut table, &snapshot, index, session.clock().now_ms());
    }
    Ok(table)
}

/// Pins an index whose documents rules say, and of it the shards that may have what is looked for; it has all that was refreshed.
/// `now_ms` is what `now` means in rules.
///
/// # Errors
/// Rules that cannot be understood; a corrupt segment.
pub async fn pin_ruled(
    index: Arc<dyn SearchIndex>,
    rules: &DocumentRules,
    shards: &[u32],
    now_ms: i64,
) -> Result<TableSnapshot> {
    let snapshot = index.snapshot().await?;
    let view = |fields: &[Arc<FieldRules>]| match fields.is_empty() {
        true => Arc::clone(&snapshot.mapping),
        false => Arc::new(snapshot.mapping.seen_under(fields.to_vec())),
    };
    let documents = rules::documents(&snapshot.meta.name, rules, &view)?;
    let pinned = TableIndex {
        meta: Arc::clone(&snapshot.meta),
        mapping: Arc::clone(&snapshot.mapping),
        filter: None,
        seen: AccessSnapshot { documents, ..AccessSnapshot::default() },
        shards: shards.to_vec(),
        boost: 1.0,
    };
    let mut table = TableSnapshot::default();
    add(&mut table, &snapshot, pinned, now_ms);
    Ok(table)
}

/// Adds an index, with the segments of those of its shards that are searched.
fn add(table: &mut TableSnapshot, snapshot: &Snapshot, index: TableIndex, now_ms: i64) {
    let place = table.indices.len();
    for shard in &snapshot.shards {
        if !index.shards.contains(&shard.shard) {
            continue;
        }
        let first = table.segments.len();
        for view in &shard.segments {
            let reader: Arc<dyn SegmentReader> = Arc::clone(&view.segment) as Arc<_>;
            table.segments.push(TableSegment {
                index: place,
                shard: table.shards,
                reader,
                deleted: Arc::clone(&view.deleted),
                ruled: None,
            });
        }
        attach_ruled_rows(&index, shard.shard, now_ms, &mut table.segments[first..]);
        table.shards += 1;
    }
    table.indices.push(index);
}

/// Returns the access of a session to an index, and the index's mapping as it sees it.
fn seen(
    session: &dyn SearchSession,
    index: &str,
    mapping: Arc<Mapping>,
) -> Result<(AccessSnapshot, Arc<Mapping>)> {
    // What these open is searched.
    let action = match session.action() {
        Action::OpenPointInTime | Action::MultiSearch => Action::Search,
        action => action,
    };
    let access = session.access(index);
    if access.sees_all(action) {
        return Ok((AccessSnapshot::default(), mapping));
    }
    let documents = access.documents(action);
    let documents = rules::documents(index, &documents, &|fields| session.view(&mapping, fields.to_vec()))?;
    let fields = access.fields(action);
    let whole = (!fields.is_empty()).then(|| Arc::clone(&mapping));
    let mapping = session.view(&mapping, fields);
    Ok((AccessSnapshot { access: Some(access), documents, whole }, mapping))
}

/// Resolves an expression to indices.
pub fn resolve(
    session: &dyn SearchSession,
    expression: &str,
    options: &IndicesOptions,
) -> Result<Vec<Arc<dyn SearchIndex>>> {
    Ok(session.resolve(expression_or_all(expression), options)?)
}

/// Returns the expression of all indices in place of an empty one.
pub fn expression_or_all(expression: &str) -> &str {
    if expression.is_empty() { "_all" } else { expression }
}

/// Lists the shards that routing values and preferences leave.
fn searched_shards(meta: &IndexMeta, scope: &Scope, aliases: &Aliases) -> Vec<u32> {
    let named = |values: &[String]| -> Vec<u32> {
        values.iter().map(|value| routing::shard_in(meta, value)).collect()
    };
    let asked = scope.routing.as_deref().map(named);
    let of_aliases = aliases.routing.as_deref().map(named);
    (0..meta.shards)
        .filter(|shard| {
            asked.as_ref().is_none_or(|shards| shards.contains(shard))
                && scope.shards.as_ref().is_none_or(|shards| shards.contains(shard))
                && of_aliases.as_ref().is_none_or(|shards| shards.contains(shard))
        })
        .collect()
}
