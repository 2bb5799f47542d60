//! The numbers of a column's page, decoded and kept for the ranges of later searches.
//!
//! Decoding a page of Parquet costs many times what comparing its values does, and ranges come back to
//! the same columns again and again. So pages that had to be decoded stay in a bounded cache, whole
//! numbers as offsets from the least of the page in as few bytes as these take.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float32Builder, Float64Builder, Int64Builder, PrimitiveArray, PrimitiveBuilder,
    UInt64Builder,
};
use arrow::compute::cast;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int64Type, UInt64Type};
use lru::LruCache;
use millrace_runtime::Result;
use parking_lot::Mutex;
use uuid::Uuid;

use super::range::ValueRange;

/// Bytes of decoded values that are kept: 128 MiB.
const MAX_BYTES: usize = 128 << 20;
/// Bytes that an entry costs beside its values, about.
const ENTRY_BYTES: usize = 160;
/// Bits of a word.
const WORD: usize = 64;

/// A page of a column of a segment: the segment, the root column, the number of the page.
pub(super) type PageKey = (Uuid, u32, u32);

/// Recently decoded pages, least recently used out first.
#[derive(Debug)]
pub(crate) struct ValueCache {
    max_bytes: usize,
    kept: Mutex<ValuePage>,
}

#[derive(Debug)]
struct ValuePage {
    pages: LruCache<PageKey, Arc<PageValues>>,
    bytes: usize,
}

impl Default for ValueCache {
    fn default() -> Self {
        Self::new(MAX_BYTES)
    }
}

impl ValueCache {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, kept: Mutex::new(ValuePage { pages: LruCache::unbounded(), bytes: 0 }) }
    }

    /// Returns a page that was decoded before.
    pub(super) fn get(&self, key: PageKey) -> Option<Arc<PageValues>> {
        self.kept.lock().pages.get(&key).cloned()
    }

    /// Returns whether a page is kept; it does not count as used.
    pub(super) fn has(&self, key: PageKey) -> bool {
        self.kept.lock().pages.contains(&key)
    }

    /// Keeps a page.
    pub(super) fn put(&self, key: PageKey, page: Arc<PageValues>) {
        let mut kept = self.kept.lock();
        kept.bytes += page.bytes();
        if let Some(before) = kept.pages.put(key, page) {
            kept.bytes -= before.bytes();
        }
        while kept.bytes > self.max_bytes
            && let Some((_, page)) = kept.pages.pop_lru()
        {
            kept.bytes -= page.bytes();
        }
    }
}

/// The numbers of a page, one a row.
#[derive(Debug)]
pub(super) struct PageValues {
    numbers: Numbers,
    /// Bits of the rows that have a value, where some have none.
    valid: Option<Box<[u64]>>,
}

#[derive(Debug)]
enum Numbers {
    Small(i64, Box<[u16]>),
    Medium(i64, Box<[u32]>),
    I64(Box<[i64]>),
    U64(Box<[u64]>),
    F32(Box<[f32]>),
    F64(Box<[f64]>),
}

impl PageValues {
    /// Returns whether columns of a type, which have no lists, are kept.
    pub(super) fn supports(kind: &DataType) -> bool {
        matches!(
            kind,
            DataType::Int8
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::UInt64
                | DataType::Float32
                | DataType::Float64
                | DataType::Timestamp(..)
        )
    }

    /// Takes the values of an array of a type that is supported.
    pub(super) fn new(array: &ArrayRef) -> Result<Self> {
        let numbers = match array.data_type() {
            DataType::UInt64 => Numbers::U64(copied::<UInt64Type>(array.as_primitive())),
            DataType::Float32 => Numbers::F32(copied::<Float32Type>(array.as_primitive())),
            DataType::Float64 => Numbers::F64(copied::<Float64Type>(array.as_primitive())),
            _ => whole(cast(array, &DataType::Int64)?.as_primitive::<Int64Type>()),
        };
        let valid = array.nulls().filter(|nulls| nulls.null_count() > 0).map(|nulls| {
            let mut words = vec![0u64; array.len().div_ceil(WORD)];
            for at in nulls.valid_indices() {
                words[at / WORD] |= 1 << (at % WORD);
            }
            words.into_boxed_slice()
        });
        Ok(Self { numbers, valid })
    }

