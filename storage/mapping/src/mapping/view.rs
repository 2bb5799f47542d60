//! A mapping as somebody sees it who may see some fields only.
//!
//! A hidden field is as if it were not mapped: queries, sorts, aggregations and statements find nothing by it, and it is not
//! shown. Documents keep what they have in it, so whoever shows a source leaves it out ([`Mapping::field_rules`]). A
//! multi-field is a field of its own, seen or not whatever its parent is.

use std::sync::Arc;

use super::FieldType;
use super::tree::{Child, Mapping};
use crate::fields::FieldRules;

/// The place of a leaf that is not shown.
const HIDDEN: u32 = u32::MAX;

impl Mapping {
    /// Returns the mapping without the fields that one of the rules does not show. It is for reading only.
    pub fn seen_under(&self, rules: Vec<Arc<FieldRules>>) -> Self {
        let mut view = self.clone();
        let plainly = |path: &str| rules.iter().all(|rules| rules.shows(path));
        // What is below such a field is in its columns: all of it is shown, or none.
        let has_members = |path: &str| {
            self.field(path).is_some_and(|field| {
                matches!(
                    field.field_type,
                    FieldType::FlatObject
                        | FieldType::GeoPoint
                        | FieldType::RankFeatures
                        | FieldType::Completion
                        | FieldType::Range(_)
                )
            })
        };
        let shows = |path: &str| {
            plainly(path) && (!has_members(path) || rules.iter().all(|rules| rules.shows_whole(path)))
        };
        let hidden: Vec<(Arc<str>, Child)> = self
            .by_path
            .iter()
            .filter(|(path, child)| match child {
                Child::Leaf(_) => !shows(path),
                // What it stands for has to be shown, too.
                Child::Alias(at) => !shows(path) || !shows(&self.aliases[*at as usize].target),
                Child::Object(_) => false,
            })
            .map(|(path, child)| (Arc::clone(path), *child))
            .collect();
        for (path, child) in hidden {
            view.by_path.remove(&path);
            let (object, name) = match child {
                Child::Leaf(at) => {
                    let leaf = self.leaf(at);
                    match leaf.parent {
                        Some(parent) => {
                            let parent = Arc::make_mut(&mut view.leaves[parent as usize]);
                            parent.multi.retain(|sub| *sub != at);
                            continue;
                        }
                        None => (leaf.object, &leaf.name),
                    }
                }
                Child::Alias(at) => {
                    let alias = &self.aliases[at as usize];
                    (alias.object, &alias.name)
                }
                Child::Object(_) => continue,
            };
            Arc::make_mut(&mut view.objects[object as usize]).children.remove(name);
        }
        let is_hidden = |at: u32| !shows(&self.leaf(at).field.path);
        view.order.retain(|at| !is_hidden(*at));
        view.constants.retain(|at| !is_hidden(*at));
        for at in &mut view.by_id {
            if self.leaves.get(*at as usize).is_some_and(|leaf| !shows(&leaf.field.path)) {
                *at = HIDDEN;
            }
        }
        view.aliases.retain(|alias| shows(&alias.path) && shows(&alias.target));
        view.renumber_aliases();
        // From the innermost out: an object of which nothing is left is not told of either.
        for at in (1..self.objects.len()).rev() {
            let object = &view.objects[at];
            if object.children.is_empty() && !shows(&object.path) {
                let (path, parent, name) =
                    (Arc::clone(&object.path), object.parent, Arc::clone(&object.name));
                view.by_path.remove(&path);
                Arc::make_mut(&mut view.objects[parent as usize]).children.remove(&name);
            }
        }
        for leaf in &mut view.leaves {
            if leaf.rules.copy_to.iter().any(|target| !shows(target)) {
                Arc::make_mut(leaf).rules.copy_to.retain(|target| shows(target));
            }
        }
        view.field_rules = rules.into();
        view
    }

    /// Returns the rules that a source shown under this mapping has to keep; empty where all is shown.
    pub fn field_rules(&self) -> &Arc<[Arc<FieldRules>]> {
        &self.field_rules
    }

