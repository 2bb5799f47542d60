//! `_prometheus/metrics`: its formats, its figures, its bounds, and its documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use millrace_agents::{Agents, AgentsConfig};
use millrace_alerting::RuleFigures;
use millrace_api::metrics::{
    PluginDurations, certificate_family, notification_families, pipeline_families, rule_families,
    snapshot_families,
};
use millrace_data_api::left_out_families;
use millrace_notifications::{NotificationDurations, OutboxFigures};
use millrace_pipelines::Settings;
use millrace_pipelines::manager::{PluginFigures, State, Status};
use millrace_runtime::metrics::{MetricFamily, MetricSample, MetricSource};
use millrace_snapshot::SnapshotFigures;
use serde_json::json;

use crate::security::basic;
use crate::support::Node;

const PAGE: &str = "GET /_prometheus/metrics";
/// Names of the page's own index labels for the sum of indices beyond the bound.
const OTHER: &str = "_other";

/// A family of a page.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// Samples by their labels.
    samples: BTreeMap<String, f64>,
}

/// Reads a page in the text format, and refuses what Prometheus would refuse.
fn parse(page: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!families.contains_key(name), "{name} is there twice");
            families.entry(name.to_owned()).or_default().help = help.to_owned();
            name.clone_into(&mut current);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            kind.clone_into(&mut families.get_mut(name).unwrap().kind);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').map_or((series, ""), |(name, labels)| (name, labels));
            let family = families.get_mut(&current).unwrap();
            let suffixes: &[&str] =
                if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.iter().any(|suffix| name == format!("{current}{suffix}")), "{line}");
            let value: f64 = value.parse().unwrap();
            assert!(value.is_finite(), "{line}");
            let labels = format!("{}{{{labels}", name.strip_prefix(current.as_str()).unwrap());
            assert!(family.samples.insert(labels, value).is_none(), "{line} is there twice");
        }
    }
    families
}

/// Returns the only sample of a family.
fn single(families: &BTreeMap<String, Family>, name: &str) -> f64 {
    let samples = &families.get(name).unwrap_or_else(|| panic!("{name} is missing")).samples;
    assert_eq!(samples.len(), 1, "{name}: {samples:?}");
    *samples.values().next().unwrap()
}

