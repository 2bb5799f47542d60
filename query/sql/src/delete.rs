//! DELETE: the documents that a condition finds, batch after batch.
//!
//! A document is deleted as it was in the snapshot of the statement: one that has changed since is a conflict
//! and ends the statement with what was deleted before it. A batch is counted when it is durable. Before each it is asked anew
//! who sends the statement: it ends where that may not delete, or does not read what it names as it did.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{Field, Int64Type, Schema};
use futures::future::BoxFuture;
use millrace_catalog::access::{self, Refusals};
use millrace_catalog::operation::{Action, DocResult, RefreshPolicy, WriteOp, WriteOutcome};
use millrace_runtime::tasks::TaskCancelled;
use millrace_runtime::{Error as StorageError, Kind};
use millrace_session::SearchSession;
use millrace_target::access_checkpoint::AccessCheckpoint;
use millrace_work::error::Error;
use sqlparser::ast;

use super::bind::OutColumn;
use super::error::{Result, SqlError};
use super::metadata::Listing;
use super::request::SqlRequest;
use super::run::{Bounds, RowCountMode, Runner, StatementRequest};
use super::statement::{self, Names, Statement};
use super::types::SqlType;

/// Documents of one batch.
pub(super) const DELETED_AT_A_TIME: usize = 1_000;
/// Time that a batch may take to be durable.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

impl Runner {
    /// Runs a statement that changes documents, and returns how many it has deleted.
    ///
    /// # Errors
    /// It is another statement, a setting forbids it, or documents have changed meanwhile.
    pub fn update<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<u64>> {
        let part = move |runner: Self, asked: StatementRequest| async move {
            let SqlRequest { query, parameters, .. } = &asked.request;
            match statement::parse_with(query, parameters)? {
                Statement::Delete(query) => {
                    let mut touched = BTreeSet::new();
                    let deleted = runner.deleted(&asked, &query, bounds, &mut touched).await;
                    // Whoever runs one statement after another sees what the one before has done.
                    // One that was deleted meanwhile has nothing to be seen.
                    asked.session.refresh_by_name(&touched).await?;
                    deleted
                }
                _ => Err(SqlError::Request("the statement changes nothing; run it as a query".to_owned())),
            }
        };
        Box::pin(self.on_threads(session, request, bounds.now_ms, bounds.timeout_ms, part))
    }

    /// Deletes what a query finds and lists how much that was.
    pub(super) async fn delete(
        &self,
        asked: &StatementRequest,
        query: &ast::Query,
        bounds: Bounds,
    ) -> Result<Listing> {
        let mut touched = BTreeSet::new();
        let deleted = self.deleted(asked, query, bounds, &mut touched).await;
        if let Err(SqlError::Cancelled(_)) = deleted {
            // The one who has cancelled it looks for what is left.
            asked.session.refresh_by_name(&touched).await?;
        }
        count_of(deleted?)
    }

    /// Deletes what a query finds and counts it. `touched` takes the indices of what was deleted.
    async fn deleted(
        &self,
        asked: &StatementRequest,
        query: &ast::Query,
        bounds: Bounds,
        touched: &mut BTreeSet<Arc<str>>,
    ) -> Result<u64> {
        may_delete(bounds)?;
        let prepared = self.prepare(asked, query, &Names::default(), None).await?;
        let mut rows = self.rows(&prepared, RowCountMode::All).await?;
        let mut deleted = 0;
        let mut begun =
            AccessCheckpoint::new(&*asked.session, prepared.snapshots.clone(), asked.session.action());
        let task = asked.session.task();
        // A cancellation ends the statement between two batches, with the count of what was deleted.
        if let Some(task) = task {
            task.set_cancellable();
        }
        loop {
            let page = rows.page(DELETED_AT_A_TIME);
            let page = match task {
                None => page.await,
                Some(task) => match task.check() {
                    Ok(()) => task.run(page).await.map_err(|reason| cancelled(&reason, deleted))?,
                    Err(reason) => return Err(cancelled(&reason, deleted)),
                },
            };
            let (batches, more) = page?;
            let mut ops = Vec::new();
            for batch in &batches {
                operations(batch, &mut ops)?;
            }
            if !ops.is_empty() {
                // The statement may take its time.
                let session = asked.session.again().await?.doing(access::Action::DeleteByQuery)?;
                ops.iter().try_for_each(|op| session.check_allowed(&op.index))?;
                begun.check(&*session)?;
                // A client that goes away ends the statement, but no write halfway.
                let write =
                    tokio::spawn(async move { session.write(ops, RefreshPolicy::None, WRITE_TIMEOUT).await });
                let outcomes =
                    write.await.map_err(|error| Error::Execution(format!("a write failed: {error}")))??;
                touched.extend(outcomes.iter().flatten().map(|outcome| Arc::clone(&outcome.index)));
                deleted += gone(asked.session.refusals(), outcomes)?;
            }
            if !more {
                // What was deleted is yet to be answered.
                prepared.stop.disarm();
                return Ok(deleted);
            }
        }
    }
}

