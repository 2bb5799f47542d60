//! `s3`: events gathered to objects of a bucket, at least once.
//!
//! A delivery is written to files on disk ([`spool`]), one for each prefix, and counts as delivered once they are synced. A file becomes an object
//! ([`upload`]) when it has its size or its age, or when the output ends. An object is there as a whole or not at all. Its name is chosen with
//! the file, so a retry writes the same object again, also after a crash.

mod records;
mod spool;
#[cfg(test)]
mod tests;
mod upload;

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use object_store::path::Path;
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64;

use self::records::ObjectHeader;
use self::spool::{EncodedEvents, ObjectSpool, Rotation};
use self::upload::Uploader;
use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::s3_bucket::{self, Bucket};
use crate::{Event, Fault, Options, Template};

/// Bytes of an object's events where nothing is said, as in Logstash.
const SIZE: i64 = 5 << 20;
/// Greatest bound of them.
const MAX_SIZE: i64 = 1 << 30;
/// Minutes that an object gathers events where nothing is said, as in Logstash.
const MINUTES: i64 = 15;
const MAX_MINUTES: i64 = 7 * 24 * 60;
/// Objects that are written at the same time where nothing is said.
const CONCURRENCY: i64 = 4;
const MAX_CONCURRENCY: i64 = 16;
/// Bytes on disk from which on deliveries wait for uploads. Objects of the largest size have room for two.
const MAX_SPOOL_BYTES: u64 = 2 << 30;
/// Most bytes of a key in S3.
const MAX_KEY_BYTES: usize = 1_024;
/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct S3 {
    uploader: Arc<Uploader>,
    /// Tells the bucket from others of the pipeline, in names of directories.
    bucket_id: String,
    encoder: Arc<ObjectEncoder>,
    rotation: Rotation,
    /// Files on disk, once the output was started.
    spool: watch::Sender<Option<Arc<ObjectSpool>>>,
    /// Becomes `true` when the output ends.
    ending: watch::Sender<bool>,
    /// `true` if all objects are written; `None` until the output that was started has ended.
    outcome: watch::Sender<Option<bool>>,
}

/// Makes texts of events.
#[derive(Debug)]
struct ObjectEncoder {
    prefix: Template,
    codec: Arc<dyn Codec>,
    names: ObjectNames,
}

/// Names of objects.
#[derive(Clone, Debug)]
struct ObjectNames {
    is_gzip: bool,
    /// Tags in the names, with dots between.
    tags: String,
    /// Identity of this output since its start.
    run: String,
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let o = &mut options;
    let bucket = s3_bucket::take(o);
    let prefix = o.template("prefix").unwrap_or_else(|| Template::parse(""));
    let is_gzip = o.one_of("encoding", &["none", "gzip"]) == Some("gzip");
    let rotation = take_rotation(o);
    let tags = o.texts("tags").join(".");
    let concurrency = o.integer("upload_workers_count", 1..=i64::MAX).unwrap_or(CONCURRENCY);
    // Files that were left become objects always, and attempts have no end.
    let _ = (o.boolean("restore"), o.integer("upload_queue_size", 1..=i64::MAX));
    let _ = (
        o.integer("upload_multipart_threshold", 0..=i64::MAX),
        o.boolean("validate_credentials_on_root_bucket"),
    );
    let _ = (o.integer("retry_count", 0..=i64::MAX), o.integer("retry_delay", 0..=3_600));
    for (name, default) in [("canned_acl", "private"), ("storage_class", "STANDARD")] {
        if let Some(value) = o.text(name).filter(|value| value != default) {
            let reason =
                format!("[{name} => {value}] of [s3] is not supported: give the bucket that default");
            o.fault_here(reason);
        }
    }
    if o.boolean("server_side_encryption") == Some(true) {
        o.fault_here("[server_side_encryption] of [s3] is not supported: give the bucket that default");
    }
    for name in ["server_side_encryption_algorithm", "ssekms_key_id"] {
        if let Some((at, _)) = o.take(name) {
            o.fault(at, format!("option [{name}] is not supported: give the bucket that default"));
        }
    }
    let codec = codec::take(o, "line");
    options.finish()?;
    // Its fault was the options'.
    let Bucket { name, endpoint, store } = bucket.ok_or_else(Vec::new)?;
    let names = ObjectNames { is_gzip, tags, run: format!("{:032x}", rand::random::<u128>()) };
    let encoder = ObjectEncoder { prefix, codec: codec?, names };
    let bucket_id =
        format!("{:016x}", xxh3_64(format!("{}\n{name}", endpoint.unwrap_or_default()).as_bytes()));
    let concurrency = usize::try_from(concurrency.min(MAX_CONCURRENCY)).unwrap_or(1);
    let uploader = Uploader { bucket: name, store: Arc::new(store), concurrency };
    Ok(Output::Sink(Arc::new(S3::new(uploader, bucket_id, encoder, rotation))))
}

fn take_rotation(options: &mut Options) -> Rotation {
    let strategy = options.one_of("rotation_strategy", &["size_and_time", "size", "time"]);
    let size = options.integer("size_file", 0..=MAX_SIZE).filter(|size| *size > 0).unwrap_or(SIZE);
    let minutes =
        options.integer("time_file", 0..=MAX_MINUTES).filter(|minutes| *minutes > 0).unwrap_or(MINUTES);
    let size = if strategy == Some("time") { MAX_SIZE } else { size };
    let age = Duration::from_secs(60 * minutes.unsigned_abs());
    Rotation { max_bytes: size.unsigned_abs(), max_age: (strategy != Some("size")).then_some(age) }
}

