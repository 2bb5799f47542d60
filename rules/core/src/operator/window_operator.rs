//! Common part of types that wait for windows: the order of windows, late events, the end of a condition, and bounds. A type adds
//! events to panes and judges windows ([`WindowJudge`]).
//!
//! A window is looked at when it closes, if its key is known by then, and again when a late event belongs to it. Of windows of
//! a key that overlap one is told of at most: the first to be looked at. The end of the condition is the first window that is looked
//! at without it, at the end of that which was told of or later.
//!
//! Nothing is done by time as such: each key has the next window that can make a difference, and these are in order. So it does
//! not matter when it is looked what is due, nor how often.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::codec::{Reader, Writer};
use super::key::Key;
use super::panes::{FiredWindow, Grid, Pane, Track};
use super::unobserved::UnobservedIntervals;
use super::{Bounds, OperatorStats};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// For how long a key is remembered that does not come any more, where its absence is looked at or an end is waited for.
pub(crate) const REMEMBERED: Span = Span::from_secs(30 * 86_400);

/// An event as types that wait see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) event: &'a Event,
    pub(crate) time: Time,
    /// `true` if it matches the second filter of its rule.
    pub(crate) second: bool,
    pub(crate) depth: u8,
}

/// Verdict on a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// `true` if it is to be told of.
    pub(crate) holds: bool,
    /// Its events.
    pub(crate) count: usize,
    /// Members that alerts show of it.
    pub(crate) added: Vec<(String, Value)>,
}

/// Schedule of the wake-ups for a key's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeSchedule {
    /// If they have events.
    WithEvents,
    /// If they, or the time that they are compared with, have events.
    WhileAny,
    /// All of them, as long as the key is remembered: it matters that there are none.
    Always,
}

/// A type that waits.
pub(crate) trait WindowJudge: fmt::Debug + Send + Sync {
    type Pane: Pane;
    /// Value that it reads of an event.
    type Value;

    fn wakes(&self) -> WakeSchedule;

    /// Reads an event; `None` where it does not count.
    fn read(&self, sample: &Sample<'_>) -> Option<Self::Value>;

    fn add(&self, pane: &mut Self::Pane, value: &Self::Value);

    /// Judges the window with this end; `None` where there is nothing to report.
    fn judge(&self, track: &Track<Self::Pane>, grid: &Grid, end: i64) -> Option<Verdict>;

    /// Returns whether a window that begins before its key was known is judged.
    fn judges_new(&self) -> bool {
        false
    }

    /// The first window from `from` on that may make a difference if no event comes, of types that always look.
    fn next(&self, _: &Track<Self::Pane>, _: &Grid, from: i64) -> i64 {
        from
    }

    /// Returns whether a key that was told of is forgotten until it comes again.
    fn forgets(&self) -> bool {
        false
    }
}

/// A window that was looked at.
#[derive(Debug)]
pub(crate) struct ClosedWindow<'a> {
    pub(crate) key: &'a Key,
    pub(crate) start: Time,
    pub(crate) end: Time,
    /// Time at which it closed, or at which a late event came, in times of frames.
    pub(crate) clock: Time,
    pub(crate) verdict: Verdict,
    pub(crate) depth: u8,
}

/// Receiver of the outcome of windows.
pub(crate) trait Outcome {
    /// Returns whether the end of a condition is to be told.
    fn recovers(&self) -> bool;
    /// Takes a window that is to be told of; returns whether an alert was raised.
    fn alert(&mut self, closing: ClosedWindow<'_>) -> bool;
    /// Takes what an alert is now.
    fn revise(&mut self, closing: ClosedWindow<'_>);
    /// Takes that the condition has ended of which the alert of the window from `start` told.
    fn recover(&mut self, key: &Key, start: Time, end: Time);
    /// Returns whether there is enough to be written: the rest is to be looked at later.
    fn is_full(&self) -> bool;
}

/// Context in which windows are judged.
pub(crate) struct JudgeContext<'a> {
    pub(crate) unobserved: UnobservedIntervals<'a>,
    /// Returns the closing time of a window with this end, in times of frames.
    pub(crate) clock: &'a dyn Fn(Time) -> Time,
    pub(crate) out: &'a mut dyn Outcome,
}

/// A type that waits, at work.
pub(crate) trait WindowOperator: fmt::Debug + Send + Sync {
    fn grid(&self) -> &Grid;

    /// Returns whether absence is looked at without any event.
    fn looks_always(&self) -> bool;

    /// Begins to look at a key that is there without events.
    fn begin(&mut self, origin: Time);

