//! Uploads: files of the spool to objects.

use std::io;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;

use super::spool::{EventReader, FinishedFile, ObjectSpool};
use super::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::retry::Backoff;
use crate::s3_bucket;

/// Bytes of an object that are sent at once; a longer one is sent in parts of as many.
const PART_BYTES: usize = 8 << 20;
/// Bytes of events that are compressed before the next are read.
const PIECE_BYTES: usize = 1 << 20;
/// Time between looks for what other runs left.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Attempts to write an object once the output has ended; what is left then is for the next one.
const LAST_ATTEMPTS: usize = 3;

/// Where objects go.
#[derive(Clone, Debug)]
pub(super) struct Uploader {
    pub(super) bucket: String,
    pub(super) store: Arc<dyn ObjectStore>,
    /// Objects that are written at the same time.
    pub(super) concurrency: usize,
}

impl Uploader {
    /// Finishes files at their age and writes their objects, until the output ends. Then all files are finished, and the last objects
    /// are written.
    pub(super) async fn run(
        self,
        spool: Arc<ObjectSpool>,
        finished: UnboundedReceiver<FinishedFile>,
        ending: watch::Receiver<bool>,
    ) {
        let uploads = finished.for_each_concurrent(self.concurrency, |file| {
            self.clone().upload(Arc::clone(&spool), file, ending.clone())
        });
        tokio::join!(finish_files(&spool, ending.clone()), uploads);
    }

    /// Writes an object, however long that takes, and removes its file. A file of which that fails once the output has ended stays.
    async fn upload(self, spool: Arc<ObjectSpool>, file: FinishedFile, mut ending: watch::Receiver<bool>) {
        let file = Arc::new(file);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut last_attempts = 0;
        while let Err(error) = self.write(&file).await {
            tracing::warn!(%error, bucket = self.bucket, key = file.header.key, "the output s3 cannot write an object, it tries again");
            if *ending.borrow() {
                last_attempts += 1;
                if last_attempts == LAST_ATTEMPTS {
                    return;
                }
                tokio::time::sleep(FIRST_PAUSE).await;
            } else {
                let _ = backoff.wait(&mut ending).await;
            }
        }
        offload(move || spool.remove(&file)).await;
    }

    async fn write(&self, file: &Arc<FinishedFile>) -> io::Result<()> {
        let media_type = if file.header.is_gzip { "application/gzip" } else { "text/plain" };
        let attributes = Attributes::from_iter([(Attribute::ContentType, media_type)]);
        let key = Path::parse(&file.header.key).map_err(io::Error::other)?;
        let mut object = BufWriter::with_capacity(Arc::clone(&self.store), key, PART_BYTES)
            .with_attributes(attributes)
            .with_max_concurrency(1);
        if let Err(error) = fill(&mut object, file).await {
            // Parts without an object cost as much as one.
            let _ = s3_bucket::with_write_timeout(object.abort()).await;
            return Err(error);
        }
        s3_bucket::with_write_timeout(async { Ok(object.shutdown().await) }).await?
    }
}

/// Sends the events of a file.
async fn fill(object: &mut BufWriter, file: &Arc<FinishedFile>) -> io::Result<()> {
    let opened = Arc::clone(file);
    let mut content = offload(move || ContentReader::open(&opened)).await?;
    loop {
        let piece;
        (content, piece) = offload(move || {
            let piece = content.next();
            (content, piece)
        })
        .await;
        let Some(piece) = piece? else { return Ok(()) };
        s3_bucket::with_write_timeout(object.put(piece)).await?;
    }
}

/// Reader of what an object has: events, compressed where the object is.
struct ContentReader {
    events: EventReader,
    /// Encoder until the end of the events.
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl ContentReader {
    fn open(file: &FinishedFile) -> io::Result<Self> {
        let gzip = file.header.is_gzip.then(|| GzEncoder::new(Vec::new(), Compression::default()));
        Ok(Self { events: EventReader::open(file)?, gzip })
    }

    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut read = 0;
        loop {
            let text = self.events.next()?;
            let Some(encoder) = &mut self.gzip else { return Ok(text.map(Bytes::from)) };
            let Some(text) = text else {
                return self.gzip.take().map(|encoder| encoder.finish().map(Bytes::from)).transpose();
            };
            encoder.write_all(&text)?;
            read += text.len();
            if read >= PIECE_BYTES {
                return Ok(Some(std::mem::take(encoder.get_mut()).into()));
            }
        }
    }
}

/// Finishes files at their age until the output ends, and then all of them. Files that other runs left are finished, too.
async fn finish_files(spool: &Arc<ObjectSpool>, mut ending: watch::Receiver<bool>) {
    loop {
        let looking = Arc::clone(spool);
        let next = offload(move || {
            if let Err(error) = looking.take_left() {
                tracing::warn!(%error, "files that another run of the output s3 left cannot be read");
            }
            looking.finish_old()
        })
        .await;
        let look = tokio::time::Instant::now() + LOOK_INTERVAL;
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
