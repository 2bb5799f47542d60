//! Metrics of the server's parts: rules, notifications, snapshots, pipelines and certificates.
//!
//! Each [`MetricSource`] here asks a part for its figures when a page is made. The functions that turn figures into families are pure.

mod plugin_durations;

use std::sync::Arc;
use std::time::Duration;

use millrace_alerting::{Alerting, RuleFigures};
use millrace_listen::Tls;
use millrace_notifications::{NotificationDurations, OutboxFigures};
use millrace_pipelines::Manager;
use millrace_pipelines::manager::{PluginFigures, Status};
use millrace_runtime::metrics::{MetricFamily, MetricSample, MetricSource};
use millrace_snapshot::{OutcomeCounts, SnapshotFigures, SnapshotService};
use parking_lot::Mutex;

pub use plugin_durations::PluginDurations;

/// Plugins that have samples of their own; further ones are summed.
const MAX_PLUGINS: usize = 500;
/// Pipelines that have samples of their own, in the order of their ids; further ones have none.
const MAX_PIPELINES: usize = 200;
/// Name in place of a pipeline or plugin for the sum of those beyond the bound.
const OTHER: &str = "_other";

/// Metrics of rules and of their notifications.
#[derive(Debug)]
pub(crate) struct RuleMetrics(pub(crate) Alerting);

impl MetricSource for RuleMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        let mut families = rule_families(&self.0.figures(), self.0.faults().len());
        if let Some(notifications) = self.0.notifications() {
            families.extend(notification_families(&notifications.figures()));
        }
        families
    }
}

/// Metrics of snapshots.
#[derive(Debug)]
pub(crate) struct SnapshotMetrics(pub(crate) SnapshotService);

impl MetricSource for SnapshotMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        snapshot_families(&self.0.figures())
    }
}

/// Metrics of pipelines.
#[derive(Debug)]
pub(crate) struct PipelineMetrics {
    pipelines: Arc<Manager>,
    durations: Mutex<PluginDurations>,
}

impl PipelineMetrics {
    pub(crate) fn new(pipelines: Arc<Manager>) -> Self {
        Self { pipelines, durations: Mutex::default() }
    }
}

impl MetricSource for PipelineMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        // Figures that are read before the lock may be older than those of another reader.
        let mut durations = self.durations.lock();
        pipeline_families(&self.pipelines.list(), &mut durations)
    }
}

/// Metrics of the listeners' certificate.
#[derive(Debug)]
pub(crate) struct CertificateMetrics(pub(crate) Tls);

impl MetricSource for CertificateMetrics {
    fn families(&self) -> Vec<MetricFamily> {
        self.0.not_after_ms().map(certificate_family).into_iter().collect()
    }
}

/// Makes the families of rules.
pub fn rule_families(figures: &RuleFigures, faults: usize) -> Vec<MetricFamily> {
    let RuleFigures { enabled, paused, unwatched, lag, ref evaluation_lag, position, feed_end } = *figures;
    vec![
        MetricFamily::gauge("millrace_rules_enabled", "Alert rules that are enabled", enabled as f64),
        MetricFamily::gauge(
            "millrace_rules_paused",
            "Enabled alert rules that a failure paused",
            paused as f64,
        ),
        MetricFamily::gauge(
            "millrace_rules_unwatched",
            "Enabled alert rules that do not watch all of their patterns",
            unwatched as f64,
        ),
        MetricFamily::gauge(
            "millrace_rule_lag_seconds",
            "Time for which the oldest write that rules have not evaluated has been waiting",
            lag.as_secs_f64(),
        ),
        MetricFamily::gauge(
            "millrace_rule_feed_position",
            "First frame of the change feed that rules have not evaluated; 0 while they follow nothing",
            position as f64,
        ),
        MetricFamily::gauge(
            "millrace_feed_end_position",
            "Frame at the end of the change feed",
            feed_end as f64,
        ),
        MetricFamily::new(
            "millrace_rule_evaluation_lag_seconds",
            "Time from writes to their evaluation by rules",
            vec![MetricSample::histogram(evaluation_lag.clone())],
        ),
        MetricFamily::gauge(
            "millrace_rule_faults",
            "Reasons why rules are not evaluated or alerts not written",
            faults as f64,
        ),
    ]
}

