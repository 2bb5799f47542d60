//! Tests of row detectors: planted anomalies, missing values, bytes, and errors.

use std::sync::atomic::AtomicBool;

use millrace_forecast::Random;

use crate::artefact::ArtefactReader;
use crate::{Error, FeatureTable, RowDetector, RowModel, ScoreCutoff};

const NAMES: [&str; 5] = ["isolation_forest", "local_outlier_factor", "kmeans", "dbscan", "hdbscan"];

/// Two blobs of three features, and a far row in every fifty.
fn planted(rows: usize, seed: u64) -> (FeatureTable, Vec<bool>) {
    let mut random = Random::new(seed);
    let mut table = FeatureTable::new(3).unwrap();
    let mut is_odd = Vec::new();
    for row in 0..rows {
        let center = if row % 2 == 0 { 0.0 } else { 10.0 };
        // The sum of four uniform numbers is close to normal.
        let mut noise = || (0..4).map(|_| random.uniform() - 0.5).sum::<f64>();
        let odd = row % 50 == 7;
        let away = if odd { 30.0 + 5.0 * noise() } else { 0.0 };
        table.push(&[center + noise(), center + noise(), away + noise()]).unwrap();
        is_odd.push(odd);
    }
    (table, is_odd)
}

fn detector(name: &str) -> RowDetector {
    match RowDetector::default_of(name).unwrap() {
        RowDetector::KMeans { .. } => RowDetector::KMeans { clusters: 3 },
        RowDetector::Hdbscan { .. } => RowDetector::Hdbscan { min_samples: 30 },
        RowDetector::Dbscan { .. } => RowDetector::Dbscan { eps: None, min_samples: 20 },
        RowDetector::LocalOutlierFactor { .. } => RowDetector::LocalOutlierFactor { neighbors: 40 },
        other => other,
    }
}

#[test]
fn planted_rows_rank_highest_and_blame_their_feature() {
    let (table, _) = planted(1000, 1);
    let (arriving, is_odd) = planted(1000, 2);
    for name in NAMES {
        let model = detector(name).train(&table, 7).unwrap();
        let cutoff = ScoreCutoff::new(None, Some(0.021)).unwrap();
        let (mut hits, mut flagged) = (0, 0);
        for (row, odd) in is_odd.iter().enumerate() {
            let score = model.score(&arriving.row(row)).unwrap();
            let flag = model.is_anomalous(&score, cutoff);
            flagged += u32::from(flag);
            hits += u32::from(flag && *odd);
            if *odd && name != "kmeans" {
                assert!(score.contributions[2] > 0.4, "{name} {row}: {:?}", score.contributions);
            }
        }
        let (precision, recall) = (f64::from(hits) / f64::from(flagged.max(1)), f64::from(hits) / 20.0);
        assert!(precision >= 0.9 && recall >= 0.9, "{name}: precision {precision}, recall {recall}");
    }
}

#[test]
fn clusters_are_the_blobs() {
    let (table, is_odd) = planted(1000, 1);
    for name in ["kmeans", "dbscan", "hdbscan"] {
        let model = detector(name).train(&table, 7).unwrap();
        let cluster = |row: usize| model.score(&table.row(row)).unwrap().cluster;
        let normal: Vec<usize> = (0..1000).filter(|row| !is_odd[*row]).collect();
        let agree = |from: usize| {
            let own = cluster(from);
            assert!(own.is_some(), "{name}");
            normal.iter().filter(|row| *row % 2 == from % 2).filter(|row| cluster(**row) == own).count()
        };
        assert!(agree(0) + agree(1) >= 950, "{name}: {} {}", agree(0), agree(1));
        assert_ne!(cluster(0), cluster(1), "{name}");
        let rows: usize = model.profiles().iter().map(|profile| profile.rows).sum();
        assert_eq!(rows, 1000, "{name}");
        assert_eq!(model.projection().points.len(), 1000, "{name}");
    }
}

#[test]
fn models_come_back_from_bytes_and_score_the_same() {
    let (table, _) = planted(300, 1);
    for name in NAMES {
        let model = detector(name).train(&table, 7).unwrap();
        assert_eq!(model, detector(name).train(&table, 7).unwrap(), "{name}: a seed gives one model");
        let read = RowModel::decode(&model.encode()).unwrap();
        assert_eq!(read, model, "{name}");
        let row = [1.0, f64::NAN, 4.0];
        assert_eq!(read.score(&row), model.score(&row), "{name}");
        assert_eq!(read.score(&row).unwrap().rank, 1.0, "{name}: no training row misses a value");
    }
}

#[test]
fn rows_have_the_same_scores_together() {
    let (table, _) = planted(300, 1);
    let (arriving, _) = planted(53, 2);
    let cutoff = ScoreCutoff::new(None, Some(0.05)).unwrap();
    for name in NAMES {
        let model = detector(name).train(&table, 7).unwrap();
        for count in [0, 1, 7, 8, 53] {
            let mut rows: Vec<f64> = (0..count).flat_map(|row| arriving.row(row)).collect();
            if count > 7 {
                rows[3] = f64::NAN;
            }
            let scores = model.score_all(&rows, cutoff).unwrap();
            assert_eq!(scores.len(), count, "{name}");
            for (row, score) in rows.chunks(3).zip(&scores) {
                let alone = model.score(row).unwrap();
                assert_eq!(score.raw.to_bits(), alone.raw.to_bits(), "{name} {row:?}");
                assert_eq!((score.rank, score.cluster), (alone.rank, alone.cluster), "{name} {row:?}");
                if model.is_anomalous(score, cutoff) || !score.contributions.is_empty() {
                    assert_eq!(score.contributions, alone.contributions, "{name} {row:?}");
                }
            }
        }
        assert_eq!(model.score_all(&[1.0; 4], cutoff), Err(Error::WrongWidth { expected: 3, actual: 1 }));
        let infinite = [1.0, 2.0, 3.0, 1.0, f64::INFINITY, 3.0];
        assert_eq!(model.score_all(&infinite, cutoff), Err(Error::Infinite { feature: 1 }), "{name}");
    }
}

