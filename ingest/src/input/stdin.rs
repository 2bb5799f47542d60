//! `stdin`: events from the standard input.
//!
//! It cannot be read twice: what was read and not stored when the process ends is lost.

use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use super::{Context, Input, InputError, additions, host_name, reserve_piece, stopped};
use crate::budget::Reservation;
use crate::codec::{self, Codec, Events};
use crate::offload::offload;
use crate::{Ack, Batch, EcsCompatibility, Event, Fault, Options};

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Chunks that are read ahead of the pipeline.
const CHUNKS: usize = 4;
/// Pause of the input after which events are handed on though more would fit into the batch.
const LINGER: Duration = Duration::from_millis(20);

/// Chunks that a thread of its own has read.
static CHUNKS_READ: OnceLock<Mutex<mpsc::Receiver<std::io::Result<Bytes>>>> = OnceLock::new();

fn chunks() -> &'static Mutex<mpsc::Receiver<std::io::Result<Bytes>>> {
    CHUNKS_READ.get_or_init(|| {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let started = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let mut buffer = vec![0; CHUNK];
            loop {
                let chunk = match std::io::stdin().read(&mut buffer) {
                    Ok(0) => return,
                    Ok(length) => Ok(Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default())),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = chunk.is_err();
                if sender.blocking_send(chunk).is_err() || failed {
                    return;
                }
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot read the standard input");
        }
        Mutex::new(receiver)
    })
}

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Stdin {
    codec: Arc<dyn Codec>,
    ecs: EcsCompatibility,
    host: String,
}

impl Stdin {
    /// Makes the input.
    ///
    /// # Errors
    /// The faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let codec = codec::take(&mut options, "line");
        let ecs = options.ecs_compatibility();
        options.finish()?;
        Ok(Self { codec: codec?, ecs, host: host_name() })
    }

    /// Reads chunks to the end of the input.
    async fn read(
        &self,
        chunks: &mut mpsc::Receiver<std::io::Result<Bytes>>,
        context: &Context,
    ) -> Result<(), InputError> {
        let mut stopping = context.stopping.clone();
        let mut decoder = self.codec.decoder();
        let mut events = Events::default();
        let mut held = Reservation::default();
        loop {
            let pause = if events.is_empty() { self.codec.flush_after() } else { Some(LINGER) };
            let paused = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let chunk = tokio::select! {
                biased;
                () = stopped(&mut stopping) => {
                    decoder.finish(&mut events);
                    self.send(&mut events, &mut held, context).await;
                    return Ok(());
                }
                chunk = chunks.recv() => chunk,
                () = paused => {
                    if events.is_empty() {
                        decoder.pause(&mut events);
                    }
                    self.send(&mut events, &mut held, context).await;
                    continue;
                }
            };
            match chunk {
                Some(Ok(bytes)) => {
                    if events.is_empty() {
                        match reserve_piece(context).await {
                            Some(reservation) => held = reservation,
                            // To the end of the pipeline, what was read goes on.
                            None => held = context.budget.empty(),
                        }
                    }
                    // A pattern of `multiline` may take its second.
                    (decoder, events) = offload(move || {
                        decoder.decode(&bytes, &mut events);
                        (decoder, events)
                    })
                    .await;
                }
                Some(Err(error)) => {
                    return Err(InputError(format!("cannot read the standard input: {error}")));
                }
                None => {
                    decoder.finish(&mut events);
                    self.send(&mut events, &mut held, context).await;
                    return Ok(());
                }
            }
            if events.len() >= context.batch_size.get() || events.bytes() >= context.budget.piece() {
                self.send(&mut events, &mut held, context).await;
            }
        }
    }

    async fn send(&self, events: &mut Events, held: &mut Reservation, context: &Context) {
        let events = std::mem::take(events);
        let mut held = std::mem::take(held);
        held.set(events.bytes());
        let mut events = events.into_vec();
        let host_field: &[&str] = self.ecs.select(&["host"], &["host", "hostname"]);
        let mut additions = additions().at(host_field, self.host.as_str());
        events.iter_mut().for_each(|event| additions.add_to(event));
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(context.batch_size.get()));
            let part = match rest.is_empty() {
                true => std::mem::take(&mut held),
                false => held.split(events.iter().map(Event::bytes).sum()),
            };
            let batch = Batch { events, position: None, ack: Ack::none(), held: part };
            // Not before the end of the pipeline itself.
            let _ = context.batches.send(batch).await;
            events = rest;
        }
    }
}

#[async_trait]
impl Input for Stdin {
    fn identity(&self) -> String {
        "stdin".to_owned()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let mut chunks = chunks().lock().await;
        self.read(&mut chunks, &context).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pipeline, options};
    use super::*;

    #[tokio::test]
    async fn lines_arrive_whatever_the_chunks() {
        let stdin = Stdin::new(options("stdin", &[])).unwrap();
        let (sender, mut chunks) = mpsc::channel(8);
        for chunk in ["one\ntw", "o\nthr", "ee"] {
            sender.send(Ok(Bytes::from_static(chunk.as_bytes()))).await.unwrap();
        }
        drop(sender);
        let mut pipeline = Pipeline::new(2);
        let context = pipeline.context();
        let read = async {
            stdin.read(&mut chunks, &context).await.unwrap();
            drop(context);
        };
        tokio::join!(read, async { while pipeline.take().await.is_some() {} });
        let messages: Vec<_> =
            pipeline.events.iter().map(|event| event.fields()["message"].clone()).collect();
        assert_eq!(messages, ["one", "two", "three"]);
        assert!(pipeline.events.iter().all(|event| event.fields()["host"] == stdin.host.as_str()));
    }
}
