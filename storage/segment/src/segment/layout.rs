//! Names: where the files of a segment lie in the object store and which columns its Parquet has.
//!
//! Every column of a mapped field carries the field's path number as Parquet field id, so that a
//! reader finds it whatever the mapping has become since.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use millrace_catalog::SegmentRecord;
use millrace_catalog::description::directory_path;
use millrace_mapping::{Mapping, PathId};
use object_store::path::Path;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use uuid::Uuid;

pub(crate) const ID: &str = "_id";
/// Name of the column of sequence numbers.
pub const SEQ_NO: &str = "_seq_no";
pub(crate) const VERSION: &str = "_version";
/// Name of the column of primary terms.
pub const PRIMARY_TERM: &str = "_primary_term";
pub(crate) const FRAME: &str = "_frame";
/// Name of the column of the times of frames.
pub const FRAME_TIME: &str = "_frame_time";
/// Name of the column of the origins of frames.
pub const FRAME_ORIGIN: &str = "_frame_origin";
/// Name of the column that tells a creation from an update.
pub const CREATED: &str = "_created";
pub(crate) const ROUTING: &str = "_routing";
pub(crate) const IGNORED: &str = "_ignored";
pub(crate) const SOURCE: &str = "_source";
/// The only field of elements without any value.
pub(crate) const ELEMENT: &str = "_element";

/// Object path of a segment's rows.
pub fn data(index: Uuid, shard: u32, segment: Uuid) -> Path {
    directory_path(index, shard, segment).join("data.parquet")
}

/// Object path of a segment's inverted index.
pub fn bundle(index: Uuid, shard: u32, segment: Uuid) -> Path {
    directory_path(index, shard, segment).join("index.bundle")
}

/// Object path of a segment's sidecar of client-chosen ids.
pub fn ids(index: Uuid, shard: u32, segment: Uuid) -> Path {
    directory_path(index, shard, segment).join("ids")
}

/// The files of a segment but for its deletions, with their lengths as the catalog has them.
pub fn files(record: &SegmentRecord) -> impl Iterator<Item = (Path, u64)> {
    let (index, shard, id) = (record.index, record.shard, record.id);
    let files = [
        (data(index, shard, id), record.data_bytes),
        (bundle(index, shard, id), record.bundle_bytes),
        (ids(index, shard, id), record.ids_bytes),
    ];
    files.into_iter().filter(|(_, bytes)| *bytes > 0)
}

/// A file of a segment, but for its deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentFile {
    /// `data.parquet`.
    Data,
    /// `index.bundle`.
    Bundle,
    /// `ids`.
    Ids,
}

impl SegmentFile {
    /// Every file that a segment may have.
    pub const ALL: [Self; 3] = [Self::Data, Self::Bundle, Self::Ids];

    /// Returns its length as the catalog has it, 0 for a file that the segment lacks.
    pub fn bytes(self, record: &SegmentRecord) -> u64 {
        match self {
            Self::Data => record.data_bytes,
            Self::Bundle => record.bundle_bytes,
            Self::Ids => record.ids_bytes,
        }
    }
}

/// Object path of a file of a segment.
pub fn file_path(record: &SegmentRecord, file: SegmentFile) -> Path {
    let (index, shard, id) = (record.index, record.shard, record.id);
    match file {
        SegmentFile::Data => data(index, shard, id),
        SegmentFile::Bundle => bundle(index, shard, id),
        SegmentFile::Ids => ids(index, shard, id),
    }
}

/// File name of a generation of a segment's deletions. Each attempt to write one has a name of its own; files of the
/// version before have none.
pub(crate) fn deletes_name(generation: u64, attempt: Option<Uuid>) -> String {
    match attempt {
        Some(attempt) => format!("deletes-{generation}-{}.roaring", attempt.simple()),
        None => format!("deletes-{generation}.roaring"),
    }
}

