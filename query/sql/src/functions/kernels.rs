//! Functions of strings over whole arrays. Each has the results of its function of rows, without a value for each row in between.
//!
//! A kernel declines arguments of a form that it does not know, which the function of rows takes. Strings that it makes are memory
//! of the statement, and it looks at the statement's stop between some of them.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, NullBufferBuilder, StringViewArray, make_view,
};
use datafusion::arrow::buffer::{Buffer, ScalarBuffer};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::scalar::ScalarValue;
use millrace_work::QueryContext;
use regex::Regex;

use super::row::StringReservation;
use super::text::{MAX_BYTES, too_long};
use crate::error::evaluation;

/// Computes the results of some rows; `None` where it does not know the form of an argument.
pub(super) type Kernel = fn(&[ColumnarValue], usize, &QueryContext) -> PlanResult<Option<ArrayRef>>;

/// Rows between two looks at the stop.
const ROWS_AT_A_TIME: usize = 1_024;
/// Bytes of strings between two looks at the memory.
const BYTES_AT_A_TIME: usize = 1 << 20;
/// Bytes after which another buffer of strings begins: addresses in one have 32 bits.
const BUFFER_BYTES: usize = 1 << 30;
/// Longest string that is part of its view.
const INLINE_BYTES: usize = 12;

/// The strings of an argument.
enum Strings<'a> {
    Each(&'a StringViewArray),
    Same(Option<&'a str>),
}

impl<'a> Strings<'a> {
    fn new(argument: &'a ColumnarValue) -> Option<Self> {
        match argument {
            ColumnarValue::Array(array) => array.as_string_view_opt().map(Self::Each),
            ColumnarValue::Scalar(ScalarValue::Utf8View(text) | ScalarValue::Utf8(text)) => {
                Some(Self::Same(text.as_deref()))
            }
            ColumnarValue::Scalar(_) => None,
        }
    }

    fn get(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Each(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Same(text) => *text,
        }
    }
}

/// Writer of an array of strings.
struct StringsWriter<'w> {
    work: &'w QueryContext,
    views: Vec<u128>,
    nulls: NullBufferBuilder,
    /// Buffers that are full.
    full: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    /// Bytes that were written since the last look at the memory.
    unheld: usize,
}

impl<'w> StringsWriter<'w> {
    fn new(rows: usize, work: &'w QueryContext) -> Self {
        Self {
            work,
            views: Vec::with_capacity(rows),
            nulls: NullBufferBuilder::new(rows),
            full: Vec::new(),
            buffer: Vec::new(),
            unheld: 0,
        }
    }

    fn append_null(&mut self) {
        self.views.push(0);
        self.nulls.append_null();
    }

    /// Appends the string that `write` puts behind a buffer.
    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> PlanResult<()> {
        let start = self.buffer.len();
        write(&mut self.buffer);
        let text = self.buffer.get(start..).unwrap_or_default();
        let length = text.len();
        let number = u32::try_from(self.full.len()).unwrap_or(u32::MAX);
        self.views.push(make_view(text, number, u32::try_from(start).unwrap_or(u32::MAX)));
        self.nulls.append_non_null();
        if length <= INLINE_BYTES {
            self.buffer.truncate(start);
        } else {
            self.unheld += length;
        }
        if self.unheld > BYTES_AT_A_TIME || self.views.len().is_multiple_of(ROWS_AT_A_TIME) {
            self.work.check()?;
            self.work.hold(std::mem::take(&mut self.unheld))?;
        }
        if self.buffer.len() > BUFFER_BYTES {
            self.full.push(std::mem::take(&mut self.buffer));
        }
        Ok(())
    }

    /// Makes the array, which holds its memory until it is dropped.
    fn finish(mut self) -> PlanResult<ArrayRef> {
        self.work.hold(self.unheld)?;
        let last = (!self.buffer.is_empty()).then_some(self.buffer);
        let buffers = self.full.into_iter().chain(last).map(|bytes| {
            let reservation = StringReservation(Buffer::from_vec(bytes));
            Buffer::from(self.work.clone().held_by(reservation))
        });
        let (views, buffers) = (ScalarBuffer::from(self.views), buffers.collect::<Vec<_>>());
        Ok(Arc::new(StringViewArray::try_new(views, buffers, self.nulls.finish())?))
    }
}

