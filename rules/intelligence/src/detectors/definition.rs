//! Fields of a detector, read from requests and stored documents, and written back.
//!
//! Every field is checked by its name. Fields that runs maintain may be sent, as a client does that sends back a record.

use millrace_schedule::Schedule;
use serde_json::{Map, Value, json};

use super::algorithm::{DetectorAlgorithm, ModelType, PARAMETERS};
use super::results;
use super::window::{LEAST_BUCKETS, TrainingWindow};
use crate::definition::{self, FieldReader, MAX_FIELD_BYTES, MAX_NAME_BYTES, ValueType, excerpt, path};
use crate::error::{Error, Result};
use crate::results as predictions;
use crate::samples::SeriesQuery;
use crate::source::digest_of;
use crate::time;

/// Longest index pattern and description, in bytes.
const MAX_INDEX_BYTES: usize = 1_024;
const MAX_DESCRIPTION_BYTES: usize = 4_096;
/// Longest query, in bytes of JSON.
const MAX_QUERY_BYTES: usize = 64 << 10;
/// Fields of a model.
const MAX_FIELDS: usize = millrace_anomaly::MAX_FEATURES;
/// Share of anomalies that is expected where none is given.
const CONTAMINATION: f64 = 0.01;
/// Defaults of parameters.
const NEIGHBORS: usize = 20;
const CLUSTERS: usize = 8;
const MIN_SAMPLES: usize = 5;
const FORECAST_STEPS: usize = 24;
const MIN_DOCUMENTS: usize = 100;

/// Fields that users set.
const EDITABLE: [&str; 30] = [
    "name",
    "description",
    "index",
    "query",
    "time_field",
    "time_frame",
    "value_type",
    "model_type",
    "algorithm",
    "field",
    "fields",
    "contamination",
    "n_neighbors",
    "random_state",
    "n_clusters",
    "min_samples",
    "forecast_steps",
    "seasonality",
    "min_documents",
    "threshold",
    "automatic_cron",
    "automatic_enable",
    "automatic",
    "automatic_flag",
    "start_date",
    "multiply_by_values",
    "multiply_by_field",
    "selectedroles",
    "id",
    "_id",
];
/// Fields that runs maintain, and names of a record.
const MAINTAINED: [&str; 18] = [
    "_index",
    "_type",
    "status",
    "status_message",
    "scored_documents",
    "anomalies",
    "preparation_date",
    "path_to_machine_state",
    "processing_time",
    "last_execute_mili",
    "last_execute",
    "last_execute_timestamp",
    "pid",
    "exit_code",
    "error_description",
    "error_message",
    "model",
    "state",
];

/// Definition of a detector.
#[derive(Clone, Debug)]
pub(crate) struct DetectorDefinition {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) index: String,
    /// Beginning of the names of the indices of its results.
    pub(crate) result_prefix: String,
    /// A clause of the query DSL.
    pub(crate) query: Value,
    pub(crate) time_field: String,
    pub(crate) window: TrainingWindow,
    pub(crate) value_type: ValueType,
    pub(crate) model_type: ModelType,
    pub(crate) algorithm: DetectorAlgorithm,
    /// One field, or several for multivariate models and clusters.
    pub(crate) fields: Vec<String>,
    pub(crate) contamination: f64,
    pub(crate) threshold: Option<f64>,
    pub(crate) neighbors: usize,
    pub(crate) random_state: u64,
    pub(crate) clusters: usize,
    pub(crate) min_samples: usize,
    pub(crate) forecast_steps: usize,
    pub(crate) seasonality: Option<usize>,
    pub(crate) min_documents: usize,
    pub(crate) schedule: Schedule,
    pub(crate) enable: bool,
    pub(crate) automatic: bool,
    /// Documents from this time on are scored by the first model.
    pub(crate) start_ms: Option<i64>,
    pub(crate) multiply_by: Option<String>,
    pub(crate) values: Vec<String>,
    pub(crate) roles: Vec<String>,
    /// Parameters that were given.
    given: Vec<&'static str>,
}

