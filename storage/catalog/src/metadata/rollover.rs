//! Rollover of an alias or a data stream: its write index becomes another, new one.
//!
//! The setting [`ROLLOVER_INFO`] of an index records its rollovers. It is written in the change that makes the new index, so that an index
//! has it exactly if a rollover has ended its writes.

use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value, json};

use super::{
    CreateIndex, DataStream, IndexMeta, Metadata, MetadataChange, Uuid, backing_index_name, date_math,
};
use crate::access::Action;

/// Digits of the number at the end of a name that is counted up.
const DIGITS: usize = 6;
/// Setting with the rollovers of an index: a list of `<milliseconds since the epoch>:<alias or data stream>`.
pub(super) const ROLLOVER_INFO: &str = "index.rollover.info";
/// Rollovers of an index that are recorded, at most. Beyond it the oldest one is forgotten.
const MAX_ROLLOVERS: usize = 100;

/// The write index of an alias or data stream, and the index that follows it.
#[derive(Clone, Debug)]
pub struct RolloverPlan {
    /// Name of the alias or data stream.
    pub alias: String,
    /// The write index.
    pub source: Arc<IndexMeta>,
    /// Name of the new index, date math resolved.
    pub target: String,
    /// Name of the new index as it is provided.
    pub provided_target: String,
    /// `true` if the alias keeps the source, which is written to no more.
    explicit: bool,
    /// Generation that a data stream gets; `None` for an alias.
    generation: Option<u64>,
}

impl IndexMeta {
    fn rollovers(&self) -> impl Iterator<Item = (i64, &str)> {
        let recorded = self.settings.get(ROLLOVER_INFO).and_then(Value::as_array);
        recorded.into_iter().flatten().filter_map(|one| {
            let (time, target) = one.as_str()?.split_once(':')?;
            Some((time.parse().ok()?, target))
        })
    }

    /// Returns the time of the rollover of an alias or a data stream that ended its writes to the index, in milliseconds.
    pub fn rollover_ms(&self, target: &str) -> Option<i64> {
        self.rollovers().filter(|(_, name)| *name == target).map(|(time, _)| time).max()
    }

    /// Returns the time of the last rollover of the index, in milliseconds.
    pub fn last_rollover_ms(&self) -> Option<i64> {
        self.rollovers().map(|(time, _)| time).max()
    }

    /// Returns the settings with one rollover more.
    fn with_rollover(&self, target: &str, now_ms: i64) -> Map<String, Value> {
        let others = self.rollovers().filter(|(_, name)| *name != target);
        let mut recorded: Vec<(i64, &str)> = others.chain([(now_ms, target)]).collect();
        recorded.sort_unstable();
        let excess = recorded.len().saturating_sub(MAX_ROLLOVERS);
        let kept = recorded.split_off(excess);
        let listed: Vec<Value> =
            kept.into_iter().map(|(time, name)| format!("{time}:{name}").into()).collect();
        let mut settings = self.settings.clone();
        settings.insert(ROLLOVER_INFO.into(), listed.into());
        settings
    }
}

impl Metadata {
    /// Plans the rollover of an alias or a data stream. Without a name the number at the end of the source's counts up by one.
    ///
    /// # Errors
    /// `IllegalArgument` for an index, a missing alias, one without a write index, and a source whose name has no number.
    pub fn plan_rollover(&self, alias: &str, target: Option<&str>, now_ms: i64) -> Result<RolloverPlan> {
        let refuse = |reason: String| Err(Error::IllegalArgument(reason));
        if self.index(alias).is_some() {
            return refuse(format!(
                "rollover target is a [concrete index] but one of [alias,data_stream] was expected, [{alias}]"
            ));
        }
        if let Some(stream) = self.data_stream(alias) {
            return self.plan_stream_rollover(&stream, target, now_ms);
        }
        let Some(carriers) = self.alias_indices(alias) else {
            self.check_name(alias)?;
            return refuse(format!("rollover target [{alias}] does not exist"));
        };
        let source = match self.write_index(alias, now_ms) {
            Ok(Some(source)) => source,
            Ok(None) => return refuse(format!("rollover target [{alias}] does not exist")),
            Err(Error::IllegalArgument(_)) => {
                return refuse(format!("rollover target [{alias}] does not point to a write index"));
            }
            Err(error) => return Err(error),
        };
        let is_write_index = source.aliases.get(alias).is_some_and(|alias| alias["is_write_index"] == true);
        let explicit = is_write_index || carriers.len() > 1;
        let provided_target = match target {
            Some(target) => target.to_owned(),
            None => next_name(source.setting("index.provided_name").unwrap_or(&source.name))?,
        };
        let target = date_math::resolve(&provided_target, now_ms)?.into_owned();
        Ok(RolloverPlan {
            alias: alias.to_owned(),
            source,
            target,
            provided_target,
            explicit,
            generation: None,
        })
    }

