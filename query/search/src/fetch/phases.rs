//! Members of hits beside their metadata and source: fields, by source or by column, and highlights.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_dsl::body::SearchBody;
use millrace_dsl::fields::FieldAndFormat;
use millrace_dsl::highlight::Highlight;
use millrace_dsl::query::Query;
use millrace_dsl::source_filter::SourceFilter;
use millrace_mapping::pattern::matches;
use millrace_mapping::{Mapping, PathId};
use millrace_matching::table::metadata_field::MetadataField;
use millrace_matching::table::resolve::{IndexContext, setting};
use millrace_matching::table::{TableIndex, TableSegment, TableSnapshot};
use millrace_scoring::collect::Address;
use millrace_scoring::reader::SegmentReader;
use millrace_segment::StoredRow;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use millrace_work::{PARSED_SHARE, QueryContext, bytes_of_members};
use serde_json::{Map, Value, json};

use super::column_values::ColumnField;
use super::source_values::SourceField;
use super::{grouped, segment};
use crate::highlight::{Marker, Shard};

/// Most `docvalue_fields` where the index does not say.
const MAX_DOCVALUE_FIELDS: usize = 100;
/// Most `script_fields` where the index does not say.
const MAX_SCRIPT_FIELDS: usize = 32;

/// Members that a request selects for its hits beside metadata and source.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// Fields by their values in the source.
    pub fields: Vec<FieldAndFormat>,
    /// Stored fields.
    pub stored: Vec<String>,
    /// Fields by their columns.
    pub docvalues: Vec<FieldAndFormat>,
    /// Highlights of the hits.
    pub highlight: Option<Highlight>,
}

/// Members of one hit beside metadata and source.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Values by field.
    pub fields: Map<String, Value>,
    /// Fragments by field.
    pub highlight: Map<String, Value>,
}

impl Phases {
    /// Takes what a body wants, having checked it against the limits of the indices.
    ///
    /// # Errors
    /// [`Error::SearchPhase`] where an index allows less.
    pub fn new(body: &SearchBody, snapshot: &TableSnapshot, stored: Vec<String>) -> Result<Self> {
        for index in &snapshot.indices {
            let limit = setting(&index.meta, "index.max_docvalue_fields_search", MAX_DOCVALUE_FIELDS);
            if body.docvalue_fields.len() > limit {
                let reason = format!(
                    "Trying to retrieve too many docvalue_fields. Must be less than or equal to: [{limit}] but was [{}]. This limit can be set by changing the [index.max_docvalue_fields_search] index level setting.",
                    body.docvalue_fields.len()
                );
                return Err(refused(index, Error::IllegalArgument(reason)));
            }
            let limit = setting(&index.meta, "index.max_script_fields", MAX_SCRIPT_FIELDS);
            if body.script_fields > limit {
                let reason = format!(
                    "Trying to retrieve too many script_fields. Must be less than or equal to: [{limit}] but was [{}]. This limit can be set by changing the [index.max_script_fields] index level setting.",
                    body.script_fields
                );
                return Err(refused(index, Error::IllegalArgument(reason)));
            }
        }
        if body.script_fields > 0 {
            return Err(Error::IllegalArgument(
                "[script_fields] is not supported: cannot execute [search] scripts".to_owned(),
            ));
        }
        Ok(Self {
            fields: body.fields.clone(),
            stored,
            docvalues: body.docvalue_fields.clone(),
            highlight: body.highlight.clone().filter(|highlight| !highlight.fields.is_empty()),
        })
    }

    /// Returns whether sources are read.
    pub(crate) fn reads_source(&self) -> bool {
        !self.fields.is_empty() || !self.stored.is_empty() || self.highlight.is_some()
    }

    /// Returns whether columns are read.
    pub(crate) fn reads_columns(&self) -> bool {
        !self.docvalues.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.reads_source() && self.docvalues.is_empty()
    }

