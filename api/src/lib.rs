//! The protocols of Millrace: the data API over HTTP, authentication.
//!
//! A [`Server`] runs listeners until told to stop and hands every request to a [`Service`], which
//! authenticates it, finds its [`route`], begins the route's action, reads the body, has the handler answer, and renders the answer. Handlers are grouped by
//! what they are about: [`documents`] and [`bulk`] write and read documents through the
//! [`Engine`](millrace_storage::Engine), [`search`] passes on to
//! [`SearchService`](millrace_query::SearchService), [`admin`] looks after indices and the cluster; `pipelines`
//! serves a listener of its own for the [`Manager`](millrace_pipelines::Manager), `console` another one for saved objects and
//! dashboards. All
//! take a [`Request`] and an [`Api`], which holds a [`Session`] in place of the engine, and return a [`Response`] or an [`Error`].

pub mod admin;
mod auth;
mod bulk;
mod console;
mod dispatch;
mod documents;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod pipelines;
mod root;
mod route;
mod search;
mod server;
mod sql;

use std::sync::Arc;

use millrace_query::SearchService;
use millrace_storage::access::Action;
use millrace_storage::{Engine, Principal, Session};

pub use admin::{anonymous_bytes, memory_limit};
use console::saved_objects::Store;

pub use auth::{Authenticator, SecretStore};
pub use dispatch::Service;
pub use error::Error;
pub use http::{AnswerBody, Body, Params, Parts, Request, Response};
pub use root::Identity;
pub use server::{HttpConfig, Server, ServerConfig, StartError};

/// What all requests share.
#[derive(Debug)]
pub struct Node {
    /// The store.
    pub engine: Arc<Engine>,
    /// Searches.
    pub search: Arc<SearchService>,
    /// Who may ask.
    pub authenticator: Authenticator,
    /// How the server presents itself.
    pub identity: Arc<Identity>,
}

impl Node {
    /// Puts the parts together.
    pub fn new(
        engine: Arc<Engine>,
        search: Arc<SearchService>,
        authenticator: Authenticator,
        identity: Identity,
    ) -> Self {
        Self { engine, search, authenticator, identity: Arc::new(identity) }
    }

    /// Makes what the handler of a principal's request gets.
    ///
    /// # Errors
    /// 403 where the action is not allowed on anything.
    pub(crate) fn api(&self, principal: Principal, action: Action) -> Result<Api, Error> {
        let session = Session::new(&self.engine, principal, action)?;
        let objects = Store::new(&self.engine, &self.search);
        Ok(Api { session, search: Arc::clone(&self.search), identity: Arc::clone(&self.identity), objects })
    }
}

/// What a handler gets: the store as the principal sees it, never the store itself.
#[derive(Debug)]
pub(crate) struct Api {
    /// The store, for this principal and action.
    pub(crate) session: Session,
    /// Searches.
    pub(crate) search: Arc<SearchService>,
    /// How the server presents itself.
    pub(crate) identity: Arc<Identity>,
    /// Saved objects of the console.
    pub(crate) objects: Store,
}
