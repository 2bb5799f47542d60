//! Indices of nested paths in the file of a bundle: each is a bundle whose rows are elements, beside
//! the places of the elements in the rows of the segment.
//!
//! A file without elements is a bundle and nothing else. Otherwise it is the bundle of the rows,
//! followed by the bundle and the places of each nested path, a directory and a footer. The layout is
//! described in `docs/internals/bundle-format.md`.

use std::io::Write;
use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_runtime::{Error, Result};
use tantivy::directory::OwnedBytes;

use super::merge::{DROPPED, Scratch, merge_rows};
use super::{Bundle, RowMap};

/// Last bytes of a file with nested paths.
const MAGIC: [u8; 8] = *b"MRNESTED";

/// Version of the layout.
const VERSION: u32 = 1;

/// Count of paths, length of the first bundle, version, checksum, magic.
const FOOTER_BYTES: usize = 4 + 8 + 4 + 4 + MAGIC.len();

/// Path, outer path, elements, length of the bundle, length and checksum of the places.
const ENTRY_BYTES: usize = 4 + 4 + 4 + 8 + 8 + 4;

/// Says that a path lies in no other nested path.
const NO_OUTER: u32 = u32::MAX;

/// Positions of the elements of a nested path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedPositions {
    /// Number of the nested path.
    pub path: PathId,
    /// Number of the nested path that it lies in.
    pub outer: Option<PathId>,
    /// Row of each element, ascending.
    pub parents: Vec<u32>,
    /// Element of the outer path that each element lies in, ascending; empty without an outer path.
    pub within: Vec<u32>,
}

/// The index of a nested path: its rows are elements.
#[derive(Clone, Debug)]
pub struct NestedBundle {
    /// Positions of the elements.
    pub places: Arc<NestedPositions>,
    /// Their inverted index.
    pub bundle: Arc<Bundle>,
}

/// Writes the parts behind the bundle of the rows.
pub(super) struct NestedWriter<'a> {
    out: &'a mut dyn Write,
    rows_len: u64,
    directory: Vec<u8>,
    count: u32,
}

impl<'a> NestedWriter<'a> {
    /// Starts behind a bundle of `rows_len` bytes.
    pub(super) fn new(out: &'a mut dyn Write, rows_len: u64) -> Self {
        Self { out, rows_len, directory: Vec::new(), count: 0 }
    }

    /// Appends the places of a path whose bundle of `bundle_len` bytes was just written to the same file.
    pub(super) fn push(&mut self, places: &NestedPositions, bundle_len: u64) -> Result<()> {
        let mut encoded = Vec::with_capacity(places.parents.len() + places.within.len() + 16);
        encode_ascending(&places.parents, &mut encoded);
        encode_ascending(&places.within, &mut encoded);
        let outer = places.outer.map_or(NO_OUTER, |outer| outer.0);
        let elements = u32::try_from(places.parents.len())
            .map_err(|_| Error::Internal("a nested path of over 2^32 elements".to_owned()))?;
        for number in [places.path.0, outer, elements] {
            self.directory.extend_from_slice(&number.to_le_bytes());
        }
        self.directory.extend_from_slice(&bundle_len.to_le_bytes());
        self.directory.extend_from_slice(&(encoded.len() as u64).to_le_bytes());
        self.directory.extend_from_slice(&crc32c::crc32c(&encoded).to_le_bytes());
        self.count += 1;
        self.out.write_all(&encoded).map_err(unwritable)
    }

    /// Ends the file.
    pub(super) fn finish(self) -> Result<()> {
        let mut end = self.directory;
        end.extend_from_slice(&self.count.to_le_bytes());
        end.extend_from_slice(&self.rows_len.to_le_bytes());
        end.extend_from_slice(&VERSION.to_le_bytes());
        let crc = crc32c::crc32c(&end);
        end.extend_from_slice(&crc.to_le_bytes());
        end.extend_from_slice(&MAGIC);
        self.out.write_all(&end).map_err(unwritable)
    }

    /// Returns the output of the next bundle.
    pub(super) fn out(&mut self) -> &mut dyn Write {
        self.out
    }
}

/// Counts what goes through to a writer.
pub(super) struct CountingWriter<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) bytes: u64,
}

impl Write for CountingWriter<'_> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(buf)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn unwritable(error: std::io::Error) -> Error {
    Error::io("write", "bundle", error)
}

