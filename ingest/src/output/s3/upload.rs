//! Uploads: files of the spool to objects.

use std::io;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use millrace_runtime::Instant;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, PutMultipartOptions, PutOptions};
use tokio::sync::watch;

use super::records::EventReader;
use super::spool::{FinishedFile, ObjectSpool};
use super::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::retry::Backoff;
use crate::s3_bucket;

/// Bytes of an object that are sent at once; a longer one is sent in parts of that size.
const PART_BYTES: usize = 8 << 20;
/// Time between looks for what other runs left.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Writer of objects to a bucket.
#[derive(Debug)]
pub(super) struct Uploader {
    pub(super) bucket: String,
    pub(super) store: Arc<dyn ObjectStore>,
    /// Objects that are written at the same time.
    pub(super) concurrency: usize,
}

/// Failure to write an object.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    /// Its file.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Its bucket.
    #[error(transparent)]
    Bucket(#[from] object_store::Error),
}

impl Uploader {
    /// Finishes files at their age and writes their objects, until the output ends. Then all files are finished, and each has one more
    /// attempt, up to the first that fails. Returns whether all objects are written.
    pub(super) async fn run(
        self: Arc<Self>,
        spool: Arc<ObjectSpool>,
        finished: UnboundedReceiver<FinishedFile>,
        ending: watch::Receiver<bool>,
    ) -> bool {
        let has_failed = Arc::new(AtomicBool::new(false));
        let uploads = finished.for_each_concurrent(self.concurrency, |file| {
            Arc::clone(&self).upload(Arc::clone(&spool), file, ending.clone(), Arc::clone(&has_failed))
        });
        tokio::join!(finish_files(&spool, ending.clone()), uploads);
        spool.is_empty()
    }

    /// Makes an attempt to write an object, and removes its file. Where that fails, the file waits for its next turn: others are not to wait
    /// for what their bucket does not take.
    async fn upload(
        self: Arc<Self>,
        spool: Arc<ObjectSpool>,
        mut file: FinishedFile,
        mut ending: watch::Receiver<bool>,
        has_failed: Arc<AtomicBool>,
    ) {
        if has_failed.load(Ordering::Relaxed) {
            return;
        }
        let error = match self.write(&file).await {
            Ok(()) => return offload(move || spool.remove(&file)).await,
            Err(UploadError::File(error))
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) =>
            {
                return offload(move || spool.give_up(&file, &error)).await;
            }
            Err(error) => error,
        };
        tracing::warn!(%error, bucket = self.bucket, key = file.header.key, "the output s3 cannot write an object, it tries again");
        file.failures += 1;
        if *ending.borrow() {
            has_failed.store(true, Ordering::Relaxed);
            return;
        }
        let mut backoff = Backoff::new(FIRST_PAUSE * 2_u32.pow(file.failures.min(6) - 1), LONGEST_PAUSE);
        tokio::spawn(async move {
            let _ = backoff.wait(&mut ending).await;
            offload(move || spool.put_back(file)).await;
        });
    }

    async fn write(&self, file: &FinishedFile) -> Result<(), UploadError> {
        let media_type = if file.header.is_gzip { "application/gzip" } else { "text/plain" };
        let attributes = Attributes::from_iter([(Attribute::ContentType, media_type)]);
        let key = Path::parse(&file.header.key).map_err(object_store::Error::from)?;
        let (content, first) = ContentReader::new(file).part().await?;
        let (mut content, second) = content.part().await?;
        let first = first.unwrap_or_default();
        let Some(second) = second else {
            let put = self.store.put_opts(&key, first.into(), PutOptions::from(attributes));
            s3_bucket::with_write_timeout(put).await?;
            return Ok(());
        };
        let begin = self.store.put_multipart_opts(&key, PutMultipartOptions::from(attributes));
        let mut upload = s3_bucket::with_write_timeout(begin).await?;
        let parts = async {
            for part in [first, second] {
                s3_bucket::with_write_timeout(upload.put_part(part.into())).await?;
            }
            loop {
                let part;
                (content, part) = content.part().await?;
                let Some(part) = part else { break };
                s3_bucket::with_write_timeout(upload.put_part(part.into())).await?;
            }
            s3_bucket::with_write_timeout(upload.complete()).await?;
            Ok(())
        };
        let written: Result<(), UploadError> = parts.await;
        if written.is_err() {
            // Parts without an object cost as much as one.
            let _ = s3_bucket::with_write_timeout(upload.abort()).await;
        }
        written
    }
}

