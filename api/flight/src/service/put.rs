//! Uploads: values for parameters, statements that change something, and rows to be ingested.

use std::sync::Arc;

use arrow_flight::sql::{
    Command, CommandPreparedStatementQuery, CommandPreparedStatementUpdate, DoPutPreparedStatementResult,
    DoPutUpdateResult,
};
use arrow_flight::{FlightData, PutResult};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use millrace_catalog::access::Action;
use millrace_runtime::Priority;
use prost::Message;
use tonic::{Status, Streaming};

use super::command::command;
use super::info::prepared;
use crate::call::Call;
use crate::decode::{DecodedMessage, Decoder};
use crate::limits::{bounded, excerpt, refuse_transaction};
use crate::messages::{PutMessages, message};
use crate::wire::computed;
use crate::{bound, ingest, statement, status};

/// Most rows of values for parameters of one statement, and their bytes as sent.
const MAX_ROWS: usize = 10_000;
const MAX_BYTES: usize = 4 << 20;

/// Answers `DoPut`.
pub(super) async fn put(call: &Call, mut rest: Streaming<FlightData>) -> Result<PutResult, Status> {
    let nothing = || {
        Status::invalid_argument("the first message of DoPut has a descriptor with a command of Flight SQL")
    };
    let place = call.shared.running.begin(rand::random(), call.user)?;
    let mut first = message(&mut rest).await?.ok_or_else(nothing)?;
    // Its length was bounded as it came (`framing`). Nothing of it is kept: its path takes more than what is counted, its command is a
    // part of the whole message.
    let descriptor = first.flight_descriptor.take().ok_or_else(nothing)?;
    bounded(descriptor.cmd.len())?;
    let descriptor_bytes = Bytes::copy_from_slice(&descriptor.cmd);
    drop(descriptor);
    let command = command(&descriptor_bytes)?.ok_or_else(nothing)?;
    let sent = PutMessages { first: Some(first), rest, received: call.received.clone() };
    match command {
        Command::CommandStatementUpdate(command) => {
            refuse_transaction(command.transaction_id.as_ref())?;
            // The end of the request is not waited for: drivers of JDBC end it when they have the answer.
            let session = call.begin(Action::Sql)?;
            let search = &call.shared.listener.node.search;
            let task = call.start_task(&command.query);
            let session = session.in_task(task.handle());
            let updated = task.run_or_wait(statement::update(search, &session, &command.query, None)).await;
            drop(place);
            counted(updated.map_err(|cancelled| Status::cancelled(cancelled.to_string()))??)
        }
        Command::CommandPreparedStatementQuery(command) => bind(call, command, sent).await,
        Command::CommandPreparedStatementUpdate(command) => update(call, command, sent).await,
        Command::CommandStatementIngest(command) => counted(ingest::ingest(call, command, sent).await?),
        Command::CommandStatementSubstraitPlan(_) => Err(status::unsupported("plans of Substrait")),
        other => Err(Status::invalid_argument(format!(
            "the command [{}] is none that takes data",
            excerpt(other.type_url())
        ))),
    }
}

fn counted(count: u64) -> Result<PutResult, Status> {
    let record_count = i64::try_from(count).unwrap_or(i64::MAX);
    let app_metadata = DoPutUpdateResult { record_count }.encode_to_vec().into();
    Ok(PutResult { app_metadata })
}

/// Binds values to a prepared statement.
async fn bind(
    call: &Call,
    command: CommandPreparedStatementQuery,
    sent: PutMessages,
) -> Result<PutResult, Status> {
    let handle = command.prepared_statement_handle;
    let (id, prepared) = prepared(call, &handle)?;
    call.begin(Action::Sql)?;
    let rows = values(call, sent, &prepared.parameters).await?;
    if let Some(rows) = rows {
        call.shared.handles.bind(&call.owner, &id, rows, call.shared.now_ms())?;
    }
    let result = DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) };
    Ok(PutResult { app_metadata: result.encode_to_vec().into() })
}

/// Runs a prepared statement that changes something, with the values that come along, or with those that were bound before.
async fn update(
    call: &Call,
    command: CommandPreparedStatementUpdate,
    sent: PutMessages,
) -> Result<PutResult, Status> {
    let (_, mut prepared) = prepared(call, &command.prepared_statement_handle)?;
    if !prepared.update {
        return Err(Status::invalid_argument("the prepared statement answers rows: ask for its info"));
    }
    call.begin(Action::Sql)?;
    if let Some(rows) = values(call, sent, &prepared.parameters).await? {
        prepared.bound = Some(rows);
    }
    // The values may have taken long to arrive.
    let session = call.begin_again(Action::Sql).await?;
    let search = &call.shared.listener.node.search;
    let task = call.start_task(&prepared.query);
    let session = session.in_task(task.handle());
    let updated = task.run_or_wait(statement::update_each(search, &session, &prepared)).await;
    counted(updated.map_err(|cancelled| Status::cancelled(cancelled.to_string()))??)
}

/// Reads values for parameters: a row a set of them. `None` where none are sent.
async fn values(
    call: &Call,
    mut sent: PutMessages,
    parameters: &SchemaRef,
) -> Result<Option<RecordBatch>, Status> {
    let compute = call.compute();
    let (mut decoder, mut batches, mut bytes, mut rows) =
        (Decoder::new(sent.received.clone()), Vec::new(), 0, 0);
    let (mut all_held, nothing) = (Vec::new(), Arc::new(sent.received.try_reserve(0)?));
    while let Some(message) = sent.next().await? {
        bytes += message.encoded_len();
        if bytes > MAX_BYTES {
            return Err(Status::resource_exhausted(format!(
                "the values for parameters are longer than [{MAX_BYTES}] bytes"
            )));
        }
        // They are few, and all that has arrived counts until the end.
        let (back, decoded) = decoder.decode_on(compute, message, &nothing).await?;
        decoder = back;
        if let DecodedMessage::Batch(batch, held) = decoded {
            rows += batch.num_rows();
            if rows > MAX_ROWS {
                return Err(Status::resource_exhausted(format!(
                    "there are more than [{MAX_ROWS}] rows of values for parameters"
                )));
            }
            batches.push(batch);
            all_held.push(held);
        }
    }
    let Some(schema) = batches.first().map(RecordBatch::schema) else { return Ok(None) };
    let (given, taken) = (schema.fields().len(), parameters.fields().len());
    if taken == 0 && given == 0 {
        return Ok(None);
    }
    if given != taken {
        return Err(Status::invalid_argument(format!(
            "the statement has [{taken}] parameters, but values for [{given}] are sent"
        )));
    }
    let values = move || {
        let all = concat_batches(&schema, &batches);
        let all =
            all.map_err(|error| Status::invalid_argument(format!("the values do not go together: {error}")))?;
        let values = bound::values(&all);
        drop((batches, all_held));
        values
    };
    computed(compute, Priority::Ingest, values).await.map(Some)
}
