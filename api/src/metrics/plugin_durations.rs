//! Durations of plugins over the life of the process: [`PluginDurations`] keeps what pipelines measured that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_pipelines::manager::Status;
use millrace_runtime::HistogramSnapshot;
use millrace_runtime::metrics::{MetricFamily, MetricSample};

/// Pipeline, kind and id of a plugin.
type PluginKey = (String, &'static str, Arc<str>);
/// Kind and name of plugins.
type NameKey = (&'static str, Arc<str>);

/// Durations of filters and outputs. A deletion or a reload of a pipeline takes none away, so that the sums never fall; only
/// batches between the last reading and the deletion or reload are not counted.
#[derive(Debug, Default)]
pub struct PluginDurations {
    /// Durations at the last reading, with the plugin's name.
    current: BTreeMap<PluginKey, (Arc<str>, HistogramSnapshot)>,
    /// Sums of plugins that are gone. There are as many names as the program has plugins.
    retired: BTreeMap<NameKey, HistogramSnapshot>,
}

impl PluginDurations {
    /// Reads the durations of all pipelines; returns the family of all durations since the start.
    pub(super) fn read(&mut self, pipelines: &[Status]) -> MetricFamily {
        let mut before = std::mem::take(&mut self.current);
        for status in pipelines {
            let [_, filters, outputs] = &status.plugins;
            for (kind, plugins) in [("filter", filters), ("output", outputs)] {
                for plugin in plugins {
                    let key = (status.id.clone(), kind, Arc::clone(&plugin.id));
                    let durations = plugin.batch_durations.clone();
                    // A pipeline that was made again counts anew.
                    if let Some((name, last)) = before.remove(&key)
                        && !durations.continues(&last)
                    {
                        self.retire(kind, name, &last);
                    }
                    self.current.insert(key, (Arc::clone(&plugin.name), durations));
                }
            }
        }
        for ((_, kind, _), (name, last)) in before {
            self.retire(kind, name, &last);
        }
        self.family()
    }

    fn retire(&mut self, kind: &'static str, name: Arc<str>, durations: &HistogramSnapshot) {
        self.retired.entry((kind, name)).or_default().merge(durations);
    }

    /// Makes the histograms: one for each name, so their number is that of the plugins that there are.
    fn family(&self) -> MetricFamily {
        let mut merged = self.retired.clone();
        for ((_, kind, _), (name, durations)) in &self.current {
            merged.entry((*kind, Arc::clone(name))).or_default().merge(durations);
        }
        let samples = merged.into_iter().map(|((kind, name), durations)| {
            MetricSample::histogram(durations).with_label("kind", kind).with_label("plugin", &*name)
        });
        MetricFamily::new(
            "millrace_pipeline_plugin_batch_seconds",
            "Time that filters and outputs spend on a batch of events, by plugin",
            samples.collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_pipelines::Settings;
    use millrace_pipelines::manager::{PluginFigures, State};
    use millrace_runtime::DurationHistogram;

    use super::*;

    /// A pipeline whose only filter had so many batches.
    fn pipeline(id: &str, batches: u64) -> Status {
        let histogram = DurationHistogram::default();
        (0..batches).for_each(|_| histogram.record(Duration::from_millis(1)));
        let filter = PluginFigures {
            id: "filter".into(),
            name: "grok".into(),
            figures: Default::default(),
            batch_durations: histogram.snapshot(),
        };
        Status {
            id: id.to_owned(),
            state: State::Active,
            warning: None,
            hash: String::new(),
            ephemeral_id: Default::default(),
            settings: Settings::default(),
            addresses: Vec::new(),
            reloads: Default::default(),
            figures: Default::default(),
            queued: 0,
            on_disk: None,
            plugins: [Vec::new(), vec![filter], Vec::new()],
        }
    }

    /// Reads, and returns the number of batches of all pipelines.
    fn batches(durations: &mut PluginDurations, pipelines: &[Status]) -> u64 {
        durations.read(pipelines);
        let retired = durations.retired.values().map(|histogram| histogram.count);
        let current = durations.current.values().map(|(_, histogram)| histogram.count);
        retired.sum::<u64>() + current.sum::<u64>()
    }

    #[test]
    fn a_deletion_takes_no_durations_away() {
        let mut durations = PluginDurations::default();
        assert_eq!(batches(&mut durations, &[pipeline("a", 3), pipeline("b", 4)]), 7);
        assert_eq!(batches(&mut durations, &[pipeline("b", 5)]), 8, "a is gone");
        assert_eq!(batches(&mut durations, &[pipeline("a", 2), pipeline("b", 5)]), 10, "a is back");
        assert_eq!(batches(&mut durations, &[pipeline("a", 1), pipeline("b", 6)]), 12, "a was made again");
        assert_eq!(batches(&mut durations, &[]), 12);
        assert_eq!(durations.family().samples.len(), 1);
    }
}
