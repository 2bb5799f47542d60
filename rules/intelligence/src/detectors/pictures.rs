//! Pictures of detectors: buckets with the expected band, scores over time, clusters, counts of templates, forecasts with bounds.
//!
//! Values come from the results of the detector: a picture shows what was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_anomaly::RowModel;
use millrace_engine::Session;
use millrace_plot::{Band, EventMarker, Level, LineStyle, Plot, ScatterPlot, ScatterPoint, Series};
use millrace_runtime::Priority;
use serde_json::{Value, json};

use super::algorithm::ModelType;
use super::definition::DetectorDefinition;
use super::model::{DetectorModel, ModelSnapshot};
use super::stored::StoredDetector;
use super::{place_of, results, training};
use crate::error::{Error, Result};
use crate::{IntelligenceContext, results as predictions};

/// Results of a picture: the latest.
const MAX_RESULTS: usize = 2_000;
/// Templates of a picture: the most frequent.
const MAX_TEMPLATES: usize = 6;
/// Buckets of counts of templates.
const TEMPLATE_BUCKETS: usize = 60;
/// Characters of a template in the legend.
const MAX_LEGEND: usize = 60;

/// Draws a detector, as SVG; one value where it is multiplied.
///
/// # Errors
/// [`Error::Invalid`] for another value; [`Error::Run`] where there is nothing to be drawn yet.
pub(crate) async fn draw(
    shared: &IntelligenceContext,
    kept: &StoredDetector,
    value: Option<&str>,
) -> Result<String> {
    let definition = kept.serving.as_ref().unwrap_or(&kept.definition);
    let place = place_of(definition, value)?;
    let value = definition.values().get(place).copied().flatten().map(str::to_owned);
    let picture = Picture { shared, kept, definition, place, value };
    match definition.model_type {
        ModelType::Univariate => picture.buckets().await,
        ModelType::Multivariate => picture.scores().await,
        ModelType::Clustering => picture.clusters().await,
        ModelType::Text => picture.templates().await,
        ModelType::Forecasting => picture.forecast().await,
    }
}

struct Picture<'a> {
    shared: &'a IntelligenceContext,
    kept: &'a StoredDetector,
    definition: &'a DetectorDefinition,
    place: usize,
    value: Option<String>,
}

/// A result as a picture shows it.
struct DrawnResult {
    time_ms: i64,
    source: Value,
}

impl DrawnResult {
    fn number(&self, name: &str) -> Option<f64> {
        self.source["ai"].get(name)?.as_f64()
    }

    fn is_anomalous(&self) -> bool {
        self.source["ai"]["anomaly_flag"] == true
    }
}

