//! `pipeline`: events to other pipelines of this process, by the addresses of their inputs.
//!
//! An event is sent once the other pipeline has stored it, so the position of its source moves no sooner. After a crash in between
//! the other pipeline gets it again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::output::retry::Backoff;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::pipeline_address::{Delivery, find_sender};
use crate::{Ack, Event, Fault, Options};

/// Pause before the first further attempt; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct PipelineOutput {
    addresses: Vec<String>,
    /// `false` if events are dropped while nobody has the address.
    ensures_delivery: bool,
}

/// Makes the output.
///
/// # Errors
/// Faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let mut addresses = options.texts("send_to");
    addresses.sort();
    addresses.dedup();
    let ensures_delivery = options.boolean("ensure_delivery").unwrap_or(true);
    let _ = crate::codec::take(&mut options, "plain");
    if addresses.is_empty() {
        options.fault_here("[pipeline] needs the option [send_to]");
    }
    options.finish()?;
    Ok(Output::Sink(Arc::new(PipelineOutput { addresses, ensures_delivery })))
}

impl PipelineOutput {
    /// Sends events to an address until they are stored there.
    async fn deliver(
        &self,
        address: &str,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), SinkInterrupted> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut is_told = false;
        loop {
            let reason = match find_sender(address) {
                None if !self.ensures_delivery => return Ok(()),
                None => "no input [pipeline] has the address".to_owned(),
                Some(sender) => {
                    let events = events.iter().map(|(event, _)| (**event).clone()).collect();
                    let (ack, stored) = Ack::channel();
                    match sender.send(Delivery { events, ack }).await {
                        Err(_) => "the other pipeline stopped".to_owned(),
                        Ok(()) => match stored.await {
                            Ok(Ok(())) => return Ok(()),
                            Ok(Err(why)) => why.to_string(),
                            Err(_) => "the other pipeline stopped".to_owned(),
                        },
                    }
                }
            };
            if !is_told {
                tracing::warn!(address, reason, "another pipeline does not take events: they are sent again");
                is_told = true;
            }
            backoff.wait(&mut stopping).await?;
        }
    }
}

#[async_trait]
impl Sink for PipelineOutput {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let all = self.addresses.iter().map(|address| self.deliver(address, events, stopping.clone()));
        let all: Vec<_> = all.collect();
        tokio::select! {
            biased;
            sent = futures::future::try_join_all(all) => sent.map(|_| Vec::new()),
            // A pipeline that is gone stops its sinks.
            _ = stopping.wait_for(|stopping| *stopping) => Err(SinkInterrupted),
        }
    }

    fn pipeline_addresses(&self) -> &[String] {
        &self.addresses
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use crate::batch::NotStored;
    use crate::input::testing::{Pipeline, options, refuse};

    #[tokio::test(start_paused = true)]
    async fn events_are_sent_until_the_other_pipeline_has_stored_them() {
        let Output::Sink(sink) = build(options("pipeline", &[("send_to", "there".into())])).unwrap() else {
            panic!("it is no sink");
        };
        let mut event = Event::new(Utc::now());
        event.set_text("message", "hello");
        let events = [(Arc::new(event), None)];
        let (stop, stopping) = watch::channel(false);
        let (place, _left) = OrderTicket::new();
        // Nobody has the address yet.
        let sent = sink.send(&events, stopping.clone(), place);
        tokio::pin!(sent);
        assert!(tokio::time::timeout(Duration::from_secs(5), sent.as_mut()).await.is_err());
        let given = options("pipeline", &[("address", "there".into())]);
        let input = crate::input::build(given.clone()).unwrap();
        let mut pipeline = Pipeline::new(1);
        let context = pipeline.context();
        let second = crate::input::build(given).unwrap();
        let running = tokio::spawn(async move { input.run(context).await });
        let store = async {
            refuse(pipeline.next().await.unwrap(), NotStored::Ended);
            pipeline.take().await.unwrap().unwrap();
        };
        let (outcome, ()) = tokio::join!(sent, store);
        assert_eq!(outcome, Ok(Vec::new()));
        assert_eq!(pipeline.messages(), ["hello"]);
        let refused = second.run(Pipeline::new(1).context()).await.unwrap_err();
        assert!(refused.to_string().contains("the address [there] is in use"), "{refused}");
        pipeline.stop.send_replace(true);
        running.await.unwrap().unwrap();
        // The address is free again, and an output that is to stop gives up.
        stop.send_replace(true);
        let (place, _left) = OrderTicket::new();
        assert_eq!(sink.send(&events, stopping, place).await, Err(SinkInterrupted));
    }
}
