//! Numbers of rows that a score is computed from, read a window of rows at a time.
//!
//! A scorer asks for rows in ascending order and skips as it likes. Where it goes from row to row,
//! windows grow, so that a pass over a segment reads it in few steps; where it jumps, little is read
//! around each row. At most [`WINDOW_MAX`] rows are held.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use millrace_mapping::PathId;
use millrace_runtime::murmur::hash32;
use millrace_segment::RowParts;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::geo::{for_each_point, haversine, on_grid};
use crate::lists::{for_each_number, for_each_string};
use crate::reader::SegmentReader;

/// Rows of the first window, and of one after a jump.
const WINDOW_MIN: u32 = 1_024;
/// Rows of the greatest window.
const WINDOW_MAX: u32 = 65_536;

/// Selection of the numbers of a row.
#[derive(Clone, Debug)]
pub(crate) enum RequestedNumbers {
    /// The values of a numeric column, divided by a number.
    Numbers {
        /// The column.
        column: PathId,
        /// Divisor of values.
        unit: f64,
    },
    /// The distances in metres of a column's points from a point.
    Distances {
        /// The column.
        column: PathId,
        /// Latitude of the point.
        lat: f64,
        /// Longitude of the point.
        lon: f64,
    },
    /// One hash of what identifies the row.
    Hashes {
        /// Input of the hash.
        of: HashInput,
        /// Start of the hash.
        seed: u32,
    },
}

/// Input of a row's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashInput {
    /// The document's id.
    Id,
    /// The sequence number of the operation that wrote it.
    SeqNo,
    /// The least value of a column, where it has any.
    Column(PathId),
}

/// Numbers of the rows of one segment.
pub(crate) struct Values {
    reader: Arc<dyn SegmentReader>,
    wanted: RequestedNumbers,
    /// First row of the window.
    start: u32,
    /// End of each row's numbers.
    ends: Vec<u32>,
    numbers: Vec<f64>,
    step: u32,
}

impl Values {
    /// Starts without a window.
    pub(crate) fn new(reader: Arc<dyn SegmentReader>, wanted: RequestedNumbers) -> Self {
        Self { reader, wanted, start: 0, ends: Vec::new(), numbers: Vec::new(), step: WINDOW_MIN }
    }

    /// Returns the numbers of a row.
    pub(crate) fn of(&mut self, row: u32) -> Result<&[f64]> {
        let held = row.checked_sub(self.start).is_some_and(|at| (at as usize) < self.ends.len());
        if !held {
            self.load(row)?;
        }
        let at = (row - self.start) as usize;
        let end = self.ends.get(at).copied().unwrap_or(0) as usize;
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0) as usize;
        Ok(&self.numbers[start..end])
    }

    fn load(&mut self, row: u32) -> Result<()> {
        let end = self.start.saturating_add(self.ends.len() as u32);
        let near = row >= end && row - end < self.step;
        self.step = if near && end > 0 { (self.step * 4).min(WINDOW_MAX) } else { WINDOW_MIN };
        let rows = row..row.saturating_add(self.step).min(self.reader.rows()).max(row.saturating_add(1));
        self.start = row;
        self.ends.clear();
        self.numbers.clear();
        let mut filling = WindowBuilder { start: row, ends: &mut self.ends, numbers: &mut self.numbers };
        match &self.wanted {
            RequestedNumbers::Numbers { column, unit } => {
                read(self.reader.as_ref(), *column, rows.clone(), &mut |array, numbers| {
                    for_each_double(array, &mut |at, number| filling.push(numbers[at], number / unit))
                })?;
            }
            RequestedNumbers::Distances { column, lat, lon } => {
                read(self.reader.as_ref(), *column, rows.clone(), &mut |array, numbers| {
                    for_each_point(array, &mut |at, point_lat, point_lon| {
                        let (point_lat, point_lon) = on_grid(point_lat, point_lon);
                        filling.push(numbers[at], haversine(*lat, *lon, point_lat, point_lon));
                    });
                    Ok(())
                })?;
            }
            RequestedNumbers::Hashes { of: HashInput::Column(column), seed } => {
                read(self.reader.as_ref(), *column, rows.clone(), &mut |array, numbers| {
                    for_each_least(array, &mut |at, bytes| {
                        filling.push(numbers[at], f64::from(hash32(bytes.iter().copied(), *seed)));
                    })
                })?;
            }
            RequestedNumbers::Hashes { of, seed } => {
                let all: Vec<u32> = rows.clone().collect();
                let parts = RowParts { source: false, versions: *of == HashInput::SeqNo };
                for stored in self.reader.fetch(&all, parts)? {
                    let text = match of {
                        HashInput::SeqNo => stored.seq_no.to_string(),
                        _ => stored.id,
                    };
                    filling.push(stored.row, f64::from(hash32(text.bytes(), *seed)));
                }
            }
        }
        filling.finish(rows.end);
        Ok(())
    }
}

