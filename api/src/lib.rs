//! The protocols of Millrace: the data API over HTTP, authentication.
//!
//! A [`Server`] runs listeners until told to stop and hands every request to a [`Service`], which
//! authenticates it, reads its body, finds its handler, and renders the answer. Handlers are grouped by
//! what they are about: [`documents`] and [`bulk`] write and read documents through the
//! [`Engine`](millrace_storage::Engine), [`search`] passes on to
//! [`SearchService`](millrace_query::SearchService), [`admin`] looks after indices and the cluster; `pipelines`
//! serves a listener of its own for the [`Manager`](millrace_pipelines::Manager). All
//! take a [`Request`] and the shared [`Api`], and return a [`Response`] or an [`Error`].

pub mod admin;
mod auth;
mod bulk;
mod dispatch;
mod documents;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod pipelines;
mod root;
mod routes;
mod search;
mod server;
mod sql;

use std::sync::Arc;

use millrace_query::SearchService;
use millrace_storage::Engine;

pub use admin::{anonymous_bytes, memory_limit};
pub use auth::{Authenticator, SecretStore};
pub use dispatch::Service;
pub use error::Error;
pub use http::{AnswerBody, Body, Params, Parts, Request, Response};
pub use root::Identity;
pub use server::{HttpConfig, Server, ServerConfig, StartError};

/// What handlers share.
#[derive(Debug)]
pub struct Api {
    /// The store.
    pub engine: Arc<Engine>,
    /// Searches.
    pub search: Arc<SearchService>,
    /// Who may ask.
    pub authenticator: Authenticator,
    /// How the server presents itself.
    pub identity: Identity,
}

impl Api {
    /// Puts the parts together.
    pub fn new(
        engine: Arc<Engine>,
        search: Arc<SearchService>,
        authenticator: Authenticator,
        identity: Identity,
    ) -> Self {
        Self { engine, search, authenticator, identity }
    }
}
