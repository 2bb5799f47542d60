//! Codecs: bytes to events and back. One file a codec.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::options::suggest;
use crate::{Event, Fault, Options};

/// Names of the codecs.
pub const NAMES: &[&str] = &[];

/// A configured codec.
pub trait Codec: fmt::Debug + Send + Sync {
    /// Begins a stream of bytes.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// Begins a stream of lines: each call of [`Decoder::decode`] gets a whole one, without what ends it.
    fn line_decoder(&self) -> Box<dyn Decoder> {
        self.decoder()
    }

    /// Appends the bytes of an event.
    fn encode(&self, event: &Event, out: &mut Vec<u8>);

    /// Pause of a stream after which its decoder is to be told to finish what it holds; `None` for never.
    fn flush_after(&self) -> Option<Duration> {
        None
    }
}

/// Decodes one stream; what is no event by itself yet is kept.
pub trait Decoder: Send {
    /// Takes further bytes of the stream and appends the events that they complete.
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<Event>);

    /// Ends the stream, or a pause of it: appends what was kept.
    fn finish(&mut self, events: &mut Vec<Event>);

    /// Whether something is kept that is in no event yet. What made events in the call before this one
    /// is not: after events, only bytes of the last call are kept.
    fn holds(&self) -> bool {
        false
    }
}

/// Makes a codec.
///
/// # Errors
/// An unknown name, or what is wrong with the options.
pub fn build(options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let at = options.at();
    match options.plugin() {
        unknown => {
            let suggestion = suggest(unknown, NAMES.iter().copied());
            Err(vec![Fault { at, message: format!("there is no codec [{unknown}]{suggestion}") }])
        }
    }
}

/// Takes the option `codec` of a plugin. Its faults are the plugin's, too.
///
/// # Errors
/// What is wrong with it.
pub fn take(options: &mut Options, default: &str) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let given = options.codec("codec");
    let built = build(given.unwrap_or_else(|| Options::new(default, options.at(), [])));
    if let Err(faults) = &built {
        for fault in faults {
            options.fault(fault.at, fault.message.clone());
        }
    }
    built
}
