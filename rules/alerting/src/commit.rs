//! Writes of that which rules raise: alerts, status events of rules, and the position, in one frame.
//!
//! An alert that is there already is no error: it was written before a crash that the position did not live to see. What the store
//! refuses for good stands in `alert_error` in its place, so that nothing is lost without a word.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use millrace_catalog::access::Principal;
use millrace_catalog::frame::PositionDelta;
use millrace_engine::{
    Action, DeadLetter, Engine, FEED_PIPELINE, OnReject, RESTORED_PARTITION, RULES_READER, Session,
    SourceWrite, Update, WriteOp,
};
use millrace_rules::engine::{Operation, Rule, SilenceOrder};
use millrace_rules::{Time, for_roles};
use millrace_runtime::{Error, Result};
use serde_json::{Value, json};

use crate::indices::{self, ALERT, ERROR, OUTBOX, SILENCE, STATUS};

/// Operations of a frame, at most.
const MAX_OPERATIONS: usize = 2_000;
/// Bytes of their documents beyond which a frame gets no more.
const MAX_BYTES: usize = 8 << 20;
/// Alerts that are asked for at once.
const ASKED_AT_ONCE: usize = 64;
/// Time that a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Something to be written.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The frame that it is of.
    pub(crate) frame: u64,
    /// Written together: an alert, and what it adds to the outbox.
    ops: Vec<WriteOp>,
    pub(crate) bytes: usize,
    /// The roles that a change of an alert is for, which does not name them itself.
    roles: Vec<String>,
}

impl Pending {
    fn new(frame: u64, index: &str, id: String, action: fn(Bytes) -> Action, document: &Value) -> Self {
        let document = Bytes::from(document.to_string());
        let bytes = document.len();
        Self { frame, ops: vec![WriteOp::new(index, Some(id), action(document))], bytes, roles: Vec::new() }
    }

    /// Makes it of members that take the place of those of an alert, where it is there.
    fn merge(frame: u64, id: String, document: Value, roles: &[String]) -> Self {
        let bytes = document.to_string().len();
        let update = Update {
            doc: Some(document.into()),
            detect_noop: true,
            retry_on_conflict: 3,
            ..Update::default()
        };
        let ops = vec![WriteOp::new(ALERT, Some(id), Action::Update(Box::new(update)))];
        Self { frame, ops, bytes, roles: roles.to_vec() }
    }

    /// Makes it of what rules say at a frame; `place` tells apart what one frame has of it. What is wrong with a rule is told to
    /// the roles that it is for.
    pub(crate) fn from_operation(
        operation: Operation,
        frame: u64,
        place: usize,
        now_ms: i64,
        roles: &[String],
    ) -> Self {
        match operation {
            Operation::Alert { id, document, .. } => Self::new(frame, ALERT, id, Action::Create, &document),
            Operation::Silence { id, document, .. } => {
                Self::new(frame, SILENCE, id, Action::Index, &document)
            }
            Operation::Revision { id, document, .. } => Self::merge(frame, id, document, roles),
            Operation::Recovery { id, time, .. } => Self::merge(frame, id, recovered(time), roles),
            Operation::Problem { rule, frame: of, reason } => {
                let document = json!({
                    "@timestamp": Time::from_ms(now_ms).iso(),
                    "rule_id": rule,
                    "message": reason,
                    "frame": of,
                });
                let document = for_roles(document, roles);
                Self::new(frame, ERROR, format!("{of}-{place}-{rule}"), Action::Create, &document)
            }
        }
    }

    /// Makes it of an alert that a rule raises beside the feed.
    pub(crate) fn alert(id: String, document: &Value) -> Self {
        Self::new(0, ALERT, id, Action::Create, document)
    }

    /// Makes it of members of an alert that change beside the feed, where it is there; `roles` are those that it is for.
    pub(crate) fn change(id: String, members: Value, roles: &[String]) -> Self {
        Self::merge(0, id, members, roles)
    }

    /// Adds rows of the outbox, which are written in the same frame.
    pub(crate) fn with_rows(mut self, rows: Vec<(String, Value)>) -> Self {
        for (id, row) in rows {
            let row = Bytes::from(row.to_string());
            self.bytes += row.len();
            self.ops.push(WriteOp::new(OUTBOX, Some(id), Action::Create(row)));
        }
        self
    }

