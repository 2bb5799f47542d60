//! Rechecks a change of the metadata that was decided before others took effect.
//!
//! A change that makes or deletes indices writes to the object store between its decision and its effect, and nobody waits
//! for that. What others changed meanwhile is compared with what the change is about.

use std::sync::Arc;

use millrace_catalog::metadata::{IndexMeta, Metadata, MetadataChange, TemplateKind};
use millrace_runtime::{Error, Result};
use serde_json::Value;

/// Refuses changes that were decided on one state of the metadata and do not hold on a later one.
///
/// # Errors
/// What the decision would have said of names; [`Error::Rejected`] where it may be repeated.
pub(super) fn recheck(decided: &Metadata, now: &Metadata, changes: &[MetadataChange]) -> Result<()> {
    changes.iter().try_for_each(|change| match change {
        MetadataChange::PutIndex { meta, .. } => match decided.index(&meta.name) {
            Some(old) if old.uuid == meta.uuid => recheck_changed(old, meta, decided, now),
            old => recheck_created(old, meta, decided, now),
        },
        MetadataChange::DeleteIndex { name, uuid } => match now.index(name) {
            Some(index) if index.uuid == *uuid => recheck_deleted(index, decided, now),
            _ => Err(Error::IndexNotFound { index: name.to_string() }),
        },
        // The change holds all settings: those that others have put meanwhile would be lost.
        MetadataChange::PutPersistent(_) if decided.persistent != now.persistent => {
            Err(changed_meanwhile("settings of", "cluster"))
        }
        MetadataChange::PutTransient(_) if decided.transient != now.transient => {
            Err(changed_meanwhile("settings of", "cluster"))
        }
        MetadataChange::PutTemplate { kind, name, .. } | MetadataChange::DeleteTemplate { kind, name }
            if template(decided, kind, name) != template(now, kind, name) =>
        {
            Err(changed_meanwhile("template", name))
        }
        _ => Ok(()),
    })
}

fn template<'a>(metadata: &'a Metadata, kind: &str, name: &str) -> Option<&'a Value> {
    let templates = match TemplateKind::from_name(kind)? {
        TemplateKind::Legacy => &metadata.legacy_templates,
        TemplateKind::Index => &metadata.index_templates,
        TemplateKind::Component => &metadata.component_templates,
    };
    templates.get(name)
}

fn changed_meanwhile(what: &str, name: &str) -> Error {
    Error::Rejected(format!("{what} [{name}] was changed by another request meanwhile; retry"))
}

fn recheck_changed(old: &Arc<IndexMeta>, meta: &IndexMeta, decided: &Metadata, now: &Metadata) -> Result<()> {
    match now.index(&meta.name) {
        Some(found) if Arc::ptr_eq(found, old) => recheck_aliases(meta, decided, now),
        _ => Err(changed_meanwhile("index", &meta.name)),
    }
}

fn recheck_created(
    old: Option<&Arc<IndexMeta>>,
    meta: &IndexMeta,
    decided: &Metadata,
    now: &Metadata,
) -> Result<()> {
    if let Some(found) = now.index(&meta.name)
        && old.is_none_or(|old| old.uuid != found.uuid)
    {
        return Err(Error::IndexAlreadyExists { index: meta.name.to_string(), uuid: found.uuid.to_string() });
    }
    if now.alias_indices(&meta.name).is_some() && decided.alias_indices(&meta.name).is_none() {
        return Err(Error::InvalidIndexName {
            index: meta.name.to_string(),
            reason: "already exists as alias".to_owned(),
        });
    }
    if now.data_stream(&meta.name).is_some() {
        return Err(Error::InvalidIndexName {
            index: meta.name.to_string(),
            reason: "already exists as data stream".to_owned(),
        });
    }
    if let Some(stream) = meta.data_stream()
        && (now.index(stream).is_some() || now.alias_indices(stream).is_some())
    {
        return Err(changed_meanwhile("data stream", stream));
    }
    recheck_aliases(meta, decided, now)
}

/// A hold that was set meanwhile, or a block of writes that was lifted, may be what the deletion had asked for.
fn recheck_deleted(index: &IndexMeta, decided: &Metadata, now: &Metadata) -> Result<()> {
    match decided.index(&index.name) {
        Some(old)
            if (now.is_held(index) && !decided.is_held(old))
                || (old.is_write_blocked() && !index.is_write_blocked()) =>
        {
            Err(changed_meanwhile("index", &index.name))
        }
        _ => Ok(()),
    }
}

