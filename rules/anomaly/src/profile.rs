//! [`ClusterProfile`]: the rows of a cluster in numbers.

use crate::artefact::{ArtefactReader, ArtefactWriter};
use crate::error::Result;
use crate::table::FeatureTable;

/// Summary of a cluster over the training rows that were clustered.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterProfile {
    /// Number of the cluster; `None` is noise.
    pub cluster: Option<u32>,
    /// Rows of the cluster.
    pub rows: usize,
    /// Summary of each feature.
    pub features: Vec<FeatureProfile>,
}

/// Summary of one feature within a cluster, in the units of the source. Numbers are `NaN` where all values are missing.
#[derive(Clone, Copy, Debug)]
pub struct FeatureProfile {
    /// Mean of the values.
    pub mean: f64,
    /// Standard deviation of the values.
    pub deviation: f64,
    /// Least value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Share of rows that miss the feature.
    pub missing: f64,
}

impl FeatureProfile {
    fn numbers(&self) -> [f64; 5] {
        [self.mean, self.deviation, self.min, self.max, self.missing]
    }
}

/// Compares bits, so that absent numbers are equal.
impl PartialEq for FeatureProfile {
    fn eq(&self, other: &Self) -> bool {
        self.numbers().map(f64::to_bits) == other.numbers().map(f64::to_bits)
    }
}

/// Summarizes clusters in their order, noise last.
pub(crate) fn profile_clusters(
    table: &FeatureTable,
    rows: &[usize],
    labels: &[Option<u32>],
    clusters: usize,
) -> Vec<ClusterProfile> {
    let mut members = vec![Vec::new(); clusters + 1];
    for (row, label) in rows.iter().zip(labels) {
        members[label.map_or(clusters, |label| label as usize)].push(*row);
    }
    let profile = |(cluster, rows): (usize, Vec<usize>)| {
        let cluster = (cluster < clusters).then_some(cluster as u32);
        let features = (0..table.features()).map(|feature| profile_feature(table, &rows, feature)).collect();
        (cluster.is_some() || !rows.is_empty()).then_some(ClusterProfile {
            cluster,
            rows: rows.len(),
            features,
        })
    };
    members.into_iter().enumerate().filter_map(profile).collect()
}

fn profile_feature(table: &FeatureTable, rows: &[usize], feature: usize) -> FeatureProfile {
    let values: Vec<f64> =
        rows.iter().map(|row| table.value(*row, feature)).filter(|value| !value.is_nan()).collect();
    let count = values.len() as f64;
    let missing = 1.0 - count / rows.len().max(1) as f64;
    if values.is_empty() {
        return FeatureProfile { mean: f64::NAN, deviation: f64::NAN, min: f64::NAN, max: f64::NAN, missing };
    }
    // Divided before the sum, so that large values do not leave the range of numbers.
    let mean = values.iter().map(|value| value / count).sum::<f64>();
    let variance = values.iter().map(|value| (value - mean) * ((value - mean) / count)).sum::<f64>();
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    FeatureProfile { mean, deviation: variance.sqrt(), min, max, missing }
}

pub(crate) fn encode_profiles(profiles: &[ClusterProfile], out: &mut ArtefactWriter) {
    out.count(profiles.len());
    for profile in profiles {
        out.cluster(profile.cluster);
        out.u64(profile.rows as u64);
        profile.features.iter().flat_map(FeatureProfile::numbers).for_each(|number| out.f64(number));
    }
}

pub(crate) fn decode_profiles(
    from: &mut ArtefactReader<'_>,
    features: usize,
    clusters: usize,
) -> Result<Vec<ClusterProfile>> {
    let count = from.count(clusters + 1, 12 + features * 40)?;
    let mut profiles = Vec::with_capacity(count);
    for _ in 0..count {
        let cluster = from.cluster(clusters)?;
        let rows = from.u64()? as usize;
        let mut own = Vec::with_capacity(features);
        for _ in 0..features {
            let (mean, deviation, min) = (from.f64()?, from.f64()?, from.f64()?);
            let (max, missing) = (from.f64()?, from.f64()?);
            own.push(FeatureProfile { mean, deviation, min, max, missing });
        }
        profiles.push(ClusterProfile { cluster, rows, features: own });
    }
    Ok(profiles)
}