/// Makes the families of notifications.
pub fn notification_families(figures: &OutboxFigures) -> Vec<MetricFamily> {
    let OutboxFigures { waiting, overdue, sent, retried, given_up, ref durations } = *figures;
    let durations = durations.iter().map(|NotificationDurations { kind, outcome, durations }| {
        MetricSample::histogram(durations.clone()).with_label("kind", *kind).with_label("outcome", *outcome)
    });
    let outcomes = [("sent", sent), ("retried", retried), ("given_up", given_up)];
    let outcomes =
        outcomes.map(|(outcome, count)| MetricSample::counter(count as f64).with_label("outcome", outcome));
    vec![
        MetricFamily::gauge(
            "millrace_notifications_waiting",
            "Notifications that are due and not sent",
            waiting as f64,
        ),
        MetricFamily::gauge(
            "millrace_notifications_overdue_seconds",
            "Time for which the oldest notification that waits has been due",
            overdue.as_secs_f64(),
        ),
        MetricFamily::new(
            "millrace_notifications",
            "Attempts to send notifications by outcome",
            outcomes.into(),
        ),
        MetricFamily::new(
            "millrace_notification_seconds",
            "Time from when notifications are first due to the ends of attempts, by kind and outcome",
            durations.collect(),
        ),
    ]
}

/// Makes the families of snapshots.
pub fn snapshot_families(figures: &SnapshotFigures) -> Vec<MetricFamily> {
    let SnapshotFigures { running, snapshots, restores, uploaded_bytes, last_success_ms } = *figures;
    let samples = |OutcomeCounts { success, partial, failure }| {
        let outcomes = [("success", success), ("partial", partial), ("failure", failure)];
        let sample = |(outcome, count)| MetricSample::counter(count as f64).with_label("outcome", outcome);
        Vec::from(outcomes.map(sample))
    };
    let last_success = last_success_ms.map(|ended_ms| {
        MetricFamily::gauge(
            "millrace_snapshot_last_success_timestamp_seconds",
            "End of the last whole snapshot since the start, in seconds since the epoch",
            ended_ms as f64 / 1e3,
        )
    });
    let families = [
        MetricFamily::gauge(
            "millrace_snapshots_running",
            "Snapshots that are being made, or wait for another one",
            running as f64,
        ),
        MetricFamily::new("millrace_snapshots", "Creations of snapshots by outcome", samples(snapshots)),
        MetricFamily::new("millrace_restores", "Restores of snapshots by outcome", samples(restores)),
        MetricFamily::counter(
            "millrace_snapshot_uploaded_bytes",
            "Bytes that snapshots have written to repositories",
            uploaded_bytes as f64,
        ),
    ];
    families.into_iter().chain(last_success).collect()
}

/// Makes the family of a certificate's end.
pub fn certificate_family(not_after_ms: i64) -> MetricFamily {
    MetricFamily::gauge(
        "millrace_certificate_not_after_timestamp_seconds",
        "End of the certificate of the listeners, in seconds since the epoch",
        not_after_ms as f64 / 1e3,
    )
}

