//! Bodies of requests: read within bounds of length, time and memory, and inflated.
//!
//! A body is charged as it arrives, never for what it declares. Silence and slowness end it ([`TransferRate`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::budget::{BudgetExceeded, Reservation, Reserve};
use crate::inflate::{Coding, InflateError, inflate};
use crate::transfer_rate::{StallReason, TransferRate};

/// Buffer that a body of a declared length gets at once; a longer one once this much has arrived.
const TRUSTED_BYTES: usize = 16 << 20;
/// Compressed bodies up to this length are inflated where they are: they become a thousand times it at most,
/// which takes a millisecond.
const SMALL_BYTES: usize = 1 << 10;
/// Bytes of a head's field beside its text.
const FIELD_BYTES: usize = 64;
/// Time given to the rest of a body whose request is refused already.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads bodies; its clones share the places to inflate them.
#[derive(Clone, Debug)]
pub struct BodyReader {
    max_bytes: u64,
    silence: Duration,
    /// Bodies inflated at a time: one a core.
    inflating: Arc<Semaphore>,
}

/// A body and what is reserved for it, given back on drop.
#[derive(Debug)]
pub struct ReservedBody<R = Reservation> {
    /// The body, inflated.
    pub bytes: Bytes,
    /// Reservation: the length of the body.
    pub reservation: R,
}

/// Why a body is not read; `R` is why a reservation does not grow.
#[derive(Debug, thiserror::Error)]
pub enum BodyError<R = BudgetExceeded> {
    /// It is longer than allowed, as sent or inflated.
    #[error("the {}body exceeds [{limit}] bytes", if *.inflated { "decompressed " } else { "" })]
    TooLong {
        /// Greatest length in bytes.
        limit: u64,
        /// `true` if it is so after decompression.
        inflated: bool,
    },
    /// It does not fit beside the others.
    #[error("{0}")]
    Exceeded(R),
    /// Nothing came for too long.
    #[error("the request body stopped arriving before its end")]
    Silent,
    /// It came too slowly, by far or while memory is scarce.
    #[error("the request body arrived too slowly")]
    Slow,
    /// The connection failed.
    #[error("cannot read the request body: {0}")]
    Broken(String),
    /// Its coding is not known.
    #[error("Content-Encoding [{0}] is not supported, use one of [gzip, deflate, zstd]")]
    Coding(String),
    /// It is not what its coding says.
    #[error("cannot decompress the request body: {reason}")]
    Invalid {
        /// The coding, as the header names it.
        coding: String,
        /// The reason why it is refused.
        reason: std::io::Error,
    },
    /// Inflating it ended without a result, by a defect.
    #[error("decompressing the request body failed: {0}")]
    Failed(String),
}

