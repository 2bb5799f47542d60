//! Stand-in for the search service.

use std::sync::Arc;

use millrace_storage::Engine;

/// The query section of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {}

/// Answers searches.
#[derive(Debug)]
pub struct SearchService {}

impl SearchService {
    /// Makes a service over an engine.
    pub fn new(_engine: Arc<Engine>, _config: Config) -> Arc<Self> {
        Arc::new(Self {})
    }
}