    /// Drops these rows.
    fn drop_rows(&mut self) {
        let rows = self.ops.drain(1..).map(|op| match op.action {
            Action::Create(row) => row.len(),
            _ => 0,
        });
        self.bytes = self.bytes.saturating_sub(rows.sum());
    }

    /// Makes it of frames that the log does not have any more; `what` says what became of them.
    pub(crate) fn gap(first: u64, last: u64, what: &str, now_ms: i64) -> Self {
        let document = json!({
            "@timestamp": Time::from_ms(now_ms).iso(),
            "message": format!(
                "frames {first} to {last} were cut from the log, as rules were away for longer than it reaches back: {what}"
            ),
            "first_frame": first,
            "last_frame": last,
        });
        Self::new(last, ERROR, format!("gap-{first}-{last}"), Action::Create, &document)
    }

    /// Makes it of a user's order to be quiet.
    pub(crate) fn quiet(frame: u64, rule: &Rule, quiet: &SilenceOrder, now_ms: i64) -> Self {
        let document = json!({
            "@timestamp": Time::from_ms(now_ms).iso(),
            "rule_id": rule.id,
            "rule_name": rule.definition.name,
            "key": quiet.key,
            "until": quiet.until.iso(),
            "exponent": 0,
        });
        let document = for_roles(document, &rule.definition.roles);
        Self::new(frame, SILENCE, format!("{}-{}", rule.id, quiet.since), Action::Index, &document)
    }

    /// Makes it of how a rule is.
    pub(crate) fn status(frame: u64, rule: &str, document: &Value) -> Self {
        Self::new(frame, STATUS, rule.to_owned(), Action::Index, document)
    }
}

/// Returns the update of an alert whose condition has ended.
pub(crate) fn recovered(time: Time) -> Value {
    json!({"recovered": true, "recovered_at": time.iso()})
}

/// Takes the rows of the outbox out of what is there already: an alert, or the end of its condition. They were written with it, and may
/// have been sent and removed since. Where that cannot be read, they stay: an alert is rather told twice than never.
async fn tell_no_more(engine: &Arc<Engine>, pending: &mut [Pending]) {
    let session = Session::system(engine);
    let mut with_rows: Vec<&mut Pending> =
        pending.iter_mut().filter(|pending| pending.ops.len() > 1).collect();
    for some in with_rows.chunks_mut(ASKED_AT_ONCE) {
        let asked: Vec<_> = some.iter().map(|pending| is_there(&session, pending)).collect();
        let found = join_all(asked).await;
        for (pending, is_there) in some.iter_mut().zip(found) {
            if is_there {
                pending.drop_rows();
            }
        }
    }
}

/// Returns whether an alert, or the end of its condition, is known to be there already.
async fn is_there(session: &Session, Pending { ops, .. }: &Pending) -> bool {
    let Some((alert, id)) = ops.first().and_then(|op| Some((op, op.id.as_deref()?))) else { return false };
    let Ok(Some(found)) = session.get(ALERT, id, None, true).await else { return false };
    match &alert.action {
        Action::Create(_) => true,
        _ => {
            let found: Value = serde_json::from_slice(&found.source).unwrap_or_default();
            found["recovered"] == json!(true)
        }
    }
}

/// Writes what rules raise beside the feed, without a position; returns the ids of the alerts that were created or changed. Of what is
/// there already nobody is told again.
///
/// # Errors
/// The store's; what is not written yet is still pending then.
pub(crate) async fn commit_beside_feed(
    engine: &Arc<Engine>,
    pending: &mut VecDeque<Pending>,
) -> Result<Vec<String>> {
    let mut done = Vec::new();
    while !pending.is_empty() {
        let count = fitting(pending);
        // Asked of what is about to be written alone: who holds the rules meanwhile writes little.
        tell_no_more(engine, &mut pending.make_contiguous()[..count]).await;
        let own: Vec<WriteOp> =
            pending.iter().take(count).flat_map(|pending| &pending.ops).cloned().collect();
        make_indices(engine, &own).await?;
        let of_alerts: Vec<Option<String>> =
            own.iter().map(|op| op.id.clone().filter(|_| &*op.index == ALERT)).collect();
        let write = SourceWrite { ops: Vec::new(), own, moves: Vec::new() };
        let letter = dead_letter(engine, pending.iter().take(count));
        let results =
            engine.write_from_source(&Principal::of_rules(RULES_READER), write, letter, TIMEOUT).await?;
        let written = of_alerts.into_iter().zip(results).filter(|(_, result)| result.is_ok());
        done.extend(written.filter_map(|(id, _)| id));
        pending.drain(..count);
    }
    Ok(done)
}