/// An alias is no index, and has one index at most that is written to.
fn recheck_aliases(meta: &IndexMeta, decided: &Metadata, now: &Metadata) -> Result<()> {
    let writers = |metadata: &Metadata, alias: &str| -> Vec<Arc<str>> {
        let names = metadata.alias_indices(alias);
        let indices = names.iter().flat_map(|names| names.iter()).filter_map(|name| metadata.index(name));
        let writes = |index: &&Arc<IndexMeta>| index.aliases[alias]["is_write_index"] == true;
        indices.filter(writes).map(|index| Arc::clone(&index.name)).collect()
    };
    for (alias, body) in &meta.aliases {
        if now.index(alias).is_some() && decided.index(alias).is_none() {
            return Err(changed_meanwhile("alias", alias));
        }
        if body["is_write_index"] == true && writers(now, alias) != writers(decided, alias) {
            return Err(changed_meanwhile("alias", alias));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn create(state: &Metadata, name: &str, body: &serde_json::Value) -> (Vec<MetadataChange>, Metadata) {
        let changes = state.create_index(name, body, 0, Uuid::new_v4()).unwrap();
        let next = state.apply(&changes);
        (changes, next)
    }

    #[test]
    fn what_others_did_meanwhile_counts_where_it_is_about_the_same() {
        let start = Metadata::default();
        let (_, start) = create(&start, "old", &json!({}));
        let (ours, done) = create(&start, "new", &json!({"aliases": {"all": {"is_write_index": true}}}));
        let after = |name: &str, body: serde_json::Value| create(&start, name, &body).1;
        recheck(&start, &start, &ours).unwrap();
        recheck(&start, &after("other", json!({"aliases": {"all": {}}})), &ours).unwrap();
        let refused = |now: &Metadata| recheck(&start, now, &ours).unwrap_err();
        assert!(matches!(refused(&after("new", json!({}))), Error::IndexAlreadyExists { .. }));
        assert!(matches!(
            refused(&after("x", json!({"aliases": {"new": {}}}))),
            Error::InvalidIndexName { .. }
        ));
        assert!(matches!(refused(&after("all", json!({}))), Error::Rejected(_)));
        let writer = after("y", json!({"aliases": {"all": {"is_write_index": true}}}));
        assert!(matches!(refused(&writer), Error::Rejected(_)));
        let delete =
            [MetadataChange::DeleteIndex { name: "new".into(), uuid: done.index("new").unwrap().uuid }];
        recheck(&done, &done, &delete).unwrap();
        assert!(matches!(recheck(&done, &start, &delete), Err(Error::IndexNotFound { .. })));
        let set = |state: &Metadata, settings: serde_json::Value| {
            let options = millrace_catalog::metadata::IndicesOptions::open_only();
            state.apply(&state.update_settings("new", &options, &settings, false, 0).unwrap())
        };
        let held = set(&done, json!({"index.retention.hold": true}));
        assert!(matches!(recheck(&done, &held, &delete), Err(Error::Rejected(_))));
        recheck(&held, &held, &delete).unwrap();
        let blocked = set(&done, json!({"index.blocks.write": true}));
        assert!(matches!(recheck(&blocked, &done, &delete), Err(Error::Rejected(_))));
        recheck(&done, &blocked, &delete).unwrap();
        let meta = start.index("old").unwrap();
        let changed = MetadataChange::PutIndex {
            meta: Arc::new(IndexMeta { open: false, ..IndexMeta::clone(meta) }),
            mapping: None,
        };
        let closed = start.apply(std::slice::from_ref(&changed));
        recheck(&start, &done, std::slice::from_ref(&changed)).unwrap();
        assert!(matches!(recheck(&start, &closed, &[changed]), Err(Error::Rejected(_))));
    }

    #[test]
    fn settings_and_templates_of_others_are_not_lost() {
        let start = Metadata::default();
        let settings = |value: &str| {
            let settings =
                serde_json::Map::from_iter([("action.auto_create_index".to_owned(), json!(value))]);
            MetadataChange::PutPersistent(settings)
        };
        let template = |name: &str, order: u32| MetadataChange::PutTemplate {
            kind: "legacy".to_owned(),
            name: name.to_owned(),
            body: json!({"index_patterns": ["a*"], "order": order}),
        };
        let ours = [settings("true"), template("one", 1)];
        recheck(&start, &start, &ours).unwrap();
        recheck(&start, &start.apply(&[template("two", 1)]), &ours).unwrap();
        for theirs in [settings("false"), template("one", 2)] {
            let now = start.apply(&[theirs]);
            assert!(matches!(recheck(&start, &now, &ours), Err(Error::Rejected(_))));
        }
    }
}