    fn plan_stream_rollover(
        &self,
        stream: &DataStream,
        target: Option<&str>,
        now_ms: i64,
    ) -> Result<RolloverPlan> {
        if target.is_some() {
            return Err(Error::IllegalArgument(
                "new index name may not be specified when rolling over a data stream".into(),
            ));
        }
        let Some(source) = self.write_index(&stream.name, now_ms)? else {
            return Err(Error::IllegalArgument(format!("rollover target [{}] does not exist", stream.name)));
        };
        let mut generation = stream.generation() + 1;
        while self.indices.contains_key(backing_index_name(&stream.name, generation).as_str()) {
            generation += 1;
        }
        let target = backing_index_name(&stream.name, generation);
        Ok(RolloverPlan {
            alias: stream.name.to_string(),
            source,
            provided_target: target.clone(),
            target,
            explicit: false,
            generation: Some(generation),
        })
    }

    /// Decides a planned rollover: `create` has settings, mapping and further aliases of the new index.
    ///
    /// # Errors
    /// As [`Metadata::create`], and `Unauthorized` for whoever may not create the new index.
    pub fn roll_over(
        &self,
        plan: &RolloverPlan,
        create: &CreateIndex,
        now_ms: i64,
        uuid: Uuid,
    ) -> Result<Vec<MetadataChange>> {
        self.check_part(Action::CreateIndex, &plan.target)?;
        if let Some(generation) = plan.generation {
            if !create.settings.is_empty() || create.mapping.is_some() || !create.aliases.is_empty() {
                return Err(Error::IllegalArgument(
                    "aliases, mappings, and index settings may not be specified when rolling over a data stream".into(),
                ));
            }
            let settings = plan.source.with_rollover(&plan.alias, now_ms);
            let source = IndexMeta { settings, ..IndexMeta::clone(&plan.source) };
            let mut changes = vec![MetadataChange::replace(source)];
            changes.extend(self.create(&CreateIndex::backing(&plan.alias, generation), now_ms, uuid)?);
            return Ok(changes);
        }
        let settings = plan.source.with_rollover(&plan.alias, now_ms);
        let mut source = IndexMeta { settings, ..IndexMeta::clone(&plan.source) };
        let mut create = CreateIndex {
            name: plan.target.clone(),
            provided_name: plan.provided_target.clone(),
            ..create.clone()
        };
        let alias = create.aliases.entry(plan.alias.clone()).or_insert_with(|| json!({}));
        if plan.explicit {
            alias["is_write_index"] = true.into();
            if let Some(old) = source.aliases.get_mut(&plan.alias) {
                old["is_write_index"] = false.into();
            }
        } else {
            source.aliases.remove(&plan.alias);
        }
        let replaced = MetadataChange::replace(source);
        let after = self.apply(std::slice::from_ref(&replaced));
        let mut changes = vec![replaced];
        changes.extend(after.create(&create, now_ms, uuid)?);
        Ok(changes)
    }
}

