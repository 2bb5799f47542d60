//! Actions: prepared statements, cancellation, tickets that count for longer, and sessions.

use std::sync::Arc;

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, ProstMessageExt,
};
use arrow_flight::{
    Action as FlightAction, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus,
    FlightEndpoint, FlightInfo, RenewFlightEndpointRequest,
};
use bytes::Bytes;
use datafusion::arrow::datatypes::Schema;
use prost::Message;
use tonic::Status;

use super::get::opened;
use super::info::{describe, endpoint};
use crate::call::Call;
use crate::handles::PreparedStatement;
use crate::limits::{bounded, excerpt, refuse_transaction};
use crate::options::{self, CloseResult, CloseStatus, SetRequest};
use crate::tickets::{Kind, Ticket};
use crate::{status, tickets, wire};

/// Actions that are answered, each with what it is.
const ANSWERED: [(&str, &str); 8] = [
    (
        "CreatePreparedStatement",
        "Prepares a statement: ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult",
    ),
    ("ClosePreparedStatement", "Closes a prepared statement: ActionClosePreparedStatementRequest, no result"),
    ("CancelQuery", "Cancels a statement: ActionCancelQueryRequest, ActionCancelQueryResult"),
    ("CancelFlightInfo", "Cancels a statement: CancelFlightInfoRequest, CancelFlightInfoResult"),
    ("RenewFlightEndpoint", "Has a ticket count for longer: RenewFlightEndpointRequest, FlightEndpoint"),
    ("SetSessionOptions", "Sets options of the session: SetSessionOptionsRequest, SetSessionOptionsResult"),
    ("GetSessionOptions", "Shows options of the session: GetSessionOptionsRequest, GetSessionOptionsResult"),
    ("CloseSession", "Ends the login token: CloseSessionRequest, CloseSessionResult"),
];

