//! What waits to be written: bounded, so that neither a store that stands still nor a flood of refusals takes memory or disk.

use std::collections::HashMap;
use std::net::IpAddr;

use super::event::Event;

/// Most events that wait.
const MAX_EVENTS: usize = 8_192;
/// Bytes that they may take.
const MAX_BYTES: usize = 8 << 20;
/// Refusals that are told of one second.
const REFUSALS: usize = 50;
/// Refusals that are told of one client in one second.
const OF_CLIENT: usize = 5;

/// What waits to be written, and what was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Bytes of the events that wait.
    pub(crate) bytes: u64,
    /// Bytes that they may take.
    pub(crate) limit: u64,
    /// Events that were lost since the start.
    pub(crate) lost: u64,
}

/// Events that wait. What there is no place for is counted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    events: Vec<Event>,
    bytes: usize,
    lost: u64,
    /// Since the start.
    lost_in_all: u64,
    /// The second that is counted.
    second: i64,
    /// Refusals that are told of it.
    told: usize,
    /// Places of its refusals, by client.
    refusals: HashMap<IpAddr, Vec<usize>>,
}

impl Queue {
    /// Adds an event. Equal refusals of one client in one second are one event; so are those beyond what is told of it.
    pub(super) fn add(&mut self, event: Event) {
        let client = millrace_listen::client(event.address);
        if event.is_refusal() && self.is_folded(client, &event) {
            return;
        }
        let (bytes, is_full) = (self.bytes + event.bytes(), self.events.len() >= MAX_EVENTS);
        if is_full || bytes > MAX_BYTES || event.is_refusal() && self.told >= REFUSALS {
            self.lose(1);
            return;
        }
        if event.is_refusal() {
            self.told += 1;
            self.refusals.entry(client).or_default().push(self.events.len());
        }
        self.bytes = bytes;
        self.events.push(event);
    }

    /// Counts a refusal with one that is told already.
    fn is_folded(&mut self, client: IpAddr, event: &Event) -> bool {
        let second = event.time_ms.div_euclid(1_000);
        if second != self.second {
            (self.second, self.told) = (second, 0);
            self.refusals.clear();
        }
        let Some(places) = self.refusals.get(&client) else { return false };
        let alike = |at: &&usize| self.events.get(**at).is_some_and(|told| told.is_like(event));
        if let Some(told) = places.iter().find(alike).and_then(|at| self.events.get_mut(*at)) {
            told.count += 1;
            return true;
        }
        if places.len() < OF_CLIENT {
            return false;
        }
        match places.last().and_then(|at| self.events.get_mut(*at)) {
            Some(told) => {
                told.others += 1;
                true
            }
            None => false,
        }
    }

    /// Counts events that could not be written.
    pub(super) fn lose(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
        self.lost_in_all = self.lost_in_all.saturating_add(count);
    }

    pub(super) fn figures(&self) -> Figures {
        Figures { bytes: self.bytes as u64, limit: MAX_BYTES as u64, lost: self.lost_in_all }
    }

    /// Takes what waits, and how many were lost since the last time that something was taken.
    pub(super) fn take(&mut self) -> (Vec<Event>, u64) {
        if self.events.is_empty() {
            return (Vec::new(), 0);
        }
        self.refusals.clear();
        self.bytes = 0;
        (std::mem::take(&mut self.events), std::mem::take(&mut self.lost))
    }
}
