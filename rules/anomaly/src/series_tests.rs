//! Tests of series detectors: planted buckets, late values, bytes, and errors.

use millrace_forecast::Random;

use crate::{Error, ScoreCutoff, Series, SeriesDetector, SeriesModel};

const NAMES: [&str; 2] = ["seasonal_decomposition", "random_cut_forest"];

fn sample(at: usize, random: &mut Random) -> f64 {
    let wave = [0.0, 4.0, 9.0, 12.0, 9.0, 4.0, 0.0, -4.0, -9.0, -12.0, -9.0, -4.0][at % 12];
    100.0 + wave + 2.0 * random.uniform()
}

fn window(count: usize) -> Series {
    let mut random = Random::new(1);
    Series::new((0..count).map(|at| (at != 77).then(|| sample(at, &mut random))).collect()).unwrap()
}

#[test]
fn planted_buckets_rank_highest() {
    for name in NAMES {
        let detector = SeriesDetector::default_of(name).unwrap();
        let mut model = detector.train(&window(600), 1000, None, 4).unwrap();
        assert_eq!((model.seasons(), model.latest()), (&[12][..], 1599), "{name}");
        assert_eq!(model.training_scores().len(), 600);
        // Above each score of the window: two tests of a bucket exceed the second highest one now and then.
        let threshold = if name == NAMES[0] { 0.999 } else { 0.998 };
        let cutoff = ScoreCutoff::new(Some(threshold), None).unwrap();
        let (mut random, mut hits, mut flagged) = (Random::new(9), 0, 0);
        for at in 600..1200 {
            let odd = at % 60 == 31;
            let value = sample(at, &mut random) + if odd { 25.0 } else { 0.0 };
            let score = model.observe(1000 + at as i64, Some(value)).unwrap();
            let flag = cutoff.flags(score.rank);
            // Shingles with a planted bucket are odd for their whole length.
            flagged += u32::from(flag && (name == NAMES[0] || at % 60 < 31));
            hits += u32::from(flag && odd);
            assert!(score.lower <= score.expected && score.expected <= score.upper);
        }
        assert!(hits >= 9, "{name}: {hits} hits");
        if name == NAMES[0] {
            assert!(flagged <= hits + 2, "{name}: {flagged} flagged, {hits} hits");
        }
    }
}

#[test]
fn values_beyond_the_window_are_usual_where_the_expectation_follows_them() {
    let cutoff = ScoreCutoff::new(Some(0.999), None).unwrap();
    let mut random = Random::new(12);
    let mut noise = || random.uniform() + random.uniform() + random.uniform() - 1.5;
    for (slope, step, allowed) in [(0.05, 0.0, 8), (0.0, 3.0, 40)] {
        let mut sample = |at: usize| {
            let level = if at < 1_210 { 0.0 } else { step };
            Some(100.0 + slope * at as f64 + level + noise())
        };
        let window = Series::new((0..1_200).map(&mut sample).collect()).unwrap();
        let mut model = SeriesDetector::SeasonalDecomposition.train(&window, 0, None, 4).unwrap();
        let flags = (1_200..1_320).filter(|at| {
            let score = model.observe(*at as i64, sample(*at)).unwrap();
            cutoff.flags(score.rank)
        });
        let flagged = flags.count();
        assert!(flagged <= allowed, "slope {slope}, step {step}: {flagged} flagged");
        assert!(step == 0.0 || flagged > 0);
    }
}

#[test]
fn expectations_are_near_and_their_bounds_hold() {
    for name in NAMES {
        let detector = SeriesDetector::default_of(name).unwrap();
        let mut model = detector.train(&window(600), 0, Some(12), 4).unwrap();
        let (mut random, mut within) = (Random::new(10), 0);
        for at in 600..800 {
            let value = sample(at, &mut random);
            let score = model.observe(at as i64, Some(value)).unwrap();
            within += u32::from(score.lower <= value && value <= score.upper);
            assert!((score.expected - value).abs() < 8.0, "{name} {score:?} {value}");
        }
        assert!(within >= 175, "{name} {within}");
    }
}

