//! A request at work: what it shares with the others, who sends it, and the sessions that it begins.

use std::sync::Arc;

use millrace_catalog::access::Action;
use millrace_engine::Session;
use millrace_gateway::{Entry, ListenerContext};
use millrace_runtime::Compute;
use millrace_runtime::tasks::{TaskDescription, TaskGuard};
use parking_lot::Mutex;
use tonic::{Code, Status};

use crate::active_answers::ActiveAnswers;
use crate::handles::PreparedStatements;
use crate::language::StatementLanguage;
use crate::status;
use crate::tickets::{Owner, Seals, User};
use crate::timestamp_zone::TimestampZone;
use crate::upload::ReceivedBytes;

/// Result of a handshake: the token to show from then on, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct LoggedIn(pub(crate) Option<String>);

/// Context that all requests share.
#[derive(Debug)]
pub(crate) struct ServiceContext {
    pub(crate) listener: ListenerContext,
    pub(crate) seals: Seals,
    pub(crate) handles: PreparedStatements,
    pub(crate) running: ActiveAnswers,
}

impl ServiceContext {
    pub(crate) fn now_ms(&self) -> i64 {
        self.listener.node.engine.clock().now_ms()
    }

    /// Returns the name of the one catalog.
    pub(crate) fn catalog(&self) -> &str {
        &self.listener.node.identity.cluster
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
    /// Zone of timestamps in the schemas that the client gets.
    pub(crate) zone: TimestampZone,
    /// Language of the statements that it names.
    pub(crate) language: StatementLanguage,
    /// Last action that began.
    pub(crate) action: Arc<Mutex<Option<Action>>>,
}

impl Call {
    /// Returns the threads that compute.
    pub(crate) fn compute(&self) -> &Compute {
        self.shared.listener.node.engine.compute()
    }

    /// Begins an action.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` where it is not allowed on anything.
    pub(crate) fn begin(&self, action: Action) -> Result<Session, Status> {
        *self.action.lock() = Some(action);
        self.entry.begin(action).map_err(status::from_error)
    }

    /// Begins an action with the rights of now.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` where the credentials are not good any more; as [`Call::begin`].
    pub(crate) async fn begin_again(&self, action: Action) -> Result<Session, Status> {
        *self.action.lock() = Some(action);
        self.entry.begin_again(action).await.map_err(status::from_error)
    }

    /// Begins the task of a statement.
    pub(crate) fn start_task(&self, statement: &str) -> TaskGuard {
        self.entry.start_task(Action::Sql, TaskDescription::text(statement))
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
