//! The input `kafka`: records of topics, shared among the consumers of a group.
//!
//! Each thread has a consumer of its own ([`consumer`]), which claims the partitions that it is assigned, reads
//! them from their stored positions ([`position`] decides), and hands their records on in batches that move
//! these positions. Offsets of the group in the broker follow, for tools.

mod assignment;
mod consumer;
mod position;
mod settings;
#[cfg(test)]
mod tests;
mod topic_pattern;
mod topics;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use self::settings::Settings;
use crate::input::{Context, Input, InputError};
use crate::{Fault, Options};

/// Makes the input.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(options: Options) -> Result<Box<dyn Input>, Vec<Fault>> {
    Ok(Box::new(Kafka { settings: Arc::new(Settings::take(options)?) }))
}

#[derive(Debug)]
struct Kafka {
    settings: Arc<Settings>,
}

#[async_trait]
impl Input for Kafka {
    fn identity(&self) -> String {
        let settings = &self.settings;
        let mut topics = settings.topics.clone();
        topics.sort();
        format!("kafka {} group {} topics {}", settings.client.servers(), settings.group, topics.join(","))
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        // Dropped with this future: then the threads end too.
        let (halt, halted) = watch::channel(false);
        let mut threads = Vec::new();
        for number in 0..self.settings.threads {
            let (done, ended) = oneshot::channel();
            let (settings, context, halted) = (Arc::clone(&self.settings), context.clone(), halted.clone());
            let runtime = Handle::current();
            std::thread::Builder::new()
                .name(format!("kafka-{number}"))
                .spawn(move || {
                    let outcome = consumer::consume(settings, number, context, halted, runtime);
                    let _ = done.send(outcome);
                })
                .map_err(|error| InputError(format!("a thread cannot be started: {error}")))?;
            threads.push(ended);
        }
        let mut outcome = Ok(());
        let mut ended: futures::stream::FuturesUnordered<_> = threads.into_iter().collect();
        while let Some(thread) = futures::StreamExt::next(&mut ended).await {
            let thread =
                thread.unwrap_or_else(|_| Err(InputError("the consumer's thread broke off".to_owned())));
            if outcome.is_ok() && thread.is_err() {
                outcome = thread;
                // One that fails ends all, for the input is started again as a whole.
                let _ = halt.send(true);
            }
        }
        outcome
    }
}