impl DetectorDefinition {
    /// Reads a detector.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first field that cannot be used.
    pub(crate) fn parse(body: &Value) -> Result<Self> {
        let members = body.as_object().ok_or_else(|| Error::invalid("body", "must be an object"))?;
        let known = |name: &&String| EDITABLE.contains(&name.as_str()) || MAINTAINED.contains(&name.as_str());
        if let Some(name) = members.keys().find(|name| !known(name)) {
            return Err(Error::invalid(&excerpt(name), "is no field of an AI rule with [model_type]"));
        }
        let fields = FieldReader(members);
        let model_type = fields.text("model_type", 32)?;
        let model_type = ModelType::named(model_type).ok_or_else(|| {
            let names = ModelType::ALL.map(ModelType::name).join(", ");
            Error::invalid("model_type", format!("must be one of {names}, not [{}]", excerpt(model_type)))
        })?;
        let given: Vec<&'static str> =
            PARAMETERS.into_iter().filter(|name| fields.get(name).is_some()).collect();
        let algorithm = algorithm(&fields, model_type, &given)?;
        if let Some(name) = given.iter().find(|name| !algorithm.parameters().contains(name)) {
            let (of, used) = (algorithm.name(), algorithm.parameters().join(", "));
            let reason =
                format!("is not used by algorithm [{of}] of [{}]; it uses {used}", model_type.name());
            return Err(Error::invalid(name, reason));
        }
        let name = fields.text("name", MAX_NAME_BYTES)?;
        if name.contains(['[', ']']) {
            return Err(Error::invalid("name", "must not have brackets: they set values apart in ids"));
        }
        let window = TrainingWindow::parse(fields.text("time_frame", 32)?);
        let window = window.map_err(|reason| Error::invalid("time_frame", reason))?;
        if model_type.is_series() && window.buckets() < LEAST_BUCKETS {
            let reason = format!(
                "has {} buckets of a minute; [{}] needs {LEAST_BUCKETS}: choose a longer one",
                window.buckets(),
                model_type.name()
            );
            return Err(Error::invalid("time_frame", reason));
        }
        let value_type = fields.text("value_type", 16)?;
        let value_type = ValueType::named(value_type).ok_or_else(|| {
            let names = ValueType::names();
            Error::invalid("value_type", format!("must be one of {names}, not [{}]", excerpt(value_type)))
        })?;
        let description = fields
            .get("description")
            .map(|value| definition::text("description", value, MAX_DESCRIPTION_BYTES));
        let multiply_by = match fields.text("multiply_by_field", MAX_FIELD_BYTES)? {
            "none" => None,
            field => Some(path("multiply_by_field", field)?.to_owned()),
        };
        let values = fields.texts("multiply_by_values", true)?;
        if multiply_by.is_some() && values.is_empty() {
            let reason = "must name the values of [multiply_by_field], at least one; or set [multiply_by_field] to none";
            return Err(Error::invalid("multiply_by_values", reason));
        }
        let seasonality = optional_count(&fields, "seasonality", 2, 100_000)?;
        if let Some(period) = seasonality
            && 2 * period as i64 > window.buckets()
        {
            let (buckets, length) = (window.buckets(), window.bucket().ms() / 1_000);
            let reason = format!(
                "must fit twice into [time_frame], which has {buckets} buckets of {length} seconds, not [{period}]"
            );
            return Err(Error::invalid("seasonality", reason));
        }
        let index = index(&fields)?;
        Ok(Self {
            name: name.to_owned(),
            description: description.transpose()?.map(str::to_owned),
            result_prefix: results::index_prefix(&index, model_type),
            index,
            query: query(&fields)?,
            time_field: path("time_field", fields.text("time_field", MAX_FIELD_BYTES)?)?.to_owned(),
            window,
            value_type,
            model_type,
            algorithm,
            fields: analysed(&fields, model_type)?,
            contamination: contamination(&fields)?,
            threshold: threshold(&fields)?,
            neighbors: optional_count(&fields, "n_neighbors", 1, 1_000)?.unwrap_or(NEIGHBORS),
            random_state: random_state(&fields)?,
            clusters: optional_count(&fields, "n_clusters", 2, 100)?.unwrap_or(CLUSTERS),
            min_samples: optional_count(&fields, "min_samples", 2, 1_000)?.unwrap_or(MIN_SAMPLES),
            forecast_steps: optional_count(&fields, "forecast_steps", 1, 10_000)?.unwrap_or(FORECAST_STEPS),
            seasonality,
            min_documents: optional_count(&fields, "min_documents", 1, 100_000)?.unwrap_or(MIN_DOCUMENTS),
            schedule: definition::schedule(fields.text("automatic_cron", usize::MAX)?)?,
            enable: fields.boolean("automatic_enable")?,
            automatic: fields.automatic()?,
            start_ms: fields.start_ms()?,
            multiply_by,
            values,
            roles: fields.texts("selectedroles", false)?,
            given,
        })
    }

