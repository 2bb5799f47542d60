//! Bodies of bulk requests, made as they are needed: generated events, some of which rules ask for.

use anyhow::Result;

use super::mix::{EVERY, Mix};
use crate::corpus::{Builder, Corpus};
use crate::shape::{DocumentKind, Generator};

/// Bytes at which a body is closed.
pub(super) const BODY_BYTES: usize = 5_000_000;
/// Of the shapes, whose times cover so many days whatever the size, the events of so many days at this rate are as far apart as
/// they would be.
const DAYS: u64 = 10;

/// Events in their order.
pub(super) struct Feed {
    pub(super) mix: Mix,
    generators: Vec<(DocumentKind, Box<dyn Generator>)>,
    position: u64,
    wanted: u64,
    event: Vec<u8>,
}

/// One bulk request.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) docs: u64,
    /// Numbers of the events in it that rules ask for.
    pub(super) wanted: std::ops::Range<u64>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Feed {
    /// Begins; times in events go on as fast as the clock at `rate` events a second.
    pub(super) fn new(mix: Mix, rate: u64) -> Self {
        let total = rate.max(1) * 86_400 * DAYS;
        let generators =
            mix.events.shapes().iter().map(|shape| (*shape, shape.generator(7, total))).collect();
        Self { mix, generators, position: 0, wanted: 0, event: Vec::new() }
    }

    /// Makes the next event.
    fn next(&mut self) -> Result<&[u8]> {
        self.event.clear();
        let is_wanted = self.position % EVERY == EVERY / 2;
        let wanted = self.mix.wanted(self.wanted);
        let turn = self.position as usize % self.generators.len();
        let shape = self.mix.shape(wanted.rule);
        let own = |(of, _): &(DocumentKind, _)| *of == shape;
        let at = if is_wanted { self.generators.iter().position(own).unwrap_or(turn) } else { turn };
        self.generators[at].1.next(&mut self.event);
        self.position += 1;
        if is_wanted {
            self.event = self.mix.plant(wanted, &self.event)?;
            self.wanted += 1;
        }
        Ok(&self.event)
    }

    /// Makes a body of at most so many events.
    pub(super) fn body(&mut self, most: u64) -> Result<Body> {
        let first = self.wanted;
        let mut bytes = Vec::with_capacity(BODY_BYTES + 4_096);
        let mut docs = 0;
        while docs < most && bytes.len() < BODY_BYTES {
            bytes.extend_from_slice(b"{\"index\":{}}\n");
            bytes.extend_from_slice(self.next()?);
            bytes.push(b'\n');
            docs += 1;
        }
        Ok(Body { bytes, docs, wanted: first..self.wanted })
    }

    /// Puts so many events on disk, and returns them with how many alerts they make.
    pub(super) fn corpus(mut self, path: &std::path::Path, docs: u64) -> Result<(Corpus, u64)> {
        let mut builder = Builder::create(path, BODY_BYTES)?;
        for _ in 0..docs {
            builder.add(self.next()?)?;
        }
        Ok((builder.finish()?, self.mix.alerts(self.wanted)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::Events;
    use super::*;

    #[test]
    fn one_in_a_thousand_is_wanted() {
        let mix = Mix { events: Events::Mixed, rules: 20 };
        let mut feed = Feed::new(mix, 1_000);
        let (mut docs, mut wanted) = (0, 0);
        while docs < 20_000 {
            let body = feed.body(20_000 - docs).unwrap();
            assert_eq!(body.bytes.iter().filter(|byte| **byte == b'\n').count() as u64, 2 * body.docs);
            assert_eq!(body.wanted.start, wanted);
            (docs, wanted) = (docs + body.docs, body.wanted.end);
        }
        assert_eq!(wanted, 20);
    }
}
