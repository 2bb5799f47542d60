//! `clone`: copies events, each copy with a type of its own.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, Options};

use super::{Filter, Outcome};

/// Most copies of one event.
const MAX_CLONES: usize = 100;

#[derive(Debug)]
struct Copies {
    types: Vec<String>,
    /// `true` if a copy gets its name as a tag, as with the Elastic Common Schema, which has no `type`.
    marks_by_tag: bool,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let marks_by_tag = options.ecs_compatibility().is_enabled();
    let types = options.texts("clones");
    if types.is_empty() {
        options.fault_here("[clone] needs the option [clones], an array with the type of each copy");
    }
    if types.len() > MAX_CLONES {
        options.fault_here(format!("[clone] makes at most {MAX_CLONES} copies"));
    }
    options.finish()?;
    Ok(Arc::new(Copies { types, marks_by_tag }))
}

impl Filter for Copies {
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome {
        for name in &self.types {
            let mut copy = event.clone();
            if self.marks_by_tag {
                copy.tag(name);
            } else {
                copy.set_text("type", name);
            }
            made.push(copy);
        }
        // What all filters add goes to the copies, in which the event continues as it was.
        Outcome::Unmatched
    }
}