/// Lists the actions that are answered.
pub(super) fn list() -> impl Iterator<Item = ActionType> + Send {
    ANSWERED
        .into_iter()
        .map(|(name, what)| ActionType { r#type: name.to_owned(), description: what.to_owned() })
}

/// Answers an action; some have no result.
pub(super) async fn act(call: &Call, action: FlightAction) -> Result<std::option::IntoIter<Bytes>, Status> {
    let body = action.body;
    let result = match action.r#type.as_str() {
        "CreatePreparedStatement" => Some(prepare(call, unpack(&body)?).await?),
        "ClosePreparedStatement" => {
            close(call, unpack(&body)?)?;
            None
        }
        "CancelQuery" => {
            let request: ActionCancelQueryRequest = unpack(&body)?;
            let info = decode::<FlightInfo>(request.info)?;
            let result = i32::from(cancel(call, &info)?);
            Some(ActionCancelQueryResult { result }.as_any().encode_to_vec())
        }
        "CancelFlightInfo" => {
            let info = decode::<CancelFlightInfoRequest>(body)?.info.unwrap_or_default();
            let status = i32::from(cancel(call, &info)?);
            Some(CancelFlightInfoResult { status }.encode_to_vec())
        }
        "RenewFlightEndpoint" => {
            let known = decode::<RenewFlightEndpointRequest>(body)?.endpoint.unwrap_or_default();
            let Ticket { kind, id, schema, body, .. } = opened(call, &ticket(&known))?;
            // Its id stays: whoever has the info of before cancels what is fetched with this one, too.
            let renewed = Ticket { id, ..Ticket::new(kind, schema, body, call.shared.now_ms()) };
            Some(endpoint(call, &renewed).encode_to_vec())
        }
        "SetSessionOptions" => {
            let request = decode::<SetRequest>(body)?;
            Some(options::set(&request, call.shared.catalog()).encode_to_vec())
        }
        "GetSessionOptions" => Some(options::get(call.shared.catalog()).encode_to_vec()),
        "CloseSession" => {
            let closed = call.entry.log_out().await.map_err(status::from_error)?;
            let status = if closed { CloseStatus::Closed } else { CloseStatus::NotCloseable };
            Some(CloseResult { status: status.into() }.encode_to_vec())
        }
        "CreatePreparedSubstraitPlan" => return Err(status::unsupported("plans of Substrait")),
        "BeginTransaction" | "EndTransaction" => return Err(status::unsupported("transactions")),
        "BeginSavepoint" | "EndSavepoint" => return Err(status::unsupported("savepoints")),
        other => return Err(Status::unimplemented(format!("there is no action [{}]", excerpt(other)))),
    };
    Ok(result.map(Bytes::from).into_iter())
}

/// Prepares a statement: with the schemas of its parameters and of its answer, which drivers of JDBC rely on.
async fn prepare(call: &Call, request: ActionCreatePreparedStatementRequest) -> Result<Vec<u8>, Status> {
    refuse_transaction(request.transaction_id.as_ref())?;
    bounded(request.query.len())?;
    let described = describe(call, &request.query).await?;
    let compute = call.compute();
    let parameter_schema = wire::fingerprint_schema(compute, &described.parameters).await?.bytes;
    // By having no columns it is known for a statement that changes something.
    let dataset_schema = match &described.columns {
        Some(columns) => wire::fingerprint_schema(compute, columns).await?.bytes,
        None => wire::fingerprint_schema(compute, &Arc::new(Schema::empty())).await?.bytes,
    };
    let statement = PreparedStatement {
        query: Arc::from(request.query),
        update: described.columns.is_none(),
        parameters: described.parameters,
        bound: None,
        binding: 0,
    };
    let now_ms = call.shared.now_ms();
    let id = call.shared.handles.add(call.owner, call.user, statement, now_ms)?;
    let handle = Ticket { id, ..Ticket::new(Kind::Handle, [0; 16], Bytes::new(), now_ms) };
    let prepared_statement_handle = call.shared.seals.seal(&call.owner, &handle);
    let result =
        ActionCreatePreparedStatementResult { prepared_statement_handle, dataset_schema, parameter_schema };
    Ok(result.as_any().encode_to_vec())
}

fn close(call: &Call, request: ActionClosePreparedStatementRequest) -> Result<(), Status> {
    let ticket = call.shared.seals.open_handle(&call.owner, &request.prepared_statement_handle)?;
    call.shared.handles.close(&call.owner, &ticket.id);
    Ok(())
}

/// Cancels the answers that are fetched with the tickets of an info.
fn cancel(call: &Call, info: &FlightInfo) -> Result<CancelStatus, Status> {
    let [endpoint] = info.endpoint.as_slice() else {
        return Err(Status::invalid_argument("the info to cancel has one endpoint with a ticket"));
    };
    // It is cancelled however long it has been running.
    let ticket = call.shared.seals.open_any(&call.owner, &tickets::unwrapped(&ticket(endpoint))?)?;
    // What is not being fetched does not run.
    let cancelled = call.shared.running.cancel(&ticket.id);
    Ok(if cancelled { CancelStatus::Cancelled } else { CancelStatus::NotCancellable })
}

fn ticket(endpoint: &FlightEndpoint) -> Bytes {
    endpoint.ticket.as_ref().map(|ticket| ticket.ticket.clone()).unwrap_or_default()
}

/// Reads the request of an action of Flight SQL.
fn unpack<M: ProstMessageExt>(body: &Bytes) -> Result<M, Status> {
    let any: Any = decode(body.clone())?;
    let unpacked = any.unpack::<M>().map_err(|error| Status::invalid_argument(error.to_string()))?;
    unpacked
        .ok_or_else(|| Status::invalid_argument(format!("the body of the action is no [{}]", M::type_url())))
}

fn decode<M: Message + Default>(body: Bytes) -> Result<M, Status> {
    M::decode(body)
        .map_err(|error| Status::invalid_argument(format!("the body of the action cannot be read: {error}")))
}