impl ObjectEncoder {
    /// Makes the texts of events by their prefixes, and tells those whose prefix no key has room for.
    fn encode(
        &self,
        events: &[(Arc<Event>, Option<String>)],
    ) -> (BTreeMap<String, EncodedEvents>, Vec<RefusedEvent>) {
        let mut texts: BTreeMap<String, EncodedEvents> = BTreeMap::new();
        let mut refused = Vec::new();
        for (place, (event, _)) in events.iter().enumerate() {
            let prefix = self.prefix.render(event);
            let key = || self.names.path(&prefix, u64::MAX).as_ref().len();
            if !texts.contains_key(&prefix) && key() > MAX_KEY_BYTES {
                let reason = format!("its [prefix] makes keys of more than {MAX_KEY_BYTES} bytes");
                refused.push(RefusedEvent { event: place, reason });
                continue;
            }
            let encoded = texts.entry(prefix).or_default();
            let before = encoded.text.len();
            match self.codec.try_encode(event, &mut encoded.text) {
                Ok(()) => encoded.ends.push(encoded.text.len()),
                Err(reason) => {
                    encoded.text.truncate(before);
                    refused.push(RefusedEvent { event: place, reason });
                }
            }
        }
        (texts, refused)
    }
}

impl ObjectNames {
    /// Names an object. Characters with a meaning are encoded, and empty parts are left out.
    fn path(&self, prefix: &str, number: u64) -> Path {
        let time = Utc::now().format("%Y-%m-%dT%H.%M");
        let tags = if self.tags.is_empty() { String::new() } else { format!("tag_{}.", self.tags) };
        let ending = if self.is_gzip { "txt.gz" } else { "txt" };
        Path::from(format!("{prefix}/ls.s3.{}.{time}.{tags}part{number}.{ending}", self.run))
    }

    fn header(&self, prefix: &str, number: u64) -> ObjectHeader {
        ObjectHeader { key: self.path(prefix, number).into(), is_gzip: self.is_gzip }
    }
}

impl S3 {
    fn new(uploader: Uploader, bucket_id: String, encoder: ObjectEncoder, rotation: Rotation) -> Self {
        let encoder = Arc::new(encoder);
        let (spool, ending, outcome) =
            (watch::Sender::new(None), watch::Sender::new(false), watch::Sender::new(None));
        let uploader = Arc::new(uploader);
        Self { uploader, bucket_id, encoder, rotation, spool, ending, outcome }
    }

    /// Waits until the output was started and has room on disk.
    async fn room(&self, stopping: &mut watch::Receiver<bool>) -> Result<Arc<ObjectSpool>, SinkInterrupted> {
        let mut started = self.spool.subscribe();
        let room = async {
            let spool = started.wait_for(Option::is_some).await.ok()?.clone()?;
            spool.bytes().wait_for(|bytes| *bytes < MAX_SPOOL_BYTES).await.ok()?;
            Some(spool)
        };
        tokio::select! {
            biased;
            () = stopped(stopping) => Err(SinkInterrupted),
            spool = room => spool.ok_or(SinkInterrupted),
        }
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.ending.send_replace(true);
    }
}

#[async_trait]
impl Sink for S3 {
    fn start(&self, directory: &FilePath) {
        let root = directory.join("s3");
        let (place, names, rotation) = (root.clone(), self.encoder.names.clone(), self.rotation);
        let bucket = self.bucket_id.clone();
        let open = move || ObjectSpool::open(&place, &bucket, names.clone(), rotation);
        let (uploader, started) = (Arc::clone(&self.uploader), self.spool.clone());
        let (ending, outcome) = (self.ending.subscribe(), self.outcome.clone());
        tokio::spawn(async move {
            let Some((spool, finished)) = upload::open(root, open, ending.clone()).await else { return };
            let spool = Arc::new(spool);
            started.send_replace(Some(Arc::clone(&spool)));
            drop(started);
            let all = uploader.run(spool, finished, ending).await;
            outcome.send_replace(Some(all));
        });
    }

    async fn finish(&self) -> bool {
        self.ending.send_replace(true);
        // What was never started has nothing to end.
        let is_started = self.spool.borrow().is_some();
        !is_started
            || self.outcome.subscribe().wait_for(Option::is_some).await.is_ok_and(|all| *all == Some(true))
    }

    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        prepare_codec(&self.encoder.codec, "s3", Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), &mut stopping)
            .await?;
        let spool = self.room(&mut stopping).await?;
        let (encoder, all) = (Arc::clone(&self.encoder), events.to_vec());
        let (texts, refused) = offload(move || encoder.encode(&all)).await;
        let texts = Arc::new(texts);
        loop {
            let (spool, texts) = (Arc::clone(&spool), Arc::clone(&texts));
            let Err(error) = offload(move || spool.append(&texts)).await else { return Ok(refused) };
            tracing::warn!(%error, "the output s3 cannot write to its files on disk, it tries again");
            backoff.wait(&mut stopping).await?;
        }
    }
}