/// Counts up the number at the end of a name, which may be one with date math.
fn next_name(name: &str) -> Result<String> {
    let date_math = name.starts_with('<') && name.ends_with('>');
    let plain = if date_math { &name[1..name.len() - 1] } else { name };
    let counted = plain.rsplit_once('-').filter(|(prefix, digits)| {
        !prefix.is_empty() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    let number =
        counted.and_then(|(prefix, digits)| Some((prefix, digits.parse::<u64>().ok()?.checked_add(1)?)));
    let Some((prefix, number)) = number else {
        return Err(Error::IllegalArgument(format!(
            "index name [{name}] does not match pattern '^.*-\\d+$'"
        )));
    };
    let next = format!("{prefix}-{number:0DIGITS$}");
    Ok(if date_math { format!("<{next}>") } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Guard;

    fn with_index(state: &Metadata, name: &str, body: serde_json::Value) -> Metadata {
        state.apply(&state.create_index(name, &body, 5, Uuid::new_v4()).unwrap())
    }

    fn roll(state: &Metadata, target: Option<&str>) -> Result<Metadata> {
        let plan = state.plan_rollover("logs", target, 5)?;
        Ok(state.apply(&state.roll_over(&plan, &CreateIndex::default(), 5, Uuid::new_v4())?))
    }

    #[test]
    fn names_count_up() {
        for (name, next) in [
            ("logs-1", "logs-000002"),
            ("logs-000009", "logs-000010"),
            ("a-b-7", "a-b-000008"),
            ("<logs-{now/d}-000001>", "<logs-{now/d}-000002>"),
        ] {
            assert_eq!(next_name(name).unwrap(), next);
        }
        for wrong in ["logs", "logs-", "logs-x", "-1", "logs-99999999999999999999"] {
            assert!(next_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_alias_moves_or_keeps_its_indices_for_searches() {
        let alone = with_index(&Metadata::default(), "logs-1", json!({"aliases": {"logs": {}, "other": {}}}));
        let moved = roll(&alone, None).unwrap();
        assert_eq!(moved.alias_indices("logs").unwrap().as_ref(), ["logs-000002".into()]);
        assert_eq!(moved.alias_indices("other").unwrap().as_ref(), ["logs-1".into()]);
        let body = json!({"aliases": {"logs": {"is_write_index": true}}});
        let written = with_index(&Metadata::default(), "logs-1", body);
        let kept = roll(&roll(&written, None).unwrap(), Some("special")).unwrap();
        assert_eq!(kept.alias_indices("logs").unwrap().len(), 3);
        assert_eq!(&*kept.write_index("logs", 5).unwrap().unwrap().name, "special");
    }

    #[test]
    fn an_index_records_its_rollovers() {
        let body = json!({"aliases": {"logs": {}, "other": {"is_write_index": true}}});
        let state = with_index(&Metadata::default(), "logs-1", body);
        assert_eq!(state.index("logs-1").unwrap().last_rollover_ms(), None);
        let state = roll(&state, None).unwrap();
        let plan = state.plan_rollover("other", Some("other-1"), 9).unwrap();
        let changes = state.roll_over(&plan, &CreateIndex::default(), 9, Uuid::new_v4()).unwrap();
        let state = state.apply(&changes);
        let rolled = state.index("logs-1").unwrap();
        assert_eq!((rolled.rollover_ms("logs"), rolled.rollover_ms("other")), (Some(5), Some(9)));
        assert_eq!((rolled.rollover_ms("none"), rolled.last_rollover_ms()), (None, Some(9)));
        assert_eq!(state.index("logs-000002").unwrap().last_rollover_ms(), None);
        // A copy of all settings is taken without them.
        let copied = with_index(&state, "copy", json!({"settings": {"index.rollover.info": ["5:logs"]}}));
        assert_eq!(copied.index("copy").unwrap().last_rollover_ms(), None);
        // It is no user's to set.
        let refused = state.update_settings(
            "logs-000002",
            &crate::metadata::IndicesOptions::open_only(),
            &json!({"index.rollover.info": ["1:logs"]}),
            false,
            9,
        );
        assert!(refused.unwrap_err().to_string().contains("private setting"));
        let names: Vec<String> = (0..2 * MAX_ROLLOVERS).map(|at| format!("alias-{at}")).collect();
        let mut meta = IndexMeta::clone(rolled);
        for (at, name) in names.iter().enumerate() {
            meta.settings = meta.with_rollover(name, 10 + at as i64);
        }
        assert_eq!(meta.rollovers().count(), MAX_ROLLOVERS);
        assert_eq!(meta.last_rollover_ms(), Some(9 + names.len() as i64));
    }

    #[test]
    fn a_rollover_needs_the_right_to_create_its_index() {
        let state = with_index(&Metadata::default(), "logs-1", json!({"aliases": {"logs": {}}}));
        let both = &[Action::Rollover, Action::PutAliases, Action::CreateIndex];
        let user = crate::access::tests::restricted(&[("logs*", &both[..2]), ("logs-000*", both)]);
        let guarded = state.guarded(Guard::new(&user, Action::Rollover));
        roll(&guarded, None).unwrap();
        let refused = roll(&guarded, Some("logs-special")).unwrap_err().to_string();
        assert!(refused.contains("indices:admin/create"), "{refused}");
    }

    #[test]
    fn what_cannot_roll_over_is_refused() {
        let two = with_index(&Metadata::default(), "a-1", json!({"aliases": {"logs": {}}}));
        let two = with_index(&two, "a-2", json!({"aliases": {"logs": {}}}));
        let refused = |state: &Metadata, target| roll(state, target).unwrap_err().to_string();
        assert!(refused(&two, None).contains("does not point to a write index"));
        assert!(refused(&Metadata::default(), None).contains("does not exist"));
        assert!(
            refused(&with_index(&Metadata::default(), "logs", json!({})), None).contains("concrete index")
        );
        let named = with_index(&Metadata::default(), "plain", json!({"aliases": {"logs": {}}}));
        assert!(refused(&named, None).contains("does not match pattern"));
        assert!(refused(&named, Some("plain")).contains("already exists"));
    }
}
