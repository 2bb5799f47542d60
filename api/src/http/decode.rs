//! Reading request bodies: bounded in size before and after decompression, in time between chunks,
//! and in sum over all requests that are being read or answered.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::http::content::Format;
use crate::http::{Room, json, offload};

/// Permits are of this many bytes each.
const UNIT: u64 = 1024;
/// Time given to the rest of a body whose request is refused already.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Bounds on request bodies, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    max_content_length: u64,
    chunk_timeout: Duration,
    in_flight: Arc<Semaphore>,
    max_in_flight: usize,
}

/// A body and its share of the bytes in flight, given back on drop.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    permits: Option<OwnedSemaphorePermit>,
}

impl Limits {
    /// Bounds one body (compressed and not), the silence between two chunks, and the sum over all
    /// requests; at the last bound requests get 429. The sum has room for the longest body in both forms.
    pub(crate) fn new(max_content_length: u64, chunk_timeout: Duration, max_in_flight: u64) -> Self {
        let permits = usize::try_from(max_in_flight.max(max_content_length.saturating_mul(2)) / UNIT + 1)
            .unwrap_or(usize::MAX);
        let permits = permits.min(Semaphore::MAX_PERMITS);
        let max_in_flight = permits.saturating_mul(UNIT as usize);
        Self {
            max_content_length,
            chunk_timeout,
            in_flight: Arc::new(Semaphore::new(permits)),
            max_in_flight,
        }
    }

    /// Makes the room of a request for what it takes beside its body.
    pub(crate) fn room(&self) -> Room {
        Room::new(Arc::clone(&self.in_flight), UNIT as usize, self.max_in_flight)
    }

    /// Reads and decompresses a body.
    pub(crate) async fn read<B>(&self, headers: &HeaderMap, body: &mut B) -> Result<Held, Error>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|length| length > self.max_content_length) {
            return Err(Error::content_too_long(self.max_content_length));
        }
        let mut held = Held { bytes: Bytes::new(), permits: None };
        self.hold(&mut held, declared.unwrap_or(0))?;
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        loop {
            let frame = tokio::time::timeout(self.chunk_timeout, body.frame()).await.map_err(|_| {
                Error::new(408, "timeout_exception", "the request body stopped arriving before its end")
            })?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| {
                Error::new(
                    400,
                    "illegal_argument_exception",
                    format!("cannot read the request body: {error}"),
                )
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let total = (first.len() + rest.len() + data.len()) as u64;
            if total > self.max_content_length {
                return Err(Error::content_too_long(self.max_content_length));
            }
            self.hold(&mut held, total)?;
            if first.is_empty() && rest.is_empty() {
                first = data;
                continue;
            }
            if rest.is_empty() {
                let expected = declared.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
                rest.reserve(expected.max(first.len() + data.len()));
                rest.extend_from_slice(&first);
                first = Bytes::new();
            }
            rest.extend_from_slice(&data);
        }
        held.bytes = if rest.is_empty() { first } else { rest.freeze() };
        self.decompress(headers, &mut held)?;
        Ok(held)
    }

    /// Reads a body for nothing, within twice the bound on one and [`DISCARD_TIMEOUT`].
    pub(crate) async fn discard<B>(&self, mut body: B)
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let mut left = self.max_content_length.saturating_mul(2);
        let drained = async {
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                match left.checked_sub(data.len() as u64) {
                    Some(rest) => left = rest,
                    None => break,
                }
            }
        };
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, drained).await;
    }

    fn decompress(&self, headers: &HeaderMap, held: &mut Held) -> Result<(), Error> {
        let Some(coding) = headers.get(CONTENT_ENCODING) else { return Ok(()) };
        let coding = String::from_utf8_lossy(coding.as_bytes()).trim().to_ascii_lowercase();
        if coding.is_empty() || coding == "identity" || held.bytes.is_empty() {
            return Ok(());
        }
        let compressed = held.bytes.clone();
        let size = compressed.len();
        let reader: Box<dyn Read> = match coding.as_str() {
            "gzip" | "x-gzip" => Box::new(MultiGzDecoder::new(compressed.reader())),
            "deflate" => Box::new(ZlibDecoder::new(compressed.reader())),
            other => {
                return Err(Error::new(
                    415,
                    "illegal_argument_exception",
                    format!("Content-Encoding [{other}] is not supported, use one of [gzip, deflate]"),
                ));
            }
        };
        // Decompression is long work from much smaller inputs than parsing.
        held.bytes = offload(size.saturating_mul(8), || self.inflate(reader, size, held))?;
        Ok(())
    }

    fn inflate(&self, mut reader: Box<dyn Read>, compressed: usize, held: &mut Held) -> Result<Bytes, Error> {
        let mut out = Vec::with_capacity(compressed.saturating_mul(4).min(8 << 20));
        loop {
            let taken = (&mut reader).take(1 << 20).read_to_end(&mut out).map_err(|error| {
                Error::illegal_argument(format!("cannot decompress the request body: {error}"))
            })?;
            if out.len() as u64 > self.max_content_length {
                return Err(Error::content_too_long(self.max_content_length));
            }
            self.hold(held, (compressed + out.len()) as u64)?;
            if taken == 0 {
                return Ok(Bytes::from(out));
            }
        }
    }

    /// Raises the body's share of the bytes in flight.
    fn hold(&self, held: &mut Held, bytes: u64) -> Result<(), Error> {
        let wanted = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX);
        let have = held.permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = wanted.checked_sub(have).filter(|more| *more > 0) else { return Ok(()) };
        let permit =
            u32::try_from(more).ok().and_then(|n| self.in_flight.clone().try_acquire_many_owned(n).ok());
        let Some(permit) = permit else {
            return Err(Error::in_flight_full(bytes));
        };
        match &mut held.permits {
            Some(permits) => permits.merge(permit),
            None => held.permits = Some(permit),
        }
        Ok(())
    }
}

