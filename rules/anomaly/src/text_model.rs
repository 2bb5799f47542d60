//! [`TextDetector`], [`TextTrainer`], [`TextModel`]: templates and words of log lines, and lines that are odd.
//!
//! With Drain, the raw score of a line is how rare its template is: −ln of its share of the lines so far. A line is odd where its
//! template is new, rare, or more frequent in this bucket than in training. With TF-IDF, the raw score is that of the words.

use std::collections::BTreeMap;

use millrace_forecast::Random;

use crate::artefact::{ArtefactKind, ArtefactReader, ArtefactWriter, corrupt};
use crate::drain::{Drain, MAX_TEMPLATES, TemplateMatch};
use crate::error::{Error, Result};
use crate::mask::mask_line;
use crate::rank::{MAX_REFERENCE, ReferenceScores};
use crate::template_rates::TemplateRates;
use crate::tf_idf::TfIdf;

/// Bytes of a line that are read; the rest is cut at a character.
pub const MAX_LINE_BYTES: usize = 8_192;
/// Bytes of the example of a template.
const MAX_EXAMPLE_BYTES: usize = 512;
/// Counts by template and bucket that training keeps.
const MAX_COUNTS: usize = 1 << 20;

/// Detector of odd lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextDetector {
    /// Templates by Drain.
    Drain,
    /// Inverse document frequencies of words.
    TfIdf,
}

/// Score of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct TextScore {
    /// Number of the template; `None` with TF-IDF, and where the bounds of a model allow no further template.
    pub template: Option<u32>,
    /// True for the first line of its template.
    pub is_new: bool,
    /// Oddness of the template's count in this bucket so far, 0 to 1; 0 where it is not above the training's.
    pub rate: f64,
    /// Rank of the raw score, 0 to 1.
    pub novelty: f64,
    /// Score of the algorithm: a larger one is odder.
    pub raw: f64,
    /// The larger of `rate` and `novelty`; 1 of a new template.
    pub rank: f64,
}

/// Count of a template in a closed bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TemplateRate {
    /// Number of the template.
    pub template: u32,
    /// Lines of the bucket.
    pub count: u64,
    /// Mean number of lines in a training bucket; 0 of a template that training did not have.
    pub expected: f64,
    /// Oddness, 0 to 1.
    pub rank: f64,
}

/// Template with its history.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateProfile {
    /// Number of the template, in the order of first lines.
    pub id: u32,
    /// Words, with `<*>` for those that vary and masks such as `<NUM>`.
    pub text: String,
    /// Lines so far, training included.
    pub count: u64,
    /// The first line.
    pub example: String,
    /// Least bucket of a line.
    pub first_bucket: i64,
    /// Largest bucket of a line.
    pub last_bucket: i64,
}

/// History of a template.
#[derive(Clone, Debug, PartialEq)]
struct TemplateHistory {
    count: u64,
    example: String,
    first_bucket: i64,
    last_bucket: i64,
}

/// Trainer: takes lines in any order of their buckets.
#[derive(Clone, Debug)]
pub struct TextTrainer {
    detector: TextDetector,
    min_documents: usize,
    lines: u64,
    drain: Drain,
    history: Vec<TemplateHistory>,
    counts: Vec<BTreeMap<i64, u64>>,
    total_counts: usize,
    buckets: Option<(i64, i64)>,
    tf_idf: TfIdf,
    random: Random,
    /// Sample of masked lines (reservoir), whose scores are the reference.
    sample: Vec<String>,
    masked: String,
    has_rates: bool,
}

/// Trained model of lines, with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct TextModel {
    detector: TextDetector,
    lines: u64,
    drain: Drain,
    history: Vec<TemplateHistory>,
    rates: TemplateRates,
    tf_idf: TfIdf,
    reference: ReferenceScores,
}

impl TextDetector {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::TfIdf => "tf_idf",
        }
    }

    /// Returns the detector of a name.
    pub fn default_of(name: &str) -> Option<Self> {
        [Self::Drain, Self::TfIdf].into_iter().find(|detector| detector.name() == name)
    }

    /// Starts training that needs `min_documents` lines.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] where `min_documents` is 0.
    pub fn trainer(self, min_documents: usize, seed: u64) -> Result<TextTrainer> {
        if min_documents == 0 {
            let (parameter, allowed) = ("min_documents", "1 or more");
            return Err(Error::InvalidParameter { parameter, allowed, value: "0".to_owned() });
        }
        Ok(TextTrainer {
            detector: self,
            min_documents,
            lines: 0,
            drain: Drain::default(),
            history: Vec::new(),
            counts: Vec::new(),
            total_counts: 0,
            buckets: None,
            tf_idf: TfIdf::default(),
            random: Random::new(seed),
            sample: Vec::new(),
            masked: String::new(),
            has_rates: true,
        })
    }
}

