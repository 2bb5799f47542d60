//! The methods of Flight.
//!
//! Commands of Flight SQL come in descriptors ([`command`]), tickets and actions. Each request begins sessions of the actions that it
//! is ([`Call::begin`]), and how it ends is told to the audit here.

mod action;
mod command;
mod get;
mod info;
mod put;

pub(crate) use command::{MAX_STATEMENT, all_of, refuse_transaction, shown};
pub(crate) use put::PutMessages;

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action as FlightAction, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, Result as ActionResult, SchemaResult, Ticket,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use millrace_api::{Entry, ListenerContext};
use millrace_catalog::access::Action;
use millrace_engine::Session;
use millrace_runtime::Compute;
use parking_lot::Mutex;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::active_answers::ActiveAnswers;
use crate::handles::PreparedStatements;
use crate::listener::LoggedIn;
use crate::tickets::{Owner, Seals, User};
use crate::upload::ReceivedBytes;
use crate::{status, wire};

/// Longest message that is taken, in bytes: a batch of rows.
pub(crate) const MAX_TAKEN: usize = 32 << 20;
/// Longest message that is sent.
pub(crate) const MAX_SENT: usize = wire::MAX_MESSAGE;

/// Answers of a method that sends several messages.
type Messages<T> = BoxStream<'static, Result<T, Status>>;

/// Answers the methods; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Service(Arc<ServiceContext>);

/// What all requests share.
#[derive(Debug)]
pub(crate) struct ServiceContext {
    pub(crate) beside: ListenerContext,
    pub(crate) seals: Seals,
    pub(crate) handles: PreparedStatements,
    pub(crate) running: ActiveAnswers,
}

impl ServiceContext {
    pub(crate) fn now_ms(&self) -> i64 {
        self.beside.node.engine.clock().now_ms()
    }

    /// Returns the name of the one catalog.
    pub(crate) fn catalog(&self) -> &str {
        &self.beside.node.identity.cluster
    }
}

/// A request at work.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) shared: Arc<ServiceContext>,
    pub(crate) entry: Arc<Entry>,
    /// Whom what it is given belongs to, and whose bounds it counts against.
    pub(crate) owner: Owner,
    pub(crate) user: User,
    pub(crate) received: ReceivedBytes,
    /// What was begun last.
    action: Arc<Mutex<Option<Action>>>,
}

impl Call {
    /// Returns the threads that compute.
    pub(crate) fn compute(&self) -> &Compute {
        self.shared.beside.node.engine.compute()
    }

    /// Begins an action.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` where it is not allowed on anything.
    pub(crate) fn begin(&self, action: Action) -> Result<Session, Status> {
        *self.action.lock() = Some(action);
        self.entry.begin(action).map_err(status::of)
    }

    /// Begins an action with the rights of now.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` where the credentials are not good any more; as [`Call::begin`].
    pub(crate) async fn begin_again(&self, action: Action) -> Result<Session, Status> {
        *self.action.lock() = Some(action);
        self.entry.begin_again(action).await.map_err(status::of)
    }

    /// Tells the audit that something was read.
    pub(crate) fn has_read(&self) {
        if let Some(action) = *self.action.lock() {
            self.entry.read(action);
        }
    }

    /// Tells the audit of a refusal.
    pub(crate) fn ends<T>(&self, result: Result<T, Status>) -> Result<T, Status> {
        result.inspect_err(|error| {
            if error.code() == Code::PermissionDenied {
                self.entry.refused(*self.action.lock());
            }
        })
    }
}

impl Service {
    pub(crate) fn new(beside: ListenerContext) -> Self {
        let (seals, handles, running) =
            (Seals::new(), PreparedStatements::default(), ActiveAnswers::default());
        Self(Arc::new(ServiceContext { beside, seals, handles, running }))
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