async fn page(node: &Node) -> String {
    let answer = node.send(PAGE, &[], "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().to_owned()
}

#[tokio::test]
async fn a_page_has_the_figures_of_the_node_statistics() {
    let node = Node::insecure().await;
    for id in 0..5 {
        node.ask(&format!("PUT /logs/_doc/{id}?refresh=true"), "{\"a\":1}", 201).await;
    }
    node.ask("DELETE /logs/_doc/4?refresh=true", "", 200).await;
    node.ask("GET /logs/_search", "", 200).await;
    node.ask("GET /nope/_search", "", 404).await;
    node.ask("POST /_plugins/_sql", &json!({"query": "SELECT * FROM logs"}).to_string(), 200).await;
    node.ask("POST /_sql", &json!({"query": "SELECT * FROM logs"}).to_string(), 200).await;
    node.ask("POST /_plugins/_ppl", &json!({"query": "source=logs"}).to_string(), 200).await;
    let families = parse(&page(&node).await);
    let stats = node.ask("GET /_nodes/stats/indices", "", 200).await;
    let (_, stats) = stats["nodes"].as_object().unwrap().iter().next().unwrap();
    let stats = &stats["indices"];
    for (family, pointer) in [
        ("opensearch_indices_doc_number", "/docs/count"),
        ("opensearch_indices_store_size_bytes", "/store/size_in_bytes"),
        ("opensearch_indices_indexing_index_count", "/indexing/index_total"),
        ("opensearch_indices_indexing_delete_count", "/indexing/delete_total"),
        ("opensearch_indices_search_query_count", "/search/query_total"),
        ("opensearch_indices_search_fetch_count", "/search/fetch_total"),
        ("opensearch_indices_refresh_total_count", "/refresh/total"),
        ("opensearch_indices_segments_number", "/segments/count"),
    ] {
        let expected = stats.pointer(pointer).and_then(|value| value.as_f64()).unwrap();
        assert_eq!(single(&families, family), expected, "{family}");
    }
    let pools = node.ask("GET /_nodes/stats/thread_pool", "", 200).await;
    let (_, pools) = pools["nodes"].as_object().unwrap().iter().next().unwrap();
    for pool in ["search", "write", "bulk", "flush"] {
        let threads = &families["opensearch_threadpool_threads_number"].samples;
        let of_pool = threads.iter().find(|(labels, _)| {
            labels.contains(&format!("name=\"{pool}\"")) && labels.contains("type=\"threads\"")
        });
        assert_eq!(
            pools["thread_pool"][pool]["threads"].as_f64().as_ref(),
            of_pool.map(|(_, threads)| threads),
            "{pool}"
        );
    }
    assert_eq!(single(&families, "opensearch_indices_doc_number"), 4.0);
    assert_eq!(single(&families, "opensearch_cluster_status"), 0.0);
    let index = &families["opensearch_index_doc_number"].samples;
    assert_eq!(index["{cluster=\"millrace\",index=\"logs\",context=\"primaries\"}"], 4.0);
    let requests = &families["millrace_request_seconds"].samples;
    let counted = |status: &str| {
        requests[&format!("_count{{listener=\"data\",route=\"/{{index}}/_search\",status=\"{status}\"}}")]
    };
    assert_eq!((counted("2xx"), counted("4xx")), (1.0, 1.0));
    assert_eq!(families["millrace_statement_seconds"].samples["_count{"], 3.0, "each language counts once");
    for histogram in ["millrace_write_seconds", "millrace_log_sync_seconds"] {
        assert!(families[histogram].samples["_count{"] > 0.0, "{histogram}");
    }
}

#[tokio::test]
async fn a_page_has_the_format_that_its_reader_accepts() {
    let node = Node::insecure().await;
    let answer = node.send(PAGE, &[], "").await;
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert!(!answer.text().contains("# EOF") && answer.text().contains("millrace_tasks_started_total 1\n"));
    let accept = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let answer = node.send(PAGE, &accept, "").await;
    assert_eq!(answer.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(answer.text().ends_with("# EOF\n"));
    for hostile in ["application/openmetrics-text;q=NaN", "*/*;q=1e999", ";q=0,,;", &"a/b,".repeat(2_000)] {
        assert_eq!(node.send(PAGE, &[("accept", hostile)], "").await.status, 200, "{hostile:.50}");
    }
    assert_eq!(node.send("POST /_prometheus/metrics", &[], "").await.status, 405);
    assert_eq!(node.send("GET /_prometheus/metrics?index=a", &[], "").await.status, 400);
    assert_eq!(node.send("GET /_prometheus/metrics/x", &[], "").await.status, 400);
}

#[tokio::test]
async fn only_the_largest_indices_have_families_of_their_own() {
    let node = Node::insecure().await;
    for number in 0..103 {
        node.ask(&format!("PUT /small-{number}"), "", 200).await;
    }
    node.ask("PUT /large/_doc/1?refresh=true", "{}", 201).await;
    let page = page(&node).await;
    // Further indices add nothing: the page of ten thousand has as many samples as this one.
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let families = parse(&page);
    let of = |labels: &str| labels.split("index=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let names: BTreeSet<String> =
        families["opensearch_index_status"].samples.keys().map(|key| of(key)).collect();
    assert_eq!(names.len(), 101);
    assert!(names.contains("large") && names.contains(OTHER));
    assert_eq!(single(&families, "millrace_indices"), 104.0);
    let docs: f64 = families["opensearch_index_doc_number"].samples.values().sum();
    assert_eq!(docs, 2.0, "an index has two contexts");
}

#[tokio::test]
async fn sums_of_the_node_count_indices_that_the_scraper_does_not_see() {
    let node = Node::secured().await;
    let admin = [("authorization", basic("admin", "secret"))];
    let admin: Vec<_> = admin.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for (line, body, status) in [
        ("PUT /logs/_doc/1?refresh=true", json!({"a": 1}), 201),
        ("PUT /_security/role/scraper", json!({"cluster": ["cluster:monitor/prometheus/metrics"]}), 200),
        ("PUT /_security/user/prom", json!({"password": "prom-password", "roles": ["scraper"]}), 200),
    ] {
        let answer = node.send(line, &admin, body.to_string()).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
    }
    let scraper = basic("prom", "prom-password");
    let answer = node.send(PAGE, &[("authorization", &scraper)], "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let families = parse(answer.text());
    assert!(single(&families, "opensearch_indices_doc_number") >= 1.0);
    assert!(single(&families, "millrace_indices") >= 1.0);
    assert!(!answer.text().contains("index=\"logs\""));
}

#[tokio::test]
async fn a_request_whose_client_goes_away_is_counted() {
    let node = Node::insecure().await;
    let mut request = Box::pin(node.send("GET /_tasks?detailed", &[], ""));
    assert!(futures::poll!(&mut request).is_pending());
    drop(request);
    let families = parse(&page(&node).await);
    let requests = &families["millrace_request_seconds"].samples;
    let gone = |key: &&String| key.starts_with("_count{") && key.contains("status=\"4xx\"");
    assert_eq!(requests.keys().filter(gone).map(|key| requests[key]).sum::<f64>(), 1.0);
}

/// Between these is what the page has, and what it has not.
const MARKERS: [(&str, &str); 2] =
    [("<!-- families -->\n", "<!-- /families -->"), ("<!-- left out -->\n", "<!-- /left out -->")];

/// A part of a server, for its families alone.
#[derive(Debug)]
struct SampleParts;

impl MetricSource for SampleParts {
    fn families(&self) -> Vec<MetricFamily> {
        let plugin = |name: &str| {
            vec![PluginFigures {
                id: "id".into(),
                name: name.into(),
                figures: Default::default(),
                batch_durations: Default::default(),
            }]
        };
        let pipeline = Status {
            id: "main".to_owned(),
            state: State::Active,
            warning: None,
            hash: String::new(),
            ephemeral_id: Default::default(),
            settings: Settings::default(),
            addresses: Vec::new(),
            reloads: Default::default(),
            figures: Default::default(),
            queued: 0,
            on_disk: Some((0, 1)),
            plugins: [plugin("http"), plugin("grok"), plugin("elasticsearch")],
        };
        let mut families = rule_families(&RuleFigures::default(), 0);
        let durations =
            NotificationDurations { kind: "alert", outcome: "sent", durations: Default::default() };
        let outbox = OutboxFigures { durations: vec![durations], ..OutboxFigures::default() };
        families.extend(notification_families(&outbox));
        let snapshots = SnapshotFigures { last_success_ms: Some(1), ..SnapshotFigures::default() };
        families.extend(snapshot_families(&snapshots));
        families.push(certificate_family(0));
        families.extend(pipeline_families(&[pipeline], &mut PluginDurations::default()));
        families
    }
}

/// A part that fails in every way.
#[derive(Debug)]
struct PoisonedPart(u8);

impl MetricSource for PoisonedPart {
    fn families(&self) -> Vec<MetricFamily> {
        match self.0 {
            0 => panic!("a defect of the part"),
            1 => vec![
                MetricFamily::gauge("millrace_sound", "A figure", 1.0),
                MetricFamily::gauge("millrace_poisoned", "No figure", f64::NAN),
                MetricFamily::counter("millrace_endless", "No figure", f64::INFINITY),
            ],
            _ => {
                let samples = vec![MetricSample::gauge(2.0), MetricSample::counter(3.0)];
                vec![
                    MetricFamily::gauge("millrace_sound", "The same name again", 2.0),
                    MetricFamily::new("millrace_mixed", "Two kinds", samples),
                ]
            }
        }
    }
}

#[tokio::test]
async fn a_poisoned_figure_is_left_out_and_counted() {
    let node = Node::insecure().await;
    let errors = |families: &BTreeMap<String, Family>| single(families, "millrace_metrics_errors_total");
    let before = errors(&parse(&page(&node).await));
    for kind in 0..3 {
        node.api.metrics().add(std::sync::Arc::new(PoisonedPart(kind)));
    }
    let families = parse(&page(&node).await);
    assert_eq!(single(&families, "millrace_sound"), 1.0);
    assert_eq!(single(&families, "millrace_mixed"), 2.0);
    assert!(!families.contains_key("millrace_poisoned") && !families.contains_key("millrace_endless_total"));
    assert_eq!(errors(&families), before + 5.0);
}

#[tokio::test]
async fn families_are_documented() {
    let node = Node::insecure().await;
    node.api.metrics().add(std::sync::Arc::new(SampleParts));
    let agents = Agents::start(&node.api.engine, AgentsConfig::default()).await.unwrap();
    node.api.metrics().add(std::sync::Arc::new(agents));
    node.ask("PUT /logs/_doc/1", "{}", 201).await;
    let families = parse(&page(&node).await);
    let mut served = "| family | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, Family { help, kind, samples }) in &families {
        let sample = samples.keys().next().unwrap_or_else(|| panic!("{name} has no sample"));
        let labels = sample.split_once('{').map_or("", |(_, labels)| labels);
        let labels = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(label, _)| label);
        let labels: Vec<String> =
            labels.filter(|label| *label != "le").map(|label| format!("`{label}`")).collect();
        // Machines without a load have no family for it.
        if !name.starts_with("opensearch_os_load_") {
            let _ = writeln!(served, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        }
    }
    let mut left_out = "| family | reason |\n|---|---|\n".to_owned();
    for (name, reason) in left_out_families() {
        assert!(!families.contains_key(*name), "{name} is served");
        let _ = writeln!(left_out, "| `{name}` | {reason} |");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let mut text = std::fs::read_to_string(&file).unwrap();
    for ((begin, end), table) in MARKERS.into_iter().zip([served, left_out]) {
        let (before, rest) = text.split_once(begin).expect("docs/metrics.md has a place for it");
        let (written, after) = rest.split_once(end).expect("the place ends");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            text = format!("{before}{begin}{table}{end}{after}");
        } else {
            assert_eq!(written, table, "docs/metrics.md is old: run the test with UPDATE_DOCS=1");
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
}
