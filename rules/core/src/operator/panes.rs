//! Windows of event time as panes: the aggregate of a key's events is kept by pane, and a window is the sum of its panes.
//!
//! Panes of a rule have one length and begin at whole multiples of it, whenever the rule began: windows are the same for
//! whoever evaluates the same events. A pane is named by its number, a window by the number of the pane that it ends before. A
//! window that slides has up to ten panes and ends with each of them; one that does not is a single pane.

use std::collections::VecDeque;
use std::fmt;

use super::codec::{Reader, Writer};
use super::watermark::Timing;
use crate::error::{Error, Result};
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// Panes of a window that slides, at most.
const PER_WINDOW: i64 = 10;
/// The shortest pane.
const SHORTEST: i64 = 1000;
/// For so many windows events may be late, within the next two bounds and the lateness that is allowed.
const LATE_WINDOWS: i64 = 10;
const LATE_LEAST: i64 = 300_000;
/// Alerts of a key whose end is waited for; of more the latest.
const MAX_OPEN: usize = 100;

/// Aggregate of the events of a key within a pane.
pub(crate) trait Pane: fmt::Debug + Default + Send + Sync {
    /// Returns whether there were none.
    fn is_empty(&self) -> bool;
    /// Bytes that it takes beside itself.
    fn heap(&self) -> usize {
        0
    }
    fn encode(&self, writer: &mut Writer);
    fn decode(reader: &mut Reader<'_>) -> Result<Self>;
}

/// A number of events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count(pub(crate) u32);

impl Pane for Count {
    fn is_empty(&self) -> bool {
        self.0 == 0
    }

    fn encode(&self, writer: &mut Writer) {
        writer.number(u64::from(self.0));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self(u32::try_from(reader.number()?).unwrap_or(u32::MAX)))
    }
}

/// Division of a rule's time into panes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Milliseconds of a pane.
    pane: i64,
    /// Panes of a window.
    pub(crate) per: i64,
    /// Panes that are looked at when a window ends: more where it is compared with the time before.
    pub(crate) span: i64,
    /// For how long behind the latest event others may come, in milliseconds.
    lateness: i64,
}

impl Grid {
    /// Windows that end with each of their panes; `looked_at` windows are looked at together.
    pub(crate) fn sliding(window: Span, looked_at: i64, timing: &Timing, delay: Span) -> Self {
        let ms = window.ms().max(1);
        let fits = |per: &i64| ms % per == 0 && ms / per >= SHORTEST;
        let per = (1..=PER_WINDOW).rev().find(fits).unwrap_or(1);
        Self { pane: ms / per, per, span: per * looked_at, lateness: lateness(ms, timing, delay) }
    }

    /// Windows that follow one another.
    pub(crate) fn tumbling(window: Span, timing: &Timing, delay: Span) -> Self {
        let ms = window.ms().max(1);
        Self { pane: ms, per: 1, span: 1, lateness: lateness(ms, timing, delay) }
    }

    /// The pane that a time belongs to; of a mark the window up to which all have ended.
    pub(crate) fn number(&self, time: Time) -> i64 {
        time.ms().div_euclid(self.pane)
    }

    /// The first pane that begins at a time or later.
    pub(crate) fn first_from(&self, time: Time) -> i64 {
        let number = self.number(time);
        if self.begin(number) < time { number.saturating_add(1) } else { number }
    }

    /// Returns the begin of a pane: the time at which the window of its number ends.
    pub(crate) fn begin(&self, number: i64) -> Time {
        Time::from_ms(number.saturating_mul(self.pane))
    }

    /// Events before that are too late.
    pub(crate) fn floor(&self, greatest: Time) -> Time {
        greatest.minus(Span::from_ms(self.lateness))
    }

    /// The first pane that a window may still need while `greatest` is the greatest event time.
    pub(crate) fn lowest(&self, greatest: Time) -> i64 {
        self.number(self.floor(greatest)).saturating_sub(self.span)
    }

    /// For how long a rule looks back.
    pub(crate) fn window(&self) -> Span {
        Span::from_ms(self.pane.saturating_mul(self.span))
    }
}