    fn bytes(&self) -> usize {
        let numbers = match &self.numbers {
            Numbers::Small(_, values) => size_of_val(&**values),
            Numbers::Medium(_, values) => size_of_val(&**values),
            Numbers::I64(values) => size_of_val(&**values),
            Numbers::U64(values) => size_of_val(&**values),
            Numbers::F32(values) => size_of_val(&**values),
            Numbers::F64(values) => size_of_val(&**values),
        };
        ENTRY_BYTES + numbers + self.valid.as_ref().map_or(0, |valid| size_of_val(&**valid))
    }

    /// Sets the bits of the rows from `from` to before `to` of the page whose value is in the range;
    /// bit `at` of `bits` stands for the row `from`.
    pub(super) fn matches(&self, range: &ValueRange, from: usize, to: usize, at: usize, bits: &mut [u64]) {
        let mut into = BitRun { valid: self.valid.as_deref(), from, to, at, bits };
        match (range, &self.numbers) {
            (ValueRange::I64(low, high), Numbers::Small(base, values)) => {
                if let Some((low, high)) = offsets(*low, *high, *base, u16::MAX.into()) {
                    into.compare(values, low as u16, high as u16);
                }
            }
            (ValueRange::I64(low, high), Numbers::Medium(base, values)) => {
                if let Some((low, high)) = offsets(*low, *high, *base, u32::MAX.into()) {
                    into.compare(values, low as u32, high as u32);
                }
            }
            (ValueRange::I64(low, high), Numbers::I64(values)) => into.compare(values, *low, *high),
            (ValueRange::U64(low, high), Numbers::U64(values)) => into.compare(values, *low, *high),
            (ValueRange::F64(low, high), Numbers::F64(values)) => into.compare(values, *low, *high),
            (ValueRange::F64(low, high), Numbers::F32(values)) => {
                into.test(values, |value| f64::from(value) >= *low && f64::from(value) <= *high);
            }
            // A range of another type than the column's has no match.
            _ => {}
        }
    }
}

/// Numbers of rows of several pages.
pub(super) enum GatheredNumbers {
    I64(Int64Builder),
    U64(UInt64Builder),
    F32(Float32Builder),
    F64(Float64Builder),
}

impl GatheredNumbers {
    /// Starts with the numbers of a column of a type that is supported.
    pub(super) fn new(kind: &DataType) -> Self {
        match kind {
            DataType::UInt64 => Self::U64(UInt64Builder::new()),
            DataType::Float32 => Self::F32(Float32Builder::new()),
            DataType::Float64 => Self::F64(Float64Builder::new()),
            _ => Self::I64(Int64Builder::new()),
        }
    }

    /// Adds the numbers of a run of rows of a page.
    pub(super) fn extend_run(&mut self, page: &PageValues, run: Range<usize>) {
        fn all<T: Copy, B: ArrowPrimitiveType>(
            builder: &mut PrimitiveBuilder<B>,
            values: &[T],
            run: Range<usize>,
            number: impl Fn(T) -> B::Native,
        ) {
            let run: Vec<B::Native> =
                values.get(run).unwrap_or_default().iter().map(|value| number(*value)).collect();
            builder.append_slice(&run);
        }
        if page.valid.is_some() {
            return self.extend(page, run);
        }
        match (self, &page.numbers) {
            (Self::I64(to), Numbers::Small(base, values)) => {
                all(to, values, run, |value| base.wrapping_add(value.into()));
            }
            (Self::I64(to), Numbers::Medium(base, values)) => {
                all(to, values, run, |value| base.wrapping_add(value.into()));
            }
            (Self::I64(to), Numbers::I64(values)) => all(to, values, run, |value| value),
            (Self::U64(to), Numbers::U64(values)) => all(to, values, run, |value| value),
            (Self::F32(to), Numbers::F32(values)) => all(to, values, run, |value| value),
            (Self::F64(to), Numbers::F64(values)) => all(to, values, run, |value| value),
            // Pages of a column have its type.
            _ => {}
        }
    }

