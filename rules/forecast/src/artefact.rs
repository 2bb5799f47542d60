//! Trained models as bytes.
//!
//! `MLRMODEL`, a version (u16), the length of what follows (u64), that, and its CRC-32C; numbers are little-endian. What follows is the
//! algorithm, the fingerprint of what it was trained with, the score, the line, and what the algorithm forecasts from. A forest is
//! up to some ten megabytes.

use crate::average::Holt;
use crate::error::{Error, Result};
use crate::forest::{Forest, Node};
use crate::line::Line;
use crate::model::{Algorithm, ForecastInput, Model, TrainedModel};
use crate::regression::Regression;
use crate::score::Score;

const MAGIC: &[u8; 8] = b"MLRMODEL";
/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;
const HEAD: usize = 8 + 2 + 8;
/// Nodes of a tree, at most: each row of a window makes one leaf.
const MAX_NODES: usize = 2 * crate::MAX_FOREST_SAMPLES;

impl TrainedModel {
    /// Writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.push(code(self.algorithm));
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        for part in [self.score.rmse, self.score.rmse_normalized, self.score.overall_efficiency] {
            push_number(&mut out, part.unwrap_or(f64::NAN));
        }
        out.extend_from_slice(&(self.model.count as u64).to_le_bytes());
        let line = self.model.line;
        out.push(line.is_some().into());
        let line = line.unwrap_or(Line { slope: 0.0, intercept: 0.0 });
        push_number(&mut out, line.slope);
        push_number(&mut out, line.intercept);
        match &self.model.told {
            ForecastInput::Nothing => {}
            ForecastInput::Mean(window) => push_numbers(&mut out, window),
            ForecastInput::Level(level) => push_number(&mut out, *level),
            ForecastInput::Holt(Holt { level, trend }) => {
                push_number(&mut out, *level);
                push_number(&mut out, *trend);
            }
            ForecastInput::Regression(Regression { level, intercept, lags, latest }) => {
                push_number(&mut out, *level);
                push_number(&mut out, *intercept);
                push_numbers(&mut out, lags);
                push_numbers(&mut out, latest);
            }
            ForecastInput::Forest(Forest { trees, latest }) => {
                push_numbers(&mut out, latest);
                push_count(&mut out, trees.len());
                for tree in trees {
                    push_count(&mut out, tree.len());
                    tree.iter().for_each(|node| push_node(&mut out, node));
                }
            }
        }
        let length = (out.len() - HEAD) as u64;
        out[10..HEAD].copy_from_slice(&length.to_le_bytes());
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads what [`TrainedModel::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("it is too short"))?;
        let mut from = ArtefactReader(body);
        if from.bytes(8)? != MAGIC {
            return Err(corrupt("it does not begin as one"));
        }
        let version = u16::from_le_bytes(from.array()?);
        if version != VERSION {
            return Err(corrupt(&format!("it is of version {version}, and only {VERSION} is known")));
        }
        if u64::from_le_bytes(from.array()?) != from.0.len() as u64 {
            return Err(corrupt("it is longer or shorter than it says"));
        }
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(corrupt("its checksum is another one"));
        }
        let [number] = from.array()?;
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| code(*algorithm) == number);
        let algorithm = algorithm.ok_or_else(|| corrupt("its algorithm is not known"))?;
        let fingerprint = u64::from_le_bytes(from.array()?);
        let mut part = || from.number().map(|number| (!number.is_nan()).then_some(number));
        let (rmse, rmse_normalized, overall_efficiency) = (part()?, part()?, part()?);
        let count = u64::from_le_bytes(from.array()?);
        let count = usize::try_from(count).ok().filter(|count| *count <= crate::MAX_SAMPLES);
        let count = count.ok_or_else(|| corrupt("its window is too long"))?;
        let [has_line] = from.array()?;
        let line = Line { slope: from.number()?, intercept: from.number()? };
        let told = decode_input(&mut from, algorithm)?;
        if !from.0.is_empty() {
            return Err(corrupt("there is something behind its end"));
        }
        let model = Model { count, line: (has_line == 1).then_some(line), told };
        Ok(Self { algorithm, fingerprint, model, score: Score { rmse, rmse_normalized, overall_efficiency } })
    }
}

fn decode_input(from: &mut ArtefactReader<'_>, algorithm: Algorithm) -> Result<ForecastInput> {
    Ok(match algorithm {
        Algorithm::Tl => ForecastInput::Nothing,
        Algorithm::Sma | Algorithm::Smal => ForecastInput::Mean(from.numbers(crate::MAX_SAMPLES)?),
        Algorithm::Gma => ForecastInput::Level(from.number()?),
        Algorithm::Gmal => ForecastInput::Holt(Holt { level: from.number()?, trend: from.number()? }),
        Algorithm::Lrs | Algorithm::Lrst => {
            let (level, intercept) = (from.number()?, from.number()?);
            let (lags, latest) = (from.numbers(64)?, from.numbers(64)?);
            if lags.len() != latest.len() {
                return Err(corrupt("its lags are not as many as its samples"));
            }
            ForecastInput::Regression(Regression { level, intercept, lags, latest })
        }
        Algorithm::Rfrs => {
            let latest = from.numbers(64)?;
            let count = from.count(crate::forest::TREES)?;
            let mut trees = Vec::new();
            for _ in 0..count {
                trees.push(from.tree(latest.len())?);
            }
            if trees.is_empty() {
                return Err(corrupt("its forest has no tree"));
            }
            ForecastInput::Forest(Forest { trees, latest })
        }
    })
}

fn code(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Gma => 1,
        Algorithm::Gmal => 2,
        Algorithm::Lrs => 3,
        Algorithm::Lrst => 4,
        Algorithm::Rfrs => 5,
        Algorithm::Smal => 6,
        Algorithm::Sma => 7,
        Algorithm::Tl => 8,
    }
}

pub(crate) fn corrupt(what: &str) -> Error {
    Error::Corrupt(what.to_owned())
}

pub(crate) fn push_number(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&number.to_bits().to_le_bytes());
}

pub(crate) fn push_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

pub(crate) fn push_numbers(out: &mut Vec<u8>, numbers: &[f64]) {
    push_count(out, numbers.len());
    numbers.iter().for_each(|number| push_number(out, *number));
}

/// A lag of `u16::MAX` is a leaf.
pub(crate) fn push_node(out: &mut Vec<u8>, node: &Node) {
    let (lag, number, right) = match node {
        Node::Leaf(answer) => (u16::MAX, *answer, 0),
        Node::Split { lag, at_most, right } => (*lag, *at_most, *right),
    };
    out.extend_from_slice(&lag.to_le_bytes());
    push_number(out, number);
    out.extend_from_slice(&right.to_le_bytes());
}

/// Reader of an artefact: the rest of its bytes.
pub(crate) struct ArtefactReader<'a>(pub(crate) &'a [u8]);

impl<'a> ArtefactReader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| corrupt("it ends too soon"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| corrupt("it ends too soon"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn number(&mut self) -> Result<f64> {
        Ok(f64::from_bits(u64::from_le_bytes(self.array()?)))
    }

    pub(crate) fn count(&mut self, limit: usize) -> Result<usize> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        if count > limit { Err(corrupt("it has more than there may be")) } else { Ok(count) }
    }

    pub(crate) fn numbers(&mut self, limit: usize) -> Result<Vec<f64>> {
        let count = self.count(limit)?;
        let bytes = self.bytes(count * 8)?.chunks_exact(8);
        Ok(bytes.map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default())).collect())
    }

    /// A tree, each of whose nodes leads on to later ones that there are.
    pub(crate) fn tree(&mut self, lags: usize) -> Result<Vec<Node>> {
        let count = self.count(MAX_NODES)?;
        let mut nodes = Vec::with_capacity(count);
        for place in 0..count {
            let lag = u16::from_le_bytes(self.array()?);
            let (number, right) = (self.number()?, u32::from_le_bytes(self.array()?));
            if lag == u16::MAX {
                nodes.push(Node::Leaf(number));
                continue;
            }
            let leads_on = (right as usize) > place && (right as usize) < count && place + 1 < count;
            if usize::from(lag) >= lags || !leads_on {
                return Err(corrupt("a tree leads nowhere"));
            }
            nodes.push(Node::Split { lag, at_most: number, right });
        }
        if nodes.is_empty() { Err(corrupt("a tree has no node")) } else { Ok(nodes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::series::Series;
    use crate::train;

    fn trained(algorithm: Algorithm) -> TrainedModel {
        let mut random = Random::new(5);
        let samples = (0..60).map(|_| Some(f64::from(random.below(1000)))).collect();
        train(algorithm, &Series::new(samples).unwrap(), 8, 9).unwrap()
    }

    #[test]
    fn models_come_back_as_they_were() {
        for algorithm in Algorithm::ALL {
            let trained = trained(algorithm);
            let read = TrainedModel::from_bytes(&trained.to_bytes()).unwrap();
            assert_eq!(read, trained, "{algorithm}");
            assert_eq!(read.forecast(20), trained.forecast(20), "{algorithm}");
        }
    }

    #[test]
    fn whatever_was_changed_is_noticed() {
        let bytes = trained(Algorithm::Rfrs).to_bytes();
        let mut random = Random::new(6);
        for _ in 0..500 {
            let mut changed = bytes.clone();
            let at = random.below(bytes.len() as u32) as usize;
            changed[at] ^= 1 << random.below(8);
            assert!(TrainedModel::from_bytes(&changed).is_err(), "byte {at}");
            assert!(TrainedModel::from_bytes(&bytes[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn bytes_with_a_right_checksum_are_not_believed_either() {
        let bytes = trained(Algorithm::Rfrs).to_bytes();
        let mut random = Random::new(7);
        for _ in 0..2000 {
            let mut changed = bytes[..bytes.len() - 4].to_vec();
            let at = HEAD + random.below((changed.len() - HEAD) as u32) as usize;
            changed[at] = random.below(256) as u8;
            let sum = crc32c::crc32c(&changed);
            changed.extend_from_slice(&sum.to_le_bytes());
            if let Ok(read) = TrainedModel::from_bytes(&changed) {
                // Other numbers, but an end.
                let _ = read.forecast(3);
            }
        }
    }
}
