//! Order of deliveries: a lane for each channel, so that a slow one delays no other.
//!
//! A lane sends one at a time at first, and more as long as answers come soon; one that fails or is slow is back at one. After a failure it
//! rests, for longer each time, and gives back the rows that it holds: they are in the index. It may send so many a minute; beyond that
//! what has gathered meanwhile becomes one digest. What all lanes hold together is bounded in rows and bytes. There is no clock here: times are milliseconds
//! that are given.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::row::{Row, Unit};

/// Notifications under way, of all lanes and of one.
const MAX_IN_FLIGHT: usize = 256;
const MAX_OF_LANE: usize = 16;
/// Of these, those of lanes whose last answer was a failure: notifications for receivers that are gone hold up no other.
const MAX_FAILING: usize = 128;
/// Programs: some run, and a few wait for them.
const MAX_COMMANDS: usize = 8;
/// Rows that a lane holds, and one that has to wait for its rate and makes digests.
const MAX_QUEUE: usize = 32;
const MAX_WAITING: usize = 200;
/// Below so many a lane is asked for more.
const LOW: usize = 16;
/// Rows that all of them hold, and their bytes.
const MAX_HELD: usize = 8_000;
const MAX_BYTES: usize = 64 << 20;
/// An answer that takes longer is slow.
const SLOW_MS: i64 = 2_000;
/// Rest of a lane after a first failure, and its bound.
const REST_MS: i64 = 1_000;
const LONGEST_REST_MS: i64 = 300_000;

/// A channel's rows in memory.
#[derive(Debug, Default)]
struct ChannelQueue {
    queue: VecDeque<Unit>,
    in_flight: usize,
    /// Bound on the deliveries that are in flight.
    width: usize,
    failures: u32,
    rests_until: i64,
    per_minute: u32,
    /// Notifications that it may send now, in parts of a minute: a token is 60,000.
    tokens: i64,
    refilled: i64,
    /// `true` if it had to wait for its rate, so that what is here becomes a digest.
    is_over: bool,
    /// `true` if it starts programs, which wait for one another.
    is_command: bool,
}

/// Delivery that is to start.
#[derive(Debug)]
pub(crate) enum SendStart {
    /// As it is.
    Unit(Unit),
    /// Several together, whose batch is to be stored before.
    Digest(Vec<Row>),
}

/// All of them.
#[derive(Debug)]
pub(crate) struct ChannelQueues {
    lanes: BTreeMap<String, ChannelQueue>,
    /// Rows that are in a queue or under way.
    held: HashSet<String>,
    bytes: usize,
    in_flight: usize,
    per_minute: u32,
    /// The lane that was served last.
    last: String,
}

impl ChannelQueue {
    fn refill(&mut self, now_ms: i64) {
        let most = i64::from(self.per_minute) * 60_000;
        let since = now_ms.saturating_sub(self.refilled).clamp(0, 60_000);
        self.tokens = self.tokens.saturating_add(since * i64::from(self.per_minute)).min(most);
        self.refilled = now_ms;
    }

    fn capacity(&self) -> usize {
        if self.is_over { MAX_WAITING } else { MAX_QUEUE }
    }

    fn takes(&self, now_ms: i64) -> bool {
        self.rests_until <= now_ms && self.rows() < self.capacity()
    }

    fn rows(&self) -> usize {
        self.queue.iter().map(|unit| unit.rows.len()).sum()
    }
}

impl ChannelQueues {
    /// Makes none; `per_minute` is what a lane may send unless its rows say less or more.
    pub(crate) fn new(per_minute: u32) -> Self {
        Self {
            lanes: BTreeMap::new(),
            held: HashSet::new(),
            bytes: 0,
            in_flight: 0,
            per_minute,
            last: String::new(),
        }
    }