fn lateness(window: i64, timing: &Timing, delay: Span) -> i64 {
    let windows = window.saturating_mul(LATE_WINDOWS).max(LATE_LEAST);
    windows.min(timing.lateness.ms()).max(delay.ms())
}

/// A window of a key that was told of, or would have been were the key not silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FiredWindow {
    pub(crate) end: i64,
    /// `true` if an alert was raised.
    pub(crate) raised: bool,
    /// `true` if the end of its condition is waited for.
    pub(crate) open: bool,
}

/// Panes and state of a key.
#[derive(Debug)]
pub(crate) struct Track<P> {
    /// The first pane that was seen whole.
    pub(crate) known: i64,
    /// The latest pane with an event.
    pub(crate) latest: i64,
    first: i64,
    panes: VecDeque<P>,
    fired: Vec<FiredWindow>,
    /// The greatest depth of its events.
    pub(crate) depth: u8,
    /// `true` if nothing is told until the key comes again.
    pub(crate) asleep: bool,
    /// The next window to be looked at.
    pub(crate) due: Option<i64>,
}

impl<P: Pane> Track<P> {
    pub(crate) fn new(known: i64, latest: i64) -> Self {
        Self {
            known,
            latest,
            first: latest,
            panes: VecDeque::new(),
            fired: Vec::new(),
            depth: 0,
            asleep: false,
            due: None,
        }
    }

    /// The bytes that it takes beside its key.
    pub(crate) fn bytes(&self) -> usize {
        let heap: usize = self.panes.iter().map(P::heap).sum();
        160 + self.panes.capacity() * size_of::<P>() + heap + self.fired.capacity() * size_of::<FiredWindow>()
    }

    /// Lets go of panes and windows that nothing will look at any more.
    pub(crate) fn prune(&mut self, lowest: i64, grid: &Grid) {
        while self.first < lowest && !self.panes.is_empty() {
            self.panes.pop_front();
            self.first += 1;
        }
        self.forget_fired(lowest, grid);
    }

    /// Forgets windows that were told of and that no late event can reach.
    pub(crate) fn forget_fired(&mut self, lowest: i64, grid: &Grid) {
        self.fired.retain(|fired| lasts(fired, lowest, grid));
    }

    /// Returns whether no pane from `lowest` on has an event.
    pub(crate) fn is_empty(&self, lowest: i64) -> bool {
        self.latest < lowest || self.panes.is_empty()
    }

    /// Returns a pane to be added to. What is before `lowest` was pruned.
    pub(crate) fn pane_mut(&mut self, number: i64) -> Option<&mut P> {
        if self.panes.is_empty() {
            self.first = number;
        }
        while number < self.first {
            self.panes.push_front(P::default());
            self.first -= 1;
        }
        let at = usize::try_from(number - self.first).ok()?;
        while self.panes.len() <= at {
            self.panes.push_back(P::default());
        }
        self.panes.get_mut(at)
    }

    /// Returns the panes with events from one number to before another, with their numbers.
    pub(crate) fn panes(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, &P)> {
        let end = self.first.saturating_add(self.panes.len() as i64);
        let (from, to) = (from.clamp(self.first, end), to.clamp(self.first, end));
        let place = |number: i64| (number - self.first) as usize;
        let range = if from < to { place(from)..place(to) } else { 0..0 };
        let numbers = from..;
        numbers.zip(self.panes.range(range)).filter(|(_, pane)| !pane.is_empty())
    }

    /// Returns whether a window may be told of: none that overlaps it was.
    pub(crate) fn may_fire(&self, end: i64, per: i64) -> bool {
        self.fired.iter().all(|fired| fired.end.abs_diff(end) >= per.unsigned_abs())
    }

    pub(crate) fn fired(&self, end: i64) -> Option<FiredWindow> {
        self.fired.iter().copied().find(|fired| fired.end == end)
    }

    /// Notes that a window was told of.
    pub(crate) fn fire(&mut self, fired: FiredWindow) {
        let at = self.fired.partition_point(|before| before.end < fired.end);
        self.fired.insert(at, fired);
        let open = self.fired.iter().filter(|fired| fired.open).count();
        if open > MAX_OPEN
            && let Some(first) = self.fired.iter_mut().find(|fired| fired.open)
        {
            first.open = false;
        }
    }