/// Makes the indices that operations are for, where they are missing.
async fn make_indices(engine: &Engine, operations: &[WriteOp]) -> Result<()> {
    let mut named: BTreeSet<&str> = operations.iter().map(|op| &*op.index).collect();
    if !named.is_empty() {
        named.insert(ERROR);
    }
    for index in named {
        indices::make(engine, index).await?;
    }
    Ok(())
}

/// Position of the rules in the change feed, as the store has it.
#[derive(Debug)]
pub(crate) struct Position {
    principal: Principal,
    stored: Option<Bytes>,
    owner_epoch: u64,
}

impl Position {
    /// Takes the position over: an earlier owner can commit nothing any more.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn claim(engine: &Engine) -> Result<Self> {
        let (stored, owner_epoch) = engine.claim_position(FEED_PIPELINE, RULES_READER, "").await?;
        Ok(Self { principal: Principal::of_rules(RULES_READER), stored, owner_epoch })
    }

    /// Returns the first frame whose alerts are not all committed.
    pub(crate) fn next(&self) -> Option<u64> {
        let bytes = self.stored.as_deref()?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Writes the first of what is pending with the position behind it, in one frame, and takes it out. With nothing pending
    /// the position moves to `next`, the first frame that rules have not seen.
    ///
    /// # Errors
    /// The store's; everything is still pending then.
    pub(crate) async fn commit(
        &mut self,
        engine: &Engine,
        pending: &mut VecDeque<Pending>,
        next: u64,
    ) -> Result<()> {
        let count = fitting(pending);
        // A frame whose operations do not fit is not behind: what of it was written is there already next time.
        let to = pending.get(count).map_or(next, |rest| rest.frame.min(next)).max(self.next().unwrap_or(0));
        let own: Vec<WriteOp> =
            pending.iter().take(count).flat_map(|pending| &pending.ops).cloned().collect();
        make_indices(engine, &own).await?;
        let new = Bytes::copy_from_slice(&to.to_le_bytes());
        let delta = PositionDelta {
            pipeline: FEED_PIPELINE.to_owned(),
            source: RULES_READER.to_owned(),
            partition: String::new(),
            previous: self.stored.clone(),
            new: new.clone(),
            owner_epoch: self.owner_epoch,
        };
        let write = SourceWrite { ops: Vec::new(), own, moves: vec![delta] };
        let letter = dead_letter(engine, pending.iter().take(count));
        let results = engine.write_from_source(&self.principal, write, letter, TIMEOUT).await?;
        for error in results.into_iter().filter_map(Result::err) {
            if !is_expected(&error) {
                tracing::warn!(%error, "what a rule has raised was refused; alert_error has the reason");
            }
        }
        self.stored = Some(new);
        pending.drain(..count);
        Ok(())
    }
}

/// Removes the position that a restore has brought, once the rules have it.
///
/// # Errors
/// The store's.
pub(crate) async fn forget_restored_position(engine: &Engine, stored: Bytes) -> Result<()> {
    let delta = PositionDelta {
        pipeline: FEED_PIPELINE.to_owned(),
        source: RULES_READER.to_owned(),
        partition: RESTORED_PARTITION.to_owned(),
        previous: Some(stored),
        new: Bytes::new(),
        owner_epoch: 0,
    };
    let write = SourceWrite { moves: vec![delta], ..SourceWrite::default() };
    let abort: DeadLetter = Arc::new(|_, _| OnReject::Abort);
    engine.write_from_source(&Principal::of_rules(RULES_READER), write, abort, TIMEOUT).await?;
    Ok(())
}

/// Counts what one frame may have.
fn fitting(pending: &VecDeque<Pending>) -> usize {
    let (mut bytes, mut ops) = (0_usize, 0_usize);
    let fits = |(at, pending): &(usize, &Pending)| {
        bytes = bytes.saturating_add(pending.bytes);
        ops += pending.ops.len();
        *at == 0 || (bytes <= MAX_BYTES && ops <= MAX_OPERATIONS)
    };
    pending.iter().enumerate().take_while(fits).count()
}

