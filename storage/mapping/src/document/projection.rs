//! Projection of documents: the members that are read, where only some columns are requested.

use std::collections::BTreeSet;

use crate::mapping::{Child, Mapping, PathId};

/// Leaves and objects of a mapping that lead to columns which are wanted.
#[derive(Debug)]
pub(super) struct Projection {
    leaves: Vec<bool>,
    objects: Vec<bool>,
}

impl Projection {
    /// Finds what leads to some columns. Values that are copied elsewhere are wanted whatever becomes of them.
    pub(super) fn new(mapping: &Mapping, columns: &BTreeSet<PathId>) -> Self {
        let mut wanted = Self { leaves: Vec::new(), objects: Vec::new() };
        wanted.object(mapping, columns, 0);
        wanted
    }

    /// Returns whether a value of a leaf is wanted, or one of its multi-fields.
    pub(super) fn leaf(&self, leaf: u32) -> bool {
        self.leaves.get(leaf as usize).copied().unwrap_or(false)
    }

    fn object(&mut self, mapping: &Mapping, columns: &BTreeSet<PathId>, object: u32) -> bool {
        // As deep as mappings are, which is bounded.
        let mut any = false;
        for child in mapping.object(object).children.values() {
            any |= match *child {
                Child::Object(below) => self.object(mapping, columns, below),
                Child::Leaf(leaf) => {
                    let of = mapping.leaf(leaf);
                    let mut own = columns.contains(&of.field.column) || !of.rules.copy_to.is_empty();
                    for sub in &of.fan {
                        let is = columns.contains(&mapping.leaf(*sub).field.column);
                        set(&mut self.leaves, *sub, is);
                        own |= is;
                    }
                    set(&mut self.leaves, leaf, own);
                    own
                }
                Child::Alias(_) => false,
            };
        }
        set(&mut self.objects, object, any);
        any
    }

    /// Returns whether anything below an object is wanted.
    pub(super) fn below(&self, object: u32) -> bool {
        self.objects.get(object as usize).copied().unwrap_or(false)
    }
}

fn set(flags: &mut Vec<bool>, at: u32, is: bool) {
    let at = at as usize;
    if at >= flags.len() {
        flags.resize(at + 1, false);
    }
    flags[at] = is;
}