/// Returns whether a file has nested paths.
pub(super) fn is_nested(bytes: &[u8]) -> bool {
    bytes.ends_with(&MAGIC)
}

/// Opens a file with nested paths: the bundle of the rows with those of the paths in it.
pub(super) fn open(bytes: &OwnedBytes, name: &str, verify: bool) -> Result<Bundle> {
    let corrupt = |offset: usize, reason: &str| Error::Corrupt {
        file: name.to_owned(),
        offset: offset as u64,
        reason: reason.to_owned(),
    };
    let footer_at =
        bytes.len().checked_sub(FOOTER_BYTES).ok_or_else(|| corrupt(0, "shorter than its footer"))?;
    let mut footer = Input(&bytes[footer_at..]);
    let (count, rows_len, version, crc) = (footer.u32(), footer.u64(), footer.u32(), footer.u32());
    let start = (count as usize)
        .checked_mul(ENTRY_BYTES)
        .and_then(|len| footer_at.checked_sub(len))
        .ok_or_else(|| corrupt(footer_at, "the directory of nested paths is longer than the file"))?;
    if crc32c::crc32c(&bytes[start..footer_at + 16]) != crc {
        return Err(corrupt(start, "checksum of the directory of nested paths does not match"));
    }
    if version != VERSION {
        return Err(corrupt(
            footer_at,
            "nested paths are written in a version that this server does not read",
        ));
    }
    let mut at = 0usize;
    let mut take = |len: u64| -> Result<OwnedBytes> {
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).filter(|end| *end <= start);
        let end = end.ok_or_else(|| corrupt(at, "parts of nested paths do not fit the file"))?;
        let part = bytes.slice(at..end);
        at = end;
        Ok(part)
    };
    let mut rows = Bundle::open_rows(take(rows_len)?, name, verify)?;
    let mut directory = Input(&bytes[start..footer_at]);
    let mut nested: Vec<NestedBundle> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (path, outer, elements) = (PathId(directory.u32()), directory.u32(), directory.u32());
        let (bundle_len, places_len, places_crc) = (directory.u64(), directory.u64(), directory.u32());
        let bundle = Bundle::open_rows(take(bundle_len)?, name, verify)?;
        let encoded = take(places_len)?;
        if verify && crc32c::crc32c(&encoded) != places_crc {
            return Err(corrupt(start, "checksum of the places of a nested path does not match"));
        }
        let outer = (outer != NO_OUTER).then_some(PathId(outer));
        let mut rest = &encoded[..];
        // Every number takes a byte at least.
        let parents = decode_ascending(elements, &mut rest);
        let within = decode_ascending(if outer.is_some() { elements } else { 0 }, &mut rest);
        let (Some(parents), Some(within), true) = (parents, within, rest.is_empty()) else {
            return Err(corrupt(start, "places of a nested path are malformed"));
        };
        let fits = bundle.rows() == elements
            && parents.last().is_none_or(|last| *last < rows.rows())
            && nested.last().is_none_or(|last| last.places.path < path);
        if !fits {
            return Err(corrupt(start, "places of a nested path do not fit its index"));
        }
        let places = Arc::new(NestedPositions { path, outer, parents, within });
        nested.push(NestedBundle { places, bundle: Arc::new(bundle) });
    }
    if at != start {
        return Err(corrupt(at, "bytes between the parts of nested paths and their directory"));
    }
    for path in &nested {
        let Some(outer) = path.places.outer else { continue };
        let elements = nested.iter().find(|other| other.places.path == outer).map_or(0, |o| o.bundle.rows());
        if path.places.within.last().is_some_and(|last| *last >= elements) {
            return Err(corrupt(start, "elements lie in elements that the outer path lacks"));
        }
    }
    rows.set_nested(nested, bytes.len());
    Ok(rows)
}