    /// Makes what the hits at the given addresses show; `rows` are they.
    ///
    /// # Errors
    /// [`Error::SearchPhase`] where the fields of an index do not allow what is wanted.
    #[allow(clippy::too_many_arguments)]
    pub async fn run(
        &self,
        snapshot: &TableSnapshot,
        query: &Query,
        addresses: &[Address],
        rows: &[StoredRow],
        compute: &Compute,
        now_ms: i64,
        work: &QueryContext,
    ) -> Result<Vec<Extras>> {
        let mut extras = vec![Extras::default(); addresses.len()];
        if self.is_empty() {
            return Ok(extras);
        }
        if !self.docvalues.is_empty() {
            self.columns(snapshot, addresses, rows, compute, &mut extras, work).await?;
        }
        if self.reads_source() {
            // Shards of an index differ in what is marked only.
            let marked = self.highlight.is_some();
            let mut by_index: HashMap<(usize, Option<u32>), Vec<usize>> = HashMap::new();
            for (place, address) in addresses.iter().enumerate() {
                let segment = segment(snapshot, address.segment)?;
                by_index.entry((segment.index, marked.then_some(segment.shard))).or_default().push(place);
            }
            for ((index, shard), places) in by_index {
                let Some(index) = snapshot.indices.get(index).cloned() else { continue };
                let segments = snapshot.segments.iter().filter(|segment| Some(segment.shard) == shard);
                let segments: Vec<TableSegment> = segments.cloned().collect();
                let (phases, query, work) = (self.clone(), query.clone(), work.clone());
                let own: Vec<(u32, StoredRow)> =
                    places.iter().map(|place| (addresses[*place].row, rows[*place].clone())).collect();
                let made = compute
                    .run(move || phases.sources(&index, &segments, &query, &own, now_ms, &work))
                    .await?;
                for (place, made) in places.into_iter().zip(made) {
                    extras[place].fields.extend(made.fields);
                    extras[place].highlight = made.highlight;
                }
            }
        }
        Ok(extras)
    }

    /// Makes what sources say of some rows of an index, which is held by the work. `shard` has the segments of the one that
    /// has the rows, where something is to be marked. Blocks; runs on a compute thread.
    pub fn sources(
        &self,
        index: &TableIndex,
        shard: &[TableSegment],
        query: &Query,
        rows: &[(u32, StoredRow)],
        now_ms: i64,
        work: &QueryContext,
    ) -> Result<Vec<Extras>> {
        let of_index = |error: Error| refused(index, error);
        let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms };
        if !self.fields.is_empty() && !index.mapping.source_enabled() {
            return Err(of_index(Error::IllegalArgument(format!(
                "Unable to retrieve the requested [fields] since _source is disabled in the mappings for index [{}]",
                index.meta.name
            ))));
        }
        let fields = source_fields(&index.mapping, &self.fields).map_err(of_index)?;
        let stored = self.stored_fields(&index.mapping).map_err(of_index)?;
        let highlight = self.highlight.as_ref();
        let marker = highlight
            .map(|highlight| Marker::new(highlight, query, context, Shard { segments: shard, work }))
            .transpose()
            .map_err(of_index)?;
        let allowed = SourceFilter::of_mapping(&index.mapping);
        let mut made = Vec::with_capacity(rows.len());
        for (number, row) in rows {
            work.check()?;
            let mut extras = Extras::default();
            if !row.source.is_empty() {
                let _parsed = work.part_of(PARSED_SHARE * row.source.len())?;
                let source: Value = serde_json::from_slice(&row.source).map_err(|error| {
                    Error::Execution(format!("the source of [{}] is not JSON: {error}", row.id))
                })?;
                let visible = match &allowed {
                    SourceFilter::All => None,
                    filter => Some(filter.apply(source.clone())),
                };
                let visible = visible.as_ref().unwrap_or(&source);
                let stored = stored.iter().map(|(name, field)| (name, field, &source));
                for (name, field, source) in stored.chain(fields.iter().map(|(n, field)| (n, field, visible)))
                {
                    if field.was_malformed(&row.ignored) {
                        continue;
                    }
                    let values = field.values(source);
                    if !values.is_empty() {
                        extras.fields.insert(name.clone(), Value::Array(values));
                    }
                }
                if let Some(marker) = &marker {
                    extras.highlight = marker.mark(&source, visible, &row.id, *number).map_err(of_index)?;
                }
                work.hold(bytes_of_members(&extras.fields) + bytes_of_members(&extras.highlight))?;
            }
            made.push(extras);
        }
        Ok(made)
    }

    /// Finds the stored fields that are asked for.
    fn stored_fields<'a>(&self, mapping: &'a Mapping) -> Result<Vec<(String, SourceField<'a>)>> {
        let mut found = Vec::new();
        for pattern in &self.stored {
            for name in matching(mapping, pattern) {
                if mapping.is_object(&name) {
                    return Err(Error::IllegalArgument(format!("field [{name}] isn't a leaf field")));
                }
                let Some(field) = SourceField::find(mapping, &name, None)? else { continue };
                if field.is_stored() {
                    found.push((name, field));
                }
            }
        }
        Ok(found)
    }

    async fn columns(
        &self,
        snapshot: &TableSnapshot,
        addresses: &[Address],
        rows: &[StoredRow],
        compute: &Compute,
        extras: &mut [Extras],
        work: &QueryContext,
    ) -> Result<()> {
        for (number, (places, own)) in grouped(addresses) {
            let segment = segment(snapshot, number)?;
            let Some(index) = snapshot.indices.get(segment.index).cloned() else { continue };
            let stored: Vec<StoredRow> = places.iter().map(|place| rows[*place].clone()).collect();
            let (phases, reader, holder) = (self.clone(), Arc::clone(&segment.reader), work.clone());
            let read = move || phases.column_values(&index, reader.as_ref(), &own, &stored, &holder);
            let made = compute.run(read).await?;
            for (place, made) in places.into_iter().zip(made) {
                extras[place].fields = made;
            }
        }
        Ok(())
    }

    /// Makes what columns say of some rows of a segment, or of its elements, which is held by the work. Blocks; runs on a
    /// compute thread.
    pub(crate) fn column_values(
        &self,
        index: &TableIndex,
        reader: &dyn SegmentReader,
        rows: &[u32],
        stored: &[StoredRow],
        work: &QueryContext,
    ) -> Result<Vec<Map<String, Value>>> {
        let mut made = vec![Map::new(); rows.len()];
        let wanted = column_fields(&index.mapping, &self.docvalues).map_err(|error| refused(index, error))?;
        let mut columns: Vec<PathId> = wanted
            .iter()
            .filter_map(|(_, field)| match field {
                DocValues::Column(field) => Some(field.column()),
                _ => None,
            })
            .collect();
        columns.sort_unstable();
        columns.dedup();
        let mut batches = Vec::new();
        if !columns.is_empty() {
            reader.read(&columns, Some(rows.iter().copied().collect()), &mut |batch| {
                batches.push(batch);
                true
            })?;
        }
        for (at, row) in rows.iter().enumerate() {
            work.check()?;
            for (name, field) in &wanted {
                let mut values = match field {
                    DocValues::Id => vec![json!(stored[at].id)],
                    DocValues::Index => vec![json!(index.meta.name)],
                    DocValues::SeqNo => vec![json!(stored[at].seq_no)],
                    DocValues::Column(_) => Vec::new(),
                };
                if let DocValues::Column(field) = field
                    && let Ok(column) = columns.binary_search(&field.column())
                {
                    for batch in &batches {
                        if let Ok(place) = batch.rows.binary_search(row) {
                            values = field.values(&batch.columns[column], place)?;
                        }
                    }
                }
                match made[at].get_mut(name) {
                    _ if values.is_empty() => {}
                    Some(Value::Array(known)) => known.extend(values),
                    _ => {
                        made[at].insert(name.clone(), Value::Array(values));
                    }
                }
            }
            work.hold(bytes_of_members(&made[at]))?;
        }
        Ok(made)
    }

    /// Returns whether versions are read for their sequence numbers.
    pub(crate) fn reads_versions(&self) -> bool {
        self.docvalues.iter().any(|field| field.field == "_seq_no")
    }
}

