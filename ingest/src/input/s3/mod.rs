//! `s3`: lines of the objects of a bucket, each object once.
//!
//! The input lists the bucket, and reads new objects in the order of their times ([`position`]). The position moves in the frame of the
//! events, also within an object, so that indices of this server get each event once. Objects that
//! were written within the last seconds wait for the next look, for their times may not be in order yet.

mod object;
mod position;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::Utc;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _};

use self::object::{Lines, ObjectReader};
use self::position::{ObjectOrder, ReadObjects};
use super::chunks::{BodySource, ChunkedDecoding, DecodedChunk};
use super::pending::{PendingBatches, RunEnd};
use super::tcp::stream_codec;
use super::{Context, Input, InputError, stopped};
use crate::budget::Reservation;
use crate::codec::{self, Codec, Events};
use crate::pattern::{Deadline, Expression};
use crate::s3_bucket::{self, Bucket};
use crate::{EcsCompatibility, Event, Fault, Move, Options};

/// Time between two looks where nothing is said, in seconds.
const INTERVAL: i64 = 60;
/// Age that an object has at least when it is read.
const SETTLED: chrono::TimeDelta = chrono::TimeDelta::seconds(3);
/// New objects of one look; the next one finds the others.
const MAX_NEW: usize = 100_000;
/// Names of compressed objects where nothing is said.
const GZIP: &str = r"\.gz(ip)?$";

/// The input; see the module.
#[derive(Debug)]
pub(super) struct S3 {
    bucket: String,
    store: Arc<dyn ObjectStore>,
    settings: Settings,
    codec: Arc<dyn Codec>,
}

#[derive(Debug)]
struct Settings {
    prefix: String,
    /// The part of the prefix that the listing takes.
    directory: Option<Path>,
    interval: Duration,
    /// `false` if the input ends behind the first look.
    is_watching: bool,
    exclude: Option<Expression>,
    gzip: Expression,
    has_properties: bool,
    ecs: EcsCompatibility,
    deletes: bool,
    /// Prefix of the key of a copy of an object that was read.
    backup: Option<String>,
}

