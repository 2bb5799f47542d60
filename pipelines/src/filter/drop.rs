//! `drop`: ends events.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, Options};
use rand::RngExt as _;

use super::{Filter, Outcome};

#[derive(Debug)]
struct DropPercentage {
    /// Of a hundred events.
    percentage: f64,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let percentage = options.float("percentage").unwrap_or(100.0);
    if !(0.0..=100.0).contains(&percentage) {
        options
            .fault_here(format!("option [percentage] of [drop] must be from 0 to 100, not [{percentage}]"));
    }
    options.finish()?;
    Ok(Arc::new(DropPercentage { percentage }))
}

impl Filter for DropPercentage {
    fn apply(&self, _event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let drop = self.percentage >= 100.0 || rand::rng().random::<f64>() * 100.0 < self.percentage;
        if drop { Outcome::Dropped } else { Outcome::Unmatched }
    }
}
