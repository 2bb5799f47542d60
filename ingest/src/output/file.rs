//! `file`: events into files whose names may come from them.
//!
//! Written when [`Sink::send`] returns, in the system's hands: a power loss may cost what was written last, as in
//! Logstash. A name never leads out of the directory that its path begins with, whatever an event says: neither by `..` nor by a
//! link. A link in the place of the file itself is not followed either. Files and directories are made with permissions of
//! their own, whatever the process's umask.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use millrace_runtime::Instant;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use tokio::sync::watch;

use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault, Options, Template};

/// Files that are open at a time; the one that was used least lately is closed for another.
const MAX_OPEN: usize = 1024;
/// Time after which a file that was not written to is closed.
const IDLE: Duration = Duration::from_secs(10);
/// Pause after a failed write.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Permissions of new files and directories.
const FILE_MODE: u32 = 0o640;
const DIR_MODE: u32 = 0o750;
/// Name for events whose own leads elsewhere.
const FAILURES: &str = "_filepath_failures";

#[derive(Debug)]
struct Files {
    shared: Arc<FileOutputState>,
}

#[derive(Debug)]
struct FileOutputState {
    path: Template,
    /// Directory of all paths: nothing is written elsewhere.
    root: PathBuf,
    failures: String,
    codec: Arc<dyn Codec>,
    /// Bytes that each file begins with; none without a header.
    header: Vec<u8>,
    gzip: bool,
    /// `true` if only the last event stays in a file.
    overwrite: bool,
    create_if_deleted: bool,
    /// Permissions of what is made; without, the system's.
    file_mode: Option<u32>,
    dir_mode: Option<u32>,
    open: Mutex<HashMap<PathBuf, Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    used: Instant,
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let codec = codec::take(&mut options, "json_lines");
    build_with_codec(options, codec, Vec::new())
}

/// Makes an output that writes files by a codec of its own. Each file begins with a header.
///
/// # Errors
/// The faults of the options.
pub(super) fn build_with_codec(
    mut options: Options,
    codec: Result<Arc<dyn Codec>, Vec<Fault>>,
    header: Vec<u8>,
) -> Result<Output, Vec<Fault>> {
    let text = options.required_text("path");
    let gzip = options.boolean("gzip").unwrap_or(false);
    let overwrite = options.one_of("write_behavior", &["append", "overwrite"]) == Some("overwrite");
    let create_if_deleted = options.boolean("create_if_deleted").unwrap_or(true);
    let failures = options.text("filename_failure").unwrap_or_else(|| FAILURES.to_owned());
    // What was sent is written: there is nothing to flush later, and files close by themselves.
    let _ = options.integer("flush_interval", 0..=i64::MAX);
    let _ = options.integer("stale_cleanup_interval", 0..=i64::MAX);
    let file_mode = mode(&mut options, "file_mode", FILE_MODE);
    let dir_mode = mode(&mut options, "dir_mode", DIR_MODE);
    let _ = options.ecs_compatibility();
    let root = root(&text);
    if !text.is_empty() && !text.starts_with('/') {
        options.fault_here(format!("path [{text}] must be absolute"));
    } else if root == Path::new("/") {
        options.fault_here(format!("path [{text}] must begin with a directory that is in no event's hand"));
    }
    if failures.is_empty() || failures.contains('/') || failures == ".." {
        options.fault_here(format!("[filename_failure] is [{failures}], not a file's name"));
    }
    options.finish()?;
    let shared = FileOutputState {
        path: Template::parse(&text),
        root,
        failures,
        codec: codec?,
        header,
        gzip,
        overwrite,
        create_if_deleted,
        file_mode,
        dir_mode,
        open: Mutex::default(),
    };
    Ok(Output::Sink(Arc::new(Files { shared: Arc::new(shared) })))
}