    /// Adds the numbers of rows of a page.
    pub(super) fn extend(&mut self, page: &PageValues, rows: impl Iterator<Item = usize>) {
        fn all<T: Copy, B: ArrowPrimitiveType>(
            builder: &mut PrimitiveBuilder<B>,
            page: &PageValues,
            values: &[T],
            rows: impl Iterator<Item = usize>,
            number: impl Fn(T) -> B::Native,
        ) {
            for row in rows {
                let valid = page.valid.as_deref().is_none_or(|valid| is_set(valid, row));
                builder.append_option(values.get(row).filter(|_| valid).map(|value| number(*value)));
            }
        }
        match (self, &page.numbers) {
            (Self::I64(to), Numbers::Small(base, values)) => {
                all(to, page, values, rows, |value| base.wrapping_add(value.into()));
            }
            (Self::I64(to), Numbers::Medium(base, values)) => {
                all(to, page, values, rows, |value| base.wrapping_add(value.into()));
            }
            (Self::I64(to), Numbers::I64(values)) => all(to, page, values, rows, |value| value),
            (Self::U64(to), Numbers::U64(values)) => all(to, page, values, rows, |value| value),
            (Self::F32(to), Numbers::F32(values)) => all(to, page, values, rows, |value| value),
            (Self::F64(to), Numbers::F64(values)) => all(to, page, values, rows, |value| value),
            // Pages of a column have its type.
            _ => {}
        }
    }

    /// Returns the numbers as an array.
    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::I64(mut numbers) => Arc::new(numbers.finish()),
            Self::U64(mut numbers) => Arc::new(numbers.finish()),
            Self::F32(mut numbers) => Arc::new(numbers.finish()),
            Self::F64(mut numbers) => Arc::new(numbers.finish()),
        }
    }
}

fn is_set(words: &[u64], at: usize) -> bool {
    words.get(at / WORD).is_some_and(|word| word >> (at % WORD) & 1 == 1)
}

fn copied<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Box<[T::Native]> {
    array.values().iter().copied().collect()
}

/// Packs whole numbers.
fn whole(array: &PrimitiveArray<Int64Type>) -> Numbers {
    let (base, most) = match (arrow::compute::min(array), arrow::compute::max(array)) {
        (Some(min), Some(max)) => (min, max.abs_diff(min)),
        _ => (0, 0),
    };
    // What stands where there is no value may be anything, and is never looked at.
    let offsets = array.values().iter().map(|value| value.wrapping_sub(base));
    if most <= u16::MAX.into() {
        Numbers::Small(base, offsets.map(|offset| offset as u16).collect())
    } else if most <= u32::MAX.into() {
        Numbers::Medium(base, offsets.map(|offset| offset as u32).collect())
    } else {
        Numbers::I64(copied(array))
    }
}

/// Returns a range as offsets from `base`, of at most `most`; `None` where it has none.
fn offsets(low: i64, high: i64, base: i64, most: i64) -> Option<(i64, i64)> {
    if high < base || low > high {
        return None;
    }
    let low = low.saturating_sub(base).max(0);
    let high = high.saturating_sub(base).min(most);
    (low <= high).then_some((low, high))
}

/// Target of the bits of a run of rows.
struct BitRun<'a> {
    valid: Option<&'a [u64]>,
    from: usize,
    to: usize,
    at: usize,
    bits: &'a mut [u64],
}

impl BitRun<'_> {
    fn compare<T: Copy + PartialOrd>(&mut self, values: &[T], low: T, high: T) {
        self.test(values, |value| (value >= low) & (value <= high));
    }

    fn test<T: Copy>(&mut self, values: &[T], matches: impl Fn(T) -> bool) {
        let to = self.to.min(values.len());
        let mut at = self.at;
        for (number, chunk) in values.get(self.from..to).unwrap_or_default().chunks(WORD).enumerate() {
            let mut flags = [0u8; WORD];
            for (flag, value) in flags.iter_mut().zip(chunk) {
                *flag = u8::from(matches(*value));
            }
            let mut word = packed(&flags);
            if let Some(valid) = self.valid {
                word &= word_at(valid, self.from + number * WORD);
            }
            // Bits need not begin where a word does.
            let (first, shift) = (at / WORD, at % WORD);
            if let Some(bits) = self.bits.get_mut(first) {
                *bits |= word << shift;
            }
            if shift > 0
                && let Some(bits) = self.bits.get_mut(first + 1)
            {
                *bits |= word >> (WORD - shift);
            }
            at += WORD;
        }
    }
}

/// Returns 64 bits from one on.
fn word_at(words: &[u64], at: usize) -> u64 {
    let (first, shift) = (at / WORD, at % WORD);
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    if shift == 0 { word(first) } else { word(first) >> shift | word(first + 1) << (WORD - shift) }
}

