//! `s3`: events as objects of a bucket, at least once.
//!
//! Each delivery becomes one object for each prefix, or several where it exceeds `size_file`. An object is there as a whole or not at
//! all, and is there before its events count as delivered. Its name has the time, the start of the output, and a number that grows. A retry writes
//! the same object again; after a crash the events come again in another object.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::Utc;
use flate2::Compression;
use flate2::write::GzEncoder;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, PutOptions};
use tokio::sync::watch;

use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault, Options, Template, s3_bucket};

/// Largest object where nothing is said, in bytes before compression.
const SIZE: i64 = 5 << 20;
/// Greatest bound of an object.
const MAX_SIZE: i64 = 1 << 30;
/// Most bytes of a key in S3.
const MAX_KEY_BYTES: usize = 1_024;
/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct S3 {
    bucket: String,
    store: Arc<dyn ObjectStore>,
    objects: Arc<ObjectMaker>,
}

/// Makes objects of events.
#[derive(Debug)]
struct ObjectMaker {
    prefix: Template,
    codec: Arc<dyn Codec>,
    is_gzip: bool,
    max_bytes: usize,
    /// Tags in the names, with dots between.
    tags: String,
    /// Identity of this output since its start.
    run: String,
    next: AtomicU64,
}

/// An object to be written.
#[derive(Debug)]
struct PendingObject {
    path: Path,
    content: Bytes,
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
    let size = o.integer("size_file", 0..=MAX_SIZE).filter(|size| *size > 0).unwrap_or(SIZE);
    let tags = o.texts("tags").join(".");
    // An object is written before its events count as delivered, so that there is nothing to rotate, keep or restore.
    let _ = (o.integer("time_file", 0..=i64::MAX), o.boolean("restore"));
    let _ = o.one_of("rotation_strategy", &["size_and_time", "size", "time"]);
    let _ = (o.integer("upload_workers_count", 1..=1_024), o.integer("upload_queue_size", 1..=i64::MAX));
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
    let (bucket, store) = bucket.ok_or_else(Vec::new)?;
    let objects = ObjectMaker {
        prefix,
        codec: codec?,
        is_gzip,
        max_bytes: usize::try_from(size).unwrap_or(usize::MAX),
        tags,
        run: format!("{:032x}", rand::random::<u128>()),
        next: AtomicU64::new(0),
    };
    Ok(Output::Sink(Arc::new(S3 { bucket, store: Arc::new(store), objects: Arc::new(objects) })))
}

impl ObjectMaker {
    /// Makes the objects of events, and tells those whose prefix no key has room for.
    fn make(
        &self,
        events: &[(Arc<Event>, Option<String>)],
    ) -> std::io::Result<(Vec<PendingObject>, Vec<RefusedEvent>)> {
        let mut texts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let (mut objects, mut refused) = (Vec::new(), Vec::new());
        for (place, (event, _)) in events.iter().enumerate() {
            let prefix = self.prefix.render(event);
            let key = || self.path(&prefix, u64::MAX).as_ref().len();
            if !texts.contains_key(&prefix) && key() > MAX_KEY_BYTES {
                let reason = format!("its [prefix] makes keys of more than {MAX_KEY_BYTES} bytes");
                refused.push(RefusedEvent { event: place, reason });
                continue;
            }
            let text = texts.entry(prefix.clone()).or_default();
            let before = text.len();
            if let Err(reason) = self.codec.try_encode(event, text) {
                refused.push(RefusedEvent { event: place, reason });
                continue;
            }
            // The event that exceeds the bound begins the next object.
            if text.len() > self.max_bytes && before > 0 {
                let rest = text.split_off(before);
                let full = std::mem::replace(text, rest);
                objects.push(self.object(&prefix, full)?);
            }
        }
        for (prefix, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            objects.push(self.object(&prefix, text)?);
        }
        Ok((objects, refused))
    }

    /// Names an object. Characters with a meaning are encoded, and empty parts are left out.
    fn path(&self, prefix: &str, number: u64) -> Path {
        let time = Utc::now().format("%Y-%m-%dT%H.%M");
        let tags = if self.tags.is_empty() { String::new() } else { format!("tag_{}.", self.tags) };
        let ending = if self.is_gzip { "txt.gz" } else { "txt" };
        Path::from(format!("{prefix}/ls.s3.{}.{time}.{tags}part{number}.{ending}", self.run))
    }

    fn object(&self, prefix: &str, text: Vec<u8>) -> std::io::Result<PendingObject> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let content = match self.is_gzip {
            false => text,
            true => {
                let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::default());
                encoder.write_all(&text)?;
                encoder.finish()?
            }
        };
        Ok(PendingObject { path: self.path(prefix, number), content: content.into() })
    }
}