/// Returns whether a refusal is nothing to be told: an alert that is there already, a change of one that somebody deleted.
fn is_expected(error: &Error) -> bool {
    matches!(error, Error::VersionConflict { .. } | Error::DocumentMissing { .. })
}

/// Returns the substitute of a refused operation: nothing for what is there already, else the reason.
fn dead_letter<'a>(engine: &Engine, pending: impl Iterator<Item = &'a Pending>) -> DeadLetter {
    let of_changes = roles_of_changes(pending);
    let now_ms = engine.clock().now_ms();
    Arc::new(move |op, error| {
        if is_expected(error) || &*op.index == ERROR {
            return OnReject::Skip;
        }
        let id = op.id.clone().unwrap_or_default();
        let document = json!({
            "@timestamp": Time::from_ms(now_ms).iso(),
            "message": format!("document [{id}] of [{}] was refused: {error}", op.index),
        });
        let roles = match &op.action {
            Action::Update(_) => of_changes.get(&id).cloned().unwrap_or_default(),
            _ => roles_of(op),
        };
        let document = for_roles(document, &roles);
        let letter = Action::Index(Bytes::from(document.to_string()));
        OnReject::DeadLetter(WriteOp::new(ERROR, Some(format!("refused-{id}")), letter))
    })
}

/// The roles of what only changes alerts, by their ids.
fn roles_of_changes<'a>(pending: impl Iterator<Item = &'a Pending>) -> HashMap<String, Vec<String>> {
    let named = pending.filter(|pending| !pending.roles.is_empty());
    named.flat_map(|one| one.ops.iter().filter_map(|op| Some((op.id.clone()?, one.roles.clone())))).collect()
}

/// The roles that a document is for.
fn roles_of(op: &WriteOp) -> Vec<String> {
    let (Action::Create(source) | Action::Index(source)) = &op.action else { return Vec::new() };
    let document: Value = serde_json::from_slice(source).unwrap_or_default();
    let roles = document["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    roles.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_bounded_number_of_operations_and_bytes_but_one_at_least() {
        let of = |bytes: usize| {
            let document = json!({"text": "x".repeat(bytes)});
            Pending::new(1, ALERT, "a".to_owned(), Action::Create, &document)
        };
        let pending = |sizes: &[usize]| sizes.iter().map(|bytes| of(*bytes)).collect::<VecDeque<_>>();
        assert_eq!(fitting(&pending(&[])), 0);
        assert_eq!(fitting(&pending(&[MAX_BYTES * 2, 1])), 1);
        assert_eq!(fitting(&pending(&[MAX_BYTES / 2, MAX_BYTES / 3, MAX_BYTES / 2])), 2);
        assert_eq!(fitting(&pending(&vec![1; MAX_OPERATIONS + 5])), MAX_OPERATIONS);
    }

    #[test]
    fn an_alert_that_nobody_is_told_of_is_written_without_its_rows() {
        let alert = || Pending::new(1, ALERT, "a".to_owned(), Action::Create, &json!({"text": "x"}));
        let mut told = alert().with_rows(vec![("r".to_owned(), json!({})), ("s".to_owned(), json!({}))]);
        assert!(told.ops.len() == 3 && told.bytes > alert().bytes, "{told:?}");
        told.drop_rows();
        assert_eq!((told.ops.len(), told.bytes), (1, alert().bytes));
        assert_eq!((&*told.ops[0].index, told.ops[0].id.as_deref()), (ALERT, Some("a")));
    }

    #[test]
    fn what_changes_an_alert_keeps_the_roles_that_a_refusal_is_told_to() {
        let roles = ["ops".to_owned()];
        let time = Time::from_ms(0);
        let recovery = |id: &str| Operation::Recovery {
            rule: "r".to_owned(),
            id: id.to_owned(),
            key: String::new(),
            time,
        };
        let pending = [
            Pending::from_operation(recovery("for ops"), 1, 0, 0, &roles),
            Pending::from_operation(recovery("for all"), 1, 1, 0, &[]),
        ];
        let of = roles_of_changes(pending.iter());
        assert_eq!(of, HashMap::from([("for ops".to_owned(), roles.to_vec())]));
    }
}
