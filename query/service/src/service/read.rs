//! Searches whose answers are read here: the server's own parts ask, not a request.

use futures::future::BoxFuture;
use millrace_engine::Session;
use millrace_runtime::Priority;
use millrace_work::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{OutcomeBody, SearchService};

impl SearchService {
    /// Searches indices, which need not be there, and reads the whole answer on a compute thread: one of which shards are missing is
    /// refused.
    ///
    /// # Errors
    /// Those of the search; [`Error::Execution`] where the answer is no `T`.
    pub fn read<'a, T: DeserializeOwned + Send + 'static>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        body: Value,
        priority: Priority,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let params = [("ignore_unavailable", "true"), ("allow_partial_search_results", "false")];
            let params = params.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            let OutcomeBody::Raw(text) = self.search(session, expression, params, Some(body)).await?.body
            else {
                return Err(Error::Execution("the search answered no text".to_owned()));
            };
            let read = move || Ok(serde_json::from_slice(&text));
            let read = self.engine.compute().run(priority, read).await?;
            read.map_err(|error| Error::Execution(format!("the answer cannot be read: {error}")))
        })
    }
}
