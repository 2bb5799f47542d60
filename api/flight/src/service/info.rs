//! Schemas of answers, and the tickets that fetch them.

use std::sync::Arc;

use arrow_flight::{
    Criteria, FlightDescriptor, FlightEndpoint, FlightInfo, SchemaResult, Ticket as FlightTicket,
};
use bytes::{BufMut, Bytes, BytesMut};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::{StreamExt, stream};
use millrace_catalog::access::Action;
use tonic::{Code, Status};

use super::Messages;
use super::command::DescriptorCommand;
use super::get::sealed;
use crate::call::Call;
use crate::limits::all_of;
use crate::tickets::{Id, Kind, Ticket};
use crate::{metadata, statement, status, wire};

/// Answer that a descriptor stands for.
struct Answer {
    schema: SchemaRef,
    kind: Kind,
    body: Bytes,
}

/// Returns the schema of the answer of a statement that changes something: how much.
pub(super) fn of_update() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("deleted_rows", DataType::Int64, false)]))
}

/// Finds out what a descriptor stands for, with what is now.
async fn answer(call: &Call, descriptor: &FlightDescriptor) -> Result<Answer, Status> {
    match DescriptorCommand::read(descriptor)? {
        DescriptorCommand::Statement(query) => {
            let query = call.language.marked(query);
            let described = describe(call, &query).await?;
            let (kind, schema) = match described.columns {
                Some(columns) => (Kind::Statement, columns),
                None => (Kind::Update, of_update()),
            };
            Ok(Answer { schema, kind, body: query.into() })
        }
        DescriptorCommand::Prepared(handle) => {
            let (id, prepared) = prepared(call, &handle)?;
            let described = describe(call, &prepared.query).await?;
            let schema = described.columns.unwrap_or_else(of_update);
            Ok(Answer { schema, kind: Kind::Prepared, body: binding(&id, prepared.binding) })
        }
        DescriptorCommand::Listing(command) => {
            metadata::check(&command)?;
            let schema =
                metadata::schema(&command).ok_or_else(|| status::internal(&"a listing has no schema"))?;
            Ok(Answer { schema, kind: Kind::Listing, body: descriptor.cmd.clone() })
        }
    }
}

/// Describes a statement.
pub(super) async fn describe(
    call: &Call,
    query: &str,
) -> Result<millrace_query::StatementDescription, Status> {
    let session = call.begin(Action::Sql)?;
    statement::describe(call, &session, query).await
}

/// Finds a prepared statement of the caller by its handle.
pub(super) fn prepared(
    call: &Call,
    handle: &Bytes,
) -> Result<(Id, crate::handles::PreparedStatement), Status> {
    let now_ms = call.shared.now_ms();
    let ticket = call.shared.seals.open_handle(&call.owner, handle)?;
    Ok((ticket.id, call.shared.handles.get(&call.owner, &ticket.id, now_ms)?))
}

/// Writes which prepared statement an answer is of, and with which values.
fn binding(id: &Id, binding: u64) -> Bytes {
    let mut body = BytesMut::with_capacity(id.len() + 8);
    body.put_slice(id);
    body.put_u64(binding);
    body.freeze()
}

/// Answers `GetFlightInfo`.
pub(super) async fn get(call: &Call, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    let answer = answer(call, &descriptor).await?;
    info(call, descriptor, answer).await
}

async fn info(call: &Call, descriptor: FlightDescriptor, answer: Answer) -> Result<FlightInfo, Status> {
    let schema = wire::fingerprint_schema(call.compute(), &answer.schema).await?;
    let ticket = Ticket::new(answer.kind, schema.fingerprint, answer.body, call.shared.now_ms());
    let endpoint = endpoint(call, &ticket);
    let mut info = FlightInfo::new().with_endpoint(endpoint).with_descriptor(descriptor).with_ordered(true);
    info.schema = schema.bytes;
    Ok(info)
}

/// Makes a place to fetch an answer: here.
pub(super) fn endpoint(call: &Call, ticket: &Ticket) -> FlightEndpoint {
    let mut endpoint = FlightEndpoint::new().with_ticket(FlightTicket::new(sealed(call, ticket)));
    let end = endpoint.expiration_time.get_or_insert_default();
    end.seconds = ticket.ends_ms.div_euclid(1_000);
    end.nanos = i32::try_from(ticket.ends_ms.rem_euclid(1_000) * 1_000_000).unwrap_or_default();
    endpoint
}

/// Answers `GetSchema`.
pub(super) async fn schema(call: &Call, descriptor: &FlightDescriptor) -> Result<SchemaResult, Status> {
    let answer = answer(call, descriptor).await?;
    Ok(SchemaResult { schema: wire::fingerprint_schema(call.compute(), &answer.schema).await?.bytes })
}

/// Answers `ListFlights`: the tables that the caller sees, of which the criteria are the beginning.
pub(super) async fn list(call: &Call, criteria: &Criteria) -> Result<Messages<FlightInfo>, Status> {
    let session = call.begin(Action::Sql)?;
    let beginning = std::str::from_utf8(&criteria.expression)
        .map_err(|_| Status::invalid_argument("the criteria are the beginning of a table's name"))?;
    let mut names = metadata::table_names(call, &session).await?;
    names.retain(|name| name.starts_with(beginning));
    // Whoever does not read them holds names and a session.
    let place = call.shared.running.begin(rand::random(), call.user)?;
    let of_each = Arc::new((call.clone(), session));
    let infos = stream::iter(names).filter_map(move |name| {
        let of_each = Arc::clone(&of_each);
        async move {
            let (call, session) = &*of_each;
            // What was deleted or closed meanwhile is no table any more, nor is what statements cannot be put to.
            let query = all_of(&name).ok()?;
            let described = match statement::describe(call, session, &query).await {
                Ok(described) => described,
                Err(error) => return is_serious(&error).then_some(Err(error)),
            };
            let schema = described.columns.unwrap_or_else(of_update);
            let answer = Answer { schema, kind: Kind::Statement, body: query.into() };
            Some(info(call, FlightDescriptor::new_path(vec![name.to_string()]), answer).await)
        }
    });
    Ok(place.watch(infos.boxed()).boxed())
}

/// Returns whether an error is more than that a table is not there any more, or is none.
fn is_serious(error: &Status) -> bool {
    !matches!(error.code(), Code::NotFound | Code::InvalidArgument | Code::FailedPrecondition)
}