#[test]
fn changed_bytes_are_refused_or_harmless() {
    let (table, _) = planted(120, 1);
    let mut random = Random::new(9);
    for name in NAMES {
        let bytes = detector(name).train(&table, 7).unwrap().encode();
        for _ in 0..400 {
            let at = random.below(bytes.len() as u32) as usize;
            let mut changed = bytes.clone();
            changed[at] ^= 1 << random.below(8);
            assert!(RowModel::decode(&changed).is_err(), "{name} byte {at}");
            assert!(RowModel::decode(&bytes[..at]).is_err(), "{name} {at} bytes");
            // A right checksum is not believed either.
            changed.truncate(bytes.len() - 4);
            let sum = crc32c::crc32c(&changed);
            changed.extend_from_slice(&sum.to_le_bytes());
            if let Ok(model) = RowModel::decode(&changed) {
                let row = vec![1.0; model.features()];
                let _ = model.score(&row);
                let _ = model.score_all(&row, ScoreCutoff::Contamination(0.5));
            }
        }
    }
    assert!(ArtefactReader::new(&[], crate::artefact::ArtefactKind::Rows).is_err());
}

#[test]
fn missing_values_are_a_dimension_of_their_own() {
    let mut random = Random::new(5);
    let mut table = FeatureTable::new(2).unwrap();
    for row in 0..2000 {
        let second = if row % 100 == 0 { f64::NAN } else { random.uniform() };
        table.push(&[random.uniform(), second]).unwrap();
    }
    for name in ["isolation_forest", "local_outlier_factor", "dbscan"] {
        let model = RowDetector::default_of(name).unwrap().train(&table, 3).unwrap();
        let (missing, normal) = (model.score(&[0.5, f64::NAN]).unwrap(), model.score(&[0.5, 0.5]).unwrap());
        if name == "isolation_forest" {
            assert!(missing.rank > 0.9, "{name} {missing:?}");
            assert!(missing.contributions[1] > missing.contributions[0], "{missing:?}");
        }
        assert!(missing.rank.is_finite() && normal.rank.is_finite());
    }
}

#[test]
fn what_teaches_nothing_is_refused() {
    let mut constant = FeatureTable::new(2).unwrap();
    (0..100).for_each(|_| constant.push(&[1.0, 2.0]).unwrap());
    let mut missing = FeatureTable::new(2).unwrap();
    (0..100).for_each(|row| missing.push(&[f64::from(row), f64::NAN]).unwrap());
    let mut empty = FeatureTable::new(1).unwrap();
    (0..100).for_each(|_| empty.push(&[f64::NAN]).unwrap());
    for name in NAMES {
        let detector = RowDetector::default_of(name).unwrap();
        assert_eq!(detector.train(&constant, 1).unwrap_err(), Error::Constant, "{name}");
        assert_eq!(
            detector.train(&missing, 1).unwrap_err(),
            Error::AllMissing { feature: Some(1) },
            "{name}"
        );
        assert_eq!(detector.train(&empty, 1).unwrap_err(), Error::AllMissing { feature: None }, "{name}");
        let few = FeatureTable::new(1).unwrap();
        assert!(matches!(detector.train(&few, 1), Err(Error::TooFew { .. })), "{name}");
    }
    let mut table = FeatureTable::new(2).unwrap();
    assert_eq!(table.push(&[1.0]), Err(Error::WrongWidth { expected: 2, actual: 1 }));
    assert_eq!(table.push(&[1.0, f64::NEG_INFINITY]), Err(Error::Infinite { feature: 1 }));
    assert_eq!(table.rows(), 0);
    assert!(RowDetector::KMeans { clusters: 0 }.train(&table, 1).is_err());
    assert!(FeatureTable::new(0).is_err() && FeatureTable::new(65).is_err());
}

#[test]
fn extreme_values_do_not_break_models() {
    let mut table = FeatureTable::new(2).unwrap();
    for row in 0..100 {
        table.push(&[f64::from(row) * 1e306, if row == 5 { 1e308 } else { -1e308 }]).unwrap();
    }
    for name in NAMES {
        match RowDetector::default_of(name).unwrap().train(&table, 1) {
            Ok(model) => {
                let score = model.score(&[1e308, -1e308]).unwrap();
                assert!(score.raw.is_finite() && (0.0..=1.0).contains(&score.rank), "{name} {score:?}");
                assert_eq!(RowModel::decode(&model.encode()).unwrap(), model, "{name}");
            }
            Err(error) => assert!(matches!(error, Error::InvalidParameter { .. }), "{name} {error}"),
        }
    }
}

#[test]
fn a_cancelled_training_ends_before_its_model_is_made() {
    let (table, _) = planted(500, 3);
    for name in NAMES {
        let outcome = detector(name).train_cancellable(&table, 7, &AtomicBool::new(true));
        let cancelled = Error::Forecast(millrace_forecast::Error::Cancelled);
        assert_eq!(outcome.unwrap_err(), cancelled, "{name}");
        assert_eq!(
            detector(name).train_cancellable(&table, 7, &AtomicBool::new(false)),
            detector(name).train(&table, 7)
        );
    }
}
