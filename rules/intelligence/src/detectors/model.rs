//! Models of detectors: trained on compute threads, stored as bytes with a checksum.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_anomaly::{
    Error as AnomalyError, FeatureTable, RowDetector, RowModel, ScoreCutoff, SeriesDetector, SeriesModel,
    TextDetector, TextModel, seed,
};
use millrace_forecast::{ForecastModel, Forecaster, Series, check_cancelled};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::algorithm::DetectorAlgorithm;
use super::definition::DetectorDefinition;
use crate::error::{Error, Result};

/// Bytes that begin a stored model: a name and a version.
const MAGIC: &[u8; 8] = b"MRDET\0\0\x01";
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 32;
/// Clusters that a record shows, at most.
const MAX_PROFILES: usize = 100;
/// Lines of a training between two checks for its cancellation.
const LINES_A_CHECK: usize = 1_024;

/// A trained model of one detector and value; a clone shares it.
#[derive(Clone, Debug)]
pub(crate) enum DetectorModel {
    Rows(Arc<RowModel>),
    Series(Arc<SeriesModel>),
    Text(Arc<TextModel>),
    Forecast(Arc<ForecastModel>),
}

/// A model with the first frame that it has not observed.
#[derive(Clone, Debug)]
pub(crate) struct ModelSnapshot {
    pub(crate) model: DetectorModel,
    pub(crate) next_frame: u64,
}

/// Input of a training.
#[derive(Debug)]
pub(crate) enum TrainingInput {
    Rows(FeatureTable),
    /// Buckets, the first of which has a number.
    Series {
        first: i64,
        buckets: Vec<Option<f64>>,
    },
    /// Lines with the numbers of their buckets. Of a sample the counts of buckets are not those of the source.
    Lines {
        lines: Vec<(i64, String)>,
        is_sample: bool,
    },
}

impl TrainingInput {
    /// Counts its rows, buckets with a value, or lines.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Rows(table) => table.rows() as u64,
            Self::Series { buckets, .. } => buckets.iter().flatten().count() as u64,
            Self::Lines { lines, .. } => lines.len() as u64,
        }
    }

    /// Returns true of lines that are a sample.
    pub(crate) fn is_sample(&self) -> bool {
        matches!(self, Self::Lines { is_sample: true, .. })
    }
}

/// Seed of a detector's models: its `random_state`, for each value another one.
fn seed_of(definition: &DetectorDefinition, value: Option<&str>) -> u64 {
    definition.random_state ^ value.map_or(0, seed)
}

/// Trains a model; it takes long, on a compute thread, and ends soon once it is cancelled.
///
/// # Errors
/// The reason why nothing can be learnt.
pub(crate) fn train(
    definition: &DetectorDefinition,
    value: Option<&str>,
    input: TrainingInput,
    cancelled: &AtomicBool,
) -> Result<DetectorModel> {
    let seed = seed_of(definition, value);
    let name_of = |error: AnomalyError| explain(definition, &error);
    let trained = match input {
        TrainingInput::Rows(table) => {
            let trained = row_detector(definition)?.train_cancellable(&table, seed, cancelled);
            DetectorModel::Rows(Arc::new(trained.map_err(name_of)?))
        }
        TrainingInput::Series { first, buckets } => {
            let series = Series::new(buckets)?;
            match definition.algorithm {
                DetectorAlgorithm::SeasonalDecomposition | DetectorAlgorithm::RandomCutForest => {
                    let detector = series_detector(definition)?;
                    // Missing buckets at the beginning are not part of the series.
                    let first = first + series.skipped() as i64;
                    let model =
                        detector.train(&series, first, definition.seasonality, seed).map_err(name_of)?;
                    DetectorModel::Series(Arc::new(model))
                }
                _ => {
                    let forecaster = forecaster(definition.algorithm);
                    let model =
                        forecaster.train_cancellable(&series, definition.seasonality, seed, cancelled)?;
                    DetectorModel::Forecast(Arc::new(model))
                }
            }
        }
        TrainingInput::Lines { lines, is_sample } => {
            let detector = text_detector(definition)?;
            let mut trainer = detector.trainer(definition.min_documents, seed).map_err(name_of)?;
            for (number, (bucket, line)) in lines.iter().enumerate() {
                if number % LINES_A_CHECK == 0 {
                    check_cancelled(cancelled)?;
                }
                trainer.push(*bucket, line);
            }
            if is_sample {
                trainer.ignore_rates();
            }
            DetectorModel::Text(Arc::new(trainer.finish().map_err(name_of)?))
        }
    };
    Ok(trained)
}

/// Says which field an error of a model is about.
fn explain(definition: &DetectorDefinition, error: &AnomalyError) -> Error {
    let field = match error {
        AnomalyError::AllMissing { feature: Some(feature) } => definition.fields.get(*feature),
        AnomalyError::AllMissing { feature: None } => definition.fields.first(),
        _ => None,
    };
    Error::Run(match field {
        Some(field) => format!(
            "field [{field}] has no number in any document of [{}] within [time_frame]: choose a numeric field, another \
             query, or a longer window",
            definition.index
        ),
        None => error.to_string(),
    })
}

fn unknown(definition: &DetectorDefinition) -> Error {
    Error::invalid("algorithm", format!("[{}] is not known to this version", definition.algorithm.name()))
}