/// Source of the values of one of the `docvalue_fields`.
#[derive(Debug)]
enum DocValues {
    Id,
    Index,
    SeqNo,
    Column(Box<ColumnField>),
}

fn source_fields<'a>(
    mapping: &'a Mapping,
    wanted: &[FieldAndFormat],
) -> Result<Vec<(String, SourceField<'a>)>> {
    let mut found = Vec::new();
    for wanted in wanted {
        for name in matching(mapping, &wanted.field) {
            if let Some(field) = SourceField::find(mapping, &name, wanted.format.as_deref())? {
                found.push((name, field));
            }
        }
    }
    Ok(found)
}

fn column_fields(mapping: &Mapping, wanted: &[FieldAndFormat]) -> Result<Vec<(String, DocValues)>> {
    let mut found = Vec::new();
    for wanted in wanted {
        for name in matching(mapping, &wanted.field) {
            let values = match MetadataField::find(&name)? {
                Some(MetadataField::Id) => DocValues::Id,
                Some(MetadataField::Index) => DocValues::Index,
                Some(MetadataField::SeqNo) => DocValues::SeqNo,
                None => match ColumnField::find(mapping, &name, wanted.format.as_deref())? {
                    Some(field) => DocValues::Column(Box::new(field)),
                    None => continue,
                },
            };
            found.push((name, values));
        }
    }
    Ok(found)
}

/// Names the fields that a pattern stands for; a name stands for itself.
pub(crate) fn matching(mapping: &Mapping, pattern: &str) -> Vec<String> {
    if !pattern.contains('*') {
        return vec![pattern.to_owned()];
    }
    let fields = mapping.fields().map(|field| field.path.as_ref());
    let aliases = mapping.aliases().map(|(alias, _)| alias);
    fields.chain(aliases).filter(|name| matches(pattern, name)).map(str::to_owned).collect()
}

/// Makes the error of hits that an index refuses to show so.
pub(crate) fn refused(index: &TableIndex, error: Error) -> Error {
    match error {
        error @ (Error::SearchPhase { .. } | Error::Execution(_)) => error,
        other => {
            let failure = other.into_shard_failure(&index.meta.name, &index.meta.uuid_text(), 0);
            Error::SearchPhase { failures: vec![failure] }
        }
    }
}