/// Reads generation and attempt from the name of a file of deletions.
pub fn parse_deletes_name(name: &str) -> Option<(u64, Option<Uuid>)> {
    let rest = name.strip_prefix("deletes-")?.strip_suffix(".roaring")?;
    let (number, attempt) = match rest.split_once('-') {
        Some((number, attempt)) => (number, Some(Uuid::try_parse(attempt).ok()?)),
        None => (rest, None),
    };
    let generation: u64 = number.parse().ok()?;
    (deletes_name(generation, attempt) == name).then_some((generation, attempt))
}

/// The generation of a file of deletions.
pub fn deletes_generation(name: &str) -> Option<u64> {
    parse_deletes_name(name).map(|(generation, _)| generation)
}

/// A column of a segment: path number, and whether a row may have several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnShape {
    pub(crate) id: PathId,
    pub(crate) list: bool,
}

/// A nested path of a segment: a list of its elements a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NestedShape {
    pub(crate) path: PathId,
    /// The nested path that it lies in.
    pub(crate) outer: Option<PathId>,
    /// Columns of an element, ascending.
    pub(crate) columns: Vec<ColumnShape>,
}

/// Columns of a segment's file beside those that all have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentSchema {
    /// Ascending.
    pub(crate) columns: Vec<ColumnShape>,
    /// Ascending.
    pub(crate) nested: Vec<NestedShape>,
    pub(crate) optional: Optional,
}

/// Optional metadata columns of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Optional {
    pub(crate) routing: bool,
    pub(crate) ignored: bool,
    /// Arrival of rows: time and origin of their frame, and whether they created their document. Segments of the version before
    /// have none of the three.
    pub(crate) arrival: bool,
}

/// Makes the Arrow schema of a segment's rows: metadata, columns, nested paths, `_source`.
pub(crate) fn schema(mapping: &Mapping, shape: &SegmentSchema) -> SchemaRef {
    let mut fields = metadata(shape.optional);
    fields.extend(shape.columns.iter().map(|column| mapped(mapping, *column, "")));
    let top = shape.nested.iter().filter(|nested| nested.outer.is_none());
    fields.extend(top.map(|nested| list_of_elements(mapping, shape, nested, "")));
    fields.push(Arc::new(Field::new(SOURCE, DataType::Utf8View, false)));
    #[cfg(any(test, feature = "testing"))]
    let fields = before::fields(mapping, fields);
    Arc::new(Schema::new(fields))
}

/// Makes the fields of the metadata, in front of all others.
pub(crate) fn metadata(optional: Optional) -> Vec<FieldRef> {
    let mut fields: Vec<FieldRef> = vec![
        Arc::new(Field::new(ID, DataType::Utf8View, false)),
        Arc::new(Field::new(SEQ_NO, DataType::UInt64, false)),
        Arc::new(Field::new(VERSION, DataType::UInt64, false)),
        Arc::new(Field::new(PRIMARY_TERM, DataType::UInt64, false)),
        Arc::new(Field::new(FRAME, DataType::UInt64, false)),
    ];
    if optional.arrival {
        let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        // Null in rows of the version before, so that a merge has one schema whatever its inputs know.
        fields.push(Arc::new(Field::new(FRAME_TIME, time, true)));
        fields.push(Arc::new(Field::new(FRAME_ORIGIN, DataType::UInt8, true)));
        fields.push(Arc::new(Field::new(CREATED, DataType::Boolean, true)));
    }
    if optional.routing {
        fields.push(Arc::new(Field::new(ROUTING, DataType::Utf8View, true)));
    }
    if optional.ignored {
        let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        fields.push(Arc::new(Field::new(IGNORED, DataType::List(item), true)));
    }
    fields
}

/// Makes the field of a mapped column, named below `above`.
fn mapped(mapping: &Mapping, column: ColumnShape, above: &str) -> FieldRef {
    let (name, element) = match mapping.field_by_id(column.id) {
        Some(field) => (named(column.id, below(&field.path, above), above), field.column_kind().data_type()),
        None => (format!("path{}", column.id.0), DataType::Null),
    };
    let data_type = if column.list { list_of(element) } else { element };
    Arc::new(Field::new(name, data_type, true).with_metadata(numbered(column.id)))
}