impl TextTrainer {
    /// Takes a line of a bucket.
    pub fn push(&mut self, bucket: i64, line: &str) {
        let line = cut(line, MAX_LINE_BYTES);
        self.lines += 1;
        self.buckets = Some(self.buckets.map_or((bucket, bucket), |(a, b)| (a.min(bucket), b.max(bucket))));
        mask_line(line, &mut self.masked);
        match self.detector {
            TextDetector::Drain => self.push_template(bucket, line),
            TextDetector::TfIdf => {
                self.tf_idf.add(&self.masked);
                if self.sample.len() < MAX_REFERENCE {
                    self.sample.push(self.masked.clone());
                } else {
                    let place = self.random.below(self.lines.min(u64::from(u32::MAX)) as u32) as usize;
                    if let Some(sample) = self.sample.get_mut(place) {
                        sample.clone_from(&self.masked);
                    }
                }
            }
        }
    }

    fn push_template(&mut self, bucket: i64, line: &str) {
        let template = match self.drain.add(&self.masked) {
            TemplateMatch::Existing(template) => template as usize,
            TemplateMatch::New(template) => {
                self.history.push(TemplateHistory::new(bucket, line));
                self.counts.push(BTreeMap::new());
                template as usize
            }
            TemplateMatch::Full => return,
        };
        self.history[template].add(bucket);
        // Once there are too many, training fails, and no count is needed.
        if self.total_counts <= MAX_COUNTS {
            let counts = &mut self.counts[template];
            let before = counts.len();
            *counts.entry(bucket).or_default() += 1;
            self.total_counts += counts.len() - before;
        }
    }

    /// Returns the number of lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Leaves the rates of templates out, where the lines are a sample that lacks lines of buckets.
    pub fn ignore_rates(&mut self) {
        self.has_rates = false;
    }

    /// Ends training.
    ///
    /// # Errors
    /// [`Error::TooFew`]; [`Error::TooMany`] where templates have too many buckets.
    pub fn finish(mut self) -> Result<TextModel> {
        let (needed, available) = (self.min_documents, self.lines as usize);
        if available < needed {
            let (detector, unit) = (self.detector.name(), "lines");
            return Err(Error::TooFew { detector, unit, needed, available });
        }
        if self.total_counts > MAX_COUNTS {
            let subject = "the buckets of all templates together";
            return Err(Error::TooMany { subject, limit: MAX_COUNTS, actual: self.total_counts });
        }
        let buckets = self.buckets.map_or(0, |(first, last)| last.saturating_sub(first).saturating_add(1));
        self.tf_idf.shrink();
        let reference = match self.detector {
            TextDetector::Drain => self.template_reference(),
            TextDetector::TfIdf => {
                ReferenceScores::new(self.sample.iter().map(|line| self.tf_idf.score(line)).collect())
            }
        };
        Ok(TextModel {
            detector: self.detector,
            lines: self.lines,
            rates: TemplateRates::new(&self.counts, if self.has_rates { buckets.unsigned_abs() } else { 0 }),
            drain: self.drain,
            history: self.history,
            tf_idf: self.tf_idf,
            reference,
        })
    }

    /// Makes the reference of rareness: each template as often as it has lines, thinned evenly.
    fn template_reference(&self) -> ReferenceScores {
        let mut templates: Vec<(f64, u64)> =
            self.history.iter().map(|history| (rareness(history.count, self.lines), history.count)).collect();
        templates.sort_by(|one, other| one.0.total_cmp(&other.0));
        let lines: u64 = templates.iter().map(|(_, count)| count).sum();
        let count = lines.min(MAX_REFERENCE as u64);
        let (mut scores, mut passed, mut place) = (Vec::with_capacity(count as usize), 0, 0);
        for step in 0..count {
            let line = (u128::from(step) * u128::from(lines) / u128::from(count)) as u64;
            while passed + templates[place].1 <= line {
                passed += templates[place].1;
                place += 1;
            }
            scores.push(templates[place].0);
        }
        ReferenceScores::new(scores)
    }
}

impl TextModel {
    /// Returns the detector.
    pub fn detector(&self) -> TextDetector {
        self.detector
    }

