//! Ids of plugins: the user's, or ones that stay the same for as long as the plugin is written the same. Those of branches
//! are made of their section, their conditions, and what stands in them, so that one whose condition was corrected is known again.

use std::collections::HashSet;
use std::sync::Arc;

use ring::digest::{Context, SHA256};

use crate::language::{Branch, Statement};

/// Bytes of the digest in an id.
const DIGEST_BYTES: usize = 6;

/// Bytes of each digest in the id of a branch.
const BRANCH_BYTES: usize = 5;

/// A section that has branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Filter,
    Output,
}

impl Section {
    fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Output => "output",
        }
    }
}

/// Identity of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BranchId<'a> {
    pub(super) section: Section,
    /// Digest of what is done in it.
    pub(super) bodies: &'a str,
}

impl<'a> BranchId<'a> {
    /// Reads an id that was made for a branch.
    pub(super) fn parse(id: &'a str) -> Option<Self> {
        let mut parts = id.strip_prefix("if_")?.split('_');
        let section = match parts.next()? {
            "filter" => Section::Filter,
            "output" => Section::Output,
            _ => return None,
        };
        let is_digest =
            |part: &&str| part.len() == 2 * BRANCH_BYTES && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut digest = || parts.next().filter(is_digest);
        let _of_conditions = digest()?;
        Some(Self { section, bodies: digest()? })
    }
}

fn digest(parts: &[&[u8]], bytes: usize) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
        context.update(&[0]);
    }
    let digest = context.finish();
    digest.as_ref().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the statements of a branch as a text that does not depend on its layout.
fn bodies(branch: &Branch, out: &mut String) {
    let blocks = branch.arms.iter().map(|arm| &arm.body).chain([&branch.otherwise]);
    for block in blocks {
        out.push('{');
        for statement in block {
            match statement {
                Statement::Plugin(plugin) => out.push_str(&plugin.canonical),
                Statement::Branch(branch) => {
                    conditions(branch, out);
                    bodies(branch, out);
                }
            }
        }
        out.push('}');
    }
}

fn conditions(branch: &Branch, out: &mut String) {
    for arm in &branch.arms {
        out.push_str("if ");
        arm.condition.canonical(out);
    }
}

/// The ids given so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    given: HashSet<Arc<str>>,
}

impl Names {
    /// Gives an id; whether it is new.
    pub(super) fn give(&mut self, id: &str) -> bool {
        self.given.insert(id.into())
    }

    /// Makes an id of how a plugin is written; of several that are written the same, by their order.
    pub(super) fn make(&mut self, section: &str, plugin: &str, canonical: &str) -> Arc<str> {
        for number in 0_u64.. {
            let parts = [section.as_bytes(), canonical.as_bytes(), &number.to_be_bytes()];
            let id = format!("{plugin}_{}", digest(&parts, DIGEST_BYTES));
            if self.give(&id) {
                return id.into();
            }
        }
        plugin.into()
    }

    /// Makes the id of a branch; of several that are written the same, by their order.
    pub(super) fn make_of_branch(&mut self, section: Section, branch: &Branch) -> Arc<str> {
        let (mut ifs, mut done) = (String::new(), String::new());
        conditions(branch, &mut ifs);
        bodies(branch, &mut done);
        let [ifs, done] = [ifs, done].map(|text| digest(&[text.as_bytes()], BRANCH_BYTES));
        let id = format!("if_{}_{ifs}_{done}", section.name());
        let more = (2_u64..).map(|number| format!("{id}_{number}"));
        let free = std::iter::once(id.clone()).chain(more).find(|id| self.give(id));
        free.unwrap_or(id).into()
    }
}
