//! Changes of rules: one at a time, and between two frames: the next one waits for who waits for that.
//!
//! A rule that is new begins behind the last frame that there is when it is saved; one that becomes another one where the one before
//! ends. That frame stands in its document before the rule runs, so that a crash between the two changes nothing. What changes how
//! state goes on, without a new revision, needs the state of that moment: it is stored first, since a start would otherwise apply the
//! new rule to frames of the old one.

use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::{Caller, Principal};
use millrace_engine::RULES_READER;
use millrace_rules::Time;
use millrace_rules::definition::{Definition, Edit, edit};
use millrace_rules::engine::{Condition, Rule, SilenceOrder};
use millrace_runtime::{Error as StorageError, Priority};
use serde_json::Value;
use uuid::Uuid;

use crate::backfill::BackfillRange;
use crate::commit::Pending;
use crate::error::{Error, Result};
use crate::recovery::last_frame;
use crate::runner::{RunnerState, StateLease, keep_state, take_state};
use crate::state::Core;
use crate::store::StoredRule;
use crate::{Changed, definition_check};

/// Orders to be quiet of one rule.
const MAX_QUIET: usize = 1_000;
/// Time that a change waits for the end of a start, or for the evaluation of a frame.
const PATIENCE: Duration = Duration::from_secs(15);

/// Returns whether a user may see a rule: its owner, users with full rights, and users with one of the roles that it names, all
/// where it names none. Its alerts are seen by these roles as well (`Privileges::showing_of_rules`), but by its owner only with
/// one of them.
pub(crate) fn may_see(asker: &Principal, rule: &Rule) -> bool {
    let named = &rule.definition.roles;
    named.is_empty()
        || asker.name() == rule.owner
        || sees_all(asker)
        || asker.roles().iter().any(|role| named.contains(role))
}

/// Returns whether somebody sees all rules.
pub(crate) fn sees_all(asker: &Principal) -> bool {
    asker.privileges().sees_all_of_rules()
}

/// Refuses API keys: a rule runs with all the rights of a user, and a test answers what it finds.
///
/// # Errors
/// [`Error::Invalid`] with the reason.
pub(crate) fn check_caller(asker: &Principal) -> Result<()> {
    if let Caller::ApiKey { .. } = asker.caller() {
        let reason =
            "a rule runs with the rights of the user who saves it: an API key can neither save nor test one";
        return Err(Error::Invalid(reason.to_owned()));
    }
    Ok(())
}

/// Says where a rule begins.
fn begins(what: &str, since: u64, backfill: Option<BackfillRange>) -> String {
    match backfill {
        None => format!("{what} begins behind frame {since}"),
        Some(BackfillRange { seen_from, raised_from: None, .. }) => format!(
            "{what} begins behind frame {since}, once it knows what was written since {}",
            Time::from_ms(seen_from).iso()
        ),
        Some(BackfillRange { raised_from: Some(from), .. }) => {
            format!("{what} begins with what was written since {}", Time::from_ms(from).iso())
        }
    }
}

