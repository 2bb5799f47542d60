//! Changes between an earlier mapping of an index and a later one, for holders of values that were made of the earlier.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::tree::{Child, Mapping};

impl Mapping {
    /// Lists the paths of fields, aliases and objects that are not in both of two mappings of an index, or mean something else
    /// in the later one; `None` where all fields may, as under other analyzers.
    pub fn changes_to(&self, later: &Self) -> Option<BTreeSet<Arc<str>>> {
        if !Arc::ptr_eq(self.analyzers(), later.analyzers()) {
            return None;
        }
        let mut changed: BTreeSet<Arc<str>> = BTreeSet::new();
        let known = self.by_path.iter().filter(|(path, child)| match later.by_path.get(*path) {
            Some(other) => !self.is_same(**child, later, *other),
            None => true,
        });
        let new = later.by_path.iter().filter(|(path, _)| !self.by_path.contains_key(*path));
        changed.extend(known.chain(new).map(|(path, _)| Arc::clone(path)));
        for alias in self.aliases.iter().chain(&later.aliases) {
            if changed.contains(&alias.target) {
                changed.insert(Arc::clone(&alias.path));
            }
        }
        Some(changed)
    }

    fn is_same(&self, child: Child, later: &Self, other: Child) -> bool {
        match (child, other) {
            (Child::Leaf(own), Child::Leaf(other)) => {
                let (own, other) = (&self.leaves[own as usize], &later.leaves[other as usize]);
                Arc::ptr_eq(own, other) || own.field == other.field
            }
            (Child::Alias(own), Child::Alias(other)) => {
                self.aliases[own as usize].target == later.aliases[other as usize].target
            }
            (Child::Object(own), Child::Object(other)) => {
                self.object(own).nested_id == later.object(other).nested_id
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn only_what_is_new_or_otherwise_is_a_change() {
        let body = json!({"properties": {
            "level": {"type": "keyword"}, "size": {"type": "long"}, "severity": {"type": "alias", "path": "level"},
            "host": {"properties": {"name": {"type": "keyword"}}}
        }});
        let before = Mapping::parse(&body, &Map::new()).unwrap();
        assert_eq!(before.changes_to(&before.merge(&body).unwrap()), Some(BTreeSet::new()));
        let later = before
            .merge(&json!({"properties": {
                "level": {"type": "keyword", "ignore_above": 9}, "host": {"properties": {"ip": {"type": "ip"}}}
            }}))
            .unwrap();
        let changed: BTreeSet<Arc<str>> = ["level", "severity", "host.ip"].map(Arc::from).into();
        assert_eq!(before.changes_to(&later), Some(changed));
    }
}
