//! The events of an alert rule as a picture: how many matched in each bucket of its timeframe, the threshold, and the alerts.
//!
//! An id is that of an alert, around which is drawn, or that of a rule, whose last buckets are. What is seen is what the caller may search:
//! events of the rule's indices, and alerts.

use std::collections::BTreeMap;

use millrace_catalog::access::Action;
use millrace_engine::Session;
use millrace_plot::{EventMarker, Level, LineStyle, Plot, Series};
use millrace_rules::Time;
use millrace_rules::definition::{Definition, RuleType};
use millrace_runtime::{Error as StorageError, Priority};
use serde_json::{Value, json};

use super::error::from_alerting;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::{Api, Console};

/// The index of alerts.
const ALERTS: &str = "alert";
/// Buckets before an alert, and behind it.
const BEFORE: i64 = 36;
const BEHIND: i64 = 12;
/// Alerts that are drawn.
const MAX_ALERTS: usize = 200;
/// Shortest bucket.
const LEAST_MS: i64 = 1_000;

/// Draws an alert or a rule.
pub(crate) async fn plot(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let searching = api.session.doing(Action::Search)?;
    let now_ms = api.session.clock().now_ms();
    let alert = alert(api, id).await?;
    let rule_id = alert.as_ref().map_or(id, |alert| alert["rule_id"].as_str().unwrap_or_default());
    let rule = match console.alerting()?.rule(api.session.principal(), rule_id) {
        Err(millrace_alerting::Error::NotFound(_)) => {
            return Err(Error::resource_not_found(format!("no such alert or rule [{id}]")));
        }
        rule => rule.map_err(from_alerting)?.definition,
    };
    let frame = rule.timeframe().ms().max(LEAST_MS);
    let at = alert.as_ref().and_then(|alert| Time::read(&alert["@timestamp"])).map(Time::ms);
    let middle = at.unwrap_or(now_ms - BEHIND * frame).div_euclid(frame) * frame;
    let (from, to) = (middle - BEFORE * frame, middle + (BEHIND + 1) * frame);
    let counts = counts(api, &searching, &rule, (from, to), frame).await?;
    let marks = marks(api, &searching, rule_id, (from, to)).await?;
    let until = now_ms.div_euclid(frame) * frame;
    let buckets = (0..(to - from) / frame).map(|place| from + place * frame).filter(|time| *time <= until);
    let counted = |time: i64| counts.get(&time).copied().unwrap_or(0.0);
    // What happened within the last bucket is in the picture, too.
    let end = to.min(until + frame);
    let mut plot = Plot {
        title: format!("{}: matching events in each {}", rule.name, format_duration(frame)),
        values: "events".to_owned(),
        series: vec![Series {
            name: "events".to_owned(),
            look: LineStyle::Measured,
            points: buckets.map(|time| (time, Some(counted(time)))).chain([(end, None)]).collect(),
        }],
        marks,
        marks_name: "alerts".to_owned(),
        ..Plot::default()
    };
    plot.levels.extend(match &rule.rule_type {
        RuleType::Frequency { num_events, .. } => {
            Some(Level { name: format!("num_events {num_events}"), value: *num_events as f64 })
        }
        RuleType::Flatline { threshold, .. } => {
            Some(Level { name: format!("threshold {threshold}"), value: *threshold as f64 })
        }
        _ => None,
    });
    let svg = api.session.compute().run(Priority::Foreground, move || Ok(plot.svg())).await?;
    let svg = svg.map_err(|error| Error::concealed(500, "illegal_state_exception", &error))?;
    Ok(Response::svg(svg))
}

/// Reads an alert; `None` where there is none that the caller may read.
async fn alert(api: &Api, id: &str) -> Result<Option<Value>, Error> {
    let getting = match api.session.doing(Action::Get) {
        Err(StorageError::Unauthorized { .. }) => return Ok(None),
        getting => getting?,
    };
    let found = match getting.get(ALERTS, id, None, true).await {
        Err(StorageError::IndexNotFound { .. } | StorageError::Unauthorized { .. }) => return Ok(None),
        found => found?,
    };
    let read = |source: &[u8]| serde_json::from_slice(source);
    let alert = found.map(|stored| read(&stored.source)).transpose();
    alert.map_err(|error| Error::concealed(500, "illegal_state_exception", &error))
}

/// Counts matching events, by the starts of their buckets.
async fn counts(
    api: &Api,
    session: &Session,
    rule: &Definition,
    (from, to): (i64, i64),
    frame: i64,
) -> Result<BTreeMap<i64, f64>, Error> {
    let time = &rule.timestamp_field;
    let mut filter = vec![json!({"range": {time: {"gte": from, "lt": to, "format": "epoch_millis"}}})];
    filter.extend(rule.query().cloned());
    let histogram = json!({"field": time, "fixed_interval": format!("{frame}ms"), "min_doc_count": 1});
    let body = json!({
        "size": 0,
        "track_total_hits": false,
        "query": {"bool": {"filter": filter}},
        "aggs": {"events": {"date_histogram": histogram}},
    });
    let expression = rule.index.join(",");
    let answer: Value = api.search.read(session, &expression, body, Priority::Foreground).await?;
    let buckets =
        answer["aggregations"]["events"]["buckets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let count = |bucket: &Value| Some((bucket["key"].as_i64()?, bucket["doc_count"].as_f64()?));
    Ok(buckets.iter().filter_map(count).collect())
}

/// Lists the alerts of a rule.
async fn marks(
    api: &Api,
    session: &Session,
    rule: &str,
    (from, to): (i64, i64),
) -> Result<Vec<EventMarker>, Error> {
    let within = json!({"range": {"@timestamp": {"gte": from, "lt": to, "format": "epoch_millis"}}});
    let body = json!({
        "size": MAX_ALERTS,
        "_source": ["@timestamp", "key", "rule_name"],
        "query": {"bool": {"filter": [{"term": {"rule_id": rule}}, within]}},
        "sort": [{"@timestamp": "asc"}],
    });
    let answer = api.search.read::<Value>(session, ALERTS, body, Priority::Foreground).await;
    let answer = match answer.map_err(Error::from) {
        // Who may not read alerts sees none.
        Err(error) if error.status() == 403 => return Ok(Vec::new()),
        answer => answer?,
    };
    let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mark = |hit: &Value| {
        let source = &hit["_source"];
        let text = source["key"].as_str().or(source["rule_name"].as_str()).unwrap_or_default().to_owned();
        Some(EventMarker { time: Time::read(&source["@timestamp"])?.ms(), text })
    };
    Ok(hits.iter().filter_map(mark).collect())
}

/// A length of time in its largest whole unit.
fn format_duration(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.into_iter().find(|(unit, _)| ms % unit == 0);
    whole.map_or_else(|| format!("{ms} ms"), |(unit, name)| format!("{} {name}", ms / unit))
}