/// Says that a statement was cancelled, and how much it has deleted before.
fn cancelled(cancelled: &TaskCancelled, deleted: u64) -> SqlError {
    SqlError::Cancelled(format!("{cancelled}; [{deleted}] documents were deleted before that"))
}

/// Refuses deletions where a setting does.
pub(super) fn may_delete(bounds: Bounds) -> Result<()> {
    match bounds.deletes {
        true => Ok(()),
        false => Err(SqlError::Disabled(
            "DELETE clause is disabled by default and will be deprecated. Using the plugins.sql.delete.enabled setting to enable it".to_owned(),
        )),
    }
}

/// Makes the deletions of a batch of `_index, _id, _routing, _seq_no, _primary_term`.
fn operations(batch: &RecordBatch, ops: &mut Vec<WriteOp>) -> Result<()> {
    let wrong = || Error::Execution("the documents to delete have other columns".to_owned());
    let [indices, ids, routings, numbers, terms] = batch.columns() else { return Err(wrong().into()) };
    let texts = |array: &'_ ArrayRef| -> Result<StringViewArray, Error> {
        array.as_string_view_opt().cloned().ok_or_else(wrong)
    };
    let whole = |array: &'_ ArrayRef| -> Result<Int64Array, Error> {
        array.as_primitive_opt::<Int64Type>().cloned().ok_or_else(wrong)
    };
    let (indices, ids, routings) = (texts(indices)?, texts(ids)?, texts(routings)?);
    let (numbers, terms) = (whole(numbers)?, whole(terms)?);
    for row in 0..batch.num_rows() {
        ops.push(WriteOp {
            routing: routings.is_valid(row).then(|| routings.value(row).to_owned()),
            if_seq_no: u64::try_from(numbers.value(row)).ok(),
            if_primary_term: u64::try_from(terms.value(row)).ok(),
            ..WriteOp::new(indices.value(row), Some(ids.value(row).to_owned()), Action::Delete)
        });
    }
    Ok(())
}

/// Counts what a batch has deleted. Of several errors the statement's is the first that is a matter of rights, or else the first; the
/// others are noted.
fn gone(refusals: &Refusals, outcomes: Vec<Result<WriteOutcome, StorageError>>) -> Result<u64> {
    let is_of_rights = |error: &StorageError| error.kind() == Kind::Unauthorized;
    let mut deleted = 0;
    let mut first: Option<StorageError> = None;
    for outcome in outcomes {
        match outcome {
            Ok(done) if done.result == DocResult::Deleted => deleted += 1,
            // Somebody else's deletion came first.
            Ok(_) => {}
            Err(error) => {
                let leads = first.as_ref().is_none_or(|first| is_of_rights(&error) && !is_of_rights(first));
                let other = if leads { first.replace(error) } else { Some(error) };
                other.iter().for_each(|other| refusals.note(other));
            }
        }
    }
    match first {
        None => Ok(deleted),
        Some(error) => Err(error.into()),
    }
}

/// Makes the answer.
fn count_of(deleted: u64) -> Result<Listing> {
    let column = OutColumn {
        name: "deleted_rows".to_owned(),
        alias: None,
        ty: SqlType::Long,
        list: false,
        shown: SqlType::Long.name(),
        element: None,
    };
    let counts: ArrayRef = Arc::new(Int64Array::from(vec![i64::try_from(deleted).unwrap_or(i64::MAX)]));
    let schema = Schema::new(vec![Field::new("deleted_rows", SqlType::Long.arrow(), true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![counts]).map_err(Error::from)?;
    Ok(Listing { columns: vec![column], batch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matter_of_rights_comes_before_a_conflict() {
        let conflict = || StorageError::VersionConflict {
            index: "a".to_owned(),
            index_uuid: String::new(),
            shard: 0,
            id: "1".to_owned(),
            reason: String::new(),
        };
        let denied = |index: &str| StorageError::Unauthorized {
            action: access::Action::DeleteDocument.name(),
            caller: "user [ann]".to_owned(),
            index: Some(index.to_owned()),
        };
        for errors in [vec![conflict(), denied("b"), denied("c")], vec![denied("b"), conflict(), denied("c")]]
        {
            let refusals = Refusals::default();
            let error = gone(&refusals, errors.into_iter().map(Err).collect()).unwrap_err();
            assert_eq!(error.status(), 403);
            assert!(error.to_string().contains("[b]"), "{error}");
            // The statement's own is noted where it is answered.
            let (noted, _) = refusals.noted();
            let noted: Vec<_> = noted.iter().map(|refused| refused.index.as_deref()).collect();
            assert_eq!(noted, [Some("c")]);
        }
    }
}
