//! Queue of audit events. It is bounded, so that neither a stalled store nor a flood of refusals takes memory or disk. It is
//! shared, so that neither a user nor refusals displace the events of others.

use std::collections::HashMap;
use std::net::IpAddr;

use super::event::Event;

/// Most events that wait.
const MAX_EVENTS: usize = 8_192;
/// Bytes that they may take.
const MAX_BYTES: usize = 8 << 20;
/// All refusals together have one part in so many of it.
const SHARES: usize = 2;
/// Events of a user that another one is compared with.
const COMPARED: usize = 32;
/// Refusals that are told of one second.
const REFUSALS: usize = 50;
/// Refusals that are told of one client in one second.
const OF_CLIENT: usize = 5;

/// Waiting and lost events of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Bytes of the events that wait.
    pub bytes: u64,
    /// Bytes that they may take.
    pub limit: u64,
    /// Events that were lost since the start.
    pub lost: u64,
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
    /// Refusals that wait, those of earlier seconds included.
    refused: QueueShare,
    /// Other waiting events, by user.
    held: HashMap<String, QueueShare>,
}

/// Waiting events of a user, or of refusals.
#[derive(Debug, Default)]
struct QueueShare {
    places: Vec<usize>,
    bytes: usize,
}

impl Queue {
    /// Adds an event. Equal refusals of one client in one second are one event; so are those beyond what is told of it, or beyond the
    /// share of refusals, and equal logins and changes of one user.
    pub(super) fn add(&mut self, event: Event) {
        let (client, is_refusal) = (millrace_listen::client(event.address), event.is_refusal());
        let is_told = if is_refusal { self.is_folded(client, &event) } else { self.is_repeated(&event) };
        if is_told {
            return;
        }
        let (place, bytes) = (self.events.len(), event.bytes());
        let held = &self.refused;
        let is_much = held.places.len() >= MAX_EVENTS / SHARES || held.bytes + bytes > MAX_BYTES / SHARES;
        if is_refusal
            && is_much
            && let Some(told) = held.places.last().and_then(|at| self.events.get_mut(*at))
        {
            told.others += 1;
            return;
        }
        let has_share = if is_refusal { self.told < REFUSALS } else { self.has_share(&event, bytes) };
        if place >= MAX_EVENTS || self.bytes + bytes > MAX_BYTES || !has_share {
            self.lose(1);
            return;
        }
        let held = if is_refusal {
            self.told += 1;
            self.refusals.entry(client).or_default().push(place);
            &mut self.refused
        } else {
            self.held.entry(event.user().to_owned()).or_default()
        };
        held.places.push(place);
        held.bytes += bytes;
        self.bytes += bytes;
        self.events.push(event);
    }

    /// Counts an event with an equal one of its user in the same second.
    fn is_repeated(&mut self, event: &Event) -> bool {
        let Some(held) = self.held.get(event.user()) else { return false };
        let alike = |at: &&usize| {
            self.events.get(**at).is_some_and(|told| told.second() == event.second() && told.is_like(event))
        };
        let told = held.places.iter().rev().take(COMPARED).find(alike);
        match told.and_then(|at| self.events.get_mut(*at)) {
            Some(told) => {
                told.count += 1;
                true
            }
            None => false,
        }
    }

    /// Returns whether an event's user may have so many bytes more: as long as it has no more than what is left for others.
    fn has_share(&self, event: &Event, bytes: usize) -> bool {
        self.held.get(event.user()).is_none_or(|held| {
            held.places.len() < MAX_EVENTS - self.events.len()
                && held.bytes + bytes <= MAX_BYTES.saturating_sub(self.bytes + bytes)
        })
    }

    /// Counts a refusal with one that is told already.
    fn is_folded(&mut self, client: IpAddr, event: &Event) -> bool {
        let second = event.second();
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

    pub(super) fn figures(&self) -> QueueStats {
        QueueStats { bytes: self.bytes as u64, limit: MAX_BYTES as u64, lost: self.lost_in_all }
    }

    /// Takes what waits, and how many were lost since the last time that something was taken.
    pub(super) fn take(&mut self) -> (Vec<Event>, u64) {
        if self.events.is_empty() {
            return (Vec::new(), 0);
        }
        self.refusals.clear();
        self.refused = QueueShare::default();
        self.held.clear();
        self.bytes = 0;
        (std::mem::take(&mut self.events), std::mem::take(&mut self.lost))
    }
}
