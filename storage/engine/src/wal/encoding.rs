//! Frames to bytes and back, without framing and checksum (those are [`super::record`]'s).
//!
//! A payload is a sequence of entries, each `kind u8, length u32, body`; the last one is the frame's context. The decoder is handed
//! bytes whose checksum is right, and trusts nothing all the same: every length is checked against
//! what is left, every count against the least size of what it counts.

use bytes::Bytes;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{Entry, Frame, Op, PositionDelta, ShardOps, StoreStamp};
use uuid::Uuid;

const MAPPING: u8 = 1;
const OPS: u8 = 2;
const POSITION: u8 = 3;
const STORE: u8 = 4;
const CONTEXT: u8 = 5;
const ENTRY_HEADER: usize = 5;
/// Bytes of a context's body: origin and time.
const CONTEXT_BODY: usize = 1 + TIME_BYTES;
/// Bytes of the time, with which a payload ends: it is known no sooner than the frame's number.
pub(super) const TIME_BYTES: usize = 8;

const GENERATED: u8 = 1;
const ROUTING: u8 = 2;
const SOURCE: u8 = 4;
const CREATED: u8 = 8;
/// Flags, version and id length, a byte each.
const LEAST_OP_BYTES: usize = 3;

/// Counts the bytes that [`encode`] appends for a frame.
pub(super) fn encoded_len(frame: &Frame) -> usize {
    let entries = frame.entries.iter().map(|entry| ENTRY_HEADER + body_len(entry));
    entries.sum::<usize>() + ENTRY_HEADER + CONTEXT_BODY
}

fn body_len(entry: &Entry) -> usize {
    match entry {
        Entry::Mapping { mapping, .. } => 16 + mapping.len(),
        Entry::Ops(shard) => {
            let head = 16
                + varint_len(u64::from(shard.shard))
                + varint_len(shard.primary_term)
                + varint_len(shard.first_seq_no)
                + varint_len(shard.ops.len() as u64);
            head + shard.ops.iter().map(op_len).sum::<usize>()
        }
        Entry::Position(delta) => {
            slice_len(delta.pipeline.as_bytes())
                + slice_len(delta.source.as_bytes())
                + slice_len(delta.partition.as_bytes())
                + 1
                + delta.previous.as_deref().map_or(0, slice_len)
                + slice_len(&delta.new)
                + varint_len(delta.owner_epoch)
        }
        Entry::Store(stamp) => 16 + varint_len(stamp.generation),
    }
}

fn op_len(op: &Op) -> usize {
    1 + varint_len(op.version)
        + slice_len(&op.id)
        + op.routing.as_ref().map_or(0, |routing| slice_len(routing.as_bytes()))
        + op.source.as_deref().map_or(0, slice_len)
}

