//! `null`: drops events.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::codec;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault, Options};

#[derive(Debug)]
struct Null;

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let _ = codec::take(&mut options, "plain");
    options.finish()?;
    Ok(Output::Sink(Arc::new(Null)))
}

#[async_trait]
impl Sink for Null {
    async fn send(
        &self,
        _events: &[(Arc<Event>, Option<String>)],
        _stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        Ok(Vec::new())
    }
}
