//! Definition that a text contains, before any plugin is built of it.

use std::fmt;

use millrace_ingest::{EcsCompatibility, Location, Options};

use crate::condition::Condition;

/// The sections of a pipeline. Sections that are given several times follow each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    /// Inputs.
    pub inputs: Vec<Plugin>,
    /// Filters and branches.
    pub filters: Vec<Statement>,
    /// Outputs and branches.
    pub outputs: Vec<Statement>,
}

impl Definition {
    /// Sets the `ecs_compatibility` of the plugins that do not say it.
    pub fn set_default_ecs(&mut self, default: EcsCompatibility) {
        self.inputs.iter_mut().for_each(|plugin| plugin.options.set_default_ecs(default));
        set_default_ecs(&mut self.filters, default);
        set_default_ecs(&mut self.outputs, default);
    }
}

fn set_default_ecs(statements: &mut [Statement], default: EcsCompatibility) {
    for statement in statements {
        match statement {
            Statement::Plugin(plugin) => plugin.options.set_default_ecs(default),
            Statement::Branch(branch) => {
                branch.arms.iter_mut().for_each(|arm| set_default_ecs(&mut arm.body, default));
                set_default_ecs(&mut branch.otherwise, default);
            }
        }
    }
}

/// A plugin as it was written.
#[derive(Clone, PartialEq)]
pub struct Plugin {
    /// Name and options.
    pub options: Options,
    /// The same as text that does not depend on places, blanks, comments and kinds of quotes: the text's identity after a change.
    pub canonical: String,
}

/// Without values: any may be a password.
impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A line of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// A plugin.
    Plugin(Plugin),
    /// `if`, `else if`, `else`.
    Branch(Branch),
}

/// Alternatives, of which an event takes the first whose condition it meets.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// `if` and each `else if`.
    pub arms: Vec<Arm>,
    /// `else`.
    pub otherwise: Vec<Statement>,
}

/// A condition and what is done with events that meet it.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Begin of the branch.
    pub at: Location,
    /// The condition.
    pub condition: Condition,
    /// Statements of the branch.
    pub body: Vec<Statement>,
}
