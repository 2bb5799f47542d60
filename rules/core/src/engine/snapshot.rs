//! Snapshots: the state of all rules, and the frame up to which they have seen the feed.
//!
//! Layout, version 2: `MRLS`, the version; the position and whether there is one, the greatest frame time; when the server was
//! down; the number of rules, and of each, in the order of ids: id, revision, type, and its state behind its length; at the end eight bytes of a
//! SHA-256 of all that. Equal state gives equal bytes.

use std::collections::BTreeMap;

use ring::digest;

use super::active_rule::ActiveRule;
use super::{Engine, MAX_ABSENCES, Rule};
use crate::error::{Error, Result};
use crate::mutation::{Mutation, mutated};
use crate::operator::codec::{Reader, Writer};
use crate::operator::{Bounds, Timing};

const MAGIC: &[u8; 4] = b"MRLS";
const VERSION: u64 = 2;
const CHECKSUM: usize = 8;

impl Engine {
    /// Writes the state up to [`Self::position`]; pieces of a frame that is not complete are not in it.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(MAGIC);
        writer.number(VERSION);
        writer.flag(self.position.is_some());
        writer.number(self.position.unwrap_or(0));
        writer.time(self.now);
        writer.size(self.absences.len());
        for (from, to) in &self.absences {
            writer.time(*from);
            writer.time(*to);
        }
        writer.size(self.rules.len());
        for (id, running) in &self.rules {
            writer.text(id);
            writer.number(running.rule.revision);
            writer.text(running.rule.definition.rule_type.name());
            let mut state = Writer::default();
            running.encode(self.now, &self.timing, &self.absences, &mut state);
            writer.bytes(&state.finish());
        }
        let mut bytes = writer.finish();
        bytes.extend_from_slice(&checksum(&bytes));
        bytes
    }

    /// Makes an engine of a snapshot and the rules that there are now, muted up to the frame `committed`.
    ///
    /// A rule that the snapshot does not have in its revision begins with empty state; so does one whose state cannot be read,
    /// and is returned with the reason. The frames behind [`Self::position`] have to be given again.
    ///
    /// # Errors
    ///
    /// The snapshot as a whole cannot be read.
    pub fn restore(
        snapshot: &[u8],
        rules: Vec<Rule>,
        committed: u64,
        timing: Timing,
        bounds: Bounds,
    ) -> Result<(Self, Vec<(String, Error)>)> {
        let mut engine = Self::new(timing, bounds);
        engine.muted = Some(committed);
        let mut states = engine.read(snapshot)?;
        let mut failed = Vec::new();
        for rule in rules {
            let state = states.remove(&rule.id).filter(|state| {
                state.revision == rule.revision && state.rule_type == rule.definition.rule_type.name()
            });
            let mut running = ActiveRule::new(rule, engine.now, &engine.timing, bounds);
            if let Some(state) = state
                && !mutated(Mutation::SkipSnapshot)
            {
                let enabled = running.rule.definition.enabled;
                match running.decode(state.bytes) {
                    Ok(()) => running.enable(enabled, engine.now, &engine.timing, bounds),
                    Err(error) => {
                        running = ActiveRule::new(running.rule, engine.now, &engine.timing, bounds);
                        failed.push((running.rule.id.clone(), error));
                    }
                }
            }
            let id = running.rule.id.clone();
            engine.rules.insert(id.clone(), running);
            engine.changed(&id);
        }
        Ok((engine, failed))
    }

    fn read<'a>(&mut self, snapshot: &'a [u8]) -> Result<BTreeMap<String, StoredRuleState<'a>>> {
        let Some((content, sum)) = snapshot.split_last_chunk::<CHECKSUM>() else {
            return Err(Error::Corrupt("it ends too early"));
        };
        if checksum(content) != *sum {
            return Err(Error::Corrupt("its checksum is wrong"));
        }
        let mut reader = Reader::new(content);
        if reader.bytes()? != MAGIC {
            return Err(Error::Corrupt("it does not begin as one"));
        }
        if reader.number()? != VERSION {
            return Err(Error::Corrupt("its version is unknown"));
        }
        let there = reader.flag()?;
        let position = reader.number()?;
        self.position = there.then_some(position);
        self.now = reader.time()?;
        for _ in 0..reader.count()?.min(MAX_ABSENCES) {
            self.absences.push((reader.time()?, reader.time()?));
        }
        let mut states = BTreeMap::new();
        for _ in 0..reader.count()? {
            let id = reader.text()?.to_owned();
            let (revision, rule_type) = (reader.number()?, reader.text()?);
            states.insert(id, StoredRuleState { revision, rule_type, bytes: reader.bytes()? });
        }
        reader.finish()?;
        Ok(states)
    }
}

/// State of a rule in a snapshot.
struct StoredRuleState<'a> {
    revision: u64,
    rule_type: &'a str,
    bytes: &'a [u8],
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let hash = digest::digest(&digest::SHA256, bytes);
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&hash.as_ref()[..CHECKSUM]);
    sum
}