/// Reads from the front of a slice whose length was checked.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => [0; N],
        }
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// Appends ascending numbers as differences, 7 bits a byte, least first.
fn encode_ascending(list: &[u32], out: &mut Vec<u8>) {
    let mut last = 0;
    for number in list {
        let mut rest = number - last;
        last = *number;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
}

fn decode_ascending(count: u32, input: &mut &[u8]) -> Option<Vec<u32>> {
    let count = count as usize;
    if count > input.len() {
        return None;
    }
    let mut list = Vec::with_capacity(count);
    let mut last = 0u32;
    for _ in 0..count {
        let (mut step, mut shift) = (0u32, 0);
        loop {
            let (byte, rest) = input.split_first()?;
            *input = rest;
            step |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
        last = last.checked_add(step)?;
        list.push(last);
    }
    Some(list)
}

/// Fate of an element of one input.
#[derive(Clone, Copy)]
struct RemappedElement {
    parent: u32,
    input: usize,
    element: u32,
}

/// Merges the nested paths of the inputs behind the bundle of the rows: elements follow their rows,
/// and those of dropped rows fall away.
pub(super) fn merge(
    inputs: &[(&Bundle, RowMap)],
    scratch: &Scratch<'_>,
    out: &mut dyn Write,
    rows_len: u64,
) -> Result<()> {
    let mut paths: Vec<(PathId, Option<PathId>)> = inputs
        .iter()
        .flat_map(|(bundle, _)| bundle.nested().iter().map(|n| (n.places.path, n.places.outer)))
        .collect();
    paths.sort_unstable_by_key(|(path, _)| *path);
    paths.dedup();
    let moved: Vec<(PathId, Vec<RemappedElement>)> =
        paths.iter().map(|(path, _)| (*path, elements(inputs, *path))).collect();
    if moved.iter().all(|(_, elements)| elements.is_empty()) {
        return Ok(());
    }
    let mut writer = NestedWriter::new(out, rows_len);
    for ((path, outer), (_, elements)) in paths.iter().zip(&moved) {
        if elements.is_empty() {
            continue;
        }
        let maps = element_maps(inputs, *path, elements);
        let within = match outer {
            None => Vec::new(),
            Some(outer) => {
                let of_outer = moved.iter().find(|(other, _)| other == outer);
                let outer_maps = element_maps(inputs, *outer, of_outer.map_or(&[][..], |(_, list)| list));
                elements
                    .iter()
                    .filter_map(|moved| {
                        let old = inputs[moved.input].0.nested_of(*path)?;
                        let within = old.places.within.get(moved.element as usize)?;
                        outer_maps[moved.input].get(*within as usize).copied()
                    })
                    .collect()
            }
        };
        let ascend = within.is_sorted() && within.last() != Some(&DROPPED);
        if !ascend || (outer.is_some() && within.len() != elements.len()) {
            return Err(Error::Internal(format!("elements of nested path {} lost their place", path.0)));
        }
        let parts: Vec<(&Bundle, RowMap)> = inputs
            .iter()
            .zip(maps)
            .filter_map(|((bundle, _), map)| {
                Some((bundle.nested_of(*path)?.bundle.as_ref(), RowMap::Table(map.into())))
            })
            .collect();
        let count = elements.len() as u32;
        let mut counted = CountingWriter { out: writer.out(), bytes: 0 };
        merge_rows(&parts, count, scratch, &mut counted)?;
        let bundle_len = counted.bytes;
        let parents = elements.iter().map(|moved| moved.parent).collect();
        writer.push(&NestedPositions { path: *path, outer: *outer, parents, within }, bundle_len)?;
    }
    writer.finish()
}

/// The elements that are kept, in the order of the output.
fn elements(inputs: &[(&Bundle, RowMap)], path: PathId) -> Vec<RemappedElement> {
    let mut moved = Vec::new();
    for (input, (bundle, map)) in inputs.iter().enumerate() {
        let Some(nested) = bundle.nested_of(path) else { continue };
        for (element, row) in nested.places.parents.iter().enumerate() {
            let parent = match map {
                RowMap::Offset(base) => base + row,
                RowMap::Table(table) => table.get(*row as usize).copied().unwrap_or(DROPPED),
            };
            if parent != DROPPED {
                moved.push(RemappedElement { parent, input, element: element as u32 });
            }
        }
    }
    // Elements of a row keep their order.
    if !moved.is_sorted_by_key(|moved| moved.parent) {
        moved.sort_by_key(|moved| moved.parent);
    }
    moved
}

/// Returns the maps from the elements of each input to the output.
fn element_maps(inputs: &[(&Bundle, RowMap)], path: PathId, moved: &[RemappedElement]) -> Vec<Vec<u32>> {
    let mut maps: Vec<Vec<u32>> = inputs
        .iter()
        .map(|(bundle, _)| vec![DROPPED; bundle.nested_of(path).map_or(0, |n| n.places.parents.len())])
        .collect();
    for (new, moved) in moved.iter().enumerate() {
        maps[moved.input][moved.element as usize] = new as u32;
    }
    maps
}