/// Permissions: as a decimal number, as Logstash has it, or in octal with a leading 0; -1 for the system's.
fn mode(options: &mut Options, name: &'static str, default: u32) -> Option<u32> {
    let mode = options.read(name, "permissions such as 0640", |setting| {
        let text = setting.as_text()?;
        match text.as_str() {
            "-1" => Some(None),
            octal if octal.len() > 1 && octal.starts_with('0') => {
                u32::from_str_radix(octal, 8).ok().map(Some)
            }
            decimal => decimal.parse().ok().map(Some),
        }
        .filter(|mode| mode.is_none_or(|mode| mode <= 0o7777))
    });
    mode.unwrap_or(Some(default))
}

/// The directories that a path begins with and that are the same for all events.
fn root(path: &str) -> PathBuf {
    let fixed = path.split("%{").next().unwrap_or_default();
    let directory = fixed.rsplit_once('/').map_or("", |(directory, _)| directory);
    PathBuf::from(format!("{directory}/")).components().collect()
}

impl FileOutputState {
    /// The file of an event. One whose name leads out of the root goes into a file of its own there.
    fn target(&self, event: &Event) -> PathBuf {
        let rendered = self.path.render(event);
        let path = PathBuf::from(&rendered);
        let stays = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
            && path.starts_with(&self.root)
            && path != self.root
            && !rendered.ends_with('/')
            && !rendered.contains('\0')
            && path.components().all(|part| part.as_os_str().len() <= 255);
        if stays { path } else { self.root.join(&self.failures) }
    }

    /// Returns the text for each file, the first last, and the events that the codec has no bytes for.
    fn texts(&self, events: &[(Arc<Event>, Option<String>)]) -> (Vec<(PathBuf, Vec<u8>)>, Vec<RefusedEvent>) {
        let (mut texts, mut refused): (Vec<(PathBuf, Vec<u8>)>, _) = (Vec::new(), Vec::new());
        let mut places: HashMap<PathBuf, usize> = HashMap::new();
        for (number, (event, _)) in events.iter().enumerate() {
            let path = self.target(event);
            let place = *places.entry(path.clone()).or_insert_with(|| {
                texts.push((path, Vec::new()));
                texts.len() - 1
            });
            if let Some((_, text)) = texts.get_mut(place) {
                let before = text.len();
                match self.codec.try_encode(event, text) {
                    Ok(()) if self.overwrite => drop(text.drain(..before)),
                    Ok(()) => {}
                    Err(reason) => refused.push(RefusedEvent { event: number, reason }),
                }
            }
        }
        if !refused.is_empty() {
            // A file of which all events are refused is not made.
            texts.retain(|(_, text)| !text.is_empty());
        }
        texts.reverse();
        (texts, refused)
    }

    /// Writes what goes into each file; takes out what was written.
    fn write(&self, texts: &mut Vec<(PathBuf, Vec<u8>)>) -> io::Result<()> {
        let mut open = self.open.lock();
        while let Some((path, text)) = texts.last() {
            let failures = self.root.join(&self.failures);
            let mut path = path;
            let mut written = self.write_one(&mut open, path, text);
            if is_link(&written) && !self.path.is_constant() && *path != failures {
                // An event chose it, and must not hold up the others.
                path = &failures;
                written = self.write_one(&mut open, path, text);
            }
            if let Err(error) = written {
                open.remove(path);
                return Err(io::Error::new(error.kind(), format!("[{}]: {error}", path.display())));
            }
            texts.pop();
        }
        open.retain(|_, file| file.used.elapsed() < IDLE);
        Ok(())
    }

    fn write_one(&self, open: &mut HashMap<PathBuf, Open>, path: &Path, text: &[u8]) -> io::Result<()> {
        if let Some(known) = open.get_mut(path)
            && !self.overwrite
            && (!self.create_if_deleted || is_there(&known.file, path))
        {
            known.used = Instant::now();
            // A rotation may have emptied it.
            let header = self.missing_header(&known.file)?;
            return append(&mut known.file, &self.pack(header, text)?);
        }
        if open.len() >= MAX_OPEN
            && let Some(oldest) = open.iter().min_by_key(|(_, file)| file.used).map(|(path, _)| path.clone())
        {
            open.remove(&oldest);
        }
        if let Some(directory) = path.parent() {
            self.make(directory)?;
        }
        let mut file = self.open(path)?;
        let header = self.missing_header(&file)?;
        append(&mut file, &self.pack(header, text)?)?;
        open.insert(path.to_owned(), Open { file, used: Instant::now() });
        Ok(())
    }

