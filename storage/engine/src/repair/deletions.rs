//! Deleted rows of the chosen segments: by their own deletes files, and by those of segments that they stand for or that stand
//! beside them. A deletion is never undone.

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use bytes::Bytes;
use millrace_runtime::{Error, Priority, Result};
use millrace_segment::objects::is_missing;
use millrace_segment::{DeletesFile, Env, PRIMARY_TERM, SEQ_NO, StoredSegment, decode_deletes};
use roaring::RoaringBitmap;

use super::survey::DescribedSegment;

/// A row's operation: sequence number and term.
type Operation = (u64, u64);

/// The deleted rows of a segment.
#[derive(Debug, Default)]
pub(super) struct DeletedRows {
    pub(super) rows: RoaringBitmap,
    /// The deletes file that has them all; `None` where none has.
    pub(super) file: Option<DeletesFile>,
}

/// Finds the deleted rows of each segment in `taken`; `others` are those of the shard that were not taken. A deletes file
/// that is damaged is an error for its segment: a start puts the shard out of use then.
pub(super) async fn find(
    taken: &[&DescribedSegment],
    others: &[&DescribedSegment],
    env: &Env,
    lost: &mut Vec<String>,
) -> Result<Vec<DeletedRows>> {
    let mut found = Vec::with_capacity(taken.len());
    for segment in taken {
        let deleted = match load(segment, env).await {
            Ok(deleted) => deleted,
            Err(Error::Corrupt { file, reason, .. }) => {
                lost.push(format!(
                    "[{file}] is damaged ({reason}): its shard is out of use until it is restored"
                ));
                // As the catalog would name it.
                let generation = segment.candidate.deletes;
                let attempt = segment.attempts.first().copied().flatten();
                let rows = RoaringBitmap::new();
                let file = Some(DeletesFile::from_file(generation, attempt, &[], &rows));
                DeletedRows { rows, file }
            }
            Err(error) => return Err(error),
        };
        found.push(deleted);
    }
    let mut operations: Vec<Operation> = Vec::new();
    for segment in others {
        let path = segment.description.path();
        match load(segment, env).await {
            Ok(DeletedRows { rows, .. }) if rows.is_empty() => {}
            Ok(DeletedRows { rows, .. }) => match of_rows(segment, Some(rows), env).await {
                Ok(deleted) => operations.extend(deleted.into_iter().map(|(_, operation)| operation)),
                // What was being removed had been replaced, with its deletions.
                Err(error) if is_missing(&error) => {}
                Err(error) => lost.push(format!("deletions beside [{path}], which cannot be read: {error}")),
            },
            Err(error) => lost.push(format!("deletions beside [{path}], which cannot be read: {error}")),
        }
    }
    if operations.is_empty() {
        return Ok(found);
    }
    operations.sort_unstable();
    for (segment, deleted) in taken.iter().zip(&mut found) {
        let Some(record) = &segment.description.record else { continue };
        let at = operations.partition_point(|(seq_no, _)| *seq_no < record.min_seq_no);
        if operations.get(at).is_none_or(|(seq_no, _)| *seq_no > record.max_seq_no) {
            continue;
        }
        let before = deleted.rows.len();
        for (row, operation) in of_rows(segment, None, env).await? {
            if operations.binary_search(&operation).is_ok() {
                deleted.rows.insert(row);
            }
        }
        if deleted.rows.len() != before {
            deleted.file = None;
        }
    }
    Ok(found)
}

/// Reads the newest deletes file of a segment. Of several attempts to write it, all count: what any of them marks was deleted.
async fn load(segment: &DescribedSegment, env: &Env) -> Result<DeletedRows> {
    let Some(record) = &segment.description.record else { return Ok(DeletedRows::default()) };
    let generation = segment.candidate.deletes;
    if generation == 0 {
        return Ok(DeletedRows { rows: RoaringBitmap::new(), file: Some(DeletesFile::default()) });
    }
    let mut found: Vec<(RoaringBitmap, DeletesFile)> = Vec::with_capacity(segment.attempts.len());
    for attempt in &segment.attempts {
        let named = DeletesFile::from_file(generation, *attempt, &[], &RoaringBitmap::new());
        let path = named.path(record);
        let decode = |bytes: &Bytes| {
            let rows = decode_deletes(bytes, path.as_ref())?;
            let file = DeletesFile::from_file(generation, *attempt, bytes, &rows);
            Ok((rows, file))
        };
        let missing =
            || Error::Corrupt { file: path.to_string(), offset: 0, reason: "it is missing".to_owned() };
        found.push(env.objects.get_checked(&path, decode).await?.ok_or_else(missing)?);
    }
    let mut all = RoaringBitmap::new();
    found.iter().for_each(|(rows, _)| all |= rows);
    let file = found.into_iter().find(|(rows, _)| rows.len() == all.len()).map(|(_, file)| file);
    Ok(DeletedRows { rows: all, file })
}

/// Rows of a segment, all without a choice, with their operations.
async fn of_rows(
    segment: &DescribedSegment,
    rows: Option<RoaringBitmap>,
    env: &Env,
) -> Result<Vec<(u32, Operation)>> {
    let Some(record) = segment.description.record.clone() else { return Ok(Vec::new()) };
    let stored = StoredSegment::new(record, env.clone());
    let read = move || {
        let numbers: Vec<u32> = match &rows {
            Some(rows) => rows.iter().collect(),
            None => (0..stored.record.rows).collect(),
        };
        let mut numbers = numbers.into_iter();
        let mut found = Vec::new();
        stored.read_named(&[SEQ_NO, PRIMARY_TERM], rows.as_ref(), |batch| {
            let column = |name: &str| batch.column_by_name(name).map(|a| a.as_primitive::<UInt64Type>());
            let (Some(seq_nos), Some(terms)) = (column(SEQ_NO), column(PRIMARY_TERM)) else { return false };
            found.extend(
                numbers
                    .by_ref()
                    .take(batch.num_rows())
                    .zip(seq_nos.values().iter().copied().zip(terms.values().iter().copied())),
            );
            true
        })?;
        Ok(found)
    };
    env.compute.run(Priority::Background, read).await
}