impl S3 {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        stream_codec(&mut options);
        let o = &mut options;
        let bucket = s3_bucket::take(o);
        let prefix = o.text("prefix").unwrap_or_default();
        let interval = o.integer("interval", 1..=86_400 * 7).unwrap_or(INTERVAL);
        let expression = |o: &mut Options, name: &'static str, text: Option<String>| {
            let compiled = text.map(|text| Expression::compile(&text)).transpose();
            compiled.map_err(|error| o.fault_here(format!("option [{name}] of [s3]: {error}"))).ok().flatten()
        };
        let exclude = o.text("exclude_pattern");
        let exclude = expression(o, "exclude_pattern", exclude);
        let gzip = o.text("gzip_pattern").unwrap_or_else(|| GZIP.to_owned());
        let gzip = expression(o, "gzip_pattern", Some(gzip));
        let backup = o.text("backup_add_prefix").filter(|prefix| !prefix.is_empty());
        let backup_bucket = o.text("backup_to_bucket");
        let own = bucket.as_ref().map(|bucket| bucket.name.as_str());
        match (&backup_bucket, &backup) {
            (Some(to), _) if Some(to.as_str()) != own => o.fault_here(
                "[backup_to_bucket] of [s3] must be its [bucket], with a [backup_add_prefix]: copies go to no other",
            ),
            (Some(_), None) => o.fault_here("[backup_to_bucket] of [s3] needs the option [backup_add_prefix]"),
            _ => {}
        }
        // A prefix of the service ends at any character, one of the library at a slash.
        let directory = prefix.rsplit_once('/').map(|(directory, _)| key_path(directory));
        if directory == Some(None) {
            o.fault_here("[prefix] of [s3] has an empty or relative part, or a slash before it, so that it names no object");
        }
        // Copies under another name than the prefix would be read as new objects.
        if backup.as_ref().is_some_and(|backup| key_path(&format!("{backup}x")).is_none()) {
            o.fault_here("[backup_add_prefix] of [s3] has a slash or a character that keys here cannot have: begin with a name, and use one slash between names");
        }
        if let Some((at, _)) = o.take("backup_to_dir") {
            o.fault(
                at,
                "option [backup_to_dir] is not supported: use the output [file], or [backup_to_bucket]",
            );
        }
        // Positions are in the store.
        let _ = o.text("sincedb_path");
        let settings =
            (o.boolean("watch_for_new_files"), o.boolean("include_object_properties"), o.boolean("delete"));
        let ecs = o.ecs_compatibility();
        let codec = codec::take(o, "line");
        options.finish()?;
        // Their faults were those of the options.
        let Bucket { name: bucket, store, .. } = bucket.ok_or_else(Vec::new)?;
        let settings = Settings {
            prefix,
            directory: directory.flatten(),
            interval: Duration::from_secs(interval.unsigned_abs()),
            is_watching: settings.0.unwrap_or(true),
            exclude,
            gzip: gzip.ok_or_else(Vec::new)?,
            has_properties: settings.1.unwrap_or(false),
            ecs,
            deletes: settings.2.unwrap_or(false),
            backup: backup_bucket.and(backup),
        };
        Ok(Self { bucket, store: Arc::new(store), settings, codec: codec? })
    }

    /// Lists new objects in the order of reading.
    async fn list(&self, read: &ReadObjects) -> Result<Vec<(ObjectOrder, ObjectMeta)>, InputError> {
        let Settings { prefix, directory, exclude, backup, .. } = &self.settings;
        let settled = Utc::now() - SETTLED;
        let mut objects = self.store.list(directory.as_ref());
        let mut new = Vec::new();
        while let Some(object) = s3_bucket::with_read_timeout(objects.try_next())
            .await
            .map_err(|error| self.failed("list", &error))?
        {
            let key = object.location.as_ref();
            let place = ObjectOrder::of(&object);
            if !key.starts_with(prefix.as_str())
                || object.size == 0
                || object.last_modified > settled
                || read.contains(place)
                || backup.as_ref().is_some_and(|backup| key.starts_with(backup.as_str()))
                || exclude.as_ref().is_some_and(|exclude| matches(exclude, key))
            {
                continue;
            }
            new.push((place, object));
            if new.len() >= 2 * MAX_NEW {
                new.sort_unstable_by_key(|(place, _)| *place);
                new.truncate(MAX_NEW);
            }
        }
        new.sort_unstable_by_key(|(place, _)| *place);
        new.truncate(MAX_NEW);
        Ok(new)
    }

    fn failed(&self, action: &str, error: &object_store::Error) -> InputError {
        InputError(format!("cannot {action} in bucket [{}]: {error}", self.bucket))
    }

    /// Reads an object from the event on that is not stored yet; returns whether all of it was read.
    async fn read(
        &self,
        delivery: &mut Delivery,
        place: ObjectOrder,
        object: &ObjectMeta,
    ) -> Result<bool, RunEnd> {
        let options = GetOptions { if_match: object.e_tag.clone(), ..GetOptions::default() };
        let result = match s3_bucket::with_read_timeout(self.store.get_opts(&object.location, options)).await
        {
            Ok(result) => result,
            // Somebody deleted it, or wrote it anew: then the next look finds it with another time.
            Err(object_store::Error::NotFound { .. } | object_store::Error::Precondition { .. }) => {
                return Ok(false);
            }
            // Archived objects and those of others are no reason to read none.
            Err(error @ object_store::Error::PermissionDenied { .. }) => {
                let key = object.location.as_ref();
                tracing::warn!(%error, bucket = self.bucket, key, "an object may not be read and is left out");
                return Ok(false);
            }
            Err(error) => return Err(RunEnd::Failed(self.failed("read", &error))),
        };
        let key = object.location.as_ref();
        let is_gzip = matches(&self.settings.gzip, key);
        let mut reader = ObjectReader::new(self.codec.decoder(), is_gzip);
        let stored = delivery.read.stored_events(place);
        let mut lines = Lines::new(place, object, &self.settings, stored);
        let mut bytes = result.into_stream();
        let (mut is_open, mut is_whole) = (true, true);
        while is_open {
            let mut stopping = delivery.context.stopping.clone();
            let chunk = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(RunEnd::Stopped),
                chunk = s3_bucket::with_read_timeout(bytes.try_next()) => chunk.map_err(|error| RunEnd::Failed(self.failed("read", &error)))?,
            };
            is_open = chunk.is_some();
            for step in reader.steps(chunk) {
                let mut metadata = lines.object_metadata();
                let complete = move |event: &mut Event| metadata.add_metadata(event);
                let decode = move |events: &mut Events| {
                    let outcome = reader.decode(step, events);
                    (reader, outcome)
                };
                let source = BodySource::Repeatable;
                let decoding = ChunkedDecoding::start(&delivery.context, source, complete, decode).await;
                let mut decoding = decoding.ok_or(RunEnd::Stopped)?;
                while let Some(DecodedChunk { events, held }) = decoding.next().await {
                    let events = lines.complete(events);
                    delivery.read.current = Some((place, lines.count().max(stored)));
                    delivery.send(events, held).await?;
                }
                let (back, outcome) = decoding.finish().await.ok_or(RunEnd::Stopped)?;
                reader = back;
                if let Err(error) = outcome {
                    // It stays as it is: others must not wait for it.
                    tracing::error!(bucket = self.bucket, key, %error, "an object is damaged: the rest of it is not read");
                    (is_open, is_whole) = (false, false);
                    break;
                }
            }
        }
        delivery.read.insert(place);
        delivery.send(Vec::new(), Reservation::default()).await?;
        Ok(is_whole)
    }

    /// Copies and deletes an object that was read, as the settings say; its events are stored before.
    async fn clean_up(&self, delivery: &mut Delivery, object: &ObjectMeta) -> Result<(), RunEnd> {
        let Settings { backup, deletes, .. } = &self.settings;
        if backup.is_none() && !deletes {
            return Ok(());
        }
        delivery.drain().await?;
        let failed = |action, error: &object_store::Error| RunEnd::Failed(self.failed(action, error));
        if let Some(backup) = backup {
            let key = format!("{backup}{}", object.location);
            let to = key_path(&key).ok_or_else(|| RunEnd::failed(format!("[{key}] is no key of a copy")))?;
            s3_bucket::with_write_timeout(self.store.copy(&object.location, &to))
                .await
                .map_err(|error| failed("copy", &error))?;
        }
        if *deletes {
            s3_bucket::with_read_timeout(self.store.delete(&object.location))
                .await
                .map_err(|error| failed("delete", &error))?;
        }
        Ok(())
    }

    async fn look(&self, delivery: &mut Delivery) -> Result<(), RunEnd> {
        let new = self.list(&delivery.read).await.map_err(RunEnd::Failed)?;
        for (place, object) in new {
            // What was not read whole stays in the bucket.
            if self.read(delivery, place, &object).await? {
                self.clean_up(delivery, &object).await?;
            }
        }
        delivery.drain().await
    }
}