    /// Scores a line, and counts it.
    pub fn observe(&mut self, bucket: i64, line: &str) -> TextScore {
        let line = cut(line, MAX_LINE_BYTES);
        let mut masked = String::with_capacity(line.len() + 16);
        mask_line(line, &mut masked);
        self.lines = self.lines.saturating_add(1);
        if self.detector == TextDetector::TfIdf {
            let raw = self.tf_idf.score(&masked);
            let novelty = self.reference.rank(raw);
            return TextScore { template: None, is_new: false, rate: 0.0, novelty, raw, rank: novelty };
        }
        let (template, is_new) = match self.drain.add(&masked) {
            TemplateMatch::Existing(template) => (template, false),
            TemplateMatch::New(template) => {
                self.history.push(TemplateHistory::new(bucket, line));
                (template, true)
            }
            TemplateMatch::Full => {
                let raw = rareness(0, self.lines);
                return TextScore { template: None, is_new: false, rate: 0.0, novelty: 1.0, raw, rank: 1.0 };
            }
        };
        let history = &mut self.history[template as usize];
        history.add(bucket);
        let raw = rareness(history.count, self.lines);
        let rate = self.rates.count(bucket, template);
        let novelty = if is_new { 1.0 } else { self.reference.rank(raw) };
        TextScore { template: Some(template), is_new, rate, novelty, raw, rank: novelty.max(rate) }
    }

    /// Closes a bucket and those before it: returns the counts of templates that came in it, and of those that training expects.
    pub fn close_bucket(&mut self, bucket: i64) -> Vec<TemplateRate> {
        let rates = self.rates.close(bucket).into_iter();
        rates
            .map(|(template, count, expected, rank)| TemplateRate { template, count, expected, rank })
            .collect()
    }

    /// Returns the templates, the most frequent first.
    pub fn templates(&self) -> Vec<TemplateProfile> {
        let profile = |(id, history): (usize, &TemplateHistory)| TemplateProfile {
            id: id as u32,
            text: self.drain.text(id as u32).unwrap_or_default(),
            count: history.count,
            example: history.example.clone(),
            first_bucket: history.first_bucket,
            last_bucket: history.last_bucket,
        };
        let mut templates: Vec<TemplateProfile> = self.history.iter().enumerate().map(profile).collect();
        templates.sort_by_key(|template| (std::cmp::Reverse(template.count), template.id));
        templates
    }

    /// Returns the text of a template.
    pub fn template_text(&self, id: u32) -> Option<String> {
        self.drain.text(id)
    }

    /// Returns the number of lines so far, training included.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Writes the model with its state as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = ArtefactWriter::new(ArtefactKind::Text);
        out.u8(self.detector as u8);
        out.u64(self.lines);
        self.drain.encode(&mut out);
        for history in &self.history {
            out.u64(history.count);
            out.text(&history.example);
            out.i64(history.first_bucket);
            out.i64(history.last_bucket);
        }
        self.rates.encode(&mut out);
        self.tf_idf.encode(&mut out);
        self.reference.encode(&mut out);
        out.finish()
    }

    /// Reads the bytes of [`TextModel::encode`].
    ///
    /// # Errors
    /// [`Error::OldVersion`], [`Error::Corrupt`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = ArtefactReader::new(bytes, ArtefactKind::Text)?;
        let detector = match from.u8()? {
            0 => TextDetector::Drain,
            1 => TextDetector::TfIdf,
            _ => return Err(corrupt("its detector is not known")),
        };
        let lines = from.u64()?;
        let drain = Drain::decode(&mut from)?;
        let mut history = Vec::with_capacity(drain.len());
        for _ in 0..drain.len().min(MAX_TEMPLATES) {
            let (count, example) = (from.u64()?, from.text(MAX_EXAMPLE_BYTES)?);
            let (first_bucket, last_bucket) = (from.i64()?, from.i64()?);
            history.push(TemplateHistory { count, example, first_bucket, last_bucket });
        }
        let rates = TemplateRates::decode(&mut from)?;
        let (tf_idf, reference) = (TfIdf::decode(&mut from)?, ReferenceScores::decode(&mut from)?);
        from.finish()?;
        Ok(Self { detector, lines, drain, history, rates, tf_idf, reference })
    }
}

impl TemplateHistory {
    fn new(bucket: i64, line: &str) -> Self {
        let example = cut(line, MAX_EXAMPLE_BYTES).to_owned();
        Self { count: 0, example, first_bucket: bucket, last_bucket: bucket }
    }

    fn add(&mut self, bucket: i64) {
        self.count = self.count.saturating_add(1);
        self.first_bucket = self.first_bucket.min(bucket);
        self.last_bucket = self.last_bucket.max(bucket);
    }
}