fn slice_len(bytes: &[u8]) -> usize {
    varint_len(bytes.len() as u64) + bytes.len()
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a frame's payload. The caller has checked that [`encoded_len`] fits into 32 bits.
pub(super) fn encode(frame: &Frame, out: &mut Vec<u8>) {
    for entry in &frame.entries {
        let start = out.len();
        out.push(match entry {
            Entry::Mapping { .. } => MAPPING,
            Entry::Ops(_) => OPS,
            Entry::Position(_) => POSITION,
            Entry::Store(_) => STORE,
        });
        out.extend_from_slice(&[0; 4]);
        match entry {
            Entry::Mapping { index, mapping } => {
                out.extend_from_slice(index.as_bytes());
                out.extend_from_slice(mapping);
            }
            Entry::Ops(shard) => encode_ops(shard, out),
            Entry::Position(delta) => encode_position(delta, out),
            Entry::Store(stamp) => {
                out.extend_from_slice(stamp.store.as_bytes());
                put_varint(out, stamp.generation);
            }
        }
        let length = (out.len() - start - ENTRY_HEADER) as u32;
        out[start + 1..start + ENTRY_HEADER].copy_from_slice(&length.to_le_bytes());
    }
    out.push(CONTEXT);
    out.extend_from_slice(&(CONTEXT_BODY as u32).to_le_bytes());
    out.push(frame.origin.code());
    out.extend_from_slice(&frame.time_ms.to_le_bytes());
}

fn encode_ops(shard: &ShardOps, out: &mut Vec<u8>) {
    out.extend_from_slice(shard.index.as_bytes());
    put_varint(out, u64::from(shard.shard));
    put_varint(out, shard.primary_term);
    put_varint(out, shard.first_seq_no);
    put_varint(out, shard.ops.len() as u64);
    for op in &shard.ops {
        let generated = if op.generated { GENERATED } else { 0 };
        let routing = if op.routing.is_some() { ROUTING } else { 0 };
        let source = if op.source.is_some() { SOURCE } else { 0 };
        let created = if op.created { CREATED } else { 0 };
        out.push(generated | routing | source | created);
        put_varint(out, op.version);
        put_slice(out, &op.id);
        if let Some(routing) = &op.routing {
            put_slice(out, routing.as_bytes());
        }
        if let Some(source) = &op.source {
            put_slice(out, source);
        }
    }
}

fn encode_position(delta: &PositionDelta, out: &mut Vec<u8>) {
    put_slice(out, delta.pipeline.as_bytes());
    put_slice(out, delta.source.as_bytes());
    put_slice(out, delta.partition.as_bytes());
    out.push(u8::from(delta.previous.is_some()));
    if let Some(previous) = &delta.previous {
        put_slice(out, previous);
    }
    put_slice(out, &delta.new);
    put_varint(out, delta.owner_epoch);
}

fn put_slice(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Decodes a frame's payload; sources and ids are slices of it.
///
/// # Errors
/// What does not fit, in words, for [`millrace_runtime::Error::Corrupt`].
pub(super) fn decode(payload: &Bytes) -> Result<Frame, String> {
    let mut cursor = Cursor { bytes: payload, at: 0 };
    let mut entries = Vec::new();
    let mut context = None;
    while cursor.left() > 0 {
        let kind = cursor.byte()?;
        if context.is_some() {
            return Err(format!("an entry of kind {kind} behind the frame's context"));
        }
        let length = cursor.take(4)?;
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let start = cursor.at;
        cursor.take(length)?;
        let body = payload.slice(start..start + length);
        let mut body = Cursor { bytes: &body, at: 0 };
        entries.push(match kind {
            MAPPING => Entry::Mapping { index: body.uuid()?, mapping: body.rest() },
            OPS => Entry::Ops(decode_ops(&mut body)?),
            POSITION => Entry::Position(decode_position(&mut body)?),
            STORE => Entry::Store(StoreStamp { store: body.uuid()?, generation: body.varint()? }),
            CONTEXT => {
                context = Some(decode_context(&mut body)?);
                continue;
            }
            other => {
                return Err(format!("unknown entry kind {other}; a newer version wrote this frame"));
            }
        });
        if body.left() > 0 {
            return Err(format!("{} bytes too many in an entry of kind {kind}", body.left()));
        }
    }
    let (origin, time_ms) = context.unwrap_or_else(|| {
        created_by_version(&mut entries);
        Default::default()
    });
    Ok(Frame { time_ms, origin, entries })
}

fn decode_context(body: &mut Cursor<'_>) -> Result<(Origin, i64), String> {
    let code = body.byte()?;
    let origin = Origin::of_code(code)
        .ok_or_else(|| format!("unknown origin {code}; a newer version wrote this frame"))?;
    let mut time = [0; TIME_BYTES];
    time.copy_from_slice(body.take(TIME_BYTES)?);
    if body.left() > 0 {
        return Err(format!("{} bytes too many in the frame's context", body.left()));
    }
    Ok((origin, i64::from_le_bytes(time)))
}

/// Says of the operations of a frame without context, which an older version wrote, which made their documents.
fn created_by_version(entries: &mut [Entry]) {
    for entry in entries {
        if let Entry::Ops(shard) = entry {
            shard.ops.iter_mut().for_each(|op| op.created = op.source.is_some() && op.version == 1);
        }
    }
}

fn decode_ops(body: &mut Cursor<'_>) -> Result<ShardOps, String> {
    let index = body.uuid()?;
    let shard = body.varint()?;
    let shard = u32::try_from(shard).map_err(|_| format!("shard number {shard} out of range"))?;
    let primary_term = body.varint()?;
    let first_seq_no = body.varint()?;
    let count = body.varint()?;
    if count > (body.left() / LEAST_OP_BYTES) as u64 {
        return Err(format!("{count} operations in {} bytes", body.left()));
    }
    let mut ops = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let flags = body.byte()?;
        if flags & !(GENERATED | ROUTING | SOURCE | CREATED) != 0 {
            return Err(format!("unknown operation flags {flags:#04x}"));
        }
        let version = body.varint()?;
        let id = body.slice()?;
        let routing = if flags & ROUTING != 0 { Some(body.text()?) } else { None };
        let source = if flags & SOURCE != 0 { Some(body.slice()?) } else { None };
        let (generated, created) = (flags & GENERATED != 0, flags & CREATED != 0);
        ops.push(Op { id, generated, created, version, routing, source });
    }
    Ok(ShardOps { index, shard, primary_term, first_seq_no, ops })
}

fn decode_position(body: &mut Cursor<'_>) -> Result<PositionDelta, String> {
    let pipeline = body.text()?;
    let source = body.text()?;
    let partition = body.text()?;
    let previous = match body.byte()? {
        0 => None,
        1 => Some(body.slice()?),
        other => return Err(format!("position flag {other}")),
    };
    let new = body.slice()?;
    let owner_epoch = body.varint()?;
    Ok(PositionDelta { pipeline, source, partition, previous, new, owner_epoch })
}

struct Cursor<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        if count > self.left() {
            return Err(format!("{count} bytes expected, {} left", self.left()));
        }
        self.at += count;
        Ok(&self.bytes[self.at - count..self.at])
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn uuid(&mut self) -> Result<Uuid, String> {
        Uuid::from_slice(self.take(16)?).map_err(|error| error.to_string())
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    fn slice(&mut self) -> Result<Bytes, String> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| format!("length {length} out of range"))?;
        let start = self.at;
        self.take(length)?;
        Ok(self.bytes.slice(start..start + length))
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| format!("length {length} out of range"))?;
        let text = std::str::from_utf8(self.take(length)?).map_err(|error| error.to_string())?;
        Ok(text.to_owned())
    }

    fn rest(&mut self) -> Bytes {
        let rest = self.bytes.slice(self.at..);
        self.at = self.bytes.len();
        rest
    }
}