impl Picture<'_> {
    fn title(&self, what: &str) -> String {
        let of = self.value.as_ref().map_or_else(String::new, |value| format!(" [{value}]"));
        format!("{}{of}: {what}, {}", self.definition.name, self.definition.algorithm.name())
    }

    fn filter(&self, rule: &str) -> Vec<Value> {
        let mut filter = vec![json!({"term": {rule: self.kept.id}})];
        filter.extend(self.value.as_ref().map(|value| json!({"term": {"multiply_by_value": value}})));
        filter
    }

    async fn search(&self, index: &str, body: Value) -> Result<Value> {
        let own = Session::system(&self.shared.engine);
        Ok(self.shared.asked.read(&own, index, body, Priority::Foreground).await?)
    }

    /// Reads the latest results, in the order of their times.
    async fn results(&self, members: &[&str]) -> Result<Vec<DrawnResult>> {
        let members: Vec<String> = members.iter().map(|member| format!("ai.{member}")).collect();
        let body = json!({
            "size": MAX_RESULTS,
            "track_total_hits": false,
            "_source": members,
            "query": {"bool": {"filter": self.filter("ai.rule_uid")}},
            "sort": [{"@timestamp": "desc"}],
        });
        let answer = self.search(&results::index_pattern(self.definition), body).await?;
        let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut drawn: Vec<DrawnResult> = hits
            .iter()
            .filter_map(|hit| {
                Some(DrawnResult { time_ms: hit["sort"][0].as_i64()?, source: hit["_source"].clone() })
            })
            .collect();
        drawn.reverse();
        match drawn.is_empty() {
            true => Err(Error::Run("the rule has no results yet: run it first".to_owned())),
            false => Ok(drawn),
        }
    }

    fn plot(&self, plot: Plot) -> Result<String> {
        plot.svg().map_err(|error| Error::Run(error.to_string()))
    }

    async fn buckets(&self) -> Result<String> {
        let field = self.definition.field();
        let drawn =
            self.results(&["anomaly_flag", "anomaly_score", "expected", "lower", "upper", field]).await?;
        let at = |source: &Value| super::features::value(&source["ai"], field)?.as_f64();
        let measured = drawn.iter().map(|one| (one.time_ms, at(&one.source))).collect();
        let expected = drawn.iter().map(|one| (one.time_ms, one.number("expected"))).collect();
        let band =
            drawn.iter().filter_map(|one| Some((one.time_ms, one.number("lower")?, one.number("upper")?)));
        self.plot(Plot {
            title: self.title(&format!("{} of {field}", self.definition.value_type.name())),
            values: field.to_owned(),
            series: vec![
                Series { name: "measured".to_owned(), look: LineStyle::Measured, points: measured },
                Series { name: "expected".to_owned(), look: LineStyle::Predicted, points: expected },
            ],
            bands: vec![Band { name: "95 % of what is expected".to_owned(), points: band.collect() }],
            levels: Vec::new(),
            marks: marks(&drawn),
            marks_name: "anomalies".to_owned(),
        })
    }

    async fn scores(&self) -> Result<String> {
        let drawn = self.results(&["anomaly_flag", "anomaly_score"]).await?;
        let scores = drawn.iter().map(|one| (one.time_ms, one.number("anomaly_score"))).collect();
        let level = self.definition.threshold.unwrap_or(1.0 - self.definition.contamination);
        self.plot(Plot {
            title: self.title(&format!("scores of {}", self.definition.fields.join(", "))),
            values: "anomaly score".to_owned(),
            series: vec![Series { name: "score".to_owned(), look: LineStyle::Measured, points: scores }],
            levels: vec![Level { name: "anomalous above".to_owned(), value: level }],
            marks: marks(&drawn),
            marks_name: "anomalies".to_owned(),
            ..Plot::default()
        })
    }

    /// Reads the model of rows of the value.
    async fn model(&self) -> Result<Arc<RowModel>> {
        let name = training::model_name(self.kept.state.build, self.place);
        let bytes = self.shared.artefacts.read_bytes(&self.kept.id, &name).await;
        let bytes = bytes.ok_or_else(|| Error::Run("the rule has no model yet: run it first".to_owned()))?;
        let decode = move || Ok(ModelSnapshot::decode(&bytes));
        let snapshot = self.shared.engine.compute().run(Priority::Foreground, decode).await?;
        match snapshot.map(|snapshot| snapshot.model) {
            Ok(DetectorModel::Rows(model)) => Ok(model),
            Ok(_) => Err(Error::Run("the model of the rule is of another type: run it anew".to_owned())),
            Err(reason) => {
                Err(Error::Run(format!("the model of the rule cannot be read, run it anew: {reason}")))
            }
        }
    }

    async fn clusters(&self) -> Result<String> {
        let model = self.model().await?;
        let projection = model.projection();
        let level = self.definition.threshold.unwrap_or(1.0 - self.definition.contamination);
        let trained = projection.points.iter().map(|point| ScatterPoint {
            x: point.x,
            y: point.y,
            group: point.cluster,
            is_marked: point.rank > level,
        });
        let share = |at: usize| {
            format!("component {} ({:.0} % of variance)", at + 1, 100.0 * projection.explained[at])
        };
        let plot = ScatterPlot {
            title: self.title(&format!("clusters of {}", self.definition.fields.join(", "))),
            x: share(0),
            y: share(1),
            points: trained.collect(),
            marks_name: "anomalies".to_owned(),
        };
        plot.svg().map_err(|error| Error::Run(error.to_string()))
    }

    async fn templates(&self) -> Result<String> {
        let filter = self.filter("ai.rule_uid");
        let body = json!({
            "size": 0,
            "track_total_hits": false,
            "query": {"bool": {"filter": filter}},
            "aggs": {"templates": {
                "terms": {"field": "ai.template.keyword", "size": MAX_TEMPLATES},
                "aggs": {"times": {"auto_date_histogram": {"field": "@timestamp", "buckets": TEMPLATE_BUCKETS}}},
            }},
        });
        let answer = self.search(&results::index_pattern(self.definition), body).await?;
        let drawn = self.results(&["anomaly_flag", "anomaly_score"]).await?;
        let buckets = |of: &Value| of["buckets"].as_array().cloned().unwrap_or_default();
        let series = buckets(&answer["aggregations"]["templates"]).into_iter().map(|template| {
            let points: BTreeMap<i64, Option<f64>> = buckets(&template["times"])
                .iter()
                .filter_map(|bucket| Some((bucket["key"].as_i64()?, bucket["doc_count"].as_f64())))
                .collect();
            let name = template["key"].as_str().unwrap_or_default().chars().take(MAX_LEGEND).collect();
            Series { name, look: LineStyle::Measured, points: points.into_iter().collect() }
        });
        self.plot(Plot {
            title: self.title(&format!("templates of {}", self.definition.field())),
            values: "lines".to_owned(),
            series: series.collect(),
            marks: marks(&drawn),
            marks_name: "anomalies".to_owned(),
            ..Plot::default()
        })
    }

    async fn forecast(&self) -> Result<String> {
        let field = self.definition.field();
        let body = json!({
            "size": MAX_RESULTS,
            "track_total_hits": false,
            "query": {"bool": {"filter": self.filter("model_uid")}},
            "sort": [{"start_date": "desc"}, {"@timestamp": "desc"}],
        });
        let answer = self.search(predictions::INDEX, body).await?;
        let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Of each time the latest forecast counts.
        let mut by_time: BTreeMap<i64, &Value> = BTreeMap::new();
        for hit in hits {
            if let Some(time_ms) = hit["sort"][1].as_i64() {
                by_time.entry(time_ms).or_insert(&hit["_source"]);
            }
        }
        if by_time.is_empty() {
            return Err(Error::Run("the rule has no forecasts yet: run it first".to_owned()));
        }
        let line = |ending: &str| {
            by_time
                .iter()
                .map(|(time, source)| (*time, predictions::take(source, field, ending)))
                .collect::<Vec<_>>()
        };
        let band = by_time.iter().filter_map(|(time, source)| {
            let bound = |ending| predictions::take(source, field, ending);
            Some((*time, bound("lower")?, bound("upper")?))
        });
        self.plot(Plot {
            title: self.title(&format!("{} of {field}", self.definition.value_type.name())),
            values: field.to_owned(),
            series: vec![
                Series { name: "measured".to_owned(), look: LineStyle::Measured, points: line("cur") },
                Series { name: "forecast".to_owned(), look: LineStyle::Predicted, points: line("pre") },
            ],
            bands: vec![Band { name: "95 % of what may come".to_owned(), points: band.collect() }],
            ..Plot::default()
        })
    }
}

fn marks(drawn: &[DrawnResult]) -> Vec<EventMarker> {
    let odd = drawn.iter().filter(|one| one.is_anomalous());
    odd.map(|one| EventMarker {
        time: one.time_ms,
        text: format!("score {:.3}", one.number("anomaly_score").unwrap_or_default()),
    })
    .collect()
}
