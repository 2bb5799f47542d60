//! `percentiles`, `percentile_ranks` and `median_absolute_deviation`: digests or histograms by ordinal.

use millrace_dsl::aggs::{self, PercentileMethod};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use super::hdr::{self, Hdr};
use super::tdigest::Digest;
use super::{Ordinals, grow, mapped};
use crate::result::{self, Metric};

/// States by ordinal, and what is asked of them.
#[derive(Clone, Debug)]
pub(crate) struct Percentiles {
    states: States,
    wanted: RequestedPercentiles,
}

#[derive(Clone, Debug)]
enum States {
    TDigest(Vec<Digest>, f64),
    Hdr(Vec<Hdr>, u32),
}

#[derive(Clone, Debug)]
enum RequestedPercentiles {
    Percentiles { percents: Vec<f64>, keyed: bool },
    Ranks { values: Vec<f64>, keyed: bool },
    Deviation,
}

impl States {
    fn new(method: PercentileMethod) -> Self {
        match method {
            PercentileMethod::TDigest { compression } => Self::TDigest(Vec::new(), compression),
            PercentileMethod::Hdr { significant_digits } => {
                Self::Hdr(Vec::new(), hdr::mantissa_bits(significant_digits))
            }
        }
    }
}

impl Percentiles {
    pub(super) fn at(options: &aggs::Percentiles) -> Self {
        let wanted =
            RequestedPercentiles::Percentiles { percents: options.percents.clone(), keyed: options.keyed };
        Self { states: States::new(options.method), wanted }
    }

    pub(super) fn ranks(options: &aggs::PercentileRanks) -> Self {
        let wanted = RequestedPercentiles::Ranks { values: options.values.clone(), keyed: options.keyed };
        Self { states: States::new(options.method), wanted }
    }

    pub(super) fn deviation(compression: f64) -> Self {
        Self { states: States::TDigest(Vec::new(), compression), wanted: RequestedPercentiles::Deviation }
    }

    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, numbers: &[f64]) -> Result<()> {
        match &mut self.states {
            States::TDigest(digests, compression) => {
                grow(digests, ordinals, Digest::default());
                match ordinals {
                    Ordinals::One(ordinal) => {
                        if let Some(digest) = digests.get_mut(ordinal as usize) {
                            digest.add_all(numbers, *compression);
                        }
                    }
                    Ordinals::Each(ordinals) => {
                        for (ordinal, number) in ordinals.iter().zip(numbers) {
                            if let Some(digest) = digests.get_mut(*ordinal as usize) {
                                digest.add(*number, *compression);
                            }
                        }
                    }
                }
            }
            States::Hdr(histograms, bits) => {
                grow(histograms, ordinals, Hdr::default());
                for (at, number) in numbers.iter().enumerate() {
                    let ordinal = match ordinals {
                        Ordinals::One(ordinal) => Some(ordinal),
                        Ordinals::Each(ordinals) => ordinals.get(at).copied(),
                    };
                    let histogram = ordinal.and_then(|ordinal| histograms.get_mut(ordinal as usize));
                    if histogram.is_some_and(|histogram| !histogram.add(*number, *bits)) {
                        return Err(Error::Exception {
                            kind: "array_index_out_of_bounds_exception",
                            status: 500,
                            reason: format!("value {number:?} is out of bounds for histogram"),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, others: Self, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        match (&mut self.states, others.states) {
            (States::TDigest(own, compression), States::TDigest(mut others, _)) => {
                for (at, place) in places(&others, map) {
                    work.check()?;
                    grow(own, Ordinals::One(at), Digest::default());
                    if let (Some(own), Some(other)) = (own.get_mut(at as usize), others.get_mut(place)) {
                        own.merge(std::mem::take(other), *compression);
                    }
                }
            }
            (States::Hdr(own, _), States::Hdr(mut others, _)) => {
                for (at, place) in places(&others, map) {
                    work.check()?;
                    grow(own, Ordinals::One(at), Hdr::default());
                    if let (Some(own), Some(other)) = (own.get_mut(at as usize), others.get_mut(place)) {
                        own.merge(std::mem::take(other));
                    }
                }
            }
            _ => debug_assert!(false, "states of one aggregation are of one kind"),
        }
        Ok(())
    }

    pub(super) fn reduce(&mut self, at: usize) -> Metric {
        let values = |keyed: bool, method, keys: &[f64], values: Vec<f64>| {
            let values = keys.iter().copied().zip(values).collect();
            Box::new(result::Percentiles { method, keyed, values })
        };
        match &mut self.states {
            States::TDigest(digests, compression) => {
                let mut none = Digest::default();
                let digest = digests.get_mut(at).unwrap_or(&mut none);
                digest.merge_buffered(*compression);
                let method = result::PercentileMethod::TDigest;
                match &self.wanted {
                    RequestedPercentiles::Percentiles { percents, keyed } => {
                        let found = percents.iter().map(|percent| digest.quantile(percent / 100.0)).collect();
                        Metric::Percentiles(values(*keyed, method, percents, found))
                    }
                    RequestedPercentiles::Ranks { values: wanted, keyed } => {
                        let rank = |value: &f64| digest.cdf(*value).clamp(0.0, 1.0) * 100.0;
                        let found = wanted.iter().map(rank).collect();
                        Metric::PercentileRanks(values(*keyed, method, wanted, found))
                    }
                    RequestedPercentiles::Deviation => Metric::MedianAbsoluteDeviation(digest.deviation()),
                }
            }
            States::Hdr(histograms, bits) => {
                let none = Hdr::default();
                let histogram = histograms.get(at).unwrap_or(&none);
                let method = result::PercentileMethod::Hdr;
                match &self.wanted {
                    RequestedPercentiles::Percentiles { percents, keyed } => {
                        let found = histogram.percentiles(percents, *bits);
                        Metric::Percentiles(values(*keyed, method, percents, found))
                    }
                    RequestedPercentiles::Ranks { values: wanted, keyed } => {
                        let found = histogram.ranks(wanted, *bits);
                        Metric::PercentileRanks(values(*keyed, method, wanted, found))
                    }
                    RequestedPercentiles::Deviation => Metric::MedianAbsoluteDeviation(f64::NAN),
                }
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        match &self.states {
            States::TDigest(digests, _) => {
                digests.iter().map(|digest| size_of::<Digest>() + digest.memory()).sum()
            }
            States::Hdr(histograms, _) => {
                histograms.iter().map(|histogram| size_of::<Hdr>() + histogram.memory()).sum()
            }
        }
    }
}

/// Lists where another's states belong, as `(own ordinal, other's place)`.
fn places<T>(others: &[T], map: Option<&[u32]>) -> Vec<(u32, usize)> {
    let indices: Vec<usize> = (0..others.len()).collect();
    mapped(&indices, map).map(|(at, place)| (at, *place)).collect()
}
