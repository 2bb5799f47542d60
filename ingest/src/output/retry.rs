//! Pauses between attempts of outputs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::SinkInterrupted;
use crate::codec::Codec;
use crate::input::stopped;
use crate::offload::offload;

/// Pauses that double up to a bound. Each takes between half and all of its length, so that clients that failed together do not come
/// back together.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    /// [`SinkInterrupted`] where the output is to stop.
    pub(super) async fn wait(&mut self, stopping: &mut watch::Receiver<bool>) -> Result<(), SinkInterrupted> {
        let pause = self.next.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        self.next = self.next.saturating_mul(2).min(self.longest);
        tokio::select! {
            biased;
            () = stopped(stopping) => Err(SinkInterrupted),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}

/// Waits until a codec has what it encodes by, such as the schema of a registry.
///
/// # Errors
/// [`SinkInterrupted`] where the output is to stop.
pub(super) async fn prepare_codec(
    codec: &Arc<dyn Codec>,
    output: &'static str,
    mut backoff: Backoff,
    stopping: &mut watch::Receiver<bool>,
) -> Result<(), SinkInterrupted> {
    while codec.needs_preparation() {
        let codec = Arc::clone(codec);
        let prepared = tokio::select! {
            biased;
            () = stopped(stopping) => return Err(SinkInterrupted),
            prepared = offload(move || codec.prepare()) => prepared,
        };
        let Err(reason) = prepared else { break };
        tracing::warn!(reason, output, "the output cannot encode, it tries again");
        backoff.wait(stopping).await?;
    }
    Ok(())
}
