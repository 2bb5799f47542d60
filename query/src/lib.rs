//! Searches over the store.

use std::sync::Arc;

use millrace_storage::{self as storage, Engine, Principal};
use serde_json::Value;

/// The answer of a search.
#[derive(Debug)]
pub struct SearchOutcome {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Value,
}

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

impl Error {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        500
    }
    /// Returns the exception name.
    pub fn error_type(&self) -> String {
        "exception".to_owned()
    }
    /// Renders the body of the answer; `None` for errors of the store.
    pub fn to_body(&self) -> Option<Value> {
        None
    }
    /// Returns the reason.
    pub fn reason(&self) -> String {
        self.to_string()
    }
    /// Returns the store's error below.
    pub fn as_storage(&self) -> Option<&storage::Error> {
        let Self::Storage(error) = self;
        Some(error)
    }
}

/// Bounds of searches.
#[derive(Clone, Debug, Default)]
pub struct Config {}

/// Runs searches.
#[derive(Debug)]
pub struct SearchService {}

macro_rules! endpoint {
    ($name:ident) => {
        /// Runs the endpoint.
        pub async fn $name(
            &self,
            _principal: &Principal,
            _expression: &str,
            _params: Vec<(String, String)>,
            _body: Option<Value>,
        ) -> Result<SearchOutcome, Error> {
            todo!()
        }
    };
}

impl SearchService {
    /// Makes the service over a store.
    pub fn new(_engine: Arc<Engine>, _config: Config) -> Arc<Self> {
        Arc::new(Self {})
    }
    endpoint!(search);
    endpoint!(count);
    endpoint!(scroll);
    endpoint!(clear_scroll);
    endpoint!(delete_by_query);
}
