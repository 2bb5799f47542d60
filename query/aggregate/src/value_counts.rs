//! Rows counted by the values of one field: the counts that buckets have from sources, for SQL, which merges the groups of
//! segments itself.
//!
//! A [`ValueCounts`] asks the question of a bucket of the rows of a part, and hands on what a source knows without reading them
//! all. Where none does, whoever asks reads the rows. All parts of a segment decide alike.

use std::ops::RangeInclusive;
use std::sync::Arc;

use millrace_dsl::aggs::ValuesSource;
use millrace_mapping::{FieldType, PathId};
use millrace_matching::table::partitions::RowPartition;
use millrace_matching::table::{TableSegment, TableSnapshot, TableState};
use millrace_segment::NumberBounds;
use millrace_time::{CalendarUnit, Interval, Rounding, Zone};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::batch::Batch;
use super::field::{AcceptedTypes, FieldResolution, FieldSource, ValueKind, Values};
use super::keys::{KeyForm, KeyRule, term_key};
use super::scan_plan::{ScanPlan, Scope};
use super::segment::{Rows, SegmentContext, SegmentSets};
use super::source::{self, Question, SegmentRows, Sink, rows_of_a_term};
use super::term_filter::TermFilter;

/// Least rows of a term, on average: below, the threads that share the rows out count them sooner than one walks over the
/// terms.
const ROWS_OF_A_TERM: u64 = 4;
/// Most terms of a segment that are told, about: they are held until they are handed on.
const MOST_TERMS: u64 = 1 << 20;
/// The milliseconds of the years 0 to 9999, which units of the calendar are told of.
const YEARS: RangeInclusive<i64> = -62_167_219_200_000..=253_402_300_799_999;

/// Key by which rows are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKey {
    /// A value.
    Value,
    /// The beginning of the unit of the calendar, in UTC, that a time is in.
    Span(CalendarUnit),
}

/// Value of some of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string.
    Text(&'a str),
    /// An address.
    Ip([u8; 16]),
    /// An integer; a boolean as 0 or 1; the beginning of a span in milliseconds since 1970.
    Long(i64),
    /// An integer of an unsigned_long.
    Unsigned(u64),
}

/// Rows of a part that are counted.
pub enum CountedRows<'a> {
    /// All, none of which is deleted.
    All,
    /// Those that this finds, if somebody is there to tell of them; none where the work ends.
    Found(&'a mut dyn FnMut() -> Result<Option<RoaringBitmap>>),
}

impl std::fmt::Debug for CountedRows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Found(_) => "Found",
        })
    }
}

/// The values of a field, as rows are counted by them.
#[derive(Debug)]
pub struct ValueCounts {
    plan: ScanPlan,
    rule: KeyRule,
    /// By index, the text whose values these are, if those that its field `keyword` leaves out are none.
    texts: Vec<Option<PathId>>,
}

impl ValueCounts {
    /// Takes a field of the indices of a snapshot; `None` where these have it in different forms, or in none that is told of.
    /// Texts are told of by their field `keyword`.
    pub fn new(snapshot: &TableSnapshot, path: &str, by: CountKey) -> Option<Self> {
        let mut texts = vec![None; snapshot.indices.len()];
        let (mut plain, exact) = (false, format!("{path}.keyword"));
        for (index, text) in snapshot.indices.iter().zip(&mut texts) {
            match index.mapping.field(path) {
                None => {}
                Some(field) if field.field_type.is_text() => {
                    let own = index.mapping.field(&exact)?;
                    let whole = own.field_type == FieldType::Keyword && own.normalizer.is_none();
                    *text = (whole && field.index).then_some(field.id);
                    (*text)?;
                }
                Some(_) => plain = true,
            }
        }
        let of_texts = texts.iter().any(Option::is_some);
        if of_texts && plain {
            return None;
        }
        let mut columns = vec![Vec::new(); snapshot.indices.len()];
        let mut failed = Vec::new();
        let values = Values::resolve(
            &ValuesSource {
                field: Some(if of_texts { exact } else { path.to_owned() }),
                ..ValuesSource::default()
            },
            FieldResolution {
                indices: &snapshot.indices,
                aggregation: "terms",
                accepts: if by == CountKey::Value { AcceptedTypes::Keys } else { AcceptedTypes::Dates },
                now_ms: 0,
                failed: &mut failed,
                slot: &mut |index, column| {
                    columns.get_mut(index).into_iter().for_each(|own: &mut Vec<PathId>| own.push(column));
                    0
                },
            },
        );
        let values = values.ok().filter(|values| failed.is_empty() && !values.mixed)?;
        let form = match by {
            CountKey::Value => KeyForm::Terms(TermFilter::default()),
            CountKey::Span(unit) => KeyForm::Dates {
                rounding: Rounding { interval: Interval::Calendar(unit), zone: Zone::UTC, offset_ms: 0 },
                bounds: None,
            },
        };
        let paths = vec![None; snapshot.indices.len()];
        let scopes = vec![Scope { paths, columns, ..Scope::default() }];
        let plan = ScanPlan { scopes, filters: Vec::new() };
        Some(Self { plan, rule: KeyRule { values, form, null: false }, texts })
    }

