//! The way in for requests of other protocols than HTTP's: the caller, the requests that it begins, and their audit events.
//!
//! A crate above this one that serves a listener of its own gets a
//! [`ListenerContext`]. It enters each request by its head ([`ListenerContext::enter`]), before anything else of it is read, begins sessions with the
//! [`Entry`], and says how the request ended.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use futures::future::BoxFuture;
use http::request::Parts;
use millrace_accounts::{Authenticated, Credentials, Scheme};
use millrace_catalog::access::{Action, ActionSet, Principal, Refusals};
use millrace_engine::Session;
use millrace_engine::access::Sender;
use millrace_listen::{Budget, ClientCertificate, Peer, check_origin};
use millrace_runtime::Error as StoreError;
use millrace_runtime::tasks::{TaskDescription, TaskGuard, TaskSpec};
use tokio::sync::watch;
use tracing::Span;

use crate::access_log::RequestRecord;
use crate::audit::AuditTrail;
use crate::error::Error;
use crate::node::{Node, Requester};
use crate::request_span::request_span;
use crate::tasks::opaque_id;

/// Services that a listener of another protocol shares with the data API.
#[derive(Clone, Debug)]
pub struct ListenerContext {
    /// Store, searches and accounts.
    pub node: Arc<Node>,
    /// The bytes that all requests may hold together.
    pub budget: Budget,
    /// Becomes true when the server ends after the requests under way.
    pub ending: watch::Receiver<bool>,
}

/// A request whose sender is known.
#[derive(Debug)]
pub struct Entry {
    node: Arc<Node>,
    head: Arc<Parts>,
    listener: &'static str,
    asker: Requester,
    /// Refusals of everything that it begins.
    refusals: Refusals,
}

/// The head of a request, by which is asked anew who sends it.
struct RequestCredentials {
    node: Arc<Node>,
    head: Arc<Parts>,
}

impl Sender for RequestCredentials {
    fn again(&self) -> BoxFuture<'_, Result<Option<Principal>, StoreError>> {
        Box::pin(async move {
            if let Some(injected) = self.node.injected(&self.head) {
                return Ok(Some(injected));
            }
            match self.node.ask(&self.head).await {
                Ok(asker) => Ok(Some(asker.principal)),
                Err(error) if matches!(error.status(), 401 | 403) => Ok(None),
                Err(error) => Err(StoreError::Rejected(format!(
                    "there is no telling now who sends this, try again later: {}",
                    error.reason()
                ))),
            }
        })
    }
}

/// Actions of the requests that set passwords, which are hashed in turn; their other work is over at once.
const HASHING: ActionSet = ActionSet::new(&[Action::Own, Action::PutSecurity]);

/// Has a session know who sends its request, where its action may go on for long or wait for a hash; of other requests nothing is kept or
/// copied.
pub(crate) fn sent(session: Session, node: &Arc<Node>, head: impl FnOnce() -> Arc<Parts>) -> Session {
    match session.action().lasts() || HASHING.contains(session.action()) {
        true => session.sent_by(Arc::new(RequestCredentials { node: Arc::clone(node), head: head() })),
        false => session,
    }
}

impl ListenerContext {
    /// Makes the span of a request, in the trace of its caller.
    pub fn request_span(&self, head: &Parts, listener: &'static str) -> Span {
        request_span(head, listener)
    }

    /// Begins the record of a request: its duration by route and status, and its line of the access log. It ends with its drop.
    pub fn begin_record(&self, head: &Parts, listener: &'static str) -> RequestRecord {
        RequestRecord::new(&self.node, listener, head)
    }

    /// Finds out who sends a request with this head; tells the audit where that fails. `listener` is what the audit calls
    /// the listener.
    ///
    /// # Errors
    /// 401, 403 or 429, as the data API answers them.
    pub async fn enter(&self, head: Parts, listener: &'static str) -> Result<Entry, Error> {
        let node = Arc::clone(&self.node);
        match node.ask(&head).await {
            Ok(asker) => {
                let (head, refusals) = (Arc::new(head), Refusals::default());
                Ok(Entry { node, head, listener, asker, refusals })
            }
            Err(error) => {
                let mut trail = AuditTrail::new(&head, listener);
                trail.set_anonymous(&head.headers);
                node.audit.ended(&trail, &error);
                Err(error)
            }
        }
    }

    /// Logs in whoever sends a request with this head. Returns the token that stands for a name and a password; `None` for
    /// credentials that are good for every request as they are, or where none are asked for.
    ///
    /// # Errors
    /// As [`ListenerContext::enter`]; 400 where the head has no credentials.
    pub async fn log_in(&self, head: &Parts, listener: &'static str) -> Result<Option<String>, Error> {
        let shown = Credentials::read(&head.headers).map_err(Error::unauthorized)?;
        let (Some(Credentials::Basic { name, password }), false) = (shown, self.node.accounts.is_insecure())
        else {
            return self.enter(head.clone(), listener).await.map(|_| None);
        };
        let mut trail = AuditTrail::new(head, listener);
        let _ = trail.noted().login.set(name.clone());
        match self.node.accounts.login(&name, &password, address_of(head)).await {
            Ok(login) => {
                trail.came_from(&login.principal);
                self.node.audit.tell(&trail, 200, false);
                Ok(Some(login.token))
            }
            Err(refusal) => {
                let error = Error::from(refusal);
                self.node.audit.ended(&trail, &error);
                Err(error)
            }
        }
    }
}