impl RunnerState {
    /// Finds a rule that somebody may see.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(crate) fn seen(&self, asker: &Principal, id: &str) -> Result<Arc<StoredRule>> {
        let kept = self.store.get(id).filter(|kept| may_see(asker, &kept.rule));
        kept.ok_or_else(|| Error::NotFound(id.to_owned()))
    }

    /// Borrows the rules, once they can be changed ([`Core::can_be_changed`]). Without rules there is nothing to be borrowed.
    ///
    /// # Errors
    /// That this takes too long, or that rules are stopped.
    pub(crate) async fn held(&self) -> Result<StateLease> {
        let lease = tokio::time::timeout(PATIENCE, self.borrower.lease_for_change()).await;
        let lease = lease.map_err(|_| {
            let reason = "rules are still at what was written before, as after a start, or at one write that raises very many alerts; try again later";
            Error::from(StorageError::Rejected(reason.to_owned()))
        })?;
        Ok(lease?)
    }

    /// Reads a rule that somebody could save.
    ///
    /// # Errors
    /// An asker who may save none, a definition that cannot be used, a filter that no index of the pattern can be asked.
    pub(crate) async fn read(&self, asker: &Principal, body: Value) -> Result<Definition> {
        check_caller(asker)?;
        let definition = definition_check::read(&self.engine, asker, body).await?;
        let Some(notifications) = &self.notifications else { return Ok(definition) };
        // Templates are compiled, and patterns of cron looked ahead.
        let notifications = notifications.clone();
        let check = move || Ok(notifications.check(&definition).map(|()| definition));
        Ok(self.engine.compute().run(Priority::Foreground, check).await??)
    }

    /// Saves a rule; `from` is when it begins, where that is in the past.
    ///
    /// # Errors
    /// As [`crate::Alerting::change`].
    pub(crate) async fn change(&self, asker: &Principal, body: Value, from: Option<i64>) -> Result<Changed> {
        let now_ms = self.engine.clock().now_ms();
        if let Some(from) = from.filter(|from| *from > now_ms) {
            return Err(Error::Invalid(format!("[from] {} is to come", Time::from_ms(from).iso())));
        }
        let mut definition = self.read(asker, body).await?;
        let held = self.held().await?;
        let before = self.replaced(asker, &definition)?;
        let is_named = definition.id.is_some();
        let id = match (&before, definition.id.take()) {
            (Some(before), _) => before.rule.id.clone(),
            (None, Some(id)) => id,
            (None, None) => Uuid::new_v4().to_string(),
        };
        definition.id = Some(id.clone());
        let owner = asker.name().to_owned();
        let Some(before) = before else {
            self.store.check_room()?;
            // The state of one that had its id must not be taken for its own, should a start come before the next state.
            let held = if is_named { self.with_state_stored(held).await? } else { held };
            let begins_at = async {
                let since = self.since(&held).await?;
                let backfill = self.backfill_range(asker, &definition, from, now_ms).await?;
                Ok::<_, Error>((since, backfill))
            };
            // What is held for a first rule is let go where that fails.
            let (since, backfill) = begins_at.await.inspect_err(|_| self.changed.notify_one())?;
            let message = begins("rule", since, backfill);
            let rule = Rule { id: id.clone(), revision: 1, since, owner, definition };
            // What has its id and is no rule is replaced.
            let version = self.store.version_of_unreadable(&id).filter(|_| sees_all(asker));
            self.save(held, StoredRule { rule, quiet: Vec::new(), backfill, version }).await?;
            return Ok(Changed { id, created: true, message });
        };
        let mut edit = edit(&before.rule.definition, &definition);
        if from.is_some() && !matches!(edit, Edit::NewRevision { .. }) {
            edit = Edit::NewRevision { because: vec!["from"] };
        }
        // A new revision of a rule that is paused goes on where the one before ended.
        let paused = self.paused(&held, &before).filter(|_| definition.enabled && from.is_none());
        let (revision, since, backfill, keeps, message) = match edit {
            Edit::NewRevision { because } => {
                let since = match paused {
                    Some((frame, _)) => frame.saturating_sub(1).max(before.rule.since),
                    None => self.since_of_revision(&held, &before, &definition, &owner).await?,
                };
                let from = from.or(paused.map(|(_, at_ms)| at_ms));
                let backfill = self.backfill_range(asker, &definition, from, now_ms).await?;
                let begins = begins("a new revision", since, backfill);
                let message = format!("{begins}: {}", because.join(", "));
                (before.rule.revision + 1, since, backfill, Vec::new(), message)
            }
            Edit::KeepsState { changed } => {
                let message = format!("state is kept; changed: {}", changed.join(", "));
                (before.rule.revision, before.rule.since, before.backfill, changed, message)
            }
            Edit::Same => {
                let message = "nothing has changed".to_owned();
                (before.rule.revision, before.rule.since, before.backfill, Vec::new(), message)
            }
        };
        let enables = definition.enabled && !before.rule.definition.enabled;
        let goes_on_otherwise = keeps
            .iter()
            .any(|field| matches!(*field, "realert" | "enabled" | "schedule" | "recovery" | "query_delay"));
        let held = if goes_on_otherwise { self.with_state_stored(held).await? } else { held };
        let is_new = revision != before.rule.revision;
        let rule = Rule { id: id.clone(), revision, since, owner, definition };
        let mut kept = StoredRule { rule, backfill, ..StoredRule::clone(&before) };
        if enables && !is_new {
            self.begin_now(&mut kept, &held).await?;
        }
        self.save(held, kept).await?;
        Ok(Changed { id, created: false, message })
    }

    /// Decides what a rule has to see of what is stored. It is asked once it is known which frame is the last that the rule does
    /// not see as it arrives: where there is no index then, there is nothing before that either.
    async fn backfill_range(
        &self,
        asker: &Principal,
        definition: &Definition,
        from: Option<i64>,
        now_ms: i64,
    ) -> Result<Option<BackfillRange>> {
        let Some(backfill) = BackfillRange::new(definition, from, now_ms) else { return Ok(None) };
        let has_history = definition_check::watches_any(&self.engine, asker, definition).await?;
        Ok(Some(backfill).filter(|_| has_history))
    }

    /// Finds the rule that a definition takes the place of.
    pub(crate) fn replaced(
        &self,
        asker: &Principal,
        definition: &Definition,
    ) -> Result<Option<Arc<StoredRule>>> {
        let named = self.store.named(&definition.name);
        let found = match &definition.id {
            None => named,
            Some(id) => {
                if let Some(other) = named.filter(|named| named.rule.id != *id) {
                    let (name, other) = (&definition.name, &other.rule.id);
                    return Err(Error::Conflict(format!(
                        "name [{name}] is that of rule [{other}], and id [{id}] is another one"
                    )));
                }
                self.store.get(id)
            }
        };
        match found {
            Some(kept) if !may_see(asker, &kept.rule) => {
                let name = &definition.name;
                Err(Error::Conflict(format!("name [{name}] or the id is that of another rule")))
            }
            found => Ok(found),
        }
    }

    /// Returns the last frame that a rule that is saved now does not see. The log is held from there.
    async fn since(&self, held: &StateLease) -> Result<u64> {
        if held.is_none() {
            self.engine.take_lease(RULES_READER, None).await?;
        }
        let evaluated = held.as_ref().map_or(0, |core| core.next.saturating_sub(1));
        Ok(last_frame(&self.engine)?.max(evaluated))
    }

    /// Returns the last frame that a new revision of a rule does not see: the last one that was evaluated, as the one before sees nothing
    /// behind it. What came while the rule was disabled, or before it was there, is none of its events; and one that catches up may have
    /// raised alerts of what is on its way.
    async fn since_of_revision(
        &self,
        held: &StateLease,
        before: &StoredRule,
        definition: &Definition,
        owner: &str,
    ) -> Result<u64> {
        let runs = before.rule.definition.enabled && before.backfill.is_none();
        let watches_same = before.rule.owner == owner && before.rule.definition.index == definition.index;
        // Of frames that are read back there are only the indices that were watched as that began.
        match held.as_ref().filter(|core| runs && (watches_same || !core.reading_gap)) {
            Some(core) => Ok(core.next.saturating_sub(1).max(before.rule.since)),
            None => self.since(held).await,
        }
    }

    /// Has a rule that has not caught up yet, or has no state any more, begin now as it is enabled: events of the time while it
    /// was disabled or paused only count for its prior knowledge. One that begins at a time that somebody said begins there.
    async fn begin_now(&self, kept: &mut StoredRule, held: &StateLease) -> Result<()> {
        let begins = match kept.backfill {
            Some(BackfillRange { raised_from, .. }) => raised_from.is_none(),
            None => held.as_ref().is_some_and(|core| core.rules.restarts(&kept.rule)),
        };
        let backfill = BackfillRange::new(&kept.rule.definition, None, self.engine.clock().now_ms());
        // One that need not know anything of before is in memory already, and sees what is on its way.
        if begins && (kept.backfill.is_some() || backfill.is_some()) {
            kept.rule.since = self.since(held).await?;
            kept.backfill = backfill;
        }
        Ok(())
    }

    /// Returns the first frame that a rule which is paused has not seen, and when it was written.
    fn paused(&self, held: &StateLease, kept: &StoredRule) -> Option<(u64, i64)> {
        let status = held.as_ref()?.rules.status(&kept.rule.id)?;
        match status.condition {
            // Behind a start the frame may still tell it, else the last one that had events for the rule.
            Condition::Paused { frame, time, .. } => {
                let at_ms = time.map(Time::ms).or_else(|| self.engine.feed_time_ms(frame));
                at_ms.or_else(|| status.last_event.map(Time::ms)).map(|at_ms| (frame, at_ms))
            }
            Condition::Running | Condition::Disabled(_) => None,
        }
    }

    /// Stores the state as it is now.
    pub(crate) async fn with_state_stored(&self, held: StateLease) -> Result<StateLease> {
        let (held, taken) = take_state(self, held, Priority::Ingest).await?;
        // While alerts cannot be written there is no state to be stored: a start then evaluates those frames by the new rule.
        if let Some(taken) = taken {
            keep_state(self, taken).await?;
        }
        Ok(held)
    }

    /// Stores a rule and has it run.
    async fn save(&self, mut held: StateLease, kept: StoredRule) -> Result<()> {
        let saved = self.store.put(kept).await;
        if let Ok(kept) = &saved {
            self.begin(&mut held, kept);
        }
        // Also where it failed: what was held for a first rule is let go.
        self.changed.notify_one();
        saved.map(drop)
    }

    /// Has a rule run as it is stored, or catch up first.
    pub(crate) fn begin(&self, held: &mut Option<Core>, kept: &StoredRule) {
        if let Some(core) = held.as_mut() {
            core.put(kept);
            self.status_reporter.update(core, None);
        }
        self.status_reporter.restart(&kept.rule.id);
        self.backfill_requested.notify_one();
    }

    /// Deletes a rule.
    ///
    /// # Errors
    /// As [`crate::Alerting::delete`].
    pub(crate) async fn delete(&self, asker: &Principal, id: &str) -> Result<()> {
        let mut held = self.held().await?;
        if sees_all(asker) && self.store.delete_unreadable(id).await? {
            return Ok(());
        }
        let kept = self.seen(asker, id)?;
        self.store.delete(&kept).await?;
        if let Some(core) = held.as_mut() {
            core.rules.remove(id);
            core.matching.remove(id);
            core.touched.insert(id.to_owned());
            self.status_reporter.update(core, None);
        }
        Ok(())
    }

    /// Enables or disables a rule; one that was paused goes on.
    ///
    /// # Errors
    /// As [`crate::Alerting::enable`].
    pub(crate) async fn enable(&self, asker: &Principal, id: &str, enabled: bool) -> Result<()> {
        let mut held = self.held().await?;
        let before = self.seen(asker, id)?;
        let was_paused = before.backfill.is_some() && self.status_reporter.is_paused(id);
        if before.rule.definition.enabled != enabled || (enabled && was_paused) {
            held = self.with_state_stored(held).await?;
            let mut kept = StoredRule::clone(&before);
            kept.rule.definition.enabled = enabled;
            if enabled {
                self.begin_now(&mut kept, &held).await?;
            }
            return self.save(held, kept).await;
        }
        if let Some((_, at_ms)) = self.paused(&held, &before).filter(|_| enabled) {
            let held = self.with_state_stored(held).await?;
            let mut kept = StoredRule::clone(&before);
            kept.backfill = Some(BackfillRange::resumed(&kept.rule.definition, at_ms));
            return self.save(held, kept).await;
        }
        let Some(core) = held.as_mut() else { return Ok(()) };
        let condition = core.rules.status(id).map(|status| status.condition);
        if enabled && matches!(condition, Some(Condition::Paused { .. })) {
            core.rules.resume(id);
            core.ask(&before.rule);
            core.touched.insert(id.to_owned());
            self.status_reporter.update(core, None);
            self.with_state_stored(held).await?;
        }
        Ok(())
    }

    /// Has a rule raise no alerts for a while.
    ///
    /// # Errors
    /// As [`crate::Alerting::silence`].
    pub(crate) async fn silence(
        &self,
        asker: &Principal,
        id: &str,
        key: Option<String>,
        until_ms: i64,
    ) -> Result<()> {
        let (now_ms, until) = (self.engine.clock().now_ms(), Time::from_ms(until_ms));
        if until_ms <= now_ms {
            return Err(Error::Invalid(format!("[until] {} is over", until.iso())));
        }
        let mut held = self.held().await?;
        let mut kept = StoredRule::clone(&*self.seen(asker, id)?);
        kept.quiet.retain(|quiet| quiet.until.ms() > now_ms);
        if kept.quiet.len() >= MAX_QUIET {
            return Err(Error::TooMany(format!("rule [{id}] is silenced {MAX_QUIET} times already")));
        }
        let since = self.since(&held).await?;
        let quiet = SilenceOrder { key, since, until };
        kept.quiet.push(quiet.clone());
        let kept = self.store.put(kept).await?;
        let Some(core) = held.as_mut() else { return Ok(()) };
        // One that catches up looks by itself.
        if kept.backfill.is_none() && !core.rules.quiet(id, quiet.clone()) {
            return Err(Error::TooMany(format!("rule [{id}] is silenced too often already")));
        }
        let frame = core.next.saturating_sub(1);
        core.pending.push_back(Pending::quiet(frame, &kept.rule, &quiet, now_ms));
        Ok(())
    }
}