    /// Returns the header if the file is empty, else nothing.
    fn missing_header(&self, file: &File) -> io::Result<&[u8]> {
        let is_missing = !self.header.is_empty() && file.metadata()?.len() == 0;
        Ok(if is_missing { self.header.as_slice() } else { &[] })
    }

    /// Returns the bytes of a batch. Each is a member of its own, so that a file is whole whenever it is read.
    fn pack<'t>(&self, header: &[u8], text: &'t [u8]) -> io::Result<Cow<'t, [u8]>> {
        if self.gzip {
            let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::default());
            encoder.write_all(header)?;
            encoder.write_all(text)?;
            return Ok(encoder.finish()?.into());
        }
        Ok(match header.is_empty() {
            true => text.into(),
            false => [header, text].concat().into(),
        })
    }

    /// Opens a file, and makes it where it is not there.
    fn open(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // What is there may be a pipe that nobody reads: that is an error, and no reason to wait.
        options.append(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let mut make = options.clone();
        // The umask may narrow the mode; it is set once the file is there.
        make.create_new(true).mode(self.file_mode.unwrap_or(0o666));
        match make.open(path) {
            Ok(file) => {
                if let Some(mode) = self.file_mode {
                    file.set_permissions(Permissions::from_mode(mode))?;
                }
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => Link.into(),
            _ => error,
        })?;
        if self.overwrite {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Makes a directory and those above it, none of them outside of the root.
    fn make(&self, directory: &Path) -> io::Result<()> {
        match std::fs::symlink_metadata(directory) {
            Ok(_) if directory.starts_with(&self.root) => {
                let inside = directory.canonicalize()?.starts_with(self.root.canonicalize()?);
                return if inside { Ok(()) } else { Err(Link.into()) };
            }
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if let Some(above) = directory.parent() {
            self.make(above)?;
        }
        let mut builder = DirBuilder::new();
        match builder.mode(self.dir_mode.unwrap_or(0o777)).create(directory) {
            Ok(()) => match self.dir_mode {
                Some(mode) => std::fs::set_permissions(directory, Permissions::from_mode(mode)),
                None => Ok(()),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A link is in the way.
#[derive(Debug, thiserror::Error)]
#[error(
    "a link stands there or leads out of the output's directory, and is not followed; name its target in [path]"
)]
struct Link;

impl From<Link> for io::Error {
    fn from(link: Link) -> Self {
        Self::other(link)
    }
}

fn is_link(written: &io::Result<()>) -> bool {
    written.as_ref().is_err_and(|error| error.get_ref().is_some_and(|cause| cause.is::<Link>()))
}

/// Appends all bytes or none, as far as the system lets it: a half written part would be there twice.
fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(bytes).inspect_err(|_| {
        // The first error is the one to tell.
        let _ = file.set_len(before);
    })
}

fn is_there(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[async_trait]
impl Sink for Files {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        prepare_codec(&self.shared.codec, "file", backoff, &mut stopping).await?;
        let (shared, events) = (Arc::clone(&self.shared), events.to_vec());
        let (mut texts, refused) = offload(move || shared.texts(&events)).await;
        let mut pause = FIRST_PAUSE;
        let shared = &self.shared;
        loop {
            let (files, mut left) = (Arc::clone(shared), std::mem::take(&mut texts));
            let tried = tokio::task::spawn_blocking(move || {
                let written = files.write(&mut left);
                (left, written)
            });
            match tried.await {
                Ok((_, Ok(()))) => return Ok(refused),
                Ok((left, Err(error))) => {
                    texts = left;
                    tracing::warn!(%error, left = texts.len(), "the output cannot write a file, it tries again");
                }
                Err(error) => {
                    tracing::error!(%error, "the output file ended");
                    return Err(SinkInterrupted);
                }
            }
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(SinkInterrupted),
                () = tokio::time::sleep(pause) => {}
            }
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use chrono::Utc;
    use flate2::read::MultiGzDecoder;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::input::testing::{OptionValue, options};
    use crate::{Location, Setting};

    fn output(given: &[(&str, OptionValue)]) -> Arc<dyn Sink> {
        match build(options("file", given)).unwrap() {
            Output::Sink(sink) => sink,
            Output::Local(_) => panic!("it is a sink"),
        }
    }

    fn event(user: &str, message: &str) -> (Arc<Event>, Option<String>) {
        let mut event = Event::new(Utc::now());
        event.fields_mut().insert("user".to_owned(), Value::from(user));
        event.fields_mut().insert("message".to_owned(), Value::from(message));
        (Arc::new(event), None)
    }

    async fn send(output: &Arc<dyn Sink>, events: &[(Arc<Event>, Option<String>)]) {
        assert_eq!(
            output.send(events, watch::Sender::new(false).subscribe(), OrderTicket::new().0).await,
            Ok(Vec::new())
        );
    }

    #[tokio::test]
    async fn an_event_that_does_not_fit_the_schema_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let schema = directory.path().join("user.avsc");
        let fields = r#"[{"name": "user", "type": "string"}, {"name": "age", "type": "int"}]"#;
        let record = format!(r#"{{"type": "record", "name": "User", "fields": {fields}}}"#);
        std::fs::write(&schema, record).unwrap();
        let setting = Setting::Text(schema.display().to_string());
        let at = Location { line: 1, column: 1 };
        let codec = Options::new("avro", at, [("schema_uri".to_owned(), at, setting)]);
        let path = directory.path().join("users");
        let given = [
            ("path", path.display().to_string().into()),
            ("codec", OptionValue(Setting::Plugin(Box::new(codec)))),
        ];
        let output = output(&given);
        let stopping = watch::Sender::new(false);
        let refused =
            output.send(&[event("ann", "")], stopping.subscribe(), OrderTicket::new().0).await.unwrap();
        assert_eq!(refused.len(), 1);
        assert!(refused[0].event == 0 && refused[0].reason.contains("in the schema"), "{refused:?}");
        assert!(!path.exists(), "a file without an event");
    }

    fn messages(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        let message = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["message"].as_str().unwrap().to_owned()
        };
        text.lines().map(message).collect()
    }

    #[tokio::test]
    async fn events_go_into_files_that_they_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("{}/%{{user}}/out.json", dir.path().display());
        let output = output(&[("path", path.into())]);
        send(&output, &[event("a", "1"), event("b", "2"), event("a", "3")]).await;
        send(&output, &[event("a", "4")]).await;
        assert_eq!(messages(&dir.path().join("a/out.json")), ["1", "3", "4"]);
        assert_eq!(messages(&dir.path().join("b/out.json")), ["2"]);
        // Deleted meanwhile.
        std::fs::remove_file(dir.path().join("a/out.json")).unwrap();
        send(&output, &[event("a", "5")]).await;
        assert_eq!(messages(&dir.path().join("a/out.json")), ["5"]);
    }

    #[tokio::test]
    async fn names_that_lead_elsewhere_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let path = format!("{}/%{{user}}", root.display());
        let output = output(&[("path", path.into())]);
        for user in ["..", "../out", "a/../../out", "", ".", "a/..", "\0", &"x".repeat(300)] {
            send(&output, &[event(user, "m")]).await;
        }
        assert_eq!(messages(&root.join(FAILURES)).len(), 8);
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::os::unix::fs::symlink(dir.path(), root.join("link")).unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, root.join("file")).unwrap();
        for user in ["link/x", "link/new/x", "file"] {
            send(&output, &[event(user, "m")]).await;
        }
        assert_eq!(messages(&root.join(FAILURES)).len(), 11);
        assert!(!dir.path().join("x").exists() && !dir.path().join("new").exists());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    }

    #[tokio::test]
    async fn a_link_in_the_place_of_the_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let constant = output(&[("path", link.display().to_string().into())]);
        let stop = watch::Sender::new(true);
        let interrupted = constant.send(&[event("a", "m")], stop.subscribe(), OrderTicket::new().0).await;
        assert_eq!(interrupted, Err(SinkInterrupted), "it waits for the link to go away");
        // The place is taken while the file is open.
        let path = dir.path().join("out");
        let output = output(&[("path", path.display().to_string().into())]);
        send(&output, &[event("a", "1")]).await;
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("moved"), &path).unwrap();
        let interrupted = output.send(&[event("a", "2")], stop.subscribe(), OrderTicket::new().0).await;
        assert_eq!(interrupted, Err(SinkInterrupted));
        assert_eq!(messages(&dir.path().join("moved")), ["1"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    }

    #[tokio::test]
    async fn permissions_are_those_of_the_options() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        // The second are wider than the usual umask lets through.
        for (given, file_mode, dir_mode) in [(None, 0o640, 0o750), (Some(("0666", "0777")), 0o666, 0o777)] {
            let dir = tempfile::tempdir().unwrap();
            let path = format!("{}/a/%{{user}}/out", dir.path().display());
            let mut options: Vec<(&str, OptionValue)> = vec![("path", path.into())];
            if let Some((file, directory)) = given {
                options.extend([("file_mode", file.into()), ("dir_mode", directory.into())]);
            }
            send(&output(&options), &[event("b", "m")]).await;
            assert_eq!(mode(&dir.path().join("a/b/out")), file_mode);
            assert_eq!((mode(&dir.path().join("a/b")), mode(&dir.path().join("a"))), (dir_mode, dir_mode));
        }
    }

    #[tokio::test]
    async fn a_file_that_is_overwritten_has_the_last_event() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let given = [("path", path.display().to_string().into()), ("write_behavior", "overwrite".into())];
        let output = output(&given);
        send(&output, &[event("a", "1"), event("a", "2")]).await;
        assert_eq!(messages(&path), ["2"]);
        send(&output, &[event("a", "3")]).await;
        assert_eq!(messages(&path), ["3"]);
    }

    #[tokio::test]
    async fn compressed_files_are_whole_after_each_batch() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.gz");
        let output = output(&[("path", path.display().to_string().into()), ("gzip", "true".into())]);
        for (round, expected) in [("1", 1), ("2", 2)] {
            send(&output, &[event("a", round)]).await;
            let mut text = String::new();
            MultiGzDecoder::new(File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
            assert_eq!(text.lines().count(), expected);
        }
    }

    #[test]
    fn options_are_checked() {
        for (given, reason) in
            [("relative/x", "must be absolute"), ("/%{user}/x", "must begin with a directory"), ("", "path")]
        {
            let faults = build(options("file", &[("path", given.into())])).unwrap_err();
            assert!(faults.iter().any(|fault| fault.message.contains(reason)), "{given}: {faults:?}");
        }
    }

    proptest! {
        #[test]
        fn no_name_leads_out(user in r"[a./\\%{}\x00-]{0,16}") {
            let shared = FileOutputState {
                path: Template::parse("/root/of/%{user}/x"),
                root: root("/root/of/%{user}/x"),
                failures: FAILURES.to_owned(),
                codec: codec::build(Options::new("json_lines", crate::Location::default(), [])).unwrap(),
                header: Vec::new(),
                gzip: false,
                overwrite: false,
                create_if_deleted: true,
                file_mode: None,
                dir_mode: None,
                open: Mutex::default(),
            };
            let target = shared.target(&event(&user, "m").0);
            prop_assert!(target.starts_with("/root/of"));
            prop_assert!(!target.components().any(|part| part == Component::ParentDir));
        }
    }
}