#[test]
fn late_values_give_the_scores_of_values_in_time() {
    let detector = SeriesDetector::SeasonalDecomposition;
    let mut model = detector.train(&window(240), 0, None, 4).unwrap();
    let mut in_time = model.clone();
    let mut random = Random::new(3);
    let values: Vec<f64> = (240..280).map(|at| sample(at, &mut random)).collect();
    let mut expected = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let bucket = 240 + at as i64;
        expected.push((bucket, in_time.observe(bucket, Some(*value)).unwrap()));
        model.observe(bucket, (at != 10).then_some(*value)).unwrap();
    }
    assert_ne!(model, in_time);
    let revised = model.revise(250, Some(values[10])).unwrap();
    assert_eq!(revised, expected[10..]);
    assert_eq!(model, in_time);
    assert!(matches!(model.revise(-100, None), Err(Error::Forgotten { .. })));
    assert!(matches!(model.revise(900, None), Err(Error::OutOfOrder { .. })));
    assert!(matches!(model.observe(279, None), Err(Error::OutOfOrder { .. })));
    let forest = SeriesDetector::default_of(NAMES[1]).unwrap();
    let mut model = forest.train(&window(240), 0, None, 4).unwrap();
    assert_eq!(model.revise(230, Some(300.0)).unwrap().len(), 10);
    assert!(model.revise(239, Some(300.0)).unwrap()[0].1.rank > 0.99);
}

#[test]
fn models_survive_bytes_and_hostile_ones_are_refused() {
    let mut random = Random::new(6);
    for name in NAMES {
        let detector = match SeriesDetector::default_of(name).unwrap() {
            SeriesDetector::RandomCutForest { shingle, .. } => {
                SeriesDetector::RandomCutForest { trees: 2, shingle }
            }
            other => other,
        };
        let mut model = detector.train(&window(240), -500, None, 4).unwrap();
        assert_eq!(model, detector.train(&window(240), -500, None, 4).unwrap());
        model.clear_training_scores();
        let bytes = model.encode();
        let mut read = SeriesModel::decode(&bytes).unwrap();
        assert_eq!(read, model, "{name}");
        assert_eq!(read.observe(-200, Some(90.0)), model.observe(-200, Some(90.0)));
        assert_eq!(read, model, "{name}");
        for _ in 0..300 {
            let mut changed = bytes[..bytes.len() - 4].to_vec();
            let at = random.below(changed.len() as u32) as usize;
            changed[at] = random.below(256) as u8;
            let sum = crc32c::crc32c(&changed);
            changed.extend_from_slice(&sum.to_le_bytes());
            if let Ok(mut model) = SeriesModel::decode(&changed) {
                for step in 1..4 {
                    let _ = model.observe(model.latest() + step, Some(90.0));
                }
                let _ = model.revise(model.oldest_revisable(), None);
            }
            assert!(SeriesModel::decode(&bytes[..at]).is_err());
        }
    }
}

#[test]
fn series_that_teach_nothing_are_told() {
    let series = |values: Vec<Option<f64>>| Series::new(values).unwrap();
    for name in NAMES {
        let detector = SeriesDetector::default_of(name).unwrap();
        let train = |values, season| detector.train(&series(values), 0, season, 1).map(|_| ());
        assert_eq!(train(vec![None; 50], None), Err(Error::AllMissing { feature: None }));
        assert_eq!(train(vec![Some(3.0); 50], None), Err(Error::Constant));
        assert!(matches!(train(vec![Some(3.0); 5], None), Err(Error::TooFew { .. })));
        let values: Vec<Option<f64>> = (0..50).map(|at| Some(f64::from(at))).collect();
        assert_eq!(train(values.clone(), Some(26)), Err(Error::SeasonTooLong { season: 26, buckets: 50 }));
        assert!(matches!(train(values, Some(1)), Err(Error::InvalidParameter { .. })));
        let extreme: Vec<Option<f64>> = (0..50).map(|at| Some(f64::from(at % 3 - 1) * 1e308)).collect();
        if let Ok(mut model) = detector.train(&series(extreme), 0, None, 1) {
            let score = model.observe(i64::MAX / 4, Some(-1e308)).unwrap();
            assert!(score.raw.is_finite() && (0.0..=1.0).contains(&score.rank), "{name} {score:?}");
            assert!(model.observe(i64::MAX / 3, Some(f64::INFINITY)).is_err());
        }
    }
}
