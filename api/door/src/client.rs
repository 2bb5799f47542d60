//! Tells handlers of changes whether the client of a request still waits for its answer, before they change anything.

use std::future::Future;

use tokio::sync::watch;

use crate::error::Error;

/// A client, as the handler of its request sees it. One of which nothing is known waits for ever.
#[derive(Clone, Debug, Default)]
pub struct ClientConnection(Option<watch::Receiver<()>>);

/// Stands for a client: it waits until this is dropped.
#[derive(Debug)]
pub(crate) struct ClientGuard(
    #[allow(dead_code, reason = "dropping it is what it is for")] watch::Sender<()>,
);

impl ClientConnection {
    /// Makes a client that waits.
    pub(crate) fn new() -> (ClientGuard, Self) {
        let (waits, gone) = watch::channel(());
        (ClientGuard(waits), Self(Some(gone)))
    }

    /// Does what nobody needs without the client. It is dropped where it stands if the client goes away.
    ///
    /// # Errors
    /// 503 if it has.
    pub async fn waits_for<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.gone() => Err(Error::new(503, "task_cancelled_exception", "the client has gone away")),
        }
    }

    async fn gone(&self) {
        match &self.0 {
            // Nothing is ever sent.
            Some(gone) => drop(gone.clone().changed().await),
            None => std::future::pending().await,
        }
    }
}
