//! `stdout`: events to the standard output, to look at.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault, Options};

/// Pauses between attempts to fetch what the codec encodes by.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Stdout {
    codec: Arc<dyn Codec>,
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let codec = codec::take(&mut options, "rubydebug");
    let _ = options.ecs_compatibility();
    options.finish()?;
    Ok(Output::Sink(Arc::new(Stdout { codec: codec? })))
}

#[async_trait]
impl Sink for Stdout {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        prepare_codec(&self.codec, "stdout", backoff, &mut stopping).await?;
        let (codec, events) = (Arc::clone(&self.codec), events.to_vec());
        let written = tokio::task::spawn_blocking(move || {
            let (mut text, mut refused) = (Vec::with_capacity(events.len() * 256), Vec::new());
            for (number, (event, _)) in events.iter().enumerate() {
                if let Err(reason) = codec.try_encode(event, &mut text) {
                    refused.push(RefusedEvent { event: number, reason });
                }
            }
            let mut out = std::io::stdout().lock();
            (out.write_all(&text).and_then(|()| out.flush()), refused)
        });
        match written.await {
            Ok((Ok(()), refused)) => Ok(refused),
            // Nobody looks any more: that is no reason to keep events from the other outputs.
            Ok((Err(error), refused)) => {
                tracing::warn!(%error, "cannot write to the standard output");
                Ok(refused)
            }
            Err(error) => {
                tracing::error!(%error, "cannot write to the standard output");
                Ok(Vec::new())
            }
        }
    }
}
