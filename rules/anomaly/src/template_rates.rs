//! [`TemplateRates`]: how often templates come in a bucket, and how odd a count is.
//!
//! Training counts the lines of each template by bucket, over all buckets from the first to the last. A count is compared by
//! 2·(√(count + 3/8) − √(mean + 3/8)) / √dispersion (Anscombe 1948). The dispersion is the variance by the mean, at least 1. The
//! oddness is the share of a normal distribution that is closer to its middle.

use std::collections::BTreeMap;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::drain::MAX_TEMPLATES;
use crate::error::Result;

/// Buckets whose counts are open, at most; the oldest one is dropped for another.
const MAX_OPEN_BUCKETS: usize = 64;
/// Training buckets below which a rate is not judged.
const MIN_BUCKETS: u64 = 4;

/// Rate of one template in training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TemplateMoments {
    mean: f64,
    dispersion: f64,
}

/// Rates of templates, with the counts of open buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TemplateRates {
    /// True where training had enough buckets.
    is_trained: bool,
    rates: Vec<TemplateMoments>,
    open: BTreeMap<i64, BTreeMap<u32, u64>>,
    /// Buckets up to this are closed.
    closed: Option<i64>,
}

impl TemplateRates {
    /// Computes rates from counts by template and bucket, over a number of buckets.
    pub(crate) fn new(counts: &[BTreeMap<i64, u64>], buckets: u64) -> Self {
        let total = buckets.max(1) as f64;
        let rate = |counts: &BTreeMap<i64, u64>| {
            let mean = counts.values().map(|count| *count as f64).sum::<f64>() / total;
            let square = |count: f64| (count - mean) * (count - mean);
            let zeros = (total - counts.len() as f64).max(0.0) * square(0.0);
            let variance = (counts.values().map(|count| square(*count as f64)).sum::<f64>() + zeros) / total;
            TemplateMoments { mean, dispersion: (variance / mean.max(f64::MIN_POSITIVE)).max(1.0) }
        };
        let rates = counts.iter().map(rate).collect();
        Self { is_trained: buckets >= MIN_BUCKETS, rates, open: BTreeMap::new(), closed: None }
    }

    /// Counts a line; returns how odd the count so far is, where it is more than expected.
    pub(crate) fn count(&mut self, bucket: i64, template: u32) -> f64 {
        if self.closed.is_some_and(|closed| bucket <= closed) {
            return 0.0;
        }
        let counts = self.open.entry(bucket).or_default();
        let count = counts.entry(template).or_default();
        *count += 1;
        let count = *count;
        if self.open.len() > MAX_OPEN_BUCKETS {
            self.open.pop_first();
        }
        let deviation = self.deviation(template, count);
        if deviation > 0.0 { oddness(deviation) } else { 0.0 }
    }

    /// Closes a bucket; returns count, expected count and oddness of each template that came or is expected.
    pub(crate) fn close(&mut self, bucket: i64) -> Vec<(u32, u64, f64, f64)> {
        let counts = self.open.remove(&bucket).unwrap_or_default();
        self.open.retain(|open, _| *open > bucket);
        self.closed = Some(self.closed.map_or(bucket, |closed| closed.max(bucket)));
        if !self.is_trained {
            return Vec::new();
        }
        let expected = (0..self.rates.len() as u32).filter(|template| !counts.contains_key(template));
        let absent = expected.map(|template| (template, 0));
        let mut rates: Vec<(u32, u64, f64, f64)> = counts
            .iter()
            .map(|(template, count)| (*template, *count))
            .chain(absent)
            .map(|(template, count)| {
                let mean = self.rates.get(template as usize).map_or(0.0, |rate| rate.mean);
                (template, count, mean, oddness(self.deviation(template, count)))
            })
            .collect();
        rates.sort_by_key(|rate| rate.0);
        rates
    }

    /// Returns the deviation of a count in standard deviations; 0 of a template that training did not have.
    fn deviation(&self, template: u32, count: u64) -> f64 {
        let Some(rate) = self.rates.get(template as usize).filter(|_| self.is_trained) else { return 0.0 };
        2.0 * ((count as f64 + 0.375).sqrt() - (rate.mean + 0.375).sqrt()) / rate.dispersion.sqrt()
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.u8(self.is_trained.into());
        out.count(self.rates.len());
        for rate in &self.rates {
            out.f64(rate.mean);
            out.f64(rate.dispersion);
        }
        out.count(self.open.len());
        for (bucket, counts) in &self.open {
            out.i64(*bucket);
            out.count(counts.len());
            for (template, count) in counts {
                out.u32(*template);
                out.u64(*count);
            }
        }
        out.u8(self.closed.is_some().into());
        out.i64(self.closed.unwrap_or_default());
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let is_trained = from.u8()? == 1;
        let mut rates = Vec::new();
        for _ in 0..from.count(MAX_TEMPLATES, 16)? {
            let rate = TemplateMoments { mean: from.finite()?, dispersion: from.finite()? };
            if rate.mean < 0.0 || rate.dispersion < 1.0 {
                return Err(corrupt("the rate of a template is wrong"));
            }
            rates.push(rate);
        }
        let mut open = BTreeMap::new();
        for _ in 0..from.count(MAX_OPEN_BUCKETS, 12)? {
            let bucket = from.i64()?;
            let mut counts = BTreeMap::new();
            for _ in 0..from.count(MAX_TEMPLATES, 12)? {
                // Capped, so that a count never overflows.
                counts.insert(from.u32()?, from.u64()?.min(u64::MAX / 2));
            }
            open.insert(bucket, counts);
        }
        let (has_closed, closed) = (from.u8()? == 1, from.i64()?);
        Ok(Self { is_trained, rates, open, closed: has_closed.then_some(closed) })
    }
}

/// Returns the share of a normal distribution within a deviation.
fn oddness(deviation: f64) -> f64 {
    libm::erf(deviation.abs() * std::f64::consts::FRAC_1_SQRT_2)
}
