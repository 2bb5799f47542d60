//! Delete, open, close, and update of the settings of existing indices.

use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::blocks::{BlockLevel, check_block};
use super::create::{expand_replicas, number};
use super::{IndexMeta, IndicesOptions, Metadata, MetadataChange, index_settings, settings};

impl Metadata {
    /// Decides the deletion of the indices of an expression.
    ///
    /// # Errors
    /// `IllegalArgument` where names are required or an alias is named, `IndexNotFound`, `Blocked`.
    pub fn delete_indices(
        &self,
        expression: &str,
        options: &IndicesOptions,
        now_ms: i64,
    ) -> Result<Vec<MetadataChange>> {
        self.check_destructive(expression)?;
        let options = IndicesOptions { ignore_aliases: true, ..options.clone() };
        let indices = self.resolve(expression, &options, now_ms)?;
        indices.iter().try_for_each(|meta| check_block(meta, BlockLevel::Delete))?;
        indices.iter().try_for_each(|meta| self.check_not_written(meta))?;
        Ok(indices
            .into_iter()
            .map(|meta| MetadataChange::DeleteIndex { name: meta.name.clone(), uuid: meta.uuid })
            .collect())
    }

    /// Refuses an expression with wildcards, or for all indices, where names are required.
    ///
    /// # Errors
    /// `IllegalArgument`.
    pub fn check_destructive(&self, expression: &str) -> Result<()> {
        let wide = |part: &str| part.is_empty() || part == "_all" || pattern::is_wildcard(part);
        if self.destructive_requires_name() && expression.split(',').any(wide) {
            return Err(Error::IllegalArgument("Wildcard expressions or all indices are not allowed".into()));
        }
        Ok(())
    }

    /// Decides to open the indices of an expression; those that are open stay as they are.
    ///
    /// # Errors
    /// As [`Metadata::delete_indices`], and `Validation` beyond the limit of shards.
    pub fn open_indices(
        &self,
        expression: &str,
        options: &IndicesOptions,
        now_ms: i64,
    ) -> Result<Vec<MetadataChange>> {
        let changes = self.set_open(expression, options, now_ms, true)?;
        let mut state = self.clone();
        for change in &changes {
            if let MetadataChange::PutIndex { meta, .. } = change {
                state.check_shard_limit(&meta.name, meta.shards)?;
                state.open_shards += u64::from(meta.shards);
            }
        }
        Ok(changes)
    }

    /// Decides to close the indices of an expression; those that are closed stay as they are.
    ///
    /// # Errors
    /// As [`Metadata::delete_indices`].
    pub fn close_indices(
        &self,
        expression: &str,
        options: &IndicesOptions,
        now_ms: i64,
    ) -> Result<Vec<MetadataChange>> {
        self.set_open(expression, options, now_ms, false)
    }

    fn set_open(
        &self,
        expression: &str,
        options: &IndicesOptions,
        now_ms: i64,
        open: bool,
    ) -> Result<Vec<MetadataChange>> {
        self.check_destructive(expression)?;
        let mut changes = Vec::new();
        let indices = self.resolve(expression, options, now_ms)?;
        let written: Vec<&str> = indices
            .iter()
            .filter(|meta| !open && self.stream_written_to(meta).is_some())
            .map(|meta| &*meta.name)
            .collect();
        if !written.is_empty() {
            return Err(Error::IllegalArgument(format!(
                "cannot close the following data stream write indices [{}]",
                written.join(", ")
            )));
        }
        for meta in indices {
            self.check_block(&meta, BlockLevel::MetadataWrite)?;
            if meta.open != open {
                changes.push(MetadataChange::replace(IndexMeta { open, ..(*meta).clone() }));
            }
        }
        Ok(changes)
    }

    /// Decides an update of index settings. The body is settings, nested or flat, with or without
    /// the `index.` prefix, also under `settings`; null resets, `a.*: null` resets a group;
    /// `preserve_existing` leaves alone what is set.
    ///
    /// # Errors
    /// `IllegalArgument` for unknown, fixed or wrong settings, and static ones of open indices;
    /// `Validation` for an empty update; `Blocked`.
    pub fn update_settings(
        &self,
        expression: &str,
        options: &IndicesOptions,
        body: &Value,
        preserve_existing: bool,
        now_ms: i64,
    ) -> Result<Vec<MetadataChange>> {
        let body = match body.as_object().filter(|members| members.len() == 1).and_then(|m| m.get("settings"))
        {
            Some(inner) if inner.is_object() => inner,
            _ => body,
        };
        let update = settings::with_index_prefix(settings::flatten(body)?);
        if update.is_empty() {
            return Err(Error::Validation("1: no settings to update;".into()));
        }
        let mut fixed_while_open = Vec::new();
        for (key, value) in &update {
            if !index_settings::check_update(key, value)? {
                fixed_while_open.push(key.as_str());
            }
        }
        let indices = self.resolve(expression, options, now_ms)?;
        let only_blocks = update.keys().all(|key| key.starts_with("index.blocks."));
        if !fixed_while_open.is_empty() {
            let open: Vec<String> = indices
                .iter()
                .filter(|meta| meta.open && !(preserve_existing && holds_all(meta, &fixed_while_open)))
                .map(|meta| format!("{}/{}", meta.name, meta.uuid_text()))
                .collect();
            if !open.is_empty() {
                fixed_while_open.sort_unstable();
                return Err(Error::IllegalArgument(format!(
                    "Can't update non dynamic settings [[{}]] for open indices [[{}]]",
                    fixed_while_open.join(", "),
                    open.join(", ")
                )));
            }
            if let Some(key) = fixed_while_open.iter().find(|key| index_settings::is_final(key)) {
                return Err(Error::IllegalArgument(format!("final index setting [{key}], not updateable")));
            }
        }
        let mut changes = Vec::new();
        for meta in indices {
            // Blocks can be taken away however they are set.
            if !only_blocks {
                self.check_block(&meta, BlockLevel::MetadataWrite)?;
            }
            let mut next = (*meta).clone();
            for key in update.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key) {
                if !preserve_existing {
                    reset(&mut next.settings, key);
                }
            }
            for (key, value) in update.iter().filter(|(_, value)| !value.is_null()) {
                if !(preserve_existing && meta.settings.contains_key(key)) {
                    next.settings.insert(key.clone(), value.clone());
                }
            }
            expand_replicas(&mut next.settings);
            index_settings::check_result(&next.settings)?;
            next.replicas = number(&next.settings, "index.number_of_replicas")?;
            if next != *meta {
                changes.push(MetadataChange::replace(next));
            }
        }
        Ok(changes)
    }
}

fn holds_all(meta: &IndexMeta, keys: &[&str]) -> bool {
    keys.iter().all(|key| meta.settings.contains_key(*key))
}

fn reset(settings: &mut Map<String, Value>, key: &str) {
    // What creation wrote stays: those keys are not in reach of a wildcard.
    let kept = |set: &str| {
        matches!(set, "index.number_of_shards" | "index.uuid" | "index.creation_date" | "index.provided_name")
            || set.starts_with("index.version.")
            || index_settings::is_final(set)
            || index_settings::is_private(set)
    };
    settings.retain(|set, _| kept(set) || !pattern::matches(key, set));
    settings
        .entry("index.number_of_replicas")
        .or_insert_with(|| index_settings::default_of("index.number_of_replicas").unwrap_or("1").into());
}
