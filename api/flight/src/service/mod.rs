//! The methods of Flight.
//!
//! Commands of Flight SQL come in descriptors ([`command`]), tickets and actions. Each request begins sessions of the actions that it
//! is ([`Call::begin`]), and how it ends is told to the audit here.

mod action;
mod command;
mod get;
mod info;
mod put;

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action as FlightAction, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, Result as ActionResult, SchemaResult, Ticket,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use millrace_gateway::{Entry, ListenerContext};
use tonic::{Request, Response, Status, Streaming};

use crate::active_answers::ActiveAnswers;
use crate::call::{Call, LoggedIn, ServiceContext};
use crate::handles::PreparedStatements;
use crate::language::StatementLanguage;
use crate::status;
use crate::tickets::{Owner, Seals, User};
use crate::timestamp_zone::TimestampZone;
use crate::upload::ReceivedBytes;

/// Answers of a method that sends several messages.
type Messages<T> = BoxStream<'static, Result<T, Status>>;

/// Answers the methods; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Service(Arc<ServiceContext>);

impl Service {
    pub(crate) fn new(listener: ListenerContext) -> Self {
        let (seals, handles, running) =
            (Seals::new(), PreparedStatements::default(), ActiveAnswers::default());
        Self(Arc::new(ServiceContext { listener, seals, handles, running }))
    }

    /// Takes what the listener has found out of a request.
    fn call<T>(&self, request: &Request<T>) -> Result<Call, Status> {
        let (entry, received) =
            (request.extensions().get::<Arc<Entry>>(), request.extensions().get::<ReceivedBytes>());
        let (Some(entry), Some(received)) = (entry, received) else {
            return Err(Status::unauthenticated("there are no credentials"));
        };
        Ok(Call {
            shared: Arc::clone(&self.0),
            owner: Owner::new(entry.principal()),
            user: User::new(entry.principal()),
            entry: Arc::clone(entry),
            received: received.clone(),
            zone: TimestampZone::from_metadata(request.metadata())?,
            language: StatementLanguage::from_metadata(request.metadata())?,
            action: Arc::default(),
        })
    }
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Messages<HandshakeResponse>;
    type ListFlightsStream = Messages<FlightInfo>;
    type DoGetStream = Messages<FlightData>;
    type DoPutStream = Messages<PutResult>;
    type DoActionStream = Messages<ActionResult>;
    type ListActionsStream = Messages<ActionType>;
    type DoExchangeStream = Messages<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let LoggedIn(token) = request
            .extensions()
            .get::<LoggedIn>()
            .ok_or_else(|| Status::unauthenticated("there are no credentials"))?
            .clone();
        // Some clients take the token from the message, most from the header.
        let payload = token.clone().unwrap_or_default().into();
        let message = HandshakeResponse { protocol_version: 0, payload };
        let mut response = Response::new(stream::iter([Ok(message)]).boxed());
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse();
            let value = value.map_err(|_| status::internal(&"a token is no header"))?;
            response.metadata_mut().insert("authorization", value);
        }
        Ok(response)
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        let call = self.call(&request)?;
        let result = info::list(&call, &request.into_inner()).await;
        call.ends(result).map(Response::new)
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let call = self.call(&request)?;
        let result = info::get(&call, request.into_inner()).await;
        call.ends(result).map(Response::new)
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        let call = self.call(&request)?;
        let result = info::get(&call, request.into_inner()).await;
        // Statements run while they are fetched: there is nothing to wait for.
        let complete =
            |info| Response::new(PollInfo { info: Some(info), progress: Some(1.0), ..PollInfo::default() });
        call.ends(result).map(complete)
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let call = self.call(&request)?;
        let result = info::schema(&call, &request.into_inner()).await;
        call.ends(result).map(Response::new)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let call = self.call(&request)?;
        let result = get::get(&call, request.into_inner()).await;
        call.ends(result).map(Response::new)
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let call = self.call(&request)?;
        let result = put::put(&call, request.into_inner()).await;
        let result = call.ends(result)?;
        Ok(Response::new(stream::iter([Ok(result)]).boxed()))
    }

    async fn do_action(
        &self,
        request: Request<FlightAction>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        let call = self.call(&request)?;
        let result = action::act(&call, request.into_inner()).await;
        let answer = call.ends(result)?;
        Ok(Response::new(stream::iter(answer.map(|body| Ok(ActionResult { body }))).boxed()))
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.call(&request)?;
        Ok(Response::new(stream::iter(action::list().map(Ok)).boxed()))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.call(&request)?;
        Err(Status::unimplemented("DoExchange is not supported: statements are answered by DoGet"))
    }
}
