//! [`FrameScoring`]: scores of the documents of frames, some thousand results at a time. What is scored is written before more is, so
//! that frames of many documents with many detectors take no more memory than others.
//!
//! Text models take each line in its turn. Rows wait until there are some hundred of a model, also of several frames, and are scored
//! together.

use std::collections::BTreeMap;
use std::vec::IntoIter;

use millrace_percolator::Evaluable;
use millrace_rules::engine::{Frame, RuleMatches};

use super::frame_columns::{ColumnPlace, EventCounts, FrameColumns};
use super::results::ScoredDocument;
use super::row_results::RowDocument;
use super::scoring::{ArrivedEvent, LiveDetector};

/// Results that are handed over at once, and the bytes of their documents, about.
const MAX_RESULTS: usize = 8_000;
const MAX_RESULT_BYTES: usize = 8 << 20;
/// Rows of a model that are scored at once.
const MAX_BATCH_ROWS: usize = 512;
/// Rows that wait in all of them.
const MAX_WAITING_ROWS: usize = 1 << 16;

/// Rows that wait for the model of a detector and value.
#[derive(Debug, Default)]
pub(crate) struct RowBatch {
    pub(crate) documents: Vec<RowDocument>,
    /// The numbers of the rows, one row behind another.
    pub(crate) numbers: Vec<f64>,
}

/// Results of a piece.
#[derive(Debug)]
pub(crate) struct ScoredBatch {
    pub(crate) documents: Vec<ScoredDocument>,
    bytes: usize,
    max_results: usize,
}

/// Frames whose documents are being scored.
#[derive(Debug)]
pub(crate) struct FrameScoring {
    frames: IntoIter<Evaluable>,
    frame: Option<Frame>,
    columns: FrameColumns,
    /// Detectors that are not asked of the frame yet.
    matched: IntoIter<RuleMatches>,
    /// The detector that is asked, and the places of its events.
    detector: String,
    places: IntoIter<usize>,
    /// Its columns of the frame: the time, and its fields where it scores rows.
    time_column: ColumnPlace,
    number_columns: Vec<ColumnPlace>,
    /// Rows by detector and place of the value.
    batches: BTreeMap<String, BTreeMap<usize, RowBatch>>,
    /// Rows in all of these.
    waiting: usize,
    committed: u64,
    from_ms: Option<i64>,
    max_results: usize,
    is_done: bool,
}

impl ScoredBatch {
    /// Begins a piece of so many results, about.
    fn new(max_results: usize) -> Self {
        Self { documents: Vec::new(), bytes: 0, max_results }
    }

    /// Adds a result.
    pub(crate) fn push(&mut self, document: ScoredDocument) {
        self.bytes += document.source.len();
        self.documents.push(document);
    }

    fn is_full(&self) -> bool {
        self.documents.len() >= self.max_results || self.bytes >= MAX_RESULT_BYTES
    }
}

impl FrameScoring {
    /// Begins with matched frames. Of frames before `committed` results are written already: text models observe them alone. Documents
    /// before `from_ms` are left out.
    pub(crate) fn new(frames: Vec<Evaluable>, committed: u64, from_ms: Option<i64>) -> Self {
        Self {
            frames: frames.into_iter(),
            frame: None,
            columns: FrameColumns::default(),
            matched: Vec::new().into_iter(),
            detector: String::new(),
            places: Vec::new().into_iter(),
            time_column: None,
            number_columns: Vec::new(),
            batches: BTreeMap::new(),
            waiting: 0,
            committed,
            from_ms,
            max_results: MAX_RESULTS,
            is_done: false,
        }
    }

    /// Hands over pieces of so many results, about.
    pub(crate) fn in_pieces_of(self, max_results: usize) -> Self {
        Self { max_results, ..self }
    }

    /// Returns true once all is scored.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Scores the next piece. A detector whose model panics has its [`LiveDetector::failure`] set; its results up to then are valid.
    pub(crate) fn run(&mut self, detectors: &mut BTreeMap<String, LiveDetector>) -> Vec<ScoredDocument> {
        let mut results = ScoredBatch::new(self.max_results);
        while !results.is_full() {
            if self.waiting >= MAX_WAITING_ROWS && self.score_waiting(detectors, &mut results) {
                continue;
            }
            if !self.places.as_slice().is_empty() {
                self.score_events(detectors, &mut results);
            } else if !self.advance(detectors) && !self.score_waiting(detectors, &mut results) {
                self.is_done = true;
                // Freed here, not on a thread of the runtime.
                (self.frame, self.batches) = (None, BTreeMap::new());
                self.columns.clear();
                break;
            }
        }
        results.documents
    }

