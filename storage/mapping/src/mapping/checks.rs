//! Checks of the mapping as a whole: limits, and the targets of aliases and copies.

use millrace_runtime::{Error, Result};

use super::tree::{Child, GrowthMark, Mapping};

impl Mapping {
    /// Checks what only the whole mapping shows: targets of aliases and of `copy_to`.
    pub(super) fn check_references(&self) -> Result<()> {
        for alias in &self.aliases {
            let refuse = |why: &str| {
                Err(Error::mapper_parsing(format!(
                    "Invalid [path] value [{}] for field alias [{}]: {why}",
                    alias.target, alias.path
                )))
            };
            if alias.target == alias.path {
                return refuse("an alias cannot refer to itself.");
            }
            match self.lookup(&alias.target) {
                Some(Child::Leaf(_)) => {}
                Some(Child::Alias(_)) => return refuse("an alias cannot refer to another alias."),
                _ => return refuse("an alias must refer to an existing field in the mappings."),
            }
        }
        for leaf in &self.leaves {
            for target in &leaf.rules.copy_to {
                match self.lookup(target) {
                    Some(Child::Leaf(at)) if self.leaf(at).parent.is_some() => {
                        return Err(Error::IllegalArgument(format!(
                            "[copy_to] may not be used to copy to a multi-field: [{target}]"
                        )));
                    }
                    Some(Child::Object(_)) => {
                        return Err(Error::IllegalArgument(format!(
                            "Cannot copy to field [{target}] since it is mapped as an object"
                        )));
                    }
                    _ => {}
                }
                let (from, to) = (self.nested_path(&leaf.field.path), self.nested_path(target));
                if to.is_some_and(|to| from.is_none_or(|from| !is_within(from, to))) {
                    return Err(Error::IllegalArgument(format!(
                        "Illegal combination of [copy_to] and [nested] mappings: [copy_to] may only copy data to the current nested document or any of its parents, however one [copy_to] directive is trying to copy data from nested object [{}] to [{}]",
                        from.unwrap_or("null"),
                        to.unwrap_or("null")
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks the limits over everything from `since` on.
    pub(crate) fn check_limits(&self, since: GrowthMark) -> Result<()> {
        if !self.grown_since(since) {
            return Ok(());
        }
        let settings = &self.settings;
        if self.total_fields() > settings.total_fields {
            return Err(Error::IllegalArgument(format!(
                "Limit of total fields [{}] has been exceeded",
                settings.total_fields
            )));
        }
        let mut nested = 0;
        for (at, object) in self.objects.iter().enumerate() {
            nested += usize::from(object.nested.is_some());
            if at >= since.objects && object.depth + 1 > settings.depth {
                return Err(Error::IllegalArgument(format!(
                    "Limit of mapping depth [{}] has been exceeded due to object field [{}]",
                    settings.depth, object.path
                )));
            }
        }
        if nested > 0 && settings.sorted {
            return Err(Error::IllegalArgument(
                "cannot have nested fields when index sort is activated".to_owned(),
            ));
        }
        if nested > settings.nested_fields && self.objects.len() > since.objects {
            return Err(Error::IllegalArgument(format!(
                "Limit of nested fields [{}] has been exceeded",
                settings.nested_fields
            )));
        }
        let names = self.leaves[since.leaves..]
            .iter()
            .map(|leaf| &leaf.name)
            .chain(self.objects[since.objects..].iter().map(|object| &object.name))
            .chain(self.aliases[since.aliases..].iter().map(|alias| &alias.name));
        for name in names {
            if name.chars().count() > settings.field_name_length {
                return Err(Error::IllegalArgument(format!(
                    "Field name [{name}] is longer than the limit of [{}] characters",
                    settings.field_name_length
                )));
            }
        }
        Ok(())
    }
}

/// Returns whether an object's path is another's, or below it.
fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
