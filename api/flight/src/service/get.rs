//! Answers, for the tickets that were given for them.

use std::sync::Arc;

use arrow_flight::{FlightData, Ticket as FlightTicket};
use bytes::{Buf, Bytes};
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use futures::{StreamExt, stream};
use millrace_catalog::access::Action;
use millrace_runtime::Compute;
use tonic::Status;

use super::info::of_update;
use super::{Messages, command};
use crate::call::Call;
use crate::tickets::{Id, Kind, Ticket};
use crate::timestamp_zone::TimestampZone;
use crate::wire::{self, Answer};
use crate::{metadata, statement, status, tickets};

/// Writes a ticket as clients of Flight SQL know it.
pub(super) fn sealed(call: &Call, ticket: &Ticket) -> Bytes {
    tickets::wrapped(call.shared.seals.seal(&call.owner, ticket))
}

/// Reads a ticket that was given to the caller. There is one spelling of each.
pub(super) fn opened(call: &Call, bytes: &Bytes) -> Result<Ticket, Status> {
    let sealed = tickets::unwrapped(bytes)?;
    let ticket = call.shared.seals.open(&call.owner, &sealed, call.shared.now_ms())?;
    match ticket.kind {
        Kind::Handle => Err(Status::invalid_argument(
            "this is the handle of a prepared statement: ask for its info, which has a ticket",
        )),
        _ => Ok(ticket),
    }
}

/// Answers `DoGet`.
pub(super) async fn get(call: &Call, ticket: FlightTicket) -> Result<Messages<FlightData>, Status> {
    let ticket = opened(call, &ticket.ticket)?;
    let place = call.shared.running.begin(ticket.id, call.user)?;
    let place = place.in_task(call.start_task(&shown(call, &ticket)));
    let (schema, answer) = place.make(answer(call, &ticket)).await?;
    let compute = call.compute();
    let schema = described(compute, schema, &ticket).await?;
    call.has_read();
    let messages = wire::messages(compute, schema, answer).await?;
    let ends = call.clone();
    // Rights may be lost while the answer is read.
    let messages = messages.map(move |message| ends.ends(message));
    Ok(place.watch(messages.boxed()).boxed())
}

/// Returns the schema that was told with a ticket: that of its answer, with or without the zone of timestamps. The client that asked for
/// the ticket decides, and another one may fetch the answer.
async fn described(compute: &Compute, schema: SchemaRef, ticket: &Ticket) -> Result<SchemaRef, Status> {
    for zone in [TimestampZone::Utc, TimestampZone::Absent] {
        let schema = zone.apply(Arc::clone(&schema));
        if wire::fingerprint_schema(compute, &schema).await?.fingerprint == ticket.schema {
            return Ok(schema);
        }
    }
    Err(Status::failed_precondition(
        "the columns of the answer are not those that were told, because a mapping was changed: ask for the \
         statement's info, or prepare it, anew",
    ))
}

async fn answer(call: &Call, ticket: &Ticket) -> Result<(SchemaRef, Answer), Status> {
    let search = &call.shared.listener.node.search;
    match ticket.kind {
        Kind::Statement => {
            let session = call.begin(Action::Sql)?;
            statement::batches(search, &session, text(&ticket.body)?, None).await
        }
        Kind::Update => {
            let session = call.begin(Action::Sql)?;
            counted(statement::update(search, &session, text(&ticket.body)?, None).await?)
        }
        Kind::Prepared => {
            let mut body = ticket.body.clone();
            let mut id = Id::default();
            body.try_copy_to_slice(&mut id).map_err(|error| status::internal(&error))?;
            let binding = body.try_get_u64().map_err(|error| status::internal(&error))?;
            let prepared = call.shared.handles.get(&call.owner, &id, call.shared.now_ms())?;
            if prepared.binding != binding {
                return Err(Status::failed_precondition(
                    "other values were bound to the prepared statement meanwhile: ask for its info anew",
                ));
            }
            let session = call.begin(Action::Sql)?;
            if prepared.update {
                return counted(statement::update_each(search, &session, &prepared).await?);
            }
            statement::batches(search, &session, &prepared.query, statement::one_row(&prepared)?).await
        }
        Kind::Listing => {
            let command = command::command(&ticket.body)?;
            let command = command.ok_or_else(|| status::internal(&"a ticket has no command"))?;
            let (schema, batches) = metadata::batches(call, command).await?;
            Ok((schema, Answer::Batches(batches)))
        }
        Kind::Handle => Err(status::internal(&"a handle is no ticket")),
    }
}

/// Returns the statement that a ticket is for; nothing of one for a listing.
fn shown(call: &Call, ticket: &Ticket) -> String {
    match ticket.kind {
        Kind::Statement | Kind::Update => String::from_utf8_lossy(&ticket.body).into_owned(),
        Kind::Prepared => {
            let mut body = ticket.body.clone();
            let mut id = Id::default();
            let read = body.try_copy_to_slice(&mut id).ok();
            let prepared =
                read.and_then(|()| call.shared.handles.get(&call.owner, &id, call.shared.now_ms()).ok());
            prepared.map(|prepared| prepared.query.to_string()).unwrap_or_default()
        }
        Kind::Listing | Kind::Handle => String::new(),
    }
}

fn text(bytes: &Bytes) -> Result<&str, Status> {
    std::str::from_utf8(bytes).map_err(|error| status::internal(&error))
}

/// Makes the answer of a statement that has changed so much.
fn counted(count: u64) -> Result<(SchemaRef, Answer), Status> {
    let (schema, count) = (of_update(), i64::try_from(count).unwrap_or(i64::MAX));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(vec![count]))]);
    let batch = batch.map_err(|error| status::internal(&error))?;
    Ok((schema, Answer::Batches(stream::iter([Ok(batch)]).boxed())))
}
