//! Codecs: bytes to events and back. One file a codec.

use std::fmt;
use std::sync::Arc;

use crate::options::suggest;
use crate::{Event, Fault, Options};

/// Names of the codecs.
pub const NAMES: &[&str] = &[];

/// A configured codec.
pub trait Codec: fmt::Debug + Send + Sync {
    /// Begins a stream of bytes.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// Appends the bytes of an event.
    fn encode(&self, event: &Event, out: &mut Vec<u8>);
}

/// Decodes one stream; what is no event by itself yet is kept.
pub trait Decoder: Send {
    /// Takes further bytes of the stream and appends the events that they complete.
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<Event>);

    /// Ends the stream, or a pause of it: appends what was kept.
    fn finish(&mut self, events: &mut Vec<Event>);
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