    /// Takes an event under its keys; `before` and `after` are event time before and with it.
    fn event(&mut self, sample: &Sample<'_>, keys: &[Key], before: Time, after: Time);

    /// Looks at windows again that late events belong to, until there is enough to be written. Tells whether that was all.
    fn settle(&mut self, looking: &mut JudgeContext<'_>) -> bool;

    /// Closes the windows up to one, until there is enough to be written. Tells whether that was all: no event may come before.
    fn close(&mut self, number: i64, looking: &mut JudgeContext<'_>) -> bool;

    /// The window up to which all are closed.
    fn closed(&self) -> i64;

    /// The end of the first window that has to be looked at.
    fn due(&self) -> Option<Time>;

    /// Frees what is forgotten.
    fn tick(&mut self, greatest: Time);

    fn figures(&self) -> OperatorStats;

    fn encode(&self, greatest: Time, closed: i64, writer: &mut Writer);

    fn decode(&mut self, reader: &mut Reader<'_>) -> Result<()>;
}

#[derive(Debug)]
pub(crate) struct PaneOperator<J: WindowJudge> {
    judge: J,
    grid: Grid,
    /// `true` if all events have one key.
    keyless: bool,
    tracks: BTreeMap<Key, Track<J::Pane>>,
    due: BTreeSet<(i64, Key)>,
    /// Keys by their latest event.
    ages: BTreeSet<(i64, Key)>,
    /// Panes of windows that are closed, which events have come to.
    late: BTreeMap<Key, BTreeSet<i64>>,
    closed: i64,
    bytes: usize,
    bounds: Bounds,
    evicted: u64,
}

impl<J: WindowJudge> PaneOperator<J> {
    pub(crate) fn new(judge: J, grid: Grid, keyless: bool, bounds: Bounds) -> Self {
        Self {
            judge,
            grid,
            keyless,
            tracks: BTreeMap::new(),
            due: BTreeSet::new(),
            ages: BTreeSet::new(),
            late: BTreeMap::new(),
            closed: i64::MIN,
            bytes: 0,
            bounds,
            evicted: 0,
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Track<J::Pane>> {
        let track = self.tracks.remove(key)?;
        self.bytes = self.bytes.saturating_sub(key.bytes() + track.bytes());
        self.ages.remove(&(track.latest, key.clone()));
        if let Some(due) = track.due {
            self.due.remove(&(due, key.clone()));
        }
        Some(track)
    }

    fn insert(&mut self, key: &Key, track: Track<J::Pane>) {
        self.bytes += key.bytes() + track.bytes();
        self.ages.insert((track.latest, key.clone()));
        if let Some(due) = track.due {
            self.due.insert((due, key.clone()));
        }
        self.tracks.insert(key.clone(), track);
    }

    /// Returns whether nothing of a key matters any more, not even what was told of it.
    fn is_over_and_done(&self, track: &Track<J::Pane>, lowest: i64) -> bool {
        self.is_forgotten(track, lowest) && !track.has_fired(lowest, &self.grid)
    }

    /// Returns whether a key is new when it comes, while `lowest` is the first pane that matters.
    fn is_forgotten(&self, track: &Track<J::Pane>, lowest: i64) -> bool {
        match self.judge.wakes() {
            // Those are forgotten by the windows that were looked at, or at once.
            WakeSchedule::Always => track.asleep && track.is_empty(lowest),
            WakeSchedule::WithEvents | WakeSchedule::WhileAny => {
                let open = track.is_open() && !self.is_over(track, lowest);
                track.is_empty(lowest) && !open
            }
        }
    }

    /// Returns whether a key did not come for as long as keys are remembered, at the beginning of a pane.
    fn is_over(&self, track: &Track<J::Pane>, number: i64) -> bool {
        let latest = self.grid.begin(track.latest.saturating_add(1));
        self.grid.begin(number).since(latest) >= REMEMBERED
    }

    fn purge(&mut self, lowest: i64) {
        // None of these is ever forgotten: looking at all of them would be for nothing.
        if self.judge.wakes() == WakeSchedule::Always && !self.judge.forgets() {
            return;
        }
        let gone: Vec<Key> = self
            .ages
            .iter()
            .take_while(|(latest, _)| *latest < lowest)
            .filter(|(_, key)| self.tracks.get(key).is_some_and(|track| self.is_over_and_done(track, lowest)))
            .map(|(_, key)| key.clone())
            .collect();
        for key in gone {
            self.remove(&key);
        }
    }

    fn evict(&mut self, lowest: i64) {
        if self.tracks.len() <= self.bounds.keys && self.bytes <= self.bounds.bytes {
            return;
        }
        self.purge(lowest);
        while self.tracks.len() > self.bounds.keys || self.bytes > self.bounds.bytes {
            let Some((_, first)) = self.ages.first().cloned() else { break };
            self.remove(&first);
            self.evicted += 1;
        }
    }

    /// Takes an event under one key.
    fn add(&mut self, key: &Key, sample: &Sample<'_>, value: &J::Value, (before, after): (i64, i64)) {
        let number = self.grid.number(sample.time);
        let whole = self.grid.first_from(sample.time);
        let closed = self.closed;
        let known = self.tracks.get(key).is_some_and(|track| !self.is_forgotten(track, before));
        if !known {
            let track = match self.remove(key) {
                Some(track) => track.renewed(whole, number),
                None => Track::new(whole, number),
            };
            self.insert(key, track);
        }
        let wakes = self.judge.wakes();
        let Some(track) = self.tracks.get_mut(key) else { return };
        let bytes = track.bytes();
        if track.asleep && number > track.latest {
            track.asleep = false;
            (track.known, track.depth) = (whole, 0);
        }
        track.prune(after, &self.grid);
        let Some(pane) = track.pane_mut(number) else { return };
        self.judge.add(pane, value);
        track.depth = track.depth.max(sample.depth);
        if number > track.latest {
            self.ages.remove(&(track.latest, key.clone()));
            track.latest = number;
            self.ages.insert((number, key.clone()));
        }
        let next = number.max(closed).saturating_add(1);
        let wanted = match wakes {
            WakeSchedule::WithEvents => (number >= closed).then_some(number + 1),
            WakeSchedule::WhileAny => Some(next),
            WakeSchedule::Always if track.is_open() => Some(next),
            WakeSchedule::Always if track.due.is_some() || track.asleep => None,
            WakeSchedule::Always => Some(track.known.saturating_add(self.grid.span).max(next)),
        };
        if let Some(wanted) = wanted.filter(|wanted| track.due.is_none_or(|due| *wanted < due)) {
            if let Some(due) = track.due.replace(wanted) {
                self.due.remove(&(due, key.clone()));
            }
            self.due.insert((wanted, key.clone()));
        }
        self.bytes = (self.bytes + track.bytes()).saturating_sub(bytes);
        if number < closed && !mutated(Mutation::LateNotSettled) {
            self.late.entry(key.clone()).or_default().insert(number);
        }
    }

    /// The next window of a key to be looked at, from one on.
    fn next(
        &self,
        track: &Track<J::Pane>,
        from: i64,
        looking: &JudgeContext<'_>,
        clock: Time,
    ) -> Option<i64> {
        match self.judge.wakes() {
            WakeSchedule::WithEvents => track.panes(from - 1, i64::MAX).next().map(|(number, _)| number + 1),
            WakeSchedule::WhileAny => {
                let first = track.panes(from.saturating_sub(self.grid.span), i64::MAX).next();
                first.map(|(number, _)| from.max(number + 1))
            }
            WakeSchedule::Always if track.asleep => None,
            WakeSchedule::Always => {
                let from = from.max(track.known.saturating_add(self.grid.span));
                let seen = looking.unobserved.next_seen(&self.grid, from, clock);
                Some(self.judge.next(track, &self.grid, seen))
            }
        }
    }

    /// Looks at one window of a key.
    fn look(&mut self, key: &Key, end: i64, clock: Time, looking: &mut JudgeContext<'_>) {
        let Some(track) = self.tracks.get_mut(key) else { return };
        let (grid, judge) = (&self.grid, &self.judge);
        if judge.wakes() != WakeSchedule::WithEvents {
            let new = end.saturating_sub(grid.span) < track.known && !judge.judges_new();
            if new || !looking.unobserved.sees(grid, end, clock) {
                return;
            }
        }
        let Some(verdict) = judge.judge(track, grid, end) else { return };
        let holds = verdict.holds;
        let (start, time) = (grid.begin(end.saturating_sub(grid.per)), grid.begin(end));
        let closing = ClosedWindow { key, start, end: time, clock, verdict, depth: track.depth };
        let bytes = track.bytes();
        match track.fired(end) {
            Some(fired) if fired.raised => looking.out.revise(closing),
            Some(_) => {}
            None if holds && (track.may_fire(end, grid.per) || mutated(Mutation::OverlappingFire)) => {
                let raised = looking.out.alert(closing);
                let open = raised && looking.out.recovers();
                track.fire(FiredWindow { end, raised, open });
                // While no event comes nothing else forgets; event time is behind the end of a window that is looked at.
                track.forget_fired(grid.lowest(grid.begin(end)), grid);
                track.asleep |= judge.forgets() && !mutated(Mutation::KeysNotForgotten);
            }
            None => {}
        }
        if !holds {
            for ended in track.recover(end) {
                let start = grid.begin(ended.saturating_sub(grid.per));
                looking.out.recover(key, start, time);
            }
        }
        self.bytes = (self.bytes + track.bytes()).saturating_sub(bytes);
    }
}

impl<J: WindowJudge> WindowOperator for PaneOperator<J> {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn looks_always(&self) -> bool {
        self.keyless && self.judge.wakes() == WakeSchedule::Always
    }

    fn begin(&mut self, origin: Time) {
        if self.looks_always() && self.tracks.is_empty() {
            let known = self.grid.first_from(origin);
            let mut track = Track::new(known, self.grid.number(origin));
            track.due = Some(known.saturating_add(self.grid.span));
            self.insert(&Key::default(), track);
        }
    }

    fn event(&mut self, sample: &Sample<'_>, keys: &[Key], before: Time, after: Time) {
        let Some(value) = self.judge.read(sample) else { return };
        let lowest = (self.grid.lowest(before), self.grid.lowest(after));
        for key in keys {
            self.add(key, sample, &value, lowest);
        }
        self.evict(lowest.1);
    }

    fn settle(&mut self, looking: &mut JudgeContext<'_>) -> bool {
        while let Some((key, panes)) = self.late.pop_first() {
            if looking.out.is_full() {
                if !mutated(Mutation::ForgetLate) {
                    self.late.insert(key, panes);
                }
                return false;
            }
            let ends = panes.iter().flat_map(|pane| *pane + 1..=*pane + self.grid.span);
            let ends: BTreeSet<i64> = ends.filter(|end| *end <= self.closed).collect();
            for end in ends {
                let clock = (looking.clock)(self.grid.begin(end));
                self.look(&key, end, clock, looking);
            }
            // Its next window may be another one now.
            if self.judge.wakes() == WakeSchedule::Always
                && let Some(track) = self.tracks.get(&key)
                && track.is_open()
            {
                let clock = (looking.clock)(self.grid.begin(self.closed));
                let next = self.next(track, self.closed.saturating_add(1), looking, clock);
                self.wake(&key, next);
            }
        }
        true
    }

    fn close(&mut self, number: i64, looking: &mut JudgeContext<'_>) -> bool {
        while let Some((end, _)) = self.due.first()
            && *end <= number
        {
            if looking.out.is_full() {
                return false;
            }
            let Some((end, key)) = self.due.pop_first() else { break };
            if let Some(track) = self.tracks.get_mut(&key) {
                track.due = None;
                // A late event may have had it told of meanwhile.
                if track.asleep {
                    continue;
                }
            }
            let clock = (looking.clock)(self.grid.begin(end));
            self.look(&key, end, clock, looking);
            let Some(track) = self.tracks.get(&key) else { continue };
            if self.judge.wakes() == WakeSchedule::Always && !self.keyless && self.is_over(track, end) {
                self.remove(&key);
                continue;
            }
            let next = self.next(track, end.saturating_add(1), looking, clock);
            self.wake(&key, next);
        }
        self.closed = self.closed.max(number);
        true
    }

    fn closed(&self) -> i64 {
        self.closed
    }

    fn due(&self) -> Option<Time> {
        self.due.first().map(|(end, _)| self.grid.begin(*end))
    }

    fn tick(&mut self, greatest: Time) {
        self.purge(self.grid.lowest(greatest));
    }

    fn figures(&self) -> OperatorStats {
        OperatorStats { keys: self.tracks.len(), bytes: self.bytes, evicted: self.evicted }
    }

    fn encode(&self, greatest: Time, closed: i64, writer: &mut Writer) {
        let lowest = self.grid.lowest(greatest);
        writer.number(self.evicted);
        writer.time(Time::from_ms(self.closed.max(closed)));
        let lasting = || self.tracks.iter().filter(|(_, track)| !self.is_over_and_done(track, lowest));
        writer.size(lasting().count());
        for (key, track) in lasting() {
            key.encode(writer);
            track.encode(lowest, &self.grid, writer);
        }
    }

    fn decode(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let evicted = reader.number()?;
        self.closed = reader.time()?.ms();
        for _ in 0..reader.count()? {
            let key = Key::decode(reader)?;
            if self.tracks.contains_key(&key) {
                return Err(Error::Corrupt("a key is there twice"));
            }
            let track = Track::decode(&self.grid, reader)?;
            self.insert(&key, track);
        }
        self.evict(i64::MIN);
        self.evicted = evicted.max(self.evicted);
        Ok(())
    }
}

impl<J: WindowJudge> PaneOperator<J> {
    /// Has a key looked at next at a window, or not at all.
    fn wake(&mut self, key: &Key, next: Option<i64>) {
        let Some(track) = self.tracks.get_mut(key) else { return };
        if let Some(due) = std::mem::replace(&mut track.due, next) {
            self.due.remove(&(due, key.clone()));
        }
        if let Some(next) = next {
            self.due.insert((next, key.clone()));
        }
    }
}