/// Turns a YAML body into JSON; other formats pass. What that takes is charged to `room`.
pub(crate) fn to_json(bytes: Bytes, format: Format, room: &Room) -> Result<Bytes, Error> {
    if format != Format::Yaml {
        return Ok(bytes);
    }
    let value = offload(bytes.len(), || json::parse_yaml(&bytes, room))?;
    serde_json::to_vec(&value)
        .map(Bytes::from)
        .map_err(|error| Error::new(400, "yaml_parse_exception", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http_body_util::{Full, StreamBody};
    use std::io::Write;

    fn limits(max: u64) -> Limits {
        Limits::new(max, Duration::from_secs(5), max)
    }

    fn gzip(bytes: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap().into()
    }

    fn gzip_headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        headers
    }

    #[tokio::test]
    async fn gzip_and_chunks() {
        let text = b"{\"a\":1}\n".repeat(1000);
        let held = limits(1 << 20).read(&gzip_headers(), &mut Full::new(gzip(&text))).await.unwrap();
        assert_eq!(held.bytes, text);
        let chunks =
            ["ab", "cd", "e"].map(|part| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(part))));
        let mut body = StreamBody::new(futures::stream::iter(chunks));
        assert_eq!(limits(100).read(&HeaderMap::new(), &mut body).await.unwrap().bytes, "abcde");
    }

    #[tokio::test]
    async fn a_bomb_is_cut_short() {
        let bomb = gzip(&vec![b' '; 20 << 20]);
        let error = limits(1 << 20).read(&gzip_headers(), &mut Full::new(bomb)).await.unwrap_err();
        assert_eq!(error.status(), 413);
        let error =
            limits(100).read(&HeaderMap::new(), &mut Full::new(Bytes::from(vec![0; 101]))).await.unwrap_err();
        assert_eq!(error.status(), 413);
        let error = limits(100)
            .read(&gzip_headers(), &mut Full::new(Bytes::from_static(b"no gzip")))
            .await
            .unwrap_err();
        assert_eq!(error.status(), 400);
    }

    #[tokio::test]
    async fn the_sum_is_bounded() {
        let limits = limits(100 * UNIT);
        let body = || Full::new(Bytes::from(vec![b'x'; 90 * UNIT as usize]));
        let held = limits.read(&HeaderMap::new(), &mut body()).await.unwrap();
        let _other = limits.read(&HeaderMap::new(), &mut body()).await.unwrap();
        let error = limits.read(&HeaderMap::new(), &mut body()).await.unwrap_err();
        assert_eq!((error.status(), error.error_type()), (429, "circuit_breaking_exception"));
        drop(held);
        limits.read(&HeaderMap::new(), &mut body()).await.unwrap();
    }

    #[test]
    fn yaml_becomes_json() {
        let json = to_json(Bytes::from_static(b"a: 1\nb: [x, y]\n"), Format::Yaml, &Room::of(0)).unwrap();
        assert_eq!(json, r#"{"a":1,"b":["x","y"]}"#);
    }
}