/// Counts the characters of strings.
pub(super) fn length(args: &[ColumnarValue], _: usize, _: &QueryContext) -> PlanResult<Option<ArrayRef>> {
    lengths(args, |text| text.chars().count())
}

/// Counts the bytes of strings.
pub(super) fn octet_length(
    args: &[ColumnarValue],
    _: usize,
    _: &QueryContext,
) -> PlanResult<Option<ArrayRef>> {
    lengths(args, str::len)
}

fn lengths(args: &[ColumnarValue], count: fn(&str) -> usize) -> PlanResult<Option<ArrayRef>> {
    let [ColumnarValue::Array(array)] = args else { return Ok(None) };
    let Some(strings) = array.as_string_view_opt() else { return Ok(None) };
    let length = |row: usize| match strings.is_valid(row) {
        true => i32::try_from(count(strings.value(row))).unwrap_or(i32::MAX),
        false => 0,
    };
    let lengths: Vec<i32> = (0..strings.len()).map(length).collect();
    Ok(Some(Arc::new(Int32Array::new(ScalarBuffer::from(lengths), strings.nulls().cloned()))))
}

/// Joins strings; null where one of them is.
pub(super) fn concat(
    args: &[ColumnarValue],
    rows: usize,
    work: &QueryContext,
) -> PlanResult<Option<ArrayRef>> {
    let Some(parts) = args.iter().map(Strings::new).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let mut out = StringsWriter::new(rows, work);
    let mut row_parts = Vec::with_capacity(parts.len());
    for row in 0..rows {
        row_parts.clear();
        row_parts.extend(parts.iter().map_while(|part| part.get(row)));
        if row_parts.len() < parts.len() {
            out.append_null();
            continue;
        }
        if row_parts.iter().map(|part| part.len()).sum::<usize>() > MAX_BYTES {
            return Err(evaluation(too_long()));
        }
        out.append(|buffer| row_parts.iter().for_each(|part| buffer.extend_from_slice(part.as_bytes())))?;
    }
    out.finish().map(Some)
}

/// Replaces a string that is the same in all rows by another such.
pub(super) fn replace(
    args: &[ColumnarValue],
    rows: usize,
    work: &QueryContext,
) -> PlanResult<Option<ArrayRef>> {
    let [text, from, to] = args else { return Ok(None) };
    let (Some(Strings::Each(texts)), Some(Strings::Same(from)), Some(Strings::Same(to))) =
        (Strings::new(text), Strings::new(from), Strings::new(to))
    else {
        return Ok(None);
    };
    let (Some(from), Some(to)) = (from.filter(|from| !from.is_empty()), to) else { return Ok(None) };
    // The search is prepared once.
    let Ok(finder) = Regex::new(&regex::escape(from)) else { return Ok(None) };
    let mut out = StringsWriter::new(rows, work);
    for row in 0..rows {
        if texts.is_null(row) {
            out.append_null();
            continue;
        }
        let text = texts.value(row);
        let longest = (text.len() / from.len()).saturating_mul(to.len()).saturating_add(text.len());
        if longest > MAX_BYTES {
            let hits = finder.find_iter(text).count();
            if hits.saturating_mul(to.len()).saturating_add(text.len()) > MAX_BYTES {
                return Err(evaluation(too_long()));
            }
        }
        out.append(|buffer| {
            let mut end = 0;
            for hit in finder.find_iter(text) {
                buffer.extend_from_slice(text.get(end..hit.start()).unwrap_or_default().as_bytes());
                buffer.extend_from_slice(to.as_bytes());
                end = hit.end();
            }
            buffer.extend_from_slice(text.get(end..).unwrap_or_default().as_bytes());
        })?;
    }
    out.finish().map(Some)
}

/// Makes strings lower case.
pub(super) fn lower(
    args: &[ColumnarValue],
    rows: usize,
    work: &QueryContext,
) -> PlanResult<Option<ArrayRef>> {
    cased(args, rows, work, u8::to_ascii_lowercase, str::to_lowercase)
}

/// Makes strings upper case.
pub(super) fn upper(
    args: &[ColumnarValue],
    rows: usize,
    work: &QueryContext,
) -> PlanResult<Option<ArrayRef>> {
    cased(args, rows, work, u8::to_ascii_uppercase, str::to_uppercase)
}