    /// Calls `each` with values and the number of rows that have them, where a source knows; a value may come again. Returns how
    /// many rows have none. `None` where the rows have to be read: then what `each` was told does not count. Blocks; runs on a compute thread.
    ///
    /// # Errors
    /// Files that cannot be read, what `each` or the search for the rows refuses.
    pub fn tell(
        &self,
        table: &TableState,
        part: &RowPartition,
        rows: CountedRows<'_>,
        each: &mut dyn FnMut(Value<'_>, u64) -> Result<()>,
    ) -> Result<Option<u64>> {
        let Some(segment) = table.snapshot.segments.get(part.segment as usize) else { return Ok(None) };
        let Some(place) = self.rule.values.place_in(segment.index) else { return Ok(None) };
        let sets = Arc::new(SegmentSets::new(&self.plan, &table.options.work));
        let context = SegmentContext::new(&self.plan, table, part.segment, segment, sets)?;
        if !self.is_told(place, segment, &context)? {
            return Ok(None);
        }
        let (question, all) = (Question::Keys(&self.rule), Rows::All(part.rows.clone()));
        let rows = match rows {
            CountedRows::All => all,
            CountedRows::Found(find) => {
                // Rows are found only where somebody would tell of all.
                let at = SegmentRows { segment: &context, rows: &all, sources: source::of_any_rows() };
                if source::choose(&question, at)?.is_none() {
                    return Ok(None);
                }
                match find()? {
                    Some(rows) => Rows::Some(rows),
                    None => return Ok(None),
                }
            }
        };
        let _held = table.options.work.part_of(rows.bytes())?;
        let at = SegmentRows { segment: &context, rows: &rows, sources: source::all() };
        let Some((_, bid)) = source::choose(&question, at)? else { return Ok(None) };
        let asked = match (bid.of_segment, rows.lead()) {
            (true, Some(false)) => 0,
            (true, _) => u64::from(segment.reader.rows()),
            (false, _) => rows.len(),
        };
        let mut told = ForwardingSink { rule: &self.rule, each, rows: 0 };
        bid.tell(&mut told)?;
        let rows = told.rows;
        Ok((!table.handle.stop.requested()).then_some(asked.saturating_sub(rows)))
    }

    /// Returns whether the rows of a segment have at most one value each, as terms or times that are told of.
    fn is_told(
        &self,
        place: &FieldSource,
        segment: &TableSegment,
        context: &SegmentContext<'_>,
    ) -> Result<bool> {
        let (reader, inverted) = (&segment.reader, &context.source.inverted);
        if reader.is_list(place.field.column) {
            return Ok(false);
        }
        if matches!(self.rule.form, KeyForm::Dates { .. }) {
            return Ok(match reader.bounds(place.field.column).values {
                NumberBounds::I64(least, most) => {
                    YEARS.contains(&place.long(least)) && YEARS.contains(&place.long(most))
                }
                _ => false,
            });
        }
        if !place.field.index || !inverted.has_exact(place.field.id) {
            return Ok(false);
        }
        if let Some(Some(text)) = self.texts.get(segment.index)
            && (reader.is_list(*text)
                || inverted.value_count(place.field.id)? != u64::from(inverted.exists_count(*text)?))
        {
            return Ok(false);
        }
        let rows = rows_of_a_term(place, context)?;
        Ok(rows >= ROWS_OF_A_TERM && u64::from(reader.rows()) / rows <= MOST_TERMS)
    }
}

/// Hands on what a source tells.
struct ForwardingSink<'a> {
    rule: &'a KeyRule,
    each: &'a mut dyn FnMut(Value<'_>, u64) -> Result<()>,
    /// Rows with a value.
    rows: u64,
}

impl ForwardingSink<'_> {
    fn add(&mut self, value: Value<'_>, rows: u64) -> Result<()> {
        self.rows += rows;
        (self.each)(value, rows)
    }
}

impl Sink for ForwardingSink<'_> {
    fn group(&mut self, group: u64, count: u64) -> Result<()> {
        self.add(Value::Long(group.cast_signed()), count)
    }

    fn term(&mut self, kind: ValueKind, term: &[u8], rows: u64) -> Result<Option<u32>> {
        let value = match kind {
            ValueKind::Text => std::str::from_utf8(term).ok().map(Value::Text),
            ValueKind::Ip => term.try_into().ok().map(Value::Ip),
            ValueKind::Unsigned => term_key(kind, term).map(Value::Unsigned),
            _ => term_key(kind, term).map(|key| Value::Long(key.cast_signed())),
        };
        if let Some(value) = value {
            self.add(value, rows)?;
        }
        Ok(None)
    }

    fn batch(&mut self, batch: &Batch<'_>) -> Result<()> {
        let (KeyForm::Dates { rounding, .. }, Some((place, column))) =
            (&self.rule.form, self.rule.values.column(batch))
        else {
            return Ok(());
        };
        let mut spans = rounding.cached();
        // Rows that follow one another are mostly of the same span.
        let mut run: Option<(i64, u64)> = None;
        for time in column.longs()?.iter().flatten() {
            let span = spans.round(place.long(time));
            run = match run {
                Some((of, rows)) if of == span => Some((of, rows + 1)),
                other => {
                    if let Some((of, rows)) = other {
                        self.add(Value::Long(of), rows)?;
                    }
                    Some((span, 1))
                }
            };
        }
        match run {
            Some((of, rows)) => self.add(Value::Long(of), rows),
            None => Ok(()),
        }
    }
}
