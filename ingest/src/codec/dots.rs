//! `dots`: a dot for each event, which shows the pace of a pipeline.

use std::sync::Arc;

use super::charset::Charset;
use super::plain::message;
use super::{Codec, Decoder, Events};
use crate::{Event, Fault, Options};

#[derive(Debug)]
struct Dots;

pub(super) fn build(options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    options.finish()?;
    Ok(Arc::new(Dots))
}

impl Codec for Dots {
    /// Makes a decoder that leaves input as text: the codec only writes.
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Text)
    }

    fn encode(&self, _event: &Event, out: &mut Vec<u8>) {
        out.push(b'.');
    }
}

struct Text;

impl Decoder for Text {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        events.push(message(Charset::Utf8, bytes));
    }

    fn finish(&mut self, _events: &mut Events) {}
}