    /// Returns whether a row is here.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.held.contains(id)
    }

    /// Returns whether anything is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Returns whether more can be held.
    pub(crate) fn has_room(&self) -> bool {
        self.held.len() < MAX_HELD && self.bytes < MAX_BYTES
    }

    /// Returns whether the lane of a channel takes more.
    pub(crate) fn has_room_for(&self, channel: &str, now_ms: i64) -> bool {
        self.lanes.get(channel).is_none_or(|lane| lane.takes(now_ms))
    }

    /// Returns the channels whose rows are not to be looked for, and the rows of the others that are here already.
    pub(crate) fn passed_over(&self, now_ms: i64) -> (Vec<String>, Vec<String>) {
        let full = |lane: &ChannelQueue| {
            let low = if lane.is_over { MAX_WAITING / 2 } else { LOW };
            lane.rests_until > now_ms || lane.rows() >= low
        };
        let channels: Vec<String> =
            self.lanes.iter().filter(|(_, lane)| full(lane)).map(|(channel, _)| channel.clone()).collect();
        let of_others = self.lanes.iter().filter(|(_, lane)| !full(lane));
        let mut queued: Vec<String> = of_others
            .flat_map(|(_, lane)| lane.queue.iter().flat_map(|unit| &unit.rows).map(|row| row.id.clone()))
            .collect();
        let waiting: HashSet<&String> = self
            .lanes
            .values()
            .flat_map(|lane| lane.queue.iter().flat_map(|unit| &unit.rows))
            .map(|row| &row.id)
            .collect();
        queued.extend(self.held.iter().filter(|id| !waiting.contains(id)).cloned());
        (channels, queued)
    }

    /// Takes something into the lane of its channel; returns whether there was room.
    pub(crate) fn offer(&mut self, unit: Unit, now_ms: i64) -> bool {
        let Some(first) = unit.rows.first() else { return true };
        let per_minute = first.per_minute.unwrap_or(self.per_minute).max(1);
        let lane = self.lanes.entry(first.channel.clone()).or_insert_with(|| ChannelQueue {
            width: 1,
            per_minute,
            tokens: i64::from(per_minute) * 60_000,
            refilled: now_ms,
            is_command: first.about["method"] == "command",
            ..ChannelQueue::default()
        });
        lane.per_minute = per_minute;
        if !lane.takes(now_ms) {
            return false;
        }
        self.bytes += unit.bytes();
        self.held.extend(unit.rows.iter().map(|row| row.id.clone()));
        lane.queue.push_back(unit);
        true
    }

    /// Returns whether one more may be under way of a lane that fails.
    fn may_fail(&self) -> bool {
        let failing = self.lanes.values().filter(|lane| lane.failures > 0);
        failing.map(|lane| lane.in_flight).sum::<usize>() < MAX_FAILING
    }

    /// Returns whether one more program may be under way.
    fn may_command(&self) -> bool {
        let commands = self.lanes.values().filter(|lane| lane.is_command);
        commands.map(|lane| lane.in_flight).sum::<usize>() < MAX_COMMANDS
    }

    /// Takes out what is to be sent now, a lane after the other.
    pub(crate) fn start(&mut self, now_ms: i64) -> Option<SendStart> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let (may_fail, may_command) = (self.may_fail(), self.may_command());
        let after = (std::ops::Bound::Excluded(self.last.clone()), std::ops::Bound::Unbounded);
        let order: Vec<String> = self
            .lanes
            .range::<String, _>(after)
            .chain(self.lanes.range::<String, _>(..=self.last.clone()))
            .filter(|(_, lane)| {
                !lane.queue.is_empty()
                    && lane.rests_until <= now_ms
                    && lane.in_flight < lane.width
                    && (may_fail || lane.failures == 0)
                    && (may_command || !lane.is_command)
            })
            .map(|(channel, _)| channel.clone())
            .collect();
        for channel in order {
            let Some(lane) = self.lanes.get_mut(&channel) else { continue };
            lane.refill(now_ms);
            if lane.tokens < 60_000 {
                lane.is_over = true;
                continue;
            }
            lane.tokens -= 60_000;
            lane.in_flight += 1;
            self.in_flight += 1;
            self.last.clone_from(&channel);
            let gathers = |unit: &Unit| unit.batch.is_none() && unit.rows.iter().all(|row| row.gathers());
            let waiting = lane.queue.iter().filter(|unit| gathers(unit)).count();
            if lane.is_over && waiting >= 2 && lane.queue.front().is_some_and(gathers) {
                let (together, rest): (VecDeque<Unit>, VecDeque<Unit>) =
                    lane.queue.drain(..).partition(gathers);
                lane.queue = rest;
                lane.is_over = lane.tokens < 60_000;
                return Some(SendStart::Digest(together.into_iter().flat_map(|unit| unit.rows).collect()));
            }
            lane.is_over = lane.is_over && lane.tokens < 60_000;
            return lane.queue.pop_front().map(SendStart::Unit);
        }
        None
    }

    /// Notes how what was started has ended: whether it was sent or is no failure of the channel, and how long it took.
    pub(crate) fn ended(&mut self, channel: &str, well: bool, took_ms: i64, now_ms: i64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(lane) = self.lanes.get_mut(channel) else { return };
        lane.in_flight = lane.in_flight.saturating_sub(1);
        if well {
            lane.failures = 0;
            lane.rests_until = 0;
            lane.width = if took_ms > SLOW_MS { 1 } else { (lane.width + 1).min(MAX_OF_LANE) };
            return;
        }
        lane.width = 1;
        if now_ms < lane.rests_until {
            // It was under way when the one failed that the lane rests for.
            return;
        }
        lane.failures = lane.failures.saturating_add(1);
        let rest = REST_MS.saturating_mul(1 << lane.failures.saturating_sub(1).min(20)).min(LONGEST_REST_MS);
        lane.rests_until = now_ms.saturating_add(rest);
        let back: Vec<Unit> = lane.queue.drain(..).collect();
        for unit in back {
            self.release(&unit);
        }
    }

    /// Returns whether the lane of a channel has failed more often than once in a row.
    pub(crate) fn fails(&self, channel: &str) -> bool {
        self.lanes.get(channel).is_some_and(|lane| lane.failures > 1)
    }

    /// Lets rows go, once their outcome is written.
    pub(crate) fn release(&mut self, unit: &Unit) {
        self.bytes = self.bytes.saturating_sub(unit.bytes());
        for row in &unit.rows {
            self.held.remove(&row.id);
        }
    }

    /// Returns the next time at which a lane may go on, `None` where something has to end before; forgets lanes that have nothing left to be
    /// remembered.
    pub(crate) fn wakes_at(&mut self, now_ms: i64) -> Option<i64> {
        self.lanes.retain(|_, lane| {
            let is_full = lane.tokens.saturating_add(
                now_ms.saturating_sub(lane.refilled).saturating_mul(i64::from(lane.per_minute)),
            ) >= i64::from(lane.per_minute) * 60_000;
            !lane.queue.is_empty() || lane.in_flight > 0 || lane.failures > 0 || !is_full
        });
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let (may_fail, may_command) = (self.may_fail(), self.may_command());
        let of_lane = |lane: &ChannelQueue| {
            if lane.failures > 0 && !may_fail || lane.is_command && !may_command {
                return None;
            }
            if lane.rests_until > now_ms {
                return Some(lane.rests_until);
            }
            if lane.queue.is_empty() || lane.in_flight >= lane.width {
                return None;
            }
            let missing = 60_000_i64.saturating_sub(lane.tokens).max(0);
            let per_minute = i64::from(lane.per_minute.max(1));
            Some(now_ms + (missing + per_minute - 1) / per_minute)
        };
        self.lanes.values().filter_map(of_lane).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(channel: &str, n: usize) -> Unit {
        Unit::one(Row::of_test(&format!("{channel}-{n}"), channel))
    }

    fn ids(start: Option<SendStart>) -> Vec<String> {
        match start {
            None => Vec::new(),
            Some(SendStart::Unit(unit)) => unit.rows.into_iter().map(|row| row.id).collect(),
            Some(SendStart::Digest(rows)) => rows.into_iter().map(|row| row.id).collect(),
        }
    }

    #[test]
    fn lanes_take_turns_and_widen_while_answers_come_soon() {
        let mut lanes = ChannelQueues::new(6_000);
        for n in 0..3 {
            assert!(lanes.offer(row("a", n), 0));
        }
        assert!(lanes.offer(row("b", 0), 0));
        assert_eq!(ids(lanes.start(0)), ["a-0"]);
        assert_eq!(ids(lanes.start(0)), ["b-0"]);
        // The first answer is waited for.
        assert!(lanes.start(0).is_none());
        lanes.ended("a", true, 10, 10);
        assert_eq!(ids(lanes.start(10)), ["a-1"]);
        assert_eq!(ids(lanes.start(10)), ["a-2"]);
        lanes.ended("a", true, 5_000, 5_010);
        assert!(lanes.holds("a-0"));
        lanes.release(&row("a", 0));
        assert!(!lanes.holds("a-0") && lanes.holds("a-2"));
    }

    #[test]
    fn a_lane_that_fails_rests_longer_each_time_and_gives_its_rows_back() {
        let mut lanes = ChannelQueues::new(60);
        for n in 0..3 {
            lanes.offer(row("a", n), 0);
        }
        assert_eq!(ids(lanes.start(0)), ["a-0"]);
        lanes.ended("a", false, 10, 10);
        assert!(!lanes.holds("a-1") && lanes.holds("a-0"));
        assert!(!lanes.fails("a"));
        assert_eq!(lanes.passed_over(11).0, ["a"]);
        assert!(!lanes.offer(row("a", 1), 500));
        assert_eq!(lanes.wakes_at(500), Some(1_010));
        assert!(lanes.offer(row("a", 1), 1_010));
        assert_eq!(ids(lanes.start(1_010)), ["a-1"]);
        lanes.ended("a", false, 10, 1_020);
        assert!(lanes.fails("a"));
        assert_eq!(lanes.wakes_at(1_100), Some(3_020));
        // Another one goes on meanwhile.
        assert!(lanes.offer(row("b", 1), 1_100));
        assert_eq!(ids(lanes.start(1_100)), ["b-1"]);
    }

    #[test]
    fn what_is_beyond_the_rate_becomes_a_digest() {
        let mut lanes = ChannelQueues::new(2);
        for n in 0..2 {
            lanes.offer(row("a", n), 0);
            assert_eq!(ids(lanes.start(0)), [format!("a-{n}")]);
            lanes.ended("a", true, 1, 0);
        }
        for n in 2..5 {
            assert!(lanes.offer(row("a", n), 10));
        }
        assert!(lanes.start(10).is_none());
        let at = lanes.wakes_at(10).unwrap();
        assert_eq!(at, 30_000);
        let Some(SendStart::Digest(rows)) = lanes.start(at) else { panic!("no digest") };
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut lanes = ChannelQueues::new(60);
        let taken = (0..100).filter(|n| lanes.offer(row("a", *n), 0)).count();
        assert_eq!(taken, MAX_QUEUE);
        for channel in 0..400 {
            for n in 0..MAX_QUEUE {
                if lanes.has_room() {
                    lanes.offer(row(&format!("c{channel}"), n), 0);
                }
            }
        }
        assert!(!lanes.has_room() && lanes.held.len() <= MAX_HELD);
        let mut started = 0;
        while lanes.start(0).is_some() {
            started += 1;
        }
        assert!(started <= MAX_IN_FLIGHT);
    }

    #[test]
    fn what_was_under_way_when_a_lane_failed_makes_it_rest_no_longer() {
        let mut lanes = ChannelQueues::new(6_000);
        for n in 0..8 {
            assert!(lanes.offer(row("a", n), 0));
        }
        while ids(lanes.start(0)).len() == 1 {
            lanes.ended("a", true, 1, 0);
        }
        for n in 0..8 {
            assert!(lanes.offer(row("b", n), 0));
        }
        let in_flight = std::iter::from_fn(|| lanes.start(0)).count();
        (0..in_flight).for_each(|_| lanes.ended("b", false, 10, 10));
        assert_eq!(lanes.wakes_at(20), Some(10 + REST_MS));
        assert!(!lanes.fails("b"));
    }

    #[test]
    fn programs_leave_room_for_others() {
        let mut lanes = ChannelQueues::new(60);
        for channel in 0..20 {
            let mut unit = row(&format!("c{channel}"), 0);
            unit.rows[0].about = serde_json::json!({"method": "command"});
            assert!(lanes.offer(unit, 0));
        }
        assert_eq!(std::iter::from_fn(|| lanes.start(0)).count(), MAX_COMMANDS);
        assert_eq!(lanes.wakes_at(0), None);
        assert!(lanes.offer(row("mail", 0), 0));
        assert_eq!(ids(lanes.start(0)), ["mail-0"]);
    }

    #[test]
    fn one_that_was_tried_is_sent_by_itself() {
        let mut lanes = ChannelQueues::new(1);
        lanes.offer(row("a", 0), 0);
        assert_eq!(ids(lanes.start(0)), ["a-0"]);
        lanes.ended("a", true, 1, 0);
        for n in 1..4 {
            let mut unit = row("a", n);
            unit.rows[0].attempts = u32::from(n == 2);
            assert!(lanes.offer(unit, 0));
        }
        assert!(lanes.start(0).is_none());
        assert_eq!(ids(lanes.start(60_000)), ["a-1", "a-3"]);
    }

    #[test]
    fn receivers_that_are_gone_hold_up_no_other() {
        let mut lanes = ChannelQueues::new(60);
        let gone = |n: usize| format!("gone{n}");
        let mut now_ms = 0;
        // Each has failed once, some at a time.
        for n in 0..300 {
            assert!(lanes.offer(row(&gone(n), 0), now_ms));
            let Some(SendStart::Unit(unit)) = lanes.start(now_ms) else { panic!("{n} is not started") };
            lanes.ended(&gone(n), false, 1, now_ms);
            lanes.release(&unit);
        }
        now_ms += REST_MS;
        for n in 0..300 {
            assert!(lanes.has_room_for(&gone(n), now_ms) && lanes.offer(row(&gone(n), 1), now_ms));
        }
        let started = std::iter::from_fn(|| lanes.start(now_ms)).count();
        assert_eq!(started, MAX_FAILING);
        // Nothing is to be done until one of them ends.
        assert_eq!(lanes.wakes_at(now_ms), None);
        assert!(lanes.offer(row("well", 0), now_ms));
        assert_eq!(ids(lanes.start(now_ms)), ["well-0"]);
        for n in 0..MAX_IN_FLIGHT {
            lanes.offer(row(&format!("new{n}"), 0), now_ms);
        }
        while lanes.start(now_ms).is_some() {}
        assert_eq!(lanes.wakes_at(now_ms), None);
    }
}
