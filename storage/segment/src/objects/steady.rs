//! A remote store whose transfers may take as long as they move: stalls are limited, not durations.
//!
//! The client of a service limits a request as a whole, which a large object on a slow link never meets, and begins again
//! at the first byte. Here small requests keep that limit. Large ones have a client without it: a download fails once no byte
//! has come for [`STALL`], and goes on where it was, by a range of the same version of the object; an upload has the time that
//! the slowest link takes ([`LEAST_RATE`]). What comes of reads is noted for the health of the node.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::local::StoreResult;

/// Time without a byte after which a download is tried anew.
const STALL: Duration = Duration::from_secs(30);
/// Tries without a byte until a download fails.
const TRIES: u32 = 2;
/// Bytes of a body up to which it has the limit of a request as a whole.
const SMALL_BODY: usize = 256 << 10;
/// Bytes a second of the slowest upload.
const LEAST_RATE: u64 = 32 << 10;
/// Time that a service may take to put the parts of an upload together.
const COMPLETION: Duration = Duration::from_secs(300);
/// Reads that fail one after another until the store counts as failing.
const FAILING_AFTER: u32 = 3;

/// Results of reads of the store.
#[derive(Debug, Default)]
pub(super) struct ReadHealth {
    /// Failures since the last success.
    failures: AtomicU32,
    /// The object whose read failed last.
    last: Mutex<Option<Path>>,
}

impl ReadHealth {
    pub(super) fn succeeded(&self) {
        if self.failures.swap(0, Ordering::Relaxed) >= FAILING_AFTER {
            tracing::info!("the object store can be read again");
        }
    }

    fn failed(&self, path: &Path, error: &Error) {
        // The service has answered, about this object.
        if matches!(error, Error::NotFound { .. } | Error::Precondition { .. } | Error::NotModified { .. }) {
            return;
        }
        *self.last.lock() = Some(path.clone());
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILING_AFTER {
            tracing::error!(%path, %error, "reads of the object store fail: the node is not ready until one succeeds");
        }
    }