fn cased(
    args: &[ColumnarValue],
    rows: usize,
    work: &QueryContext,
    ascii: fn(&u8) -> u8,
    other: fn(&str) -> String,
) -> PlanResult<Option<ArrayRef>> {
    let [text] = args else { return Ok(None) };
    let Some(Strings::Each(texts)) = Strings::new(text) else { return Ok(None) };
    let mut out = StringsWriter::new(rows, work);
    for row in 0..rows {
        if texts.is_null(row) {
            out.append_null();
            continue;
        }
        let text = texts.value(row);
        out.append(|buffer| match text.is_ascii() {
            true => buffer.extend(text.as_bytes().iter().map(ascii)),
            false => buffer.extend_from_slice(other(text).as_bytes()),
        })?;
    }
    out.finish().map(Some)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::find;
    use super::super::row::{Context, Val};
    use super::*;
    use crate::types::SqlType;

    const ROWS: usize = 3_000;

    fn text(rng: &mut StdRng) -> Option<String> {
        const WORDS: [&str; 8] = ["a", "Ab", "ß", "日本", "x,", "", "é́", "Σας a longer word"];
        let words = rng.random_range(0..6);
        (rng.random_range(0..10) > 0)
            .then(|| (0..words).map(|_| WORDS[rng.random_range(0..WORDS.len())]).collect())
    }

    /// Kernels give what functions of rows give, for columns and values that are the same in all rows.
    #[test]
    fn kernels_agree_with_functions_of_rows() {
        let mut rng = StdRng::seed_from_u64(5);
        let work = QueryContext::default();
        for round in 0..60 {
            for (name, count, ty) in [
                ("length", 1, SqlType::Integer),
                ("octet_length", 1, SqlType::Integer),
                ("concat", 1 + round % 4, SqlType::Keyword),
                ("replace", 3, SqlType::Keyword),
                ("lower", 1, SqlType::Keyword),
                ("upper", 1, SqlType::Keyword),
            ] {
                let columns: Vec<Vec<Option<String>>> = (0..count)
                    .map(|at| match at > 0 && rng.random_bool(0.6) {
                        true => vec![text(&mut rng); ROWS],
                        false => (0..ROWS).map(|_| text(&mut rng)).collect(),
                    })
                    .collect();
                let args: Vec<ColumnarValue> = columns
                    .iter()
                    .map(|column| match column.iter().all(|text| *text == column[0]) {
                        true => ColumnarValue::Scalar(ScalarValue::Utf8View(column[0].clone())),
                        false => ColumnarValue::Array(Arc::new(StringViewArray::from_iter(column.iter()))),
                    })
                    .collect();
                let definition = find(name).unwrap();
                let Some(made) = definition.kernel.unwrap()(&args, ROWS, &work).unwrap() else { continue };
                for row in 0..ROWS {
                    let given: Vec<Val<'_>> = columns
                        .iter()
                        .map(|column| column[row].clone().map_or(Val::Null, Val::str))
                        .collect();
                    let expected = match given.contains(&Val::Null) {
                        true => Val::Null,
                        false => (definition.eval)(&given, Context { now: 0, ty }).unwrap(),
                    };
                    let found = match ty {
                        _ if made.is_null(row) => Val::Null,
                        SqlType::Integer => Val::Int(
                            made.as_primitive::<datafusion::arrow::datatypes::Int32Type>().value(row).into(),
                        ),
                        _ => Val::str(made.as_string_view().value(row)),
                    };
                    assert_eq!(found, expected, "{name} {given:?}");
                }
            }
        }
    }

    #[test]
    fn strings_that_kernels_make_are_bounded() {
        let long = ColumnarValue::Array(Arc::new(StringViewArray::from_iter_values(["x".repeat(600_000)])));
        let same = |text: &str| ColumnarValue::Scalar(ScalarValue::Utf8View(Some(text.to_owned())));
        let work = QueryContext::default();
        assert!(concat(&[long.clone(), long.clone()], 1, &work).is_err());
        assert!(replace(&[long.clone(), same("x"), same("xy")], 1, &work).is_err());
        assert!(replace(&[long, same("y"), same("xxx")], 1, &work).unwrap().is_some());
        // A string of a document that becomes no longer has no bound.
        let longer = ColumnarValue::Array(Arc::new(StringViewArray::from_iter_values(["X".repeat(3 << 20)])));
        let lowered = lower(&[longer], 1, &work).unwrap().unwrap();
        assert_eq!(lowered.as_string_view().value(0), "x".repeat(3 << 20));
    }
}