impl BodyReader {
    /// Makes a reader of bodies of up to `max_bytes`, compressed and not, in which silences are no longer
    /// than `silence`.
    pub fn new(max_bytes: u64, silence: Duration) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { max_bytes, silence, inflating: Arc::new(Semaphore::new(cores)) }
    }

    /// Reads and inflates a body; `reservation`, which is empty, grows with it.
    ///
    /// # Errors
    /// See [`BodyError`]. Dropping the future is safe; what is being inflated is held until that ends.
    pub async fn read<B, R>(
        &self,
        headers: &HeaderMap,
        body: &mut B,
        reservation: R,
    ) -> Result<ReservedBody<R>, BodyError<R::Refusal>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
        R: Reserve,
    {
        let name = headers.get(CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let name = name.as_deref().unwrap_or_default();
        let coding = Coding::parse(name);
        let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let declared = declared.or(body.size_hint().exact());
        let held = self.collect(declared, body, reservation).await?;
        if held.bytes.is_empty() || coding == Some(Coding::Identity) {
            return Ok(held);
        }
        let name = name.trim().to_ascii_lowercase();
        match coding {
            Some(coding) => self.inflate(coding, name, held).await,
            None => Err(BodyError::Coding(name)),
        }
    }

    /// Reads a body for nothing, within twice the bound on one and five seconds.
    pub async fn discard<B>(&self, mut body: B)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut left = self.max_bytes.saturating_mul(2);
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

    async fn collect<B, R>(
        &self,
        declared: Option<u64>,
        body: &mut B,
        mut reservation: R,
    ) -> Result<ReservedBody<R>, BodyError<R::Refusal>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
        R: Reserve,
    {
        let too_long = || BodyError::TooLong { limit: self.max_bytes, inflated: false };
        if declared.is_some_and(|length| length > self.max_bytes) {
            return Err(too_long());
        }
        let declared = declared.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let mut pace = TransferRate::new(self.silence);
        // A body of one frame is used as it is.
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        loop {
            let frame = self.frame(body, &mut pace, &reservation).await?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            let total = (first.len() + rest.len() + data.len()) as u64;
            if total > self.max_bytes {
                return Err(too_long());
            }
            reservation.grow(data.len() as u64).map_err(BodyError::Exceeded)?;
            if first.is_empty() && rest.is_empty() {
                first = data;
                continue;
            }
            if !first.is_empty() {
                rest.reserve(declared.min(TRUSTED_BYTES).max(first.len() + data.len()));
                rest.extend_from_slice(&std::mem::take(&mut first));
            } else if rest.len() >= TRUSTED_BYTES && rest.capacity() < declared {
                rest.reserve(declared - rest.len());
            }
            rest.extend_from_slice(&data);
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(ReservedBody { bytes, reservation })
    }

    /// Waits for the next frame; the end is `None`.
    async fn frame<B, R>(
        &self,
        body: &mut B,
        pace: &mut TransferRate,
        reservation: &R,
    ) -> Result<Option<FrameOf<B>>, BodyError<R::Refusal>>
    where
        B: Body<Data = Bytes> + Unpin,
        R: Reserve,
    {
        loop {
            // What is due already ends only the wait for what is not there yet.
            let due = pace.waits(Instant::now());
            if let Ok(frame) = tokio::time::timeout_at(due, body.frame()).await {
                let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                pace.came(Instant::now(), data.map_or(0, Bytes::len) as u64);
                return Ok(frame);
            }
            match pace.look(Instant::now(), || reservation.is_scarce()) {
                Ok(()) => {}
                Err(StallReason::Silent) => return Err(BodyError::Silent),
                Err(StallReason::Slow) => return Err(BodyError::Slow),
            }
        }
    }

    /// Inflates on a blocking thread, as many at a time as there are cores.
    async fn inflate<R: Reserve>(
        &self,
        coding: Coding,
        name: String,
        held: ReservedBody<R>,
    ) -> Result<ReservedBody<R>, BodyError<R::Refusal>> {
        let limit = self.max_bytes;
        let small = held.bytes.len() <= SMALL_BYTES;
        let work = move || {
            let ReservedBody { bytes: compressed, mut reservation } = held;
            match inflate(coding, &compressed, limit, &mut reservation) {
                Ok(bytes) => {
                    drop(compressed);
                    reservation.shrink_to(bytes.len() as u64);
                    Ok(ReservedBody { bytes, reservation })
                }
                Err(InflateError::TooLong(limit)) => Err(BodyError::TooLong { limit, inflated: true }),
                Err(InflateError::Exceeded(exceeded)) => Err(BodyError::Exceeded(exceeded)),
                Err(InflateError::Invalid(reason)) => Err(BodyError::Invalid { coding: name, reason }),
            }
        };
        if small {
            return work();
        }
        let failed = |error: &dyn std::fmt::Display| BodyError::Failed(error.to_string());
        let place = Arc::clone(&self.inflating).acquire_owned().await.map_err(|error| failed(&error))?;
        // The place is the work's: it goes on where the request is gone.
        let inflated = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        inflated.await.map_err(|error| failed(&error))?
    }
}

/// Bytes that the head of a request takes in memory, about.
pub fn head_bytes(uri: &http::Uri, headers: &HeaderMap) -> u64 {
    let uri = uri.path_and_query().map_or(0, |uri| uri.as_str().len());
    let fields: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES).sum();
    (uri + fields) as u64
}

type FrameOf<B> = Result<http_body::Frame<Bytes>, <B as Body>::Error>;

#[cfg(test)]
mod tests;
