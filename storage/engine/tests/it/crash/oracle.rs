//! Oracle of the store: acknowledged operations, and the one request that may or may not be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use millrace_catalog::access::Principal;
use millrace_engine::{Engine, StoredDoc};
use millrace_runtime::Error;
use serde_json::Value;

/// A document as acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doc {
    pub(crate) version: u64,
    pub(crate) seq_no: u64,
    pub(crate) term: u64,
    pub(crate) source: String,
}

/// An operation of a request that was not acknowledged: its id, `None` for a generated one, and the
/// source that it stores, `None` for a deletion.
#[derive(Clone, Debug)]
pub(crate) struct UncertainOperation {
    pub(crate) id: Option<String>,
    pub(crate) source: Option<String>,
}

/// Interrupted operation.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    Write { index: String, ops: Vec<UncertainOperation> },
    DeleteIndex(String),
    CreateIndex(String),
}

/// The acknowledged state: index, id, document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) indices: BTreeMap<String, BTreeMap<String, Doc>>,
    /// Greatest term acknowledged so far.
    pub(crate) greatest_term: u64,
    /// Least term that an index that was recovered may use.
    pub(crate) least_terms: BTreeMap<String, u64>,
}

/// Live rows of an index as searches see them, by id; every id is there once, and every row's
/// columns are those of its source.
pub(super) async fn searched(engine: &Engine, index: &str) -> BTreeMap<String, Doc> {
    let snapshot = engine.index(index).unwrap().snapshot().await.unwrap();
    let mut found = BTreeMap::new();
    for shard in &snapshot.shards {
        let mut seq_nos = BTreeSet::new();
        for view in &shard.segments {
            let live: roaring::RoaringBitmap =
                (0..view.segment.rows()).filter(|row| !view.deleted.contains(*row)).collect();
            assert_eq!(live.len(), u64::from(view.live_rows()));
            let rows: Vec<u32> = live.iter().collect();
            let mut numbers = BTreeMap::new();
            for row in view.segment.fetch(&rows, millrace_segment::RowParts::ALL).await.unwrap() {
                let source = String::from_utf8(row.source.to_vec()).unwrap();
                numbers.insert(row.row, source.clone());
                assert!(seq_nos.insert(row.seq_no), "sequence number {} twice", row.seq_no);
                let doc = Doc { version: row.version, seq_no: row.seq_no, term: row.primary_term, source };
                let twice = found.insert(row.id.clone(), doc);
                assert!(twice.is_none(), "[{}] is there twice: {twice:?}", row.id);
            }
            check_columns(&snapshot.mapping, &view.segment, &live, &numbers).await;
        }
    }
    found
}

/// Every field of every source is mapped and found in the column that the mapping names.
async fn check_columns(
    mapping: &millrace_mapping::Mapping,
    segment: &millrace_segment::Segment,
    live: &roaring::RoaringBitmap,
    sources: &BTreeMap<u32, String>,
) {
    let mut names = BTreeSet::new();
    for source in sources.values() {
        let Value::Object(members) = serde_json::from_str(source).unwrap() else { panic!("{source}") };
        names.extend(members.into_iter().filter(|(_, value)| value.is_number()).map(|(name, _)| name));
    }
    for name in names {
        let field = mapping.field(&name).unwrap_or_else(|| panic!("[{name}] is not mapped"));
        let batches: Vec<_> = segment.scan(&[field.id], Some(live.clone())).try_collect().await.unwrap();
        for batch in batches {
            let column = batch.columns[0].as_primitive_opt::<Int64Type>();
            for (at, row) in batch.rows.iter().enumerate() {
                let source: Value = serde_json::from_str(&sources[row]).unwrap();
                let stored = column.filter(|c| arrow::array::Array::is_valid(*c, at)).map(|c| c.value(at));
                assert_eq!(stored, source[&name].as_i64(), "[{name}] of row {row}: {source}");
            }
        }
    }
}

fn doc_of(stored: StoredDoc) -> Doc {
    Doc {
        version: stored.version,
        seq_no: stored.seq_no,
        term: stored.primary_term,
        source: String::from_utf8(stored.source.to_vec()).unwrap(),
    }
}

pub(crate) async fn get(engine: &Engine, index: &str, id: &str) -> Option<Doc> {
    engine.get(&Principal::system(), index, id, None, true).await.unwrap().map(doc_of)
}

