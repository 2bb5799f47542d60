//! Which rows of the segments taken are deleted: by their own deletes files, and by those of segments that they stand for or that
//! stand beside them. A deletion is never undone.

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use roaring::RoaringBitmap;

use super::survey::Found;
use crate::objects::is_missing;
use crate::segment::{Env, PRIMARY_TERM, SEQ_NO, Stored, decode_deletes, deletes_path};
use crate::{Error, Priority, Result};

/// A row's operation: sequence number and term.
type Operation = (u64, u64);

/// The deleted rows of a segment.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    pub(super) rows: RoaringBitmap,
    /// Whether its newest deletes file has them all.
    pub(super) stored: bool,
}

/// Finds the deleted rows of each segment in `taken`; `others` are those of the shard that were not taken. A deletes file
/// that is damaged is an error for its segment: a start puts the shard out of use then.
pub(super) async fn find(
    taken: &[&Found],
    others: &[&Found],
    env: &Env,
    lost: &mut Vec<String>,
) -> Result<Vec<Deleted>> {
    let mut found = Vec::with_capacity(taken.len());
    for segment in taken {
        let rows = match load(segment, env).await {
            Ok(rows) => rows,
            Err(Error::Corrupt { file, reason, .. }) => {
                lost.push(format!(
                    "[{file}] is damaged ({reason}): its shard is out of use until it is restored"
                ));
                RoaringBitmap::new()
            }
            Err(error) => return Err(error),
        };
        found.push(Deleted { rows, stored: true });
    }
    let mut operations: Vec<Operation> = Vec::new();
    for segment in others {
        let path = segment.description.path();
        match load(segment, env).await {
            Ok(rows) if rows.is_empty() => {}
            Ok(rows) => match of_rows(segment, Some(rows), env).await {
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
        deleted.stored = deleted.rows.len() == before;
    }
    Ok(found)
}

async fn load(segment: &Found, env: &Env) -> Result<RoaringBitmap> {
    let (description, generation) = (&segment.description, segment.candidate.deletes);
    if generation == 0 || description.record.is_none() {
        return Ok(RoaringBitmap::new());
    }
    let path = deletes_path(description.index.uuid, description.shard, description.id, generation);
    decode_deletes(&env.objects.get(&path).await?, path.as_ref())
}

/// Rows of a segment, all without a choice, with their operations.
async fn of_rows(segment: &Found, rows: Option<RoaringBitmap>, env: &Env) -> Result<Vec<(u32, Operation)>> {
    let Some(record) = segment.description.record.clone() else { return Ok(Vec::new()) };
    let stored = Stored::new(record, env.clone());
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
