//! Frames on their way through rules. What these raise of them comes in parts, of which no more are taken than may be held: of one
//! frame there may be far more. All who evaluate frames have [`Matches`]: rules at work ([`crate::state`]), those that catch up, and replays.

use std::collections::VecDeque;

use millrace_percolator::{Evaluable, Matching};
use millrace_rules::Time;
use millrace_rules::engine::{Engine as Rules, Frame, Matcher, Operation, RuleMatches};
use millrace_runtime::Instant;

use crate::frame_reader::Step;

/// Bytes of what is to be written that are enough to write them before more is evaluated.
pub(crate) const MAX_PENDING: usize = 16 << 20;
/// Operations that are enough, where they are not to be written one part after the other.
const MAX_TOGETHER: usize = 5_000;

/// Frames that follow one another, with what rules match of them.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    frames: VecDeque<Evaluable>,
    /// Seconds that finding them took.
    pub(crate) seconds: f64,
    /// `true` if any of the frames was evaluated.
    begun: bool,
    amid: Option<FrameInEvaluation>,
}

/// A frame that rules evaluate.
#[derive(Debug)]
struct FrameInEvaluation {
    frame: u64,
    time: Time,
    complete: bool,
    /// Operations so far.
    raised: usize,
}

/// Some of what rules raise of a frame.
#[derive(Debug)]
pub(crate) struct AlertChunk {
    pub(crate) frame: u64,
    pub(crate) time: Time,
    /// Number of operations of the frame that came before.
    pub(crate) before: usize,
    pub(crate) operations: Vec<Operation>,
    /// `true` if rules have seen the frame whole now.
    pub(crate) ends: bool,
}

/// Parts that are taken together, until there is enough: so many operations, or as many bytes as are written at once.
#[derive(Debug, Default)]
pub(crate) struct ChunkBuffer {
    pub(crate) operations: Vec<Operation>,
    bytes: usize,
}

impl ChunkBuffer {
    pub(crate) fn add(&mut self, part: Vec<Operation>) {
        self.bytes += part.iter().map(Operation::bytes).sum::<usize>();
        self.operations.extend(part);
    }

    pub(crate) fn is_enough(&self) -> bool {
        self.operations.len() >= MAX_TOGETHER || self.bytes >= MAX_PENDING
    }
}

/// Hands over what was matched before.
#[derive(Debug)]
struct CachedMatches(Vec<RuleMatches>);

impl Matcher for CachedMatches {
    fn matches(&mut self, _: &Frame) -> Vec<RuleMatches> {
        std::mem::take(&mut self.0)
    }
}

impl Matches {
    /// Finds which rules match the frames of a step. Blocks: it is called on a compute thread.
    pub(crate) fn new(matching: &mut Matching, step: &Step) -> Self {
        let began = Instant::now();
        let mut frames = matching.run(&step.frames);
        let seconds = began.elapsed().as_secs_f64();
        for (at, one) in frames.iter_mut().enumerate() {
            one.frame.complete = step.completes(at);
        }
        Self { frames: frames.into(), seconds, ..Self::default() }
    }

    /// Returns the frame that is evaluated next; `None` in the midst of one, and at the end.
    pub(crate) fn next_frame(&self) -> Option<&Evaluable> {
        self.frames.front().filter(|_| self.amid.is_none())
    }

    /// Counts the frames that are left, where some are evaluated and none in part.
    pub(crate) fn left(&self) -> Option<usize> {
        let is_between = self.begun && self.amid.is_none() && !self.frames.is_empty();
        is_between.then_some(self.frames.len())
    }

    /// Returns whether everything is evaluated.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.amid.is_none()
    }

    /// Has rules evaluate more, the same ones each time; `None` at the end. Blocks: it is called on a compute thread.
    pub(crate) fn evaluate(&mut self, rules: &mut Rules) -> Option<AlertChunk> {
        let (FrameInEvaluation { frame, time, complete, raised: before }, operations) = match self.amid.take()
        {
            Some(amid) => (amid, rules.go_on()),
            None => {
                let (frame, matched) = self.frames.pop_front()?.read();
                self.begun = true;
                let amid = FrameInEvaluation {
                    frame: frame.number,
                    time: frame.time,
                    complete: frame.complete,
                    raised: 0,
                };
                (amid, rules.begin_frame(&frame, &mut CachedMatches(matched)))
            }
        };
        let is_amid = rules.is_amid();
        if is_amid {
            self.amid = Some(FrameInEvaluation { frame, time, complete, raised: before + operations.len() });
        }
        Some(AlertChunk { frame, time, before, operations, ends: complete && !is_amid })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_rules::definition::Definition;
    use millrace_rules::engine::{Frame, Rule, RuleMatches};
    use millrace_rules::{Bounds, Event, Origin, Timing};
    use serde_json::json;

    use super::*;

    /// A frame or a piece of one, all of whose events match.
    fn matching(number: u64, events: u64, complete: bool) -> Evaluable {
        let event = |seq_no: u64| Event {
            index: "i".into(),
            uuid: "u".into(),
            shard: 0,
            seq_no,
            id: seq_no.to_string().into(),
            created: true,
            source: Arc::new(json!({})),
            times: Default::default(),
        };
        let events: Vec<Event> = (0..events).map(event).collect();
        let outcome = Ok((0..events.len()).collect());
        let frame = Frame { number, time: Time::from_ms(0), origin: Origin::User, events, complete };
        Evaluable::new(frame, vec![RuleMatches { rule: "r".to_owned(), outcome, second: Vec::new() }])
    }

    #[test]
    fn what_is_raised_of_a_large_frame_comes_in_parts_and_the_frame_ends_with_the_last() {
        let definition = Definition::parse(&json!({"name": "r", "index": "i", "type": "any"})).unwrap();
        let rule = Rule { id: "r".to_owned(), revision: 1, since: 0, owner: "ann".to_owned(), definition };
        let mut rules = Rules::new(Timing::default(), Bounds::default());
        rules.put(rule);
        // The second one comes in two pieces, the second of which has the events of the first, too.
        let frames = [matching(1, 600, true), matching(2, 300, false), matching(2, 400, true)];
        let mut matches = Matches { frames: frames.into(), ..Matches::default() };
        assert_eq!(matches.left(), None);
        let mut found = Vec::new();
        while let Some(AlertChunk { frame, before, operations, ends, .. }) = matches.evaluate(&mut rules) {
            let next = matches.next_frame().map(|next| next.frame.number);
            found.push((frame, before, operations.len(), ends, next, matches.left()));
        }
        let expected = [
            (1, 0, 250, false, None, None),
            (1, 250, 250, false, None, None),
            (1, 500, 100, true, Some(2), Some(2)),
            (2, 0, 0, false, Some(2), Some(1)),
            (2, 0, 250, false, None, None),
            (2, 250, 150, true, None, None),
        ];
        assert!(found == expected && matches.is_empty(), "{found:?}");
    }
}