    /// Writes the fields as they are stored and shown.
    pub(crate) fn document(&self) -> Map<String, Value> {
        let mut document = Map::new();
        let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
        put("name", json!(self.name));
        if let Some(description) = &self.description {
            put("description", json!(description));
        }
        put("index", json!(self.index));
        put("query", self.query.clone());
        put("time_field", json!(self.time_field));
        put("time_frame", json!(self.window.text()));
        put("value_type", json!(self.value_type.name()));
        put("model_type", json!(self.model_type.name()));
        put("algorithm", json!(self.algorithm.name()));
        match self.model_type.has_fields() {
            true => put("fields", json!(self.fields)),
            false => put("field", json!(self.field())),
        };
        // Defaults of a later version are not those of this one: what was not given stays away.
        for name in &self.given {
            let value = match *name {
                "contamination" => json!(self.contamination),
                "threshold" => json!(self.threshold),
                "n_neighbors" => json!(self.neighbors),
                "random_state" => json!(self.random_state),
                "n_clusters" => json!(self.clusters),
                "min_samples" => json!(self.min_samples),
                "forecast_steps" => json!(self.forecast_steps),
                "seasonality" => json!(self.seasonality),
                _ => json!(self.min_documents),
            };
            put(name, value);
        }
        put("automatic_cron", json!(self.schedule.to_string()));
        put("automatic_enable", json!(self.enable));
        put("automatic", json!(self.automatic));
        put("start_date", json!(self.start_ms.map_or_else(|| "now".to_owned(), time::minute)));
        put("multiply_by_values", json!(self.values));
        put("multiply_by_field", json!(self.multiply_by.as_deref().unwrap_or("none")));
        put("selectedroles", json!(self.roles));
        document
    }

    /// Returns the field of a model of one field, and the first of others.
    pub(crate) fn field(&self) -> &str {
        self.fields.first().map_or("", String::as_str)
    }

    /// Returns whether it runs by its schedule, and scores what arrives.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.enable && self.automatic
    }

    /// Lists the values of which each has a model, or none for one model of all documents.
    pub(crate) fn values(&self) -> Vec<Option<&str>> {
        match &self.multiply_by {
            Some(_) => self.values.iter().map(|value| Some(value.as_str())).collect(),
            None => vec![None],
        }
    }

    /// Returns the expression of the indices that it reads: patterns without the results of detectors.
    pub(crate) fn expression(&self) -> String {
        let mut expression = self.index.clone();
        if self.index.contains('*') || self.index == "_all" {
            for model_type in ModelType::ALL {
                expression.push_str(&format!(",-*-{}-anomaly-*", model_type.name()));
            }
        }
        expression
    }

    /// Returns the buckets of its field.
    pub(crate) fn series_query(&self) -> SeriesQuery {
        SeriesQuery {
            expression: self.expression(),
            time_field: self.time_field.clone(),
            query: self.query.clone(),
            field: self.field().to_owned(),
            multiply_by: self.multiply_by.clone(),
            value_type: self.value_type,
            frame: self.window.bucket(),
        }
    }

    /// Identifies everything that a model is trained by.
    pub(crate) fn digest(&self) -> String {
        let mut document = self.document();
        for name in [
            "name",
            "description",
            "automatic_cron",
            "automatic_enable",
            "automatic",
            "start_date",
            "selectedroles",
        ] {
            document.remove(name);
        }
        digest_of(&Value::Object(document))
    }
}

