//! Messages of batches that are sent, one at a time.

use std::pin::Pin;

use arrow_flight::FlightData;
use tonic::{Code, Status, Streaming};

use crate::limits::MAX_TAKEN;
use crate::upload::ReceivedBytes;

/// Messages of a request, of which the first was read already.
pub(crate) struct PutMessages {
    pub(crate) first: Option<FlightData>,
    pub(crate) rest: Streaming<FlightData>,
    pub(crate) received: ReceivedBytes,
}

impl PutMessages {
    /// Takes the next message.
    pub(crate) async fn next(&mut self) -> Result<Option<FlightData>, Status> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => message(&mut self.rest).await,
        }
    }
}

/// Takes the next message of a stream.
pub(crate) async fn message(stream: &mut Streaming<FlightData>) -> Result<Option<FlightData>, Status> {
    Pin::new(stream).message().await.map_err(|error| match error.code() {
        Code::OutOfRange => Status::resource_exhausted(format!(
            "a message is longer than [{MAX_TAKEN}] bytes: send smaller batches"
        )),
        _ => error,
    })
}