impl Entry {
    /// Returns the requester.
    pub fn principal(&self) -> &Principal {
        &self.asker.principal
    }

    /// Begins an action.
    ///
    /// # Errors
    /// 403 where it is not allowed on anything.
    pub fn begin(&self, action: Action) -> Result<Session, Error> {
        self.session(self.asker.principal.clone(), action)
    }

    fn session(&self, principal: Principal, action: Action) -> Result<Session, Error> {
        let session = Session::new(&self.node.engine, principal, action);
        let session = session.inspect_err(|error| self.refusals.note(error))?.noting(&self.refusals);
        Ok(sent(session, &self.node, || Arc::clone(&self.head)))
    }

    /// Begins an action with the rights that the sender has by now: a request may take its time. Tells the audit where its
    /// credentials are not good any more.
    ///
    /// # Errors
    /// As [`ListenerContext::enter`] and [`Entry::begin`].
    pub async fn begin_again(&self, action: Action) -> Result<Session, Error> {
        match self.node.ask(&self.head).await {
            Ok(asker) => self.session(asker.principal, action),
            Err(error) => {
                let mut trail = self.trail();
                trail.set_anonymous(&self.head.headers);
                trail.does(Some(action));
                self.node.audit.ended(&trail, &error);
                Err(error)
            }
        }
    }

    /// Begins the task of an action of the request.
    pub fn start_task(&self, action: Action, description: TaskDescription) -> TaskGuard {
        let opaque_id = opaque_id(&self.head.headers);
        let spec = TaskSpec { opaque_id, ..TaskSpec::cancellable(action.name()) };
        self.node.engine.tasks().start(spec.with_description(description))
    }

    /// Tells the audit that the sender may not do what was asked for, with what its sessions have noted as refused.
    pub fn refused(&self, action: Option<Action>) {
        let mut trail = self.trail();
        trail.may_be_refused_in_parts(&self.refusals);
        trail.does(action);
        self.node.audit.tell(&trail, 403, false);
    }

    /// Tells the audit that something was changed that concerns security, as tokens do.
    pub fn changed(&self, action: Action) {
        let mut trail = self.trail();
        trail.does(Some(action));
        trail.changes_security();
        self.node.audit.tell(&trail, 200, false);
    }

    /// Tells the audit that something was read, if it tells that.
    pub fn read(&self, action: Action) {
        let mut trail = self.trail();
        trail.does(Some(action));
        trail.reads();
        self.node.audit.tell(&trail, 200, false);
    }

    /// Ends the login token that the request shows. Returns whether it shows one.
    ///
    /// # Errors
    /// The store's.
    pub async fn log_out(&self) -> Result<bool, Error> {
        let Some(Credentials::Token(token)) = &self.asker.token else { return Ok(false) };
        self.node.accounts.logout(token).await?;
        let mut trail = self.trail();
        trail.does(Some(Action::Own));
        trail.changes_security();
        self.node.audit.tell(&trail, 200, false);
        Ok(true)
    }

    fn trail(&self) -> AuditTrail {
        let mut trail = AuditTrail::new(&self.head, self.listener);
        trail.came_from(&self.asker.principal);
        trail
    }
}

/// Returns the address of a request's client. In-process callers are one client.
pub(crate) fn address_of(head: &Parts) -> IpAddr {
    head.extensions.get().map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(peer)| peer.ip())
}

impl Node {
    /// Finds out who sends a request of another protocol. The names of this machine are not asked for: what such clients call
    /// a server is their choice, and browsers, which send pages' requests, say whose page it is.
    async fn ask(&self, head: &Parts) -> Result<Requester, Error> {
        if self.accounts.is_insecure() {
            check_origin(&head.headers).map_err(|foreign| Error::foreign(&foreign))?;
        }
        self.authenticate(head, head.uri.path(), address_of(head)).await
    }

    /// Refuses what comes over a connection whose certificate is no longer valid, as a new one would be: however long connections
    /// live, a certificate ends when it says.
    pub(crate) fn check_certificate(&self, parts: &Parts) -> Result<(), Error> {
        let now_ms = self.engine.clock().now_ms();
        match parts.extensions.get::<ClientCertificate>() {
            Some(certificate) if certificate.not_after_ms < now_ms => {
                let subject: String = certificate.subject.chars().take(100).collect();
                Err(Error::unauthorized(format!(
                    "the certificate [{subject}] of this connection is no longer valid: connect again with another one"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Finds out who asks: by credentials, or where there are none by the certificate of the connection.
    pub async fn authenticate(&self, parts: &Parts, uri: &str, address: IpAddr) -> Result<Requester, Error> {
        self.check_certificate(parts)?;
        let accounts = &self.accounts;
        let shown = Credentials::read(&parts.headers);
        let certificate = parts.extensions.get::<ClientCertificate>().filter(|_| shown == Ok(None));
        let by_certificate = match certificate {
            Some(certificate) => accounts.by_certificate(&certificate.subject, address).await?,
            None => None,
        };
        let Authenticated { principal, scheme } = match by_certificate {
            Some(authenticated) if !accounts.is_insecure() => authenticated,
            _ => accounts.authenticate(&parts.headers, uri, address).await?,
        };
        let token = shown.ok().flatten().filter(|_| scheme == Scheme::Token);
        Ok(Requester { principal, scheme: Some(scheme), token, address })
    }
}