/// Reader of what an object has: events, compressed where the object is.
struct ContentReader {
    events: EventReader,
    /// Encoder until the end of the events.
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Bytes of the next part that were read with the last one.
    left: Vec<u8>,
}

impl ContentReader {
    fn new(file: &FinishedFile) -> Self {
        let gzip = file.header.is_gzip.then(|| GzEncoder::new(Vec::new(), Compression::default()));
        Self { events: file.events(), gzip, left: Vec::new() }
    }

    /// Reads the next part; `None` behind the last one.
    async fn part(mut self) -> io::Result<(Self, Option<Bytes>)> {
        offload(move || {
            let part = self.read_part()?;
            Ok((self, part))
        })
        .await
    }

    fn read_part(&mut self) -> io::Result<Option<Bytes>> {
        let mut part = std::mem::take(&mut self.left);
        while part.len() < PART_BYTES {
            match self.read()? {
                Some(more) => part.extend_from_slice(&more),
                None => break,
            }
        }
        // All parts but the last have the same size: some services want that.
        self.left = part.split_off(part.len().min(PART_BYTES));
        Ok((!part.is_empty()).then(|| part.into()))
    }

    /// Reads the next bytes; `None` behind the last ones.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let text = self.events.next()?;
            let Some(encoder) = &mut self.gzip else { return Ok(text) };
            let Some(text) = text else { return self.gzip.take().map(GzEncoder::finish).transpose() };
            encoder.write_all(&text)?;
            if !encoder.get_ref().is_empty() {
                return Ok(Some(std::mem::take(encoder.get_mut())));
            }
        }
    }
}

/// Finishes files at their age until the output ends, and then all of them. Files that other runs left are looked for at intervals, and
/// finished, too.
async fn finish_files(spool: &Arc<ObjectSpool>, mut ending: watch::Receiver<bool>) {
    let (mut looks, mut look) = (0_u64, Instant::now());
    loop {
        let looking = Arc::clone(spool);
        let looks_now = Instant::now() >= look;
        if looks_now {
            looks += 1;
            look = Instant::now() + LOOK_INTERVAL;
        }
        // By the second look, others have taken what is theirs.
        let warns = looks_now && looks == 2;
        let next = offload(move || {
            let foreign = if warns { looking.warn_of_foreign() } else { Ok(()) };
            let left = if looks_now { looking.take_left() } else { Ok(()) };
            if let Err(error) = left.and(foreign) {
                tracing::warn!(%error, "files that another run of the output s3 left cannot be read");
            }
            looking.finish_old()
        })
        .await;
        tokio::select! {
            biased;
            () = stopped(&mut ending) => break,
            () = tokio::time::sleep_until(next.map_or(look, |next| next.min(look))) => {}
            () = spool.opened() => {}
        }
    }
    let closing = Arc::clone(spool);
    offload(move || closing.close()).await;
}

/// Opens a spool, however long that takes; `None` where the output ends before.
pub(super) async fn open<T: Send + 'static>(
    directory: PathBuf,
    open: impl Fn() -> io::Result<T> + Clone + Send + 'static,
    mut ending: watch::Receiver<bool>,
) -> Option<T> {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match offload(open.clone()).await {
            Ok(opened) => return Some(opened),
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "the output s3 cannot make its directory, it tries again");
                backoff.wait(&mut ending).await.ok()?;
            }
        }
    }
}