    /// Goes on to the next detector of the frame, or to the next frame; false where there is none.
    fn advance(&mut self, detectors: &mut BTreeMap<String, LiveDetector>) -> bool {
        if let Some(matches) = self.matched.next() {
            match (matches.outcome, detectors.get_mut(&matches.rule)) {
                (Ok(places), Some(detector)) => {
                    let events = EventCounts { all: self.events(), matched: places.len() };
                    let definition = &detector.definition;
                    self.time_column = self.columns.find_times(&definition.time_field, events);
                    self.number_columns = match detector.scores_rows() {
                        true => self.columns.find_numbers(&definition.fields, events),
                        false => Vec::new(),
                    };
                    (self.detector, self.places) = (matches.rule, places.into_iter());
                }
                (Err(reason), Some(detector)) => detector.tally.problem = Some(reason),
                (_, None) => {}
            }
            return true;
        }
        let Some(evaluable) = self.frames.next() else { return false };
        let (frame, matched) = evaluable.read();
        (self.frame, self.matched) = (Some(frame), matched.into_iter());
        self.columns.clear();
        true
    }

    /// Counts the events of the frame.
    fn events(&self) -> usize {
        self.frame.as_ref().map_or(0, |frame| frame.events.len())
    }

    /// Scores events of the detector that is asked, until there are many results or many rows wait.
    fn score_events(&mut self, detectors: &mut BTreeMap<String, LiveDetector>, results: &mut ScoredBatch) {
        let (Some(frame), Some(detector)) = (&self.frame, detectors.get_mut(&self.detector)) else {
            self.places = Vec::new().into_iter();
            return;
        };
        let (is_written, has_rows) = (frame.number < self.committed, detector.scores_rows());
        if frame.number < detector.since || is_written && has_rows {
            self.places = Vec::new().into_iter();
            return;
        }
        if has_rows && !self.batches.contains_key(&self.detector) {
            self.batches.insert(self.detector.clone(), BTreeMap::new());
        }
        let mut batches = self.batches.get_mut(&self.detector);
        while let Some(place) = self.places.next() {
            if detector.failure.is_some() {
                self.places = Vec::new().into_iter();
                return;
            }
            let Some(event) = frame.events.get(place) else { continue };
            let field = &detector.definition.time_field;
            let Some(time_ms) = self.columns.time_ms(self.time_column, field, place, frame) else { continue };
            if self.from_ms.is_some_and(|from| time_ms < from) {
                continue;
            }
            let arrived = ArrivedEvent { event, frame: frame.number, frame_ms: frame.time.ms(), time_ms };
            match &mut batches {
                Some(batches) if has_rows => {
                    let Some(of_value) = detector.place(event) else { continue };
                    let batch = batches.entry(of_value).or_default();
                    let before = batch.documents.len();
                    let columns = (&mut self.columns, self.number_columns.as_slice());
                    detector.push_row(&arrived, place, columns, batch);
                    self.waiting += batch.documents.len() - before;
                    if batch.documents.len() >= MAX_BATCH_ROWS {
                        self.waiting -= batch.documents.len();
                        detector.score_rows(of_value, std::mem::take(batch), results);
                    }
                }
                _ => {
                    if let Some(document) = detector.score_guarded(&arrived, is_written) {
                        results.push(document);
                    }
                }
            }
            if results.is_full() || self.waiting >= MAX_WAITING_ROWS {
                return;
            }
        }
    }

    /// Scores the rows that wait for a model; false where none do.
    fn score_waiting(
        &mut self,
        detectors: &mut BTreeMap<String, LiveDetector>,
        results: &mut ScoredBatch,
    ) -> bool {
        let Some(mut of_detector) = self.batches.first_entry() else { return false };
        match (of_detector.get_mut().pop_first(), detectors.get_mut(of_detector.key())) {
            (Some((place, batch)), Some(detector)) => {
                self.waiting -= batch.documents.len();
                detector.score_rows(place, batch, results);
            }
            (batch, _) => {
                let left = of_detector.remove().into_values().chain(batch.map(|(_, batch)| batch));
                self.waiting -= left.map(|batch| batch.documents.len()).sum::<usize>();
            }
        }
        true
    }
}