fn row_detector(definition: &DetectorDefinition) -> Result<RowDetector> {
    Ok(match definition.algorithm {
        DetectorAlgorithm::LocalOutlierFactor => {
            RowDetector::LocalOutlierFactor { neighbors: definition.neighbors }
        }
        DetectorAlgorithm::KMeans => RowDetector::KMeans { clusters: definition.clusters },
        DetectorAlgorithm::Dbscan => RowDetector::Dbscan { eps: None, min_samples: definition.min_samples },
        DetectorAlgorithm::Hdbscan => RowDetector::Hdbscan { min_samples: definition.min_samples },
        DetectorAlgorithm::IsolationForest => {
            RowDetector::default_of(definition.algorithm.name()).ok_or_else(|| unknown(definition))?
        }
        _ => return Err(unknown(definition)),
    })
}

fn series_detector(definition: &DetectorDefinition) -> Result<SeriesDetector> {
    SeriesDetector::default_of(definition.algorithm.name()).ok_or_else(|| unknown(definition))
}

fn text_detector(definition: &DetectorDefinition) -> Result<TextDetector> {
    TextDetector::default_of(definition.algorithm.name()).ok_or_else(|| unknown(definition))
}

fn forecaster(algorithm: DetectorAlgorithm) -> Forecaster {
    Forecaster::named(algorithm.name()).unwrap_or(Forecaster::Ets)
}

/// Makes the cutoff that flags scores.
///
/// # Errors
/// A threshold or contamination out of range.
pub(crate) fn cutoff(definition: &DetectorDefinition) -> Result<ScoreCutoff> {
    ScoreCutoff::new(definition.threshold, Some(definition.contamination))
        .map_err(|error| Error::Run(error.to_string()))
}

impl DetectorModel {
    /// Describes the model for the record.
    pub(crate) fn details(&self, definition: &DetectorDefinition) -> Map<String, Value> {
        let mut details = Map::new();
        let mut put = |name: &str, value: Value| details.insert(name.to_owned(), value);
        match self {
            Self::Rows(model) => {
                let profiles = model.profiles();
                if !profiles.is_empty() {
                    let shown = profiles.iter().take(MAX_PROFILES).map(|profile| {
                        let fields = definition.fields.iter().zip(&profile.features).map(|(field, of)| {
                            json!({"field": field, "mean": of.mean, "deviation": of.deviation, "min": of.min, "max": of.max, "missing": of.missing})
                        });
                        json!({"cluster": profile.cluster, "rows": profile.rows, "fields": fields.collect::<Vec<_>>()})
                    });
                    put("clusters", Value::Array(shown.collect()));
                    put(
                        "cluster_count",
                        json!(profiles.iter().filter(|profile| profile.cluster.is_some()).count()),
                    );
                }
            }
            Self::Series(model) => {
                put("seasons", json!(model.seasons()));
                put("bucket_seconds", json!(definition.window.bucket().ms() / 1_000));
            }
            Self::Text(model) => {
                put("templates", json!(model.templates().len()));
                put("lines", json!(model.lines()));
            }
            Self::Forecast(model) => {
                put("seasons", json!(model.seasonality()));
                put("method", json!(model.description()));
                put("bucket_seconds", json!(definition.window.bucket().ms() / 1_000));
            }
        }
        details
    }
}

impl ModelSnapshot {
    /// Writes the bytes of a file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match &self.model {
            DetectorModel::Rows(model) => (0, model.encode()),
            DetectorModel::Series(model) => (1, model.encode()),
            DetectorModel::Text(model) => (2, model.encode()),
            DetectorModel::Forecast(model) => (3, model.encode()),
        };
        let mut bytes = Vec::with_capacity(body.len() + 64);
        bytes.extend_from_slice(MAGIC);
        bytes.push(kind);
        bytes.extend_from_slice(&self.next_frame.to_le_bytes());
        bytes.extend_from_slice(&body);
        let checksum = digest(&SHA256, &bytes);
        bytes.extend_from_slice(checksum.as_ref());
        bytes
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// The reason why it is no model of this version: it is trained anew.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or("it is too short")?;
        let (content, checksum) = bytes.split_at(end);
        if digest(&SHA256, content).as_ref() != checksum {
            return Err("its checksum is wrong".to_owned());
        }
        let content = content.strip_prefix(MAGIC).ok_or("it is of another version")?;
        let (kind, content) = content.split_first().ok_or("it is too short")?;
        let (frame, body) = content.split_first_chunk::<8>().ok_or("it is too short")?;
        let reason = |error: AnomalyError| error.to_string();
        let model = match kind {
            0 => DetectorModel::Rows(Arc::new(RowModel::decode(body).map_err(reason)?)),
            1 => DetectorModel::Series(Arc::new(SeriesModel::decode(body).map_err(reason)?)),
            2 => DetectorModel::Text(Arc::new(TextModel::decode(body).map_err(reason)?)),
            3 => DetectorModel::Forecast(Arc::new(
                ForecastModel::decode(body).map_err(|error| error.to_string())?,
            )),
            _ => return Err("it is of another version".to_owned()),
        };
        Ok(Self { model, next_frame: u64::from_le_bytes(*frame) })
    }
}