/// Makes the field of a nested path: a list of structs, the paths nested in it as fields of them.
fn list_of_elements(mapping: &Mapping, shape: &SegmentSchema, nested: &NestedShape, above: &str) -> FieldRef {
    let path = mapping.nested_path_of(nested.path).unwrap_or_default();
    let mut fields: Vec<FieldRef> =
        nested.columns.iter().map(|column| mapped(mapping, *column, path)).collect();
    let inner = shape.nested.iter().filter(|other| other.outer == Some(nested.path));
    fields.extend(inner.map(|inner| list_of_elements(mapping, shape, inner, path)));
    if fields.is_empty() {
        // Parquet has no struct without a field.
        fields.push(Arc::new(Field::new(ELEMENT, DataType::Boolean, false)));
    }
    let item = Field::new_list_field(DataType::Struct(fields.into()), false);
    let field = Field::new(below(path, above), DataType::List(Arc::new(item)), true);
    Arc::new(field.with_metadata(numbered(nested.path)))
}

/// Name of a mapped column: its path, unless that is the name of a column that all segments may have. Readers here go by
/// numbers; for others two columns of one name would be one too many.
fn named(id: PathId, path: String, above: &str) -> String {
    let taken = [FRAME, FRAME_TIME, FRAME_ORIGIN, CREATED].contains(&path.as_str());
    if taken && above.is_empty() { format!("{path}#{}", id.0) } else { path }
}

/// Name of a path as seen from an object above it.
fn below(path: &str, above: &str) -> String {
    let name = path.strip_prefix(above).filter(|_| !above.is_empty()).and_then(|rest| rest.strip_prefix('.'));
    name.unwrap_or(path).to_owned()
}

fn numbered(id: PathId) -> HashMap<String, String> {
    HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.0.to_string())])
}

/// Returns the path number that a field carries.
pub(crate) fn number_of(field: &Field) -> Option<PathId> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)?.parse().ok().map(PathId)
}

/// Finds a column of the metadata. A user's column of the same name, which versions before wrote, has a number.
pub(crate) fn metadata_root(fields: &Fields, name: &str) -> Option<usize> {
    fields.iter().position(|field| field.name() == name && number_of(field).is_none())
}

/// Returns whether a field holds the elements of a nested path.
pub(crate) fn elements_of(field: &Field) -> Option<&Fields> {
    match field.data_type() {
        DataType::List(item) if number_of(field).is_some_and(Mapping::is_nested_id) => {
            match item.data_type() {
                DataType::Struct(fields) => Some(fields),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Counts the Parquet leaves of a type.
pub(crate) fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(item) => leaf_count(item.data_type()),
        DataType::Struct(fields) => fields.iter().map(|field| leaf_count(field.data_type())).sum(),
        _ => 1,
    }
}

/// Makes the list type of several values a row.
pub(crate) fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}

/// Segments as the version before the change feed wrote them.
#[cfg(any(test, feature = "testing"))]
pub mod before {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A field that indices have whose segments are written so, while [`WRITES`] is set.
    pub const MARK: &str = "written_by_the_version_before";
    /// Switches the earlier format on.
    pub static WRITES: AtomicBool = AtomicBool::new(false);

    pub(super) fn fields(mapping: &Mapping, mut fields: Vec<FieldRef>) -> Vec<FieldRef> {
        if mapping.field(MARK).is_none() || !WRITES.load(Ordering::SeqCst) {
            return fields;
        }
        let is_new = |field: &Field| [FRAME_TIME, FRAME_ORIGIN, CREATED].contains(&field.name().as_str());
        fields.retain(|field| number_of(field).is_some() || !is_new(field));
        let plain = |field: FieldRef| match field.name().split_once('#') {
            Some((name, _)) => Arc::new(field.as_ref().clone().with_name(name)),
            None => field,
        };
        fields.into_iter().map(plain).collect()
    }
}
