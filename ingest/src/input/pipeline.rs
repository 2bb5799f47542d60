//! `pipeline`: events that another pipeline of this process sends to an address.

use async_trait::async_trait;

use super::{Context, Input, InputError, mark_version, stopped};
use crate::pipeline_address::{AddressClaim, Delivery};
use crate::{Batch, Event, Fault, Options};

/// The input; see the module.
#[derive(Debug)]
pub(super) struct PipelineInput {
    address: String,
}

impl PipelineInput {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let address = options.required_text("address");
        // Events come as they are.
        let _ = crate::codec::take(&mut options, "plain");
        options.finish()?;
        Ok(Self { address })
    }
}

#[async_trait]
impl Input for PipelineInput {
    fn identity(&self) -> String {
        format!("pipeline {}", self.address)
    }

    fn pipeline_address(&self) -> Option<&str> {
        Some(&self.address)
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let in_use = || {
            let address = &self.address;
            InputError(format!("the address [{address}] is in use: another input [pipeline] has it"))
        };
        let mut claim = AddressClaim::new(&self.address).ok_or_else(in_use)?;
        let mut stopping = context.stopping.clone();
        loop {
            let delivery = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                delivery = claim.deliveries.recv() => delivery,
            };
            let Some(Delivery { mut events, ack }) = delivery else { return Ok(()) };
            events.iter_mut().for_each(mark_version);
            // The events are in memory already: waiting for room would hold that of the sender.
            let held = context.budget.overdraw(events.iter().map(Event::bytes).sum());
            let batch = Batch { events, position: None, ack, held };
            tokio::select! {
                biased;
                // A delivery that is dropped is sent again.
                () = stopped(&mut stopping) => return Ok(()),
                sent = context.batches.send(batch) => if sent.is_err() { return Ok(()) },
            }
        }
    }
}