#[async_trait]
impl Sink for S3 {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        prepare_codec(&self.objects.codec, "s3", backoff, &mut stopping).await?;
        let (maker, all) = (Arc::clone(&self.objects), events.to_vec());
        let (objects, refused) = match offload(move || maker.make(&all)).await {
            Ok(made) => made,
            Err(error) => {
                let reason = format!("the events cannot be compressed: {error}");
                return Ok((0..events.len())
                    .map(|event| RefusedEvent { event, reason: reason.clone() })
                    .collect());
            }
        };
        for PendingObject { path, content } in objects {
            let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            loop {
                let media_type = if self.objects.is_gzip { "application/gzip" } else { "text/plain" };
                let attributes = Attributes::from_iter([(Attribute::ContentType, media_type)]);
                let put = self.store.put_opts(&path, content.clone().into(), PutOptions::from(attributes));
                let written = tokio::select! {
                    biased;
                    () = stopped(&mut stopping) => return Err(SinkInterrupted),
                    written = s3_bucket::with_write_timeout(put) => written,
                };
                let Err(error) = written else { break };
                tracing::warn!(%error, bucket = self.bucket, %path, "the output s3 cannot write an object, it tries again");
                backoff.wait(&mut stopping).await?;
            }
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use futures::TryStreamExt as _;
    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;
    use serde_json::json;

    use super::*;
    use crate::input::testing::options;

    fn events(users: &[&str]) -> Vec<(Arc<Event>, Option<String>)> {
        let event = |user: &&str| {
            let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
            event.fields_mut().insert("user".to_owned(), json!(user));
            (Arc::new(event), None)
        };
        users.iter().map(event).collect()
    }

    fn output(max_bytes: usize, is_gzip: bool) -> (Arc<InMemory>, S3) {
        let store = Arc::new(InMemory::new());
        let objects = ObjectMaker {
            prefix: Template::parse("of/%{user}"),
            codec: codec::build(Options::new("json_lines", crate::Location::default(), [])).unwrap(),
            is_gzip,
            max_bytes,
            tags: "a.b".to_owned(),
            run: "run".to_owned(),
            next: AtomicU64::new(0),
        };
        let shared = Arc::clone(&store) as Arc<dyn ObjectStore>;
        (store, S3 { bucket: "b".to_owned(), store: shared, objects: Arc::new(objects) })
    }

    async fn written(store: &InMemory) -> Vec<(String, Bytes)> {
        let mut all = Vec::new();
        let list: Vec<_> = store.list(None).try_collect().await.unwrap();
        for object in list {
            let content = store.get(&object.location).await.unwrap().bytes().await.unwrap();
            all.push((object.location.to_string(), content));
        }
        all.sort();
        all
    }

    async fn send(output: &S3, users: &[&str]) {
        let running = watch::Sender::new(false);
        assert_eq!(
            output.send(&events(users), running.subscribe(), OrderTicket::new().0).await,
            Ok(Vec::new())
        );
    }

    #[tokio::test]
    async fn a_delivery_is_an_object_for_each_prefix() {
        let (store, output) = output(1 << 20, false);
        send(&output, &["a", "b", "a", "../x"]).await;
        send(&output, &["a"]).await;
        let all = written(&store).await;
        let lines: Vec<usize> =
            all.iter().map(|(_, content)| content.split(|byte| *byte == b'\n').count() - 1).collect();
        assert_eq!(lines.iter().sum::<usize>(), 5, "{all:?}");
        assert_eq!(all.iter().filter(|(name, _)| name.starts_with("of/a/ls.s3.run.")).count(), 2, "{all:?}");
        assert!(
            all.iter().all(|(name, _)| name.starts_with("of/") && name.contains(".tag_a.b.part")),
            "{all:?}"
        );
        assert!(all.iter().all(|(name, _)| !name.split('/').any(|part| part == "..")), "{all:?}");
    }

    #[tokio::test]
    async fn an_event_that_no_key_has_room_for_is_refused_alone() {
        let (store, output) = output(1 << 20, false);
        let (long, running) = ("u".repeat(2_000), watch::Sender::new(false));
        let all = events(&["a", &long, "b"]);
        let refused = output.send(&all, running.subscribe(), OrderTicket::new().0).await.unwrap();
        assert_eq!(refused.iter().map(|refused| refused.event).collect::<Vec<_>>(), [1]);
        assert_eq!(written(&store).await.len(), 2);
    }

    #[tokio::test]
    async fn large_deliveries_are_several_objects() {
        let (store, output) = output(120, true);
        send(&output, &["a"; 5]).await;
        let all = written(&store).await;
        assert!(all.len() > 1 && all.iter().all(|(name, _)| name.ends_with(".txt.gz")), "{all:?}");
        let mut text = String::new();
        for (_, content) in &all {
            GzDecoder::new(&content[..]).read_to_string(&mut text).unwrap();
        }
        assert_eq!(text.lines().count(), 5);
    }

    #[test]
    fn options_are_checked() {
        let given = [
            ("access_key_id", "k".into()),
            ("canned_acl", "public-read".into()),
            ("role_arn", "r".into()),
            ("additional_settings", [("x", "y")].into()),
        ];
        let faults = build(options("s3", &given)).unwrap_err();
        for expected in ["option [bucket]", "need each other", "[canned_acl", "[role_arn]", "has no [x]"] {
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
        }
    }
}
