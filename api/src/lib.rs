//! The protocols of Millrace: the data API over HTTP, authentication.
//!
//! A [`Server`] runs listeners until told to stop and hands every request to a [`Service`], which
//! authenticates it, finds its [`route`], begins the route's action, reads the body, has the handler answer, and renders the answer. Handlers are grouped by
//! what they are about: [`documents`] and [`bulk`] write and read documents through the
//! [`Engine`](millrace_engine::Engine), [`search`] passes on to
//! [`SearchService`](millrace_query::SearchService), [`admin`] looks after indices and the cluster; `pipelines`
//! serves a listener of its own for the [`Manager`](millrace_pipelines::Manager), `console` another one for saved objects,
//! dashboards, and the rules of [`Alerting`] and [`Intelligence`]; listeners of other protocols, which crates above serve, come in by [`entry`]. All
//! take a [`Request`] and an [`Api`], which holds a [`Session`] in place of the engine, and return a [`Response`] or an [`Error`].

pub mod admin;
mod audit;
mod bulk;
mod client;
mod console;
mod dispatch;
mod documents;
mod entry;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod pipelines;
mod root;
mod route;
mod search;
mod security;
mod server;
mod sql;

use std::net::IpAddr;
use std::sync::Arc;

use millrace_accounts::{Accounts, Credentials, Scheme};
use millrace_alerting::Alerting;
use millrace_catalog::access::{Action, Principal};
use millrace_engine::{Engine, Session};
use millrace_intelligence::Intelligence;
use millrace_listen::Tls;
use millrace_query::SearchService;

pub use admin::{anonymous_bytes, memory_limit};
use audit::HandlerNotes;
use client::Client;
use console::saved_objects::Store;

pub use audit::{Audit, Config as AuditConfig};
pub use dispatch::Service;
pub use entry::{Entry, ListenerContext};
pub use error::Error;
pub use http::{AnswerBody, Body, BodyChunks, Params, Request, Response};
pub use millrace_accounts::TokenLifetimes;
pub use root::Identity;
pub use security::SearchQueryParser;
pub use server::{HttpConfig, Server, ServerConfig, StartError};

/// What all requests share.
#[derive(Debug)]
pub struct Node {
    /// The store.
    pub engine: Arc<Engine>,
    /// Searches.
    pub search: Arc<SearchService>,
    /// Who may ask.
    pub accounts: Accounts,
    /// Rules at work; `None` in a server that has none.
    pub alerting: Option<Alerting>,
    /// AI rules at work; `None` in a server that has none.
    pub intelligence: Option<Intelligence>,
    /// How the server presents itself.
    pub identity: Arc<Identity>,
    /// What is told of requests.
    pub(crate) audit: Audit,
    /// Certificate and key, which can be read again.
    tls: Option<Tls>,
    /// Held by a change of users, roles or mappings from the reading of one to its writing.
    changing: Arc<tokio::sync::Mutex<()>>,
}

impl Node {
    /// Puts the parts together.
    pub fn new(
        engine: Arc<Engine>,
        search: Arc<SearchService>,
        accounts: Accounts,
        identity: Identity,
    ) -> Self {
        let (identity, audit, changing) = (Arc::new(identity), Audit::default(), Arc::default());
        let (alerting, intelligence) = (None, None);
        Self { engine, search, accounts, alerting, intelligence, identity, audit, tls: None, changing }
    }

    /// Has rules at work.
    #[must_use]
    pub fn with_alerting(self, alerting: Alerting) -> Self {
        Self { alerting: Some(alerting), ..self }
    }

    /// Has AI rules at work.
    #[must_use]
    pub fn with_intelligence(self, intelligence: Intelligence) -> Self {
        Self { intelligence: Some(intelligence), ..self }
    }

    /// Tells requests to an audit.
    #[must_use]
    pub fn with_audit(self, config: AuditConfig) -> Self {
        let audit = Audit::new(Arc::clone(&self.engine), Arc::clone(&self.identity), config);
        Self { audit, ..self }
    }

    /// Returns what is told of requests.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Serves with TLS.
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Returns the saved objects of the console.
    pub(crate) fn objects(&self) -> Store {
        Store::new(&self.engine, &self.search)
    }

    /// Makes what the handler of a principal's request gets. What only that knows goes to `noted`.
    ///
    /// # Errors
    /// 403 where the action is not allowed on anything.
    pub(crate) fn api(
        &self,
        asker: Requester,
        action: Action,
        noted: Arc<HandlerNotes>,
    ) -> Result<Api, Error> {
        let Requester { principal, scheme, token, address } = asker;
        let session = Session::new(&self.engine, principal, action)?;
        Ok(Api {
            session,
            search: Arc::clone(&self.search),
            identity: Arc::clone(&self.identity),
            accounts: self.accounts.clone(),
            alerting: self.alerting.clone(),
            intelligence: self.intelligence.clone(),
            scheme,
            token,
            address,
            noted,
            client: Client::default(),
            audit: self.audit.clone(),
            tls: self.tls.clone(),
            changing: Arc::clone(&self.changing),
        })
    }
}

/// Who asks, and how that is known.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) principal: Principal,
    /// What was shown; nothing on a route that is open to all.
    pub(crate) scheme: Option<Scheme>,
    /// The login token, if that is what was shown.
    pub(crate) token: Option<Credentials>,
    pub(crate) address: IpAddr,
}

/// What a handler gets: the store as the principal sees it, never the store itself. Those of the console get its saved objects
/// beside it.
#[derive(Debug)]
pub(crate) struct Api {
    /// The store, for this principal and action.
    pub(crate) session: Session,
    /// Searches.
    pub(crate) search: Arc<SearchService>,
    /// How the server presents itself.
    pub(crate) identity: Arc<Identity>,
    /// Who may ask.
    pub(crate) accounts: Accounts,
    /// Rules at work.
    pub(crate) alerting: Option<Alerting>,
    /// AI rules at work.
    pub(crate) intelligence: Option<Intelligence>,
    /// How it is known who asks.
    pub(crate) scheme: Option<Scheme>,
    /// The login token in use.
    pub(crate) token: Option<Credentials>,
    /// Where the request comes from.
    pub(crate) address: IpAddr,
    /// What is noted for the audit.
    pub(crate) noted: Arc<HandlerNotes>,
    /// Whether the client waits for the answer.
    pub(crate) client: Client,
    /// What is told of requests.
    pub(crate) audit: Audit,
    /// Certificate and key.
    pub(crate) tls: Option<Tls>,
    /// Held by a change of users, roles or mappings.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
}