    /// Returns the object to be read to find out whether reads work again, where the last ones failed.
    pub(super) fn suspect(&self) -> Option<Path> {
        (self.failures.load(Ordering::Relaxed) >= FAILING_AFTER).then(|| self.last.lock().clone()).flatten()
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Steady {
    /// Limits each request as a whole.
    small: Arc<dyn ObjectStore>,
    /// Limits none.
    large: Arc<dyn ObjectStore>,
    reads: Arc<ReadHealth>,
}

/// A download on its way.
struct Download {
    store: Steady,
    path: Path,
    options: GetOptions,
    /// Range that is still to come.
    left: Range<u64>,
    pieces: Option<BoxStream<'static, StoreResult<Bytes>>>,
    /// Tries since the last byte.
    tries: u32,
}

impl Steady {
    pub(super) fn new(
        small: Arc<dyn ObjectStore>,
        large: Arc<dyn ObjectStore>,
        reads: Arc<ReadHealth>,
    ) -> Self {
        Self { small, large, reads }
    }

    async fn begin(&self, path: &Path, options: &GetOptions) -> StoreResult<GetResult> {
        let mut tries = 0;
        loop {
            tries += 1;
            match timeout(STALL, self.large.get_opts(path, options.clone())).await {
                Ok(answer) => return answer,
                Err(_) if tries < TRIES => {}
                Err(_) => return Err(stalled("answer a read", STALL)),
            }
        }
    }
}

impl Download {
    /// Returns the next piece, from a new request where the one before ended early or stalled.
    async fn next(&mut self) -> StoreResult<Option<Bytes>> {
        while !self.left.is_empty() {
            let piece = match &mut self.pieces {
                Some(pieces) => match timeout(STALL, pieces.try_next()).await {
                    Ok(Ok(Some(piece))) => Ok(piece),
                    Ok(Ok(None)) => Err(generic("the answer ended early".to_owned())),
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(stalled("send the rest of an object", STALL)),
                },
                None => {
                    self.options.range = Some(GetRange::Bounded(self.left.clone()));
                    let found = self.store.begin(&self.path, &self.options).await?;
                    if found.range != self.left {
                        return Err(generic(format!("another range than {:?} was answered", self.left)));
                    }
                    self.pieces = Some(found.into_stream());
                    continue;
                }
            };
            match piece {
                Ok(piece) => {
                    self.tries = 0;
                    self.left.start += piece.len() as u64;
                    return Ok(Some(piece));
                }
                Err(error) => {
                    self.pieces = None;
                    self.tries += 1;
                    // Without a version the rest could be that of another object.
                    if self.tries >= TRIES || self.options.if_match.is_none() {
                        return Err(error);
                    }
                    tracing::debug!(path = %self.path, at = self.left.start, %error, "a download goes on by another request");
                }
            }
        }
        Ok(None)
    }
}

fn generic(reason: String) -> Error {
    Error::Generic { store: "object store", source: reason.into() }
}

fn stalled(what: &str, limit: Duration) -> Error {
    generic(format!("the service did not {what} within {} s", limit.as_secs()))
}

/// Time that an upload of so many bytes has.
fn upload_time(bytes: usize) -> Duration {
    STALL + Duration::from_secs(bytes as u64 / LEAST_RATE)
}

impl fmt::Display for Steady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.small.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Steady {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        let bytes = payload.content_length();
        if bytes <= SMALL_BODY {
            return self.small.put_opts(path, payload, options).await;
        }
        let time = upload_time(bytes);
        let put = timeout(time, self.large.put_opts(path, payload, options)).await;
        put.unwrap_or_else(|_| Err(stalled("take an object", time)))
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        let begun = timeout(STALL, self.large.put_multipart_opts(path, options)).await;
        let upload = begun.unwrap_or_else(|_| Err(stalled("begin an upload", STALL)))?;
        Ok(Box::new(SteadyUpload(upload)))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        if options.head {
            return self.small.get_opts(path, options).await;
        }
        let mut found = match self.begin(path, &options).await {
            Ok(found) => found,
            Err(error) => {
                self.reads.failed(path, &error);
                return Err(error);
            }
        };
        let GetResultPayload::Stream(pieces) = found.payload else { return Ok(found) };
        let if_match = found.meta.e_tag.clone();
        let download = Download {
            store: self.clone(),
            path: path.clone(),
            options: GetOptions { if_match, version: found.meta.version.clone(), ..GetOptions::default() },
            left: found.range.clone(),
            pieces: Some(pieces),
            tries: 0,
        };
        let pieces = stream::try_unfold(download, |mut download| async move {
            let piece = download.next().await;
            let reads = &download.store.reads;
            match &piece {
                Ok(_) => reads.succeeded(),
                Err(error) => reads.failed(&download.path, error),
            }
            Ok(piece?.map(|piece| (piece, download)))
        });
        found.payload = GetResultPayload::Stream(pieces.boxed());
        Ok(found)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.small.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.small.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.small.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.small.copy_opts(from, to, options).await
    }
}

/// An upload in parts, each of which has its time.
#[derive(Debug)]
struct SteadyUpload(Box<dyn MultipartUpload>);

#[async_trait]
impl MultipartUpload for SteadyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let time = upload_time(data.content_length());
        let part = self.0.put_part(data);
        async move {
            timeout(time, part).await.unwrap_or_else(|_| Err(stalled("take a part of an upload", time)))
        }
        .boxed()
    }

    async fn complete(&mut self) -> StoreResult<PutResult> {
        let ended = timeout(COMPLETION, self.0.complete()).await;
        ended.unwrap_or_else(|_| Err(stalled("complete an upload", COMPLETION)))
    }

    async fn abort(&mut self) -> StoreResult<()> {
        let ended = timeout(STALL, self.0.abort()).await;
        ended.unwrap_or_else(|_| Err(stalled("abort an upload", STALL)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    /// A service on a slow link: a piece takes its time, and an answer stalls or breaks off after some of them.
    #[derive(Clone, Debug)]
    struct Slow {
        objects: Arc<InMemory>,
        piece: usize,
        time: Duration,
        /// Pieces that an answer has at most, and whether it stalls behind them.
        most: (usize, bool),
        gets: Arc<AtomicU64>,
    }

    impl fmt::Display for Slow {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Slow")
        }
    }

    #[async_trait]
    impl ObjectStore for Slow {
        async fn put_opts(&self, path: &Path, bytes: PutPayload, o: PutOptions) -> StoreResult<PutResult> {
            tokio::time::sleep(self.time).await;
            self.objects.put_opts(path, bytes, o).await
        }

        async fn put_multipart_opts(
            &self,
            path: &Path,
            options: PutMultipartOptions,
        ) -> StoreResult<Box<dyn MultipartUpload>> {
            self.objects.put_multipart_opts(path, options).await
        }

        async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
            self.gets.fetch_add(1, Ordering::Relaxed);
            let mut found = self.objects.get_opts(path, options.clone()).await?;
            let bytes = self.objects.get_opts(path, options).await?.bytes().await?;
            let (this, (most, stalls)) = (self.clone(), self.most);
            let pieces = stream::iter((0..bytes.len()).step_by(self.piece).enumerate());
            let pieces = pieces.then(move |(number, at)| {
                let (bytes, this) = (bytes.clone(), this.clone());
                async move {
                    tokio::time::sleep(this.time).await;
                    match number < most {
                        true => Ok(bytes.slice(at..bytes.len().min(at + this.piece))),
                        false if stalls => std::future::pending().await,
                        false => Err(generic("the link broke".to_owned())),
                    }
                }
            });
            found.payload = GetResultPayload::Stream(pieces.boxed());
            Ok(found)
        }

        fn delete_stream(
            &self,
            paths: BoxStream<'static, StoreResult<Path>>,
        ) -> BoxStream<'static, StoreResult<Path>> {
            self.objects.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
            self.objects.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
            self.objects.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
            self.objects.copy_opts(from, to, options).await
        }
    }

    async fn slow(time: Duration, most: (usize, bool)) -> (Slow, Steady, Arc<ReadHealth>, Bytes) {
        let slow = Slow { objects: Arc::default(), piece: 1000, time, most, gets: Arc::default() };
        let reads = Arc::<ReadHealth>::default();
        let steady = Steady::new(Arc::new(slow.clone()), Arc::new(slow.clone()), Arc::clone(&reads));
        let bytes: Bytes = (0..100_500u32).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into();
        slow.objects.put(&Path::from("a"), bytes.clone().into()).await.unwrap();
        (slow, steady, reads, bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_steady_link_may_be_as_slow_as_it_likes() {
        let (slow, steady, _, bytes) = slow(Duration::from_secs(20), (usize::MAX, false)).await;
        assert_eq!(steady.get(&"a".into()).await.unwrap().bytes().await.unwrap(), bytes);
        assert_eq!(slow.gets.load(Ordering::Relaxed), 1);
        steady.put(&"b".into(), vec![0; 8 << 20].into()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_stalls_or_breaks_goes_on_where_it_was() {
        for stalls in [false, true] {
            let (slow, steady, reads, bytes) = slow(Duration::from_secs(1), (30, stalls)).await;
            assert_eq!(steady.get(&"a".into()).await.unwrap().bytes().await.unwrap(), bytes);
            assert_eq!(slow.gets.load(Ordering::Relaxed), 4);
            let range = steady.get_range(&"a".into(), 500..70_000).await.unwrap();
            assert_eq!(range, bytes.slice(500..70_000));
            assert_eq!(reads.suspect(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_replaced_meanwhile_is_not_mixed_with_its_successor() {
        let (slow, steady, _, bytes) = slow(Duration::from_secs(1), (30, false)).await;
        let mut pieces = steady.get(&"a".into()).await.unwrap().into_stream();
        pieces.try_next().await.unwrap();
        slow.objects.put(&"a".into(), bytes.slice(1..).into()).await.unwrap();
        let error = pieces.try_collect::<Vec<_>>().await.unwrap_err();
        assert!(matches!(error, Error::Precondition { .. }), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_gives_nothing_counts_as_failing_until_a_read_succeeds() {
        let (mut slow, steady, reads, _) = slow(Duration::from_secs(1), (0, true)).await;
        for failures in 1..5 {
            steady.get(&"a".into()).await.unwrap().bytes().await.unwrap_err();
            assert_eq!(reads.suspect().is_some(), failures >= FAILING_AFTER, "{failures}");
        }
        steady.get(&"none".into()).await.unwrap_err();
        assert_eq!(reads.suspect(), Some("a".into()));
        slow.most = (1, false);
        let mended = Steady::new(Arc::new(slow.clone()), Arc::new(slow), Arc::clone(&reads));
        mended.get_range(&"a".into(), 0..1).await.unwrap();
        assert_eq!(reads.suspect(), None);
    }
}