/// Reads the algorithm, or chooses the one that the parameters belong to.
fn algorithm(
    fields: &FieldReader<'_>,
    model_type: ModelType,
    given: &[&'static str],
) -> Result<DetectorAlgorithm> {
    let Some(value) = fields.get("algorithm") else {
        let mut of_type = model_type.algorithms();
        let uses = |one: &DetectorAlgorithm| given.iter().all(|name| one.parameters().contains(name));
        let first =
            model_type.algorithms().next().ok_or_else(|| Error::invalid("model_type", "has no algorithm"))?;
        return Ok(of_type.find(uses).unwrap_or(first));
    };
    let name = definition::text("algorithm", value, 64)?;
    model_type.algorithms().find(|one| one.name() == name).ok_or_else(|| {
        let names: Vec<_> = model_type.algorithms().map(DetectorAlgorithm::name).collect();
        let reason = format!(
            "must be one of {} for [{}], not [{}]",
            names.join(", "),
            model_type.name(),
            excerpt(name)
        );
        Error::invalid("algorithm", reason)
    })
}

fn index(fields: &FieldReader<'_>) -> Result<String> {
    let index = fields.text("index", MAX_INDEX_BYTES)?;
    for part in index.split(',') {
        let named = part.strip_prefix('-').unwrap_or(part);
        if named.is_empty() || named.contains([' ', '"', '<', '>', '|', '\\', '/', '?']) {
            return Err(Error::invalid(
                "index",
                format!("has [{}], which is no pattern of indices", excerpt(part)),
            ));
        }
        if named.starts_with('.') {
            return Err(Error::invalid(
                "index",
                format!("[{}] is the server's own, which AI rules do not read", excerpt(part)),
            ));
        }
        let is_result = |one: ModelType| named.contains(&format!("-{}-anomaly-", one.name()));
        if ModelType::ALL.into_iter().any(is_result) && !part.starts_with('-') {
            return Err(Error::invalid(
                "index",
                format!("[{}] has results of AI rules, which they do not read", excerpt(part)),
            ));
        }
    }
    if index.starts_with('-') {
        return Err(Error::invalid("index", "begins with an exclusion: name a pattern before it"));
    }
    Ok(index.to_owned())
}

fn query(fields: &FieldReader<'_>) -> Result<Value> {
    let value = fields.required("query")?;
    let members = value
        .as_object()
        .ok_or_else(|| Error::invalid("query", "must be an object: a query of the search API"))?;
    if value.to_string().len() > MAX_QUERY_BYTES {
        return Err(Error::invalid("query", format!("must have at most {MAX_QUERY_BYTES} bytes")));
    }
    let inner = members.get("query").filter(|_| members.len() == 1);
    if members.contains_key("query") && inner.is_none() {
        return Err(Error::invalid(
            "query",
            "has members beside [query]: a search with a size, sort or aggregations is no query",
        ));
    }
    let clause = inner.unwrap_or(value);
    match clause.as_object().map(Map::len) {
        Some(0) => Ok(json!({"match_all": {}})),
        Some(_) => Ok(clause.clone()),
        None => Err(Error::invalid("query", "must be an object: a query of the search API")),
    }
}

/// Reads `field` or `fields`, as the model type takes it.
fn analysed(fields: &FieldReader<'_>, model_type: ModelType) -> Result<Vec<String>> {
    let (name, other) = if model_type.has_fields() { ("fields", "field") } else { ("field", "fields") };
    if fields.get(other).is_some() {
        let reason = format!("is not used by [{}]: give [{name}]", model_type.name());
        return Err(Error::invalid(other, reason));
    }
    let analysed = match model_type.has_fields() {
        true => fields.texts(name, true)?,
        false => vec![fields.text(name, MAX_FIELD_BYTES)?.to_owned()],
    };
    if analysed.is_empty() || analysed.len() > MAX_FIELDS {
        return Err(Error::invalid(name, format!("must name 1 to {MAX_FIELDS} fields")));
    }
    for (at, field) in analysed.iter().enumerate() {
        path(name, field)?;
        let first = field.split('.').next().unwrap_or_default();
        let parts = field.split('.').count();
        if parts > predictions::MAX_PARTS {
            let reason =
                format!("has [{}] of {parts} parts; {} are allowed", excerpt(field), predictions::MAX_PARTS);
            return Err(Error::invalid(name, reason));
        }
        let is_taken = match model_type {
            ModelType::Forecasting => field.contains('.') && predictions::OWN_FIELDS.contains(&first),
            _ => results::OWN_MEMBERS.contains(&first),
        };
        if is_taken {
            let reason = format!(
                "has [{}], which begins with a name that results have for something else",
                excerpt(field)
            );
            return Err(Error::invalid(name, reason));
        }
        let is_within =
            |other: &String| field.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('.'));
        if analysed.iter().enumerate().any(|(place, other)| place != at && is_within(other)) {
            return Err(Error::invalid(
                name,
                format!("has [{}], which lies within another of them", excerpt(field)),
            ));
        }
    }
    Ok(analysed)
}

fn contamination(fields: &FieldReader<'_>) -> Result<f64> {
    let Some(value) = fields.get("contamination") else { return Ok(CONTAMINATION) };
    let share = value.as_f64().filter(|share| *share > 0.0 && *share <= 0.5);
    share.ok_or_else(|| {
        Error::invalid(
            "contamination",
            format!("must be a number above 0 and at most 0.5, not [{}]", shown(value)),
        )
    })
}

fn threshold(fields: &FieldReader<'_>) -> Result<Option<f64>> {
    let Some(value) = fields.get("threshold") else { return Ok(None) };
    let level = value.as_f64().filter(|level| *level > 0.0 && *level <= 1.0);
    level.map(Some).ok_or_else(|| {
        let reason = format!("must be a score above 0 and at most 1, not [{}]", shown(value));
        Error::invalid("threshold", reason)
    })
}

fn random_state(fields: &FieldReader<'_>) -> Result<u64> {
    let Some(value) = fields.get("random_state") else { return Ok(0) };
    value.as_u64().filter(|seed| *seed <= 1 << 53).ok_or_else(|| {
        Error::invalid("random_state", format!("must be an integer from 0 to 2^53, not [{}]", shown(value)))
    })
}

fn optional_count(fields: &FieldReader<'_>, name: &str, least: usize, most: usize) -> Result<Option<usize>> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
    count.filter(|count| (least..=most).contains(count)).map(Some).ok_or_else(|| {
        Error::invalid(name, format!("must be an integer from {least} to {most}, not [{}]", shown(value)))
    })
}

fn shown(value: &Value) -> String {
    excerpt(&value.to_string())
}
