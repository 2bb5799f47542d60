//! `geo_bounds`: the least box around points.

use super::{Ordinals, grow, mapped, slot};
use crate::result::{GeoBox, Metric};

/// Extremes of latitude, and of longitude east and west of Greenwich.
#[derive(Clone, Copy, Debug)]
struct State {
    top: f64,
    bottom: f64,
    east: (f64, f64),
    west: (f64, f64),
}

const EMPTY: State = State {
    top: f64::NEG_INFINITY,
    bottom: f64::INFINITY,
    east: (f64::INFINITY, f64::NEG_INFINITY),
    west: (f64::INFINITY, f64::NEG_INFINITY),
};

fn widen(span: &mut (f64, f64), other: (f64, f64)) {
    *span = (span.0.min(other.0), span.1.max(other.1));
}

/// Boxes by ordinal.
#[derive(Clone, Debug)]
pub(crate) struct GeoBounds {
    states: Vec<State>,
    wrap_longitude: bool,
}

impl GeoBounds {
    pub(super) fn new(wrap_longitude: bool) -> Self {
        Self { states: Vec::new(), wrap_longitude }
    }

    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, lat: &[f64], lon: &[f64]) {
        grow(&mut self.states, ordinals, EMPTY);
        for (at, (lat, lon)) in lat.iter().zip(lon).enumerate() {
            let ordinal = match ordinals {
                Ordinals::One(ordinal) => Some(ordinal),
                Ordinals::Each(ordinals) => ordinals.get(at).copied(),
            };
            let Some(state) = ordinal.and_then(|ordinal| self.states.get_mut(ordinal as usize)) else {
                continue;
            };
            state.top = state.top.max(*lat);
            state.bottom = state.bottom.min(*lat);
            widen(if *lon >= 0.0 { &mut state.east } else { &mut state.west }, (*lon, *lon));
        }
    }

    pub(super) fn merge(&mut self, others: &Self, map: Option<&[u32]>) {
        for (at, other) in mapped(&others.states, map) {
            let state = slot(&mut self.states, at, EMPTY);
            state.top = state.top.max(other.top);
            state.bottom = state.bottom.min(other.bottom);
            widen(&mut state.east, other.east);
            widen(&mut state.west, other.west);
        }
    }

    pub(super) fn reduce(&self, at: usize) -> Metric {
        let State { top, bottom, east, west } = self.states.get(at).copied().unwrap_or(EMPTY);
        if top.is_infinite() {
            return Metric::GeoBounds(None);
        }
        let (left, right) = if east.0.is_infinite() {
            west
        } else if west.0.is_infinite() {
            east
        } else {
            let unwrapped = east.1 - west.0;
            let wrapped = (180.0 - east.0) - (-180.0 - west.1);
            match self.wrap_longitude && unwrapped > wrapped {
                true => (east.0, west.1),
                false => (west.0, east.1),
            }
        };
        Metric::GeoBounds(Some(Box::new(GeoBox { top, left, bottom, right })))
    }

    pub(super) fn memory(&self) -> usize {
        self.states.capacity() * size_of::<State>()
    }
}