/// Makes the families of pipelines.
pub fn pipeline_families(pipelines: &[Status], durations: &mut PluginDurations) -> Vec<MetricFamily> {
    let durations = durations.read(pipelines);
    let pipelines = &pipelines[..pipelines.len().min(MAX_PIPELINES)];
    let of_each = |samples: &dyn Fn(&Status) -> Vec<MetricSample>| -> Vec<MetricSample> {
        let with_name = |status: &Status| {
            let samples = samples(status).into_iter();
            samples.map(|sample| sample.with_label("pipeline", status.id.as_str())).collect::<Vec<_>>()
        };
        pipelines.iter().flat_map(with_name).collect()
    };
    let mut families = vec![
        MetricFamily::new(
            "millrace_pipeline_state",
            "State of a pipeline: 1 for the state that it has",
            of_each(&|status| vec![MetricSample::gauge(1.0).with_label("state", status.state.name())]),
        ),
        MetricFamily::new(
            "millrace_pipeline_events",
            "Events of a pipeline by stage",
            of_each(&|status| {
                let figures = &status.figures;
                let stages =
                    [("in", figures.events_in), ("filtered", figures.filtered), ("out", figures.events_out)];
                let stages = stages
                    .map(|(stage, count)| MetricSample::counter(count as f64).with_label("stage", stage));
                stages.into()
            }),
        ),
        MetricFamily::new(
            "millrace_pipeline_dead_letters",
            "Events of a pipeline that became dead letters, and failed starts of inputs",
            of_each(&|status| vec![MetricSample::counter(status.figures.failures as f64)]),
        ),
        MetricFamily::new(
            "millrace_pipeline_busy_seconds",
            "Time that workers of a pipeline spent on events",
            of_each(&|status| vec![MetricSample::counter(status.figures.duration.as_secs_f64())]),
        ),
        MetricFamily::new(
            "millrace_pipeline_queue_wait_seconds",
            "Time that inputs of a pipeline waited for its queue",
            of_each(&|status| vec![MetricSample::counter(status.figures.waited.as_secs_f64())]),
        ),
        MetricFamily::new(
            "millrace_pipeline_queued_events",
            "Events of a pipeline that wait for a worker",
            of_each(&|status| vec![MetricSample::gauge(status.queued as f64)]),
        ),
    ];
    for (name, help, is_limit) in [
        ("millrace_pipeline_queue_bytes", "Bytes of a pipeline's queue on disk", false),
        ("millrace_pipeline_queue_limit_bytes", "Bound on the bytes of a pipeline's queue on disk", true),
    ] {
        let samples = of_each(&|status| {
            let bytes = status.on_disk.map(|(bytes, limit)| if is_limit { limit } else { bytes });
            bytes.map(|bytes| MetricSample::gauge(bytes as f64)).into_iter().collect()
        });
        families.push(MetricFamily::new(name, help, samples));
    }
    families.extend(plugin_families(pipelines));
    families.push(durations);
    families
}

/// The figures of one plugin that have families.
#[derive(Debug, Default)]
struct PluginSums {
    events: u64,
    busy: Duration,
    failures: u64,
}

fn plugin_families(pipelines: &[Status]) -> [MetricFamily; 3] {
    let kinds = ["input", "filter", "output"];
    let plugins = pipelines.iter().flat_map(|status| {
        let of_kind = kinds.into_iter().zip(&status.plugins);
        of_kind.flat_map(move |(kind, plugins)| {
            plugins.iter().map(move |plugin| (status.id.as_str(), kind, plugin))
        })
    });
    let mut samples: [Vec<MetricSample>; 3] = Default::default();
    let mut add = |[pipeline, kind, name, id]: [&str; 4], sums: &PluginSums| {
        let values = [sums.events as f64, sums.busy.as_secs_f64(), sums.failures as f64];
        for (samples, value) in samples.iter_mut().zip(values) {
            samples.push(
                MetricSample::counter(value)
                    .with_label("pipeline", pipeline)
                    .with_label("kind", kind)
                    .with_label("plugin", name)
                    .with_label("id", id),
            );
        }
    };
    let mut rest = PluginSums::default();
    let mut is_beyond = false;
    for (number, (pipeline, kind, PluginFigures { id, name, figures, .. })) in plugins.enumerate() {
        let sums =
            PluginSums { events: figures.events_out, busy: figures.duration, failures: figures.failures };
        if number < MAX_PLUGINS {
            add([pipeline, kind, name, id], &sums);
            continue;
        }
        is_beyond = true;
        rest.events += sums.events;
        rest.busy += sums.busy;
        rest.failures += sums.failures;
    }
    if is_beyond {
        add([OTHER; 4], &rest);
    }
    let [events, busy, failures] = samples;
    [
        MetricFamily::new("millrace_pipeline_plugin_events", "Events that went out of a plugin", events),
        MetricFamily::new("millrace_pipeline_plugin_seconds", "Time that a plugin spent on events", busy),
        MetricFamily::new("millrace_pipeline_plugin_failures", "Events that failed in a plugin", failures),
    ]
}