/// Returns −ln of the share of lines, with one added to either so that it is finite.
fn rareness(count: u64, lines: u64) -> f64 {
    libm::log((lines as f64 + 1.0) / (count as f64 + 1.0)).max(0.0)
}

/// Cuts a text at the last character that fits.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(detector: TextDetector) -> TextModel {
        let mut trainer = detector.trainer(100, 1).unwrap();
        for at in 0..5_000_u32 {
            let bucket = i64::from(at / 100);
            match at % 100 {
                99 => trainer.push(bucket, &format!("backup of volume {at} finished")),
                _ if at % 2 == 0 => {
                    trainer.push(bucket, &format!("session opened for user u{at} from 10.0.0.{}", at % 250))
                }
                _ => trainer.push(bucket, &format!("request {at} served in {} ms", at % 17)),
            }
        }
        trainer.finish().unwrap()
    }

    #[test]
    fn new_templates_and_odd_rates_stand_out() {
        let mut model = trained(TextDetector::Drain);
        assert_eq!(model.templates().len(), 3);
        assert_eq!(model.templates()[0].count, 2500);
        let usual = model.observe(50, "request 7 served in 3 ms");
        assert!(!usual.is_new && usual.rank < 0.9, "{usual:?}");
        let new = model.observe(50, "kernel panic: not syncing");
        assert!(new.is_new && new.rank == 1.0, "{new:?}");
        let mut last = usual;
        (0..200).for_each(|at| last = model.observe(50, &format!("backup of volume {at} finished")));
        assert!(last.rate > 0.999, "{last:?}");
        let rates = model.close_bucket(50);
        let template = last.template.unwrap();
        assert!(rates.iter().any(|rate| rate.template == template && rate.count == 200 && rate.rank > 0.999));
        let absent = rates.iter().find(|rate| rate.count == 0).unwrap();
        assert!(absent.expected > 40.0 && absent.rank > 0.999, "{absent:?}");
        assert_eq!(model.observe(50, "request 7 served in 3 ms").rate, 0.0, "the bucket is closed");
    }

    #[test]
    fn a_sample_of_lines_has_no_rates() {
        let mut trainer = TextDetector::Drain.trainer(100, 1).unwrap();
        (0..1_000).for_each(|at| trainer.push(at / 10, "backup finished"));
        trainer.ignore_rates();
        let mut model = trainer.finish().unwrap();
        let scores = (0..1_000).map(|_| model.observe(100, "backup finished"));
        assert!(scores.into_iter().all(|score| score.rate == 0.0));
    }

    #[test]
    fn words_that_are_rare_stand_out() {
        let mut model = trained(TextDetector::TfIdf);
        let usual = model.observe(1, "request 12345 served in 3 ms").rank;
        let odd = model.observe(1, "segmentation fault in libssl").rank;
        assert!(usual < 0.9 && odd == 1.0, "{usual} {odd}");
    }

    #[test]
    fn models_survive_bytes_and_hostile_ones_are_refused() {
        let mut random = Random::new(4);
        for detector in [TextDetector::Drain, TextDetector::TfIdf] {
            let mut model = trained(detector);
            model.observe(51, "kernel panic: not syncing");
            let bytes = model.encode();
            let mut read = TextModel::decode(&bytes).unwrap();
            assert_eq!(read, model);
            assert_eq!(read.observe(51, "a new line"), model.observe(51, "a new line"));
            for _ in 0..500 {
                let mut changed = bytes[..bytes.len() - 4].to_vec();
                let at = random.below(changed.len() as u32) as usize;
                changed[at] = random.below(256) as u8;
                let sum = crc32c::crc32c(&changed);
                changed.extend_from_slice(&sum.to_le_bytes());
                if let Ok(mut model) = TextModel::decode(&changed) {
                    model.observe(51, "request 1 served in 5 ms");
                    let _ = (model.templates(), model.close_bucket(51));
                }
                assert!(TextModel::decode(&bytes[..at]).is_err());
            }
        }
    }

    #[test]
    fn too_few_lines_are_refused() {
        let mut trainer = TextDetector::Drain.trainer(10, 1).unwrap();
        trainer.push(0, "one");
        let (detector, unit) = ("drain", "lines");
        assert_eq!(trainer.finish().unwrap_err(), Error::TooFew { detector, unit, needed: 10, available: 1 });
        assert!(TextDetector::Drain.trainer(0, 1).is_err());
        let mut model = trained(TextDetector::Drain);
        model.observe(1, &"ż".repeat(10_000));
    }
}