/// Returns the change feed of an index where it is read back from segments, which is in the order of its frames.
async fn read_back(engine: &Engine, index: &str) -> BTreeMap<String, Doc> {
    let mut reading = engine.read_back(&[engine.index(index).unwrap()], 0..u64::MAX).await.unwrap();
    let mut found = BTreeMap::new();
    let mut last = BTreeMap::new();
    while let Some(frame) = reading.next().await.unwrap() {
        for part in &frame.parts {
            for (seq_no, op) in (part.first_seq_no..).zip(&part.ops) {
                let before = last.insert(part.shard, (frame.number, seq_no));
                assert!(before.is_none_or(|(number, before)| number <= frame.number && before < seq_no));
                let source = String::from_utf8(op.source.clone().unwrap().to_vec()).unwrap();
                let doc = Doc { version: op.version, seq_no, term: part.primary_term, source };
                let id = String::from_utf8(op.id.to_vec()).unwrap();
                assert!(found.insert(id, doc).is_none(), "a document is read back twice");
            }
        }
    }
    found
}

impl Oracle {
    /// Checks everything, and takes up what became of the interrupted request.
    pub(crate) async fn check(&mut self, engine: &Arc<Engine>, pending: Option<Pending>) {
        match &pending {
            Some(Pending::DeleteIndex(index)) if engine.index(index).is_err() => {
                self.indices.remove(index);
            }
            Some(Pending::CreateIndex(index)) if engine.index(index).is_ok() => {
                self.indices.insert(index.clone(), BTreeMap::new());
            }
            _ => {}
        }
        let names: Vec<String> = engine.metadata().indices().map(|meta| meta.name.to_string()).collect();
        assert_eq!(names, self.indices.keys().cloned().collect::<Vec<_>>());
        for index in names {
            // Before the refresh, searches see an older state, in which each id is there once, too.
            searched(engine, &index).await;
            engine.refresh(&[engine.index(&index).unwrap()]).await.unwrap();
            let found = searched(engine, &index).await;
            if let Some(Pending::Write { index: of, ops }) = &pending
                && *of == index
            {
                self.take_up(&index, ops, &found);
            }
            let expected = &self.indices[&index];
            assert!(read_back(engine, &index).await == *expected, "[{index}] reads back otherwise");
            for (id, doc) in expected {
                assert_eq!(found.get(id), Some(doc), "search of [{index}/{id}]");
                assert_eq!(get(engine, &index, id).await.as_ref(), Some(doc), "get of [{index}/{id}]");
            }
            for id in found.keys() {
                assert!(expected.contains_key(id), "[{index}/{id}] should not be there");
            }
            for id in (0..super::IDS).map(|n| format!("id-{n}")).filter(|id| !expected.contains_key(id)) {
                assert_eq!(get(engine, &index, &id).await, None, "get of [{index}/{id}]");
            }
        }
    }

    /// An interrupted request is there as a whole or not at all.
    fn take_up(&mut self, index: &str, ops: &[UncertainOperation], found: &BTreeMap<String, Doc>) {
        let known = self.indices.get_mut(index).unwrap();
        let mut last: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        let mut happened = Vec::new();
        for op in ops {
            match &op.id {
                Some(id) => {
                    last.insert(id, op.source.as_deref());
                }
                None => {
                    let source = op.source.as_ref().unwrap();
                    let stored = found.iter().find(|(_, doc)| doc.source == *source);
                    happened.push((source.clone(), stored.is_some()));
                    if let Some((id, doc)) = stored {
                        known.insert(id.clone(), doc.clone());
                    }
                }
            }
        }
        for (id, source) in last {
            let (before, now) = (known.get(id).cloned(), found.get(id));
            let as_before = before.as_ref() == now;
            let as_asked = source == now.map(|doc| doc.source.as_str());
            match (as_before, as_asked) {
                // A deletion of nothing shows nothing.
                (true, true) => {}
                (before, asked) => {
                    assert!(before || asked, "[{id}] is neither as before nor as asked: {now:?}");
                    happened.push((id.to_owned(), asked));
                }
            }
            match now {
                Some(doc) => {
                    if let Some(before) = before.filter(|_| as_asked) {
                        assert!(doc.version > before.version && doc.seq_no > before.seq_no);
                    }
                    known.insert(id.to_owned(), doc.clone());
                }
                None => {
                    known.remove(id);
                }
            }
        }
        assert!(happened.windows(2).all(|two| two[0].1 == two[1].1), "half a request: {happened:?}");
    }
}

/// Returns whether an error is one that a lost disk brings about.
pub(crate) fn is_outage(error: &Error) -> bool {
    use millrace_runtime::Kind;
    matches!(error.kind(), Kind::Unavailable)
}
