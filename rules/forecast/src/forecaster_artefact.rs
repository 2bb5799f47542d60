//! Forecast models as bytes: `MLRFCAST`, a version (u16), the body, and the CRC-32C of all before it; numbers are little-endian.

use crate::artefact::{ArtefactReader, corrupt, push_count, push_node, push_number, push_numbers};
use crate::calibration::{IntervalMultiples, MAX_HORIZON};
use crate::error::Result;
use crate::ets::{Ets, EtsComponents, EtsParameters, EtsState, MAX_ETS_SEASON, SeasonKind, TrendKind};
use crate::forecaster::{ForecastModel, ForecastState, Forecaster};
use crate::forest::{Forest, TREES};

const MAGIC: &[u8; 8] = b"MLRFCAST";
const VERSION: u16 = 2;
const TRENDS: [TrendKind; 3] = [TrendKind::None, TrendKind::Additive, TrendKind::Damped];
const SEASONS: [SeasonKind; 3] = [SeasonKind::None, SeasonKind::Additive, SeasonKind::Multiplicative];

impl ForecastModel {
    /// Writes the model as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.push(Forecaster::ALL.iter().position(|one| *one == self.forecaster).unwrap_or_default() as u8);
        push_count(&mut out, self.seasonality.unwrap_or_default());
        out.extend_from_slice(&self.seed.to_le_bytes());
        push_numbers(&mut out, self.multiples.0.as_flattened());
        match &self.state {
            ForecastState::Ets(ets) => push_ets(&mut out, ets),
            ForecastState::MstlEts { ets, cycle } => {
                push_ets(&mut out, ets);
                push_numbers(&mut out, cycle);
            }
            ForecastState::Forest { forest, deviations } => {
                push_numbers(&mut out, deviations);
                push_numbers(&mut out, &forest.latest);
                push_count(&mut out, forest.trees.len());
                for tree in &forest.trees {
                    push_count(&mut out, tree.len());
                    tree.iter().for_each(|node| push_node(&mut out, node));
                }
            }
        }
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the bytes of [`ForecastModel::encode`].
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`], with the reason.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("it is too short"))?;
        let mut from = ArtefactReader(body);
        if from.bytes(8)? != MAGIC {
            return Err(corrupt("it does not begin as one"));
        }
        let version = u16::from_le_bytes(from.array()?);
        if version != VERSION {
            return Err(corrupt(&format!("it is of version {version}, and only {VERSION} is known")));
        }
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(corrupt("its checksum is another one"));
        }
        let [code] = from.array()?;
        let forecaster =
            *Forecaster::ALL.get(usize::from(code)).ok_or_else(|| corrupt("its method is not known"))?;
        let seasonality = from.count(crate::MAX_SAMPLES)?;
        let seed = u64::from_le_bytes(from.array()?);
        let numbers = from.numbers(2 * MAX_HORIZON)?;
        let (multiples, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() || multiples.as_flattened().iter().any(|one| !(one.is_finite() && *one > 0.0)) {
            return Err(corrupt("the widths of its intervals are wrong"));
        }
        let multiples = IntervalMultiples(multiples.to_vec());
        let state = match forecaster {
            Forecaster::Ets => ForecastState::Ets(read_ets(&mut from)?),
            Forecaster::MstlEts => {
                ForecastState::MstlEts { ets: read_ets(&mut from)?, cycle: from.numbers(crate::MAX_SAMPLES)? }
            }
            Forecaster::Forest => {
                let deviations = from.numbers(64)?;
                let latest = from.numbers(64)?;
                let mut trees = Vec::new();
                for _ in 0..from.count(TREES)? {
                    trees.push(from.tree(latest.len())?);
                }
                if trees.is_empty() {
                    return Err(corrupt("its forest has no tree"));
                }
                ForecastState::Forest { forest: Forest { trees, latest }, deviations }
            }
        };
        if !from.0.is_empty() {
            return Err(corrupt("there is something behind its end"));
        }
        Ok(Self { forecaster, seasonality: (seasonality > 0).then_some(seasonality), seed, state, multiples })
    }
}

fn push_ets(out: &mut Vec<u8>, ets: &Ets) {
    let Ets { components, parameters, state, sigma } = ets;
    out.push(components.has_multiplicative_error.into());
    out.push(TRENDS.iter().position(|one| *one == components.trend).unwrap_or_default() as u8);
    out.push(SEASONS.iter().position(|one| *one == components.season).unwrap_or_default() as u8);
    let EtsParameters { alpha, beta, gamma, phi } = parameters;
    for number in [alpha, beta, gamma, phi, &state.level, &state.trend, sigma] {
        push_number(out, *number);
    }
    push_numbers(out, &state.season);
    push_count(out, state.place);
}

fn read_ets(from: &mut ArtefactReader<'_>) -> Result<Ets> {
    let [error, trend, season] = from.array()?;
    let kind = || corrupt("a component is not known");
    let trend = *TRENDS.get(usize::from(trend)).ok_or_else(kind)?;
    let season = *SEASONS.get(usize::from(season)).ok_or_else(kind)?;
    let components = EtsComponents { has_multiplicative_error: error == 1, trend, season };
    let mut numbers = [0.0; 7];
    for number in &mut numbers {
        *number = from.number()?;
    }
    let [alpha, beta, gamma, phi, level, trend, sigma] = numbers;
    let states = from.numbers(MAX_ETS_SEASON)?;
    let place = from.count(MAX_ETS_SEASON)?;
    let has_season = components.season != SeasonKind::None;
    let is_finite = numbers.iter().chain(&states).all(|number| number.is_finite());
    if !is_finite || has_season == states.is_empty() || place >= states.len().max(1) {
        return Err(corrupt("a state is wrong"));
    }
    let parameters = EtsParameters { alpha, beta, gamma, phi };
    Ok(Ets { components, parameters, state: EtsState { level, trend, season: states, place }, sigma })
}