    /// Returns whether the end of some alert is waited for.
    pub(crate) fn is_open(&self) -> bool {
        self.fired.iter().any(|fired| fired.open)
    }

    /// Returns whether some window that was told of still matters.
    pub(crate) fn has_fired(&self, lowest: i64, grid: &Grid) -> bool {
        self.fired.iter().any(|fired| lasts(fired, lowest, grid))
    }

    /// Begins anew with the same windows told of.
    pub(crate) fn renewed(self, known: i64, latest: i64) -> Self {
        Self { fired: self.fired, ..Self::new(known, latest) }
    }

    /// Ends the alerts of windows up to one, and returns these.
    pub(crate) fn recover(&mut self, end: i64) -> Vec<i64> {
        let of = self.fired.iter_mut().filter(|fired| fired.open && fired.end <= end);
        of.map(|fired| {
            fired.open = mutated(Mutation::RecoverAgain);
            fired.end
        })
        .collect()
    }

    /// Writes what lasts of it while panes before `lowest` do not.
    pub(crate) fn encode(&self, lowest: i64, grid: &Grid, writer: &mut Writer) {
        for number in [self.known, self.latest] {
            writer.time(Time::from_ms(number));
        }
        writer.number(u64::from(self.depth));
        writer.flag(self.asleep);
        writer.flag(self.due.is_some());
        writer.time(Time::from_ms(self.due.unwrap_or_default()));
        let lasting = || self.fired.iter().filter(|fired| lasts(fired, lowest, grid));
        writer.size(lasting().count());
        for fired in lasting() {
            writer.time(Time::from_ms(fired.end));
            writer.flag(fired.raised);
            writer.flag(fired.open);
        }
        let panes = || self.panes(lowest, i64::MAX);
        writer.size(panes().count());
        let mut before = None;
        for (number, pane) in panes() {
            // As far behind the one before as it is: mostly one byte.
            match before.replace(number) {
                None => writer.time(Time::from_ms(number)),
                Some(before) => writer.number(number.abs_diff(before)),
            }
            pane.encode(writer);
        }
    }

    pub(crate) fn decode(grid: &Grid, reader: &mut Reader<'_>) -> Result<Self> {
        let (known, latest) = (reader.time()?.ms(), reader.time()?.ms());
        let mut track = Self::new(known, latest);
        track.depth = u8::try_from(reader.number()?).unwrap_or(u8::MAX);
        track.asleep = reader.flag()?;
        let due = reader.flag()?;
        let number = reader.time()?.ms();
        track.due = due.then_some(number);
        for _ in 0..reader.count()? {
            let end = reader.time()?.ms();
            track.fired.push(FiredWindow { end, raised: reader.flag()?, open: reader.flag()? });
        }
        let (mut first, mut before): (i64, Option<i64>) = (0, None);
        // What can be there at once: late events, those ahead, and a window.
        let most = grid.lateness / grid.pane + 2 * grid.span + 86_400_000 / grid.pane;
        for _ in 0..reader.count()? {
            let number = match before {
                None => {
                    first = reader.time()?.ms();
                    Some(first)
                }
                Some(before) => i64::try_from(reader.number()?).ok().and_then(|by| before.checked_add(by)),
            };
            let near = |number: &i64| number.checked_sub(first).is_some_and(|apart| apart <= most);
            let Some(number) = number.filter(near) else {
                return Err(Error::Corrupt("panes are too far apart"));
            };
            before = Some(number);
            let pane = P::decode(reader)?;
            if let Some(place) = track.pane_mut(number) {
                *place = pane;
            }
        }
        Ok(track)
    }
}

/// Returns whether a window that was told of still matters: late events may change it or one that overlaps it, or its end is
/// waited for.
fn lasts(fired: &FiredWindow, lowest: i64, grid: &Grid) -> bool {
    fired.open || fired.end.saturating_add(grid.per) > lowest.saturating_add(grid.span)
}