/// A window while it is filled, in the order of rows.
struct WindowBuilder<'a> {
    start: u32,
    ends: &'a mut Vec<u32>,
    numbers: &'a mut Vec<f64>,
}

impl WindowBuilder<'_> {
    fn push(&mut self, row: u32, number: f64) {
        self.finish(row);
        self.numbers.push(number);
    }

    /// Closes the rows before `row`.
    fn finish(&mut self, row: u32) {
        let rows = row.saturating_sub(self.start) as usize;
        if self.ends.len() < rows {
            self.ends.resize(rows, self.numbers.len() as u32);
        }
    }
}

/// Reads a column of a run of rows: arrays with the numbers of their rows.
fn read(
    reader: &dyn SegmentReader,
    column: PathId,
    rows: std::ops::Range<u32>,
    each: &mut dyn FnMut(&ArrayRef, &[u32]) -> Result<()>,
) -> Result<()> {
    let mut selected = RoaringBitmap::new();
    selected.insert_range(rows);
    let mut done = Ok(());
    reader.read(&[column], Some(selected), &mut |batch| {
        if let Some(array) = batch.columns.first() {
            done = each(array, &batch.rows);
        }
        done.is_ok()
    })?;
    done
}

fn element_type(column: &ArrayRef) -> &DataType {
    match column.data_type() {
        DataType::List(element) => element.data_type(),
        other => other,
    }
}

/// Calls `visit` with the row and each number of a column.
fn for_each_double(column: &ArrayRef, visit: &mut dyn FnMut(usize, f64)) -> Result<()> {
    match element_type(column) {
        DataType::Float32 | DataType::Float64 => {
            for_each_number(column, &mut |row, bits| visit(row, f64::from_bits(bits)))
        }
        DataType::UInt64 => for_each_number(column, &mut |row, bits| visit(row, bits as f64)),
        _ => for_each_number(column, &mut |row, bits| visit(row, bits as i64 as f64)),
    }
}

/// Calls `visit` with each row that has a value and the bytes of its least one; numbers are compared as
/// the texts that they are written as.
fn for_each_least(column: &ArrayRef, visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
    let mut least: Option<(usize, String)> = None;
    let mut take = |row: usize, text: String| match &mut least {
        Some((at, least)) if *at == row => {
            if text < *least {
                *least = text;
            }
        }
        other => {
            if let Some((row, text)) = other.replace((row, text)) {
                visit(row, text.as_bytes());
            }
        }
    };
    match element_type(column) {
        DataType::Utf8View => for_each_string(column, None, &mut |row, text| take(row, text.to_owned()))?,
        DataType::Float32 | DataType::Float64 => {
            for_each_double(column, &mut |row, number| take(row, java_double(number)))?;
        }
        DataType::UInt64 => for_each_number(column, &mut |row, bits| take(row, bits.to_string()))?,
        _ => for_each_number(column, &mut |row, bits| take(row, (bits as i64).to_string()))?,
    }
    if let Some((row, text)) = least {
        visit(row, text.as_bytes());
    }
    Ok(())
}

/// Writes a number as Java's `Double.toString` does.
fn java_double(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, NUMBER};
    use crate::values::*;

    #[test]
    fn windows_hold_what_was_read() {
        let rows: Vec<(&str, &str, i64)> = (0..5_000).map(|number| ("", "", number)).collect();
        let reader = Fixture::new(&rows);
        let mut values = Values::new(reader, RequestedNumbers::Numbers { column: NUMBER, unit: 2.0 });
        for row in [0, 1, 1_023, 1_024, 4_500, 4_999] {
            assert_eq!(values.of(row).unwrap(), [f64::from(row) / 2.0], "{row}");
        }
    }

    #[test]
    fn numbers_are_written_as_in_java() {
        let texts: Vec<String> =
            [1.0, 1.5, 0.001, 1e7, 1.25e-5, -3e10].into_iter().map(java_double).collect();
        assert_eq!(texts, ["1.0", "1.5", "0.001", "1.0E7", "1.25E-5", "-3.0E10"]);
    }
}