/// Packs flags of 0 or 1 into bits, eight at a time: the factor brings the flag of byte `i` to bit
/// `56 + i`.
fn packed(flags: &[u8; WORD]) -> u64 {
    let (eights, _) = flags.as_chunks::<8>();
    eights.iter().enumerate().fold(0, |word, (at, eight)| {
        let bits = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word | bits << (8 * at)
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Int32Array, Int64Array, UInt64Array};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Compares with what [`ValueRange::matches`] finds.
    fn check(array: &ArrayRef, range: &ValueRange, random: &mut StdRng) {
        let page = PageValues::new(array).unwrap();
        let from = random.random_range(0..array.len());
        let to = random.random_range(from..=array.len());
        // Both alike, and shifted.
        for at in [from % WORD, random.random_range(0..300)] {
            let mut bits = vec![0u64; 40];
            page.matches(range, from, to, at, &mut bits);
            let mut expected = vec![0u64; 40];
            range.matches(array, &mut |row| {
                if (from..to).contains(&row) && (at + row - from) / WORD < 40 {
                    expected[(at + row - from) / WORD] |= 1 << ((at + row - from) % WORD);
                }
            });
            assert_eq!(bits, expected, "{range:?} of {from}..{to} at {at}");
        }
    }

    #[test]
    fn ranges_match_as_in_arrays() {
        let mut random = StdRng::seed_from_u64(7);
        for round in 0..400 {
            let rows = random.random_range(1..2_000);
            let span = [3i64, 70_000, 1 << 40, i64::MAX][round % 4];
            let missing = if round % 3 == 0 { 0.0 } else { 0.2 };
            let base = random.random_range(-1_000_000i64..1_000_000);
            let numbers: Vec<Option<i64>> = (0..rows)
                .map(|_| {
                    let number = base.wrapping_add(random.random_range(0..span));
                    (!random.random_bool(missing)).then_some(number)
                })
                .collect();
            let edge = |random: &mut StdRng| match random.random_range(0..6) {
                0 => i64::MIN,
                1 => i64::MAX,
                _ => numbers[random.random_range(0..rows)].unwrap_or(base),
            };
            let (low, high) = (edge(&mut random), edge(&mut random));
            let wide: ArrayRef = Arc::new(Int64Array::from(numbers.clone()));
            check(&wide, &ValueRange::I64(low, high), &mut random);
            let narrow: ArrayRef =
                Arc::new(Int32Array::from_iter(numbers.iter().map(|n| n.map(|n| n as i32))));
            check(&narrow, &ValueRange::I64(low, high), &mut random);
            let unsigned: ArrayRef =
                Arc::new(UInt64Array::from_iter(numbers.iter().map(|n| n.map(|n| n as u64))));
            check(&unsigned, &ValueRange::U64(low as u64, high as u64), &mut random);
            let floats: ArrayRef = Arc::new(Float32Array::from_iter(
                numbers.iter().map(|n| n.map(|n| if n % 5 == 0 { f32::NAN } else { n as f32 })),
            ));
            check(&floats, &ValueRange::F64(low as f64, high as f64), &mut random);
        }
    }

    #[test]
    fn numbers_come_back_as_they_were() {
        for base in [i64::MIN, -7, 1 << 50] {
            for step in [1i64, 50, 1 << 33] {
                let numbers: Int64Array =
                    (0..100).map(|n| (n % 7 != 3).then(|| base.wrapping_add(n * step))).collect();
                let array: ArrayRef = Arc::new(numbers.clone());
                let page = PageValues::new(&array).unwrap();
                let mut gathered = GatheredNumbers::new(&DataType::Int64);
                gathered.extend(&page, 10..40);
                gathered.extend_run(&page, 40..100);
                assert_eq!(gathered.finish().as_primitive::<Int64Type>(), &numbers.slice(10, 90));
                let full: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.iter().flatten()));
                let mut gathered = GatheredNumbers::new(&DataType::Int64);
                gathered.extend_run(&PageValues::new(&full).unwrap(), 5..full.len());
                assert_eq!(&gathered.finish(), &full.slice(5, full.len() - 5));
            }
        }
    }

    #[test]
    fn the_cache_keeps_its_bound() {
        let array: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
        let page = Arc::new(PageValues::new(&array).unwrap());
        let cache = ValueCache::new(10 * page.bytes());
        let key = |number| (Uuid::nil(), 0, number);
        for number in 0..100 {
            cache.put(key(number), Arc::clone(&page));
            cache.get(key(0));
        }
        assert!(cache.has(key(0)) && cache.has(key(99)) && !cache.has(key(80)));
        assert_eq!(cache.kept.lock().bytes, 10 * page.bytes());
    }
}