/// Returns the path of a key, as it is.
fn key_path(key: &str) -> Option<Path> {
    Path::parse(key).ok().filter(|path| !key.is_empty() && path.as_ref() == key)
}

/// Returns whether a name matches; one that takes too long does not.
fn matches(expression: &Expression, key: &str) -> bool {
    expression.is_match(key, &Deadline::default()).unwrap_or(false)
}

/// Batches on their way, with the position behind them.
#[derive(Debug)]
struct Delivery {
    context: Context,
    partition: String,
    owner_epoch: u64,
    read: ReadObjects,
    position: Option<Bytes>,
    pending: PendingBatches,
}

impl Delivery {
    /// Takes the bucket over from the owner before.
    async fn claim(context: Context, partition: String) -> Result<Self, InputError> {
        let (position, owner_epoch) = context.positions.claim(&context.source, &partition).await?;
        let read = position.as_ref().map_or(Ok(ReadObjects::default()), |bytes| ReadObjects::decode(bytes));
        let read = read.map_err(InputError)?;
        Ok(Self { context, partition, owner_epoch, read, position, pending: PendingBatches::default() })
    }

    /// Hands events on, with the present position behind them.
    async fn send(&mut self, events: Vec<Event>, mut held: Reservation) -> Result<(), RunEnd> {
        self.pending.check()?;
        held.set(events.iter().map(Event::bytes).sum());
        let new = self.read.encode();
        if events.is_empty() && self.position.as_ref() == Some(&new) {
            return Ok(());
        }
        let position = Some(Move {
            source: self.context.source.to_string(),
            partition: self.partition.clone(),
            previous: self.position.replace(new.clone()),
            new,
            owner_epoch: self.owner_epoch,
        });
        self.pending.send(&mut self.context, events, position, held).await
    }

    /// Waits until all batches are stored.
    async fn drain(&mut self) -> Result<(), RunEnd> {
        self.pending.drain(&mut self.context).await
    }
}

#[async_trait]
impl Input for S3 {
    fn identity(&self) -> String {
        format!("s3 {} {}", self.bucket, self.settings.prefix)
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let partition = format!("{}/{}", self.bucket, self.settings.prefix);
        let mut delivery = Delivery::claim(context, partition).await?;
        let mut stopping = delivery.context.stopping.clone();
        loop {
            match self.look(&mut delivery).await {
                Ok(()) => {}
                Err(RunEnd::Stopped) => return Ok(()),
                Err(RunEnd::Failed(error)) => return Err(error),
            }
            if !self.settings.is_watching {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Ok(()),
                () = tokio::time::sleep(self.settings.interval) => {}
            }
        }
    }
}