    /// Gives the aliases that are left their places.
    fn renumber_aliases(&mut self) {
        for (at, alias) in (0..).zip(&self.aliases) {
            self.by_path.insert(Arc::clone(&alias.path), Child::Alias(at));
            let object = Arc::make_mut(&mut self.objects[alias.object as usize]);
            object.children.insert(Arc::clone(&alias.name), Child::Alias(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn contexts_name_no_hidden_fields() {
        let contexts = json!([{"name": "a", "type": "CATEGORY", "path": "secret"}, {"name": "b", "type": "CATEGORY", "path": "n"}]);
        let body = json!({"properties": {
            "secret": {"type": "keyword"},
            "n": {"type": "keyword"},
            "c": {"type": "completion", "contexts": contexts},
        }});
        let mapping = Mapping::parse(&body, &Map::new()).unwrap();
        let view = mapping.seen_under(vec![Arc::new(FieldRules::new(&["n", "c"], &[]))]);
        let mut expected = contexts;
        assert_eq!(mapping.to_json()["properties"]["c"]["contexts"], expected);
        expected[0].as_object_mut().unwrap().remove("path");
        assert_eq!(view.to_json()["properties"]["c"]["contexts"], expected);
    }

    #[test]
    fn hidden_fields_are_as_if_not_mapped() {
        let body = json!({"properties": {
            "user": {"properties": {"name": {"type": "keyword"}, "password": {"type": "keyword"}}},
            "secret": {"properties": {"key": {"type": "keyword"}}},
            "title": {"type": "text", "copy_to": ["all"], "fields": {"raw": {"type": "keyword"}, "low": {"type": "keyword"}}},
            "all": {"type": "text"},
            "hidden": {"type": "alias", "path": "user.password"},
            "known": {"type": "alias", "path": "user.name"},
            "nest": {"type": "nested", "properties": {"a": {"type": "long"}}},
            "labels": {"type": "flat_object"},
            "tags": {"type": "flat_object"},
            "place": {"type": "geo_point"},
            "near": {"type": "geo_point"},
            "weights": {"type": "rank_features"},
            "names": {"type": "completion"},
            "code": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
        },
            "dynamic_templates": [{"t": {"match": "secret_*", "mapping": {"type": "keyword"}}}],
            "_source": {"excludes": ["user.password"]}});
        let mapping = Mapping::parse(&body, &Map::new()).unwrap();
        let rules = FieldRules::new(
            &[
                "user", "title", "hidden", "known", "labels", "tags", "place", "near", "weights", "names",
                "*.raw",
            ],
            &["user.password", "title.low", "labels.*ret", "place.lat", "weights.w", "names.input"],
        );
        let view = mapping.seen_under(vec![Arc::new(rules)]);
        let paths: Vec<&str> = view.fields().map(|field| &*field.path).collect();
        assert_eq!(paths, ["code.raw", "near", "tags", "title", "title.raw", "user.name"]);
        for path in [
            "user.password",
            "secret.key",
            "secret",
            "title.low",
            "hidden",
            "nest",
            "nest.a",
            "all",
            "labels",
            "place",
            "weights",
            "names",
            "code",
        ] {
            assert!(view.field(path).is_none() && !view.is_object(path), "{path}");
            assert!(view.nested_path(path).is_none(), "{path}");
        }
        assert_eq!(&*view.field("known").unwrap().path, "user.name");
        let id = mapping.field("user.password").unwrap().id;
        assert!(view.field_by_id(id).is_none());
        assert_eq!(
            view.to_json(),
            json!({"properties": {
                "known": {"type": "alias", "path": "user.name"},
                "near": {"type": "geo_point"},
                "tags": {"type": "flat_object"},
                "title": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
                "user": {"properties": {"name": {"type": "keyword"}}},
            }})
        );
        assert!(mapping.to_json()["dynamic_templates"].is_array());
        assert_eq!(view.source_patterns(), mapping.source_patterns(), "what sources do not show");
        assert!(mapping.field("user.password").is_some() && mapping.field_rules().is_empty());
        assert_eq!(view.field_rules().len(), 1);
    }
}
