//! `stdout`: events to the standard output, to look at.

use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::codec::{self, Codec};
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault, Options};

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
    let _ = options.one_of("ecs_compatibility", &["disabled"]);
    options.finish()?;
    Ok(Output::Sink(Arc::new(Stdout { codec: codec? })))
}

#[async_trait]
impl Sink for Stdout {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        _stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let (codec, events) = (Arc::clone(&self.codec), events.to_vec());
        let written = tokio::task::spawn_blocking(move || {
            let mut text = Vec::with_capacity(events.len() * 256);
            for (event, _) in &events {
                codec.encode(event, &mut text);
            }
            let mut out = std::io::stdout().lock();
            out.write_all(&text)?;
            out.flush()
        });
        match written.await {
            Ok(Ok(())) => {}
            // Nobody looks any more: that is no reason to keep events from the other outputs.
            Ok(Err(error)) => tracing::warn!(%error, "cannot write to the standard output"),
            Err(error) => tracing::error!(%error, "cannot write to the standard output"),
        }
        Ok(Vec::new())
    }
}
