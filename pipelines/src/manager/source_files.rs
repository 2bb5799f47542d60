//! Source files of pipelines: `*.conf` in a directory, each a pipeline of its name, and those that `pipelines.yml` there
//! describes. A file that `pipelines.yml` names is no pipeline by itself.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_catalog::metadata::parse_bytes;
use millrace_ingest::dead_letter::{Limits, Policy};
use millrace_ingest::options::suggest;
use millrace_ingest::{EcsCompatibility, find_files};
use ring::digest::{Context, SHA256};
use serde_norway::{Mapping, Value};

use crate::language::{self, Dialect, Environment, MAX_BYTES};
use crate::settings::{EventOrder, Settings};
use crate::{Graph, spool};

/// Name of the file that describes pipelines.
const DESCRIPTION: &str = "pipelines.yml";
/// Most pipelines of a directory.
const MAX_PIPELINES: usize = 1_000;
/// Most files of one pipeline.
const MAX_FILES: usize = 1_000;
/// Longest id of a pipeline.
const MAX_ID: usize = 255;

const KEYS: [&str; 31] = [
    "config.debug",
    "config.reload.automatic",
    "config.reload.interval",
    "config.string",
    "config.support_escapes",
    "dead_letter_queue.enable",
    "dead_letter_queue.flush_interval",
    "dead_letter_queue.max_bytes",
    "dead_letter_queue.retain.age",
    "dead_letter_queue.storage_policy",
    "path.config",
    "path.dead_letter_queue",
    "path.queue",
    "pipeline.batch.delay",
    "pipeline.batch.size",
    "pipeline.ecs_compatibility",
    "pipeline.enabled",
    "pipeline.id",
    "pipeline.ordered",
    "pipeline.plugin_classloaders",
    "pipeline.reloadable",
    "pipeline.workers",
    "queue.checkpoint.acks",
    "queue.checkpoint.interval",
    "queue.checkpoint.retry",
    "queue.checkpoint.writes",
    "queue.drain",
    "queue.max_bytes",
    "queue.max_events",
    "queue.page_capacity",
    "queue.type",
];
/// Smallest bound of dead letters.
const MIN_LETTER_BYTES: u64 = 1 << 20;
/// Smallest bound of a queue on disk.
const MIN_QUEUE_BYTES: u64 = 1 << 20;
/// Logstash's settings for the files of its queue and its dead letters, for reloads, which are always on, and for its JVM.
const WITHOUT_EFFECT: [&str; 15] = [
    "config.debug",
    "config.reload.automatic",
    "config.reload.interval",
    "pipeline.plugin_classloaders",
    "pipeline.reloadable",
    "dead_letter_queue.enable",
    "dead_letter_queue.flush_interval",
    "path.dead_letter_queue",
    "path.queue",
    "queue.checkpoint.acks",
    "queue.checkpoint.interval",
    "queue.checkpoint.retry",
    "queue.checkpoint.writes",
    "queue.drain",
    "queue.page_capacity",
];

/// A pipeline as its files describe it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PipelineSource {
    pub(crate) id: String,
    /// Files and their texts, read one behind the other.
    pub(crate) texts: Vec<(String, String)>,
    pub(crate) settings: Settings,
    pub(crate) support_escapes: bool,
    /// `ecs_compatibility` of plugins that do not say it.
    pub(crate) ecs_compatibility: EcsCompatibility,
    pub(crate) enabled: bool,
    /// Bytes of a queue on disk (`queue.type: persisted`).
    pub(crate) persisted: Option<u64>,
    /// Limits of its dead letters.
    pub(crate) dead_letters: Limits,
    /// Problems: unreadable files and wrong settings.
    pub(crate) problems: Vec<String>,
    /// Changes with everything above.
    pub(crate) hash: String,
}

impl PipelineSource {
    pub(crate) fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            texts: Vec::new(),
            settings: Settings::default(),
            support_escapes: false,
            ecs_compatibility: EcsCompatibility::default(),
            enabled: true,
            persisted: None,
            dead_letters: Limits::default(),
            problems: Vec::new(),
            hash: String::new(),
        }
    }

    /// The whole text.
    pub(crate) fn text(&self) -> String {
        let mut whole = String::new();
        for (_, text) in &self.texts {
            whole.push_str(text);
            if !whole.ends_with('\n') {
                whole.push('\n');
            }
        }
        whole
    }

    /// File and line there of a line of the whole text.
    pub(crate) fn place(&self, line: u32) -> (&str, u32) {
        let mut line = line;
        for (number, (file, text)) in self.texts.iter().enumerate() {
            let lines = u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX);
            let lines = lines.saturating_add(u32::from(!text.ends_with('\n')));
            if line <= lines || number + 1 == self.texts.len() {
                return (file, line);
            }
            line -= lines;
        }
        ("", line)
    }

    fn add_file(&mut self, path: &Path) {
        match read(path) {
            Ok(text) => self.texts.push((path.display().to_string(), text)),
            Err(problem) => self.problems.push(problem),
        }
    }

    fn done(mut self) -> Self {
        if self.id.is_empty()
            || self.id.len() > MAX_ID
            || self.id.contains(|c: char| c.is_control() || c == '/')
        {
            self.problems.push(format!("[{}] cannot be the id of a pipeline", self.id.escape_debug()));
        }
        if let Err(problem) = self.settings.check() {
            self.problems.push(problem);
        }
        let mut context = Context::new(&SHA256);
        let settings = format!(
            "{:?} {} {} {:?} {:?} {}",
            self.settings,
            self.support_escapes,
            self.enabled,
            self.persisted,
            self.dead_letters,
            self.ecs_compatibility.name()
        );
        let texts = self.texts.iter().flat_map(|(file, text)| [file, text]);
        for part in texts.chain(&self.problems).chain([&settings]) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let digest = context.finish();
        self.hash = digest.as_ref().iter().fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"));
        self
    }
}

/// Looks what pipelines there are. A directory that is not there has none.
///
/// # Errors
/// The directory or `pipelines.yml` cannot be read.
pub(crate) fn find(directory: &Path) -> Result<BTreeMap<String, PipelineSource>, String> {
    let mut found: BTreeMap<String, PipelineSource> = BTreeMap::new();
    let mut described = HashSet::new();
    let description = directory.join(DESCRIPTION);
    if description.exists() {
        for one in describe(directory, &read(&description)?, &mut described)? {
            if let Some(earlier) = found.get_mut(&one.id) {
                earlier.problems.push(format!("{DESCRIPTION} describes [{}] twice", one.id));
                continue;
            }
            found.insert(one.id.clone(), one);
        }
    }
    for path in conf_files(directory)? {
        let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
        let Some(name) = name.filter(|_| !described.contains(&canonical(&path))) else { continue };
        match found.get_mut(&name) {
            Some(earlier) => {
                let path = path.display();
                earlier.problems.push(format!("{path} and {DESCRIPTION} both describe [{name}]: rename one"));
            }
            None => {
                let mut one = PipelineSource::new(name.clone());
                one.add_file(&path);
                found.insert(name, one);
            }
        }
    }
    if found.len() > MAX_PIPELINES {
        return Err(format!("{} has more than {MAX_PIPELINES} pipelines", directory.display()));
    }
    Ok(found.into_iter().map(|(id, found)| (id, found.done())).collect())
}

/// Returns the path of a file without links and dots: the same however a pattern names it.
fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Files that a pattern names: a file, a directory with all its files, or a pattern of paths.
fn files(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let whole = directory.join(pattern);
    if whole.is_file() {
        return Ok(vec![whole]);
    }
    let shown = whole.display();
    let found = if whole.is_dir() { find_files(&whole, "*") } else { find_files(directory, pattern) };
    let mut files = found.map_err(|problem| format!("[path.config]: {problem}"))?;
    // Copies that editors leave are no part of a pipeline.
    files.retain(|path| !path.to_string_lossy().ends_with('~'));
    files.sort();
    files.dedup();
    match files.len() {
        0 => Err(format!("[path.config]: there is no file {shown}")),
        1..=MAX_FILES => Ok(files),
        _ => Err(format!("[path.config]: {shown} names more than {MAX_FILES} files")),
    }
}

/// Files that several patterns name, each once.
fn files_of(directory: &Path, patterns: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    for pattern in patterns {
        let more = files(directory, pattern)?;
        all.extend(more.into_iter().filter(|path| !all.contains(path)).collect::<Vec<_>>());
    }
    match all.len() {
        0 => Err("[path.config] names no file".to_owned()),
        1..=MAX_FILES => Ok(all),
        _ => Err(format!("[path.config] names more than {MAX_FILES} files")),
    }
}

fn conf_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf") && path.is_file())
        .filter(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')))
        .take(MAX_PIPELINES + 1)
        .collect();
    files.sort();
    Ok(files)
}

/// Reads a file of bounded length.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    if bytes.len() > MAX_BYTES {
        return Err(format!("{shown} is longer than {MAX_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8"))
}

/// Reads `pipelines.yml`.
fn describe(
    directory: &Path,
    text: &str,
    described: &mut HashSet<PathBuf>,
) -> Result<Vec<PipelineSource>, String> {
    let wrong = |why: &str| format!("{}: {why}", directory.join(DESCRIPTION).display());
    let list: Value = serde_norway::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    let entries = match list {
        Value::Null => return Ok(Vec::new()),
        Value::Sequence(entries) => entries,
        _ => return Err(wrong("it must be a list of pipelines, each beginning with `- pipeline.id: …`")),
    };
    if entries.len() > MAX_PIPELINES {
        return Err(wrong(&format!("it describes more than {MAX_PIPELINES} pipelines")));
    }
    let mut all = Vec::with_capacity(entries.len());
    for (number, entry) in entries.into_iter().enumerate() {
        let Value::Mapping(entry) = entry else {
            return Err(wrong(&format!("entry {} is not a mapping of keys to values", number + 1)));
        };
        let mut keys = BTreeMap::new();
        flatten("", &entry, &mut keys);
        all.push(one(directory, number, keys, described));
    }
    Ok(all)
}

/// `pipeline: {batch: {size: 5}}` means the same as `pipeline.batch.size: 5`.
fn flatten(prefix: &str, mapping: &Mapping, keys: &mut BTreeMap<String, Value>) {
    for (name, value) in mapping {
        let name = name.as_str().map_or_else(|| format!("{name:?}"), str::to_owned);
        let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            Value::Mapping(inner) if keys.len() < KEYS.len() * 4 => flatten(&name, inner, keys),
            value => drop(keys.insert(name, value.clone())),
        }
    }
}

fn one(
    directory: &Path,
    number: usize,
    mut keys: BTreeMap<String, Value>,
    described: &mut HashSet<PathBuf>,
) -> PipelineSource {
    let mut problems = Vec::new();
    for key in keys.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        problems.push(format!("{DESCRIPTION} has an unknown key [{key}]{}", suggest(key, KEYS)));
    }
    let paths: Option<Vec<String>> = match keys.get("path.config") {
        Some(Value::Sequence(paths)) if paths.len() <= MAX_FILES => {
            paths.iter().map(|path| path.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    };
    if paths.is_some() {
        keys.remove("path.config");
    }
    let mut text = |key: &str| {
        let value = keys.remove(key)?;
        let text = match &value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        };
        if text.is_none() {
            problems.push(format!("[{key}] of {DESCRIPTION} must be a single value"));
        }
        text
    };
    let id = text("pipeline.id");
    let paths = paths.or_else(|| text("path.config").map(|path| vec![path]));
    let string = text("config.string");
    let mut found = PipelineSource::new(id.clone().unwrap_or_else(|| format!("entry-{}", number + 1)));
    let boolean =
        |given: Option<String>| given.map_or(Ok(None), |given| given.parse().map(Some).map_err(|_| given));
    let workers = text("pipeline.workers");
    let size = text("pipeline.batch.size");
    let delay = text("pipeline.batch.delay");
    let ordered = text("pipeline.ordered");
    let enabled = boolean(text("pipeline.enabled"));
    let escapes = boolean(text("config.support_escapes"));
    let ecs = text("pipeline.ecs_compatibility");
    let queue = text("queue.type");
    let max_bytes = text("queue.max_bytes");
    let max_events = text("queue.max_events");
    let letter_bytes = text("dead_letter_queue.max_bytes");
    let letter_policy = text("dead_letter_queue.storage_policy");
    let letter_age = text("dead_letter_queue.retain.age");
    for key in WITHOUT_EFFECT {
        text(key);
    }

    if id.is_none() {
        problems.push(format!("entry {} of {DESCRIPTION} has no [pipeline.id]", number + 1));
    }
    let mut count = |key: &str, given: Option<String>| {
        let given = given?;
        let count = given.parse::<usize>().ok();
        if count.is_none() {
            problems.push(format!("[{key}] must be a whole number, not [{given}]"));
        }
        count
    };
    let defaults = Settings::default();
    found.settings.workers = count("pipeline.workers", workers).unwrap_or(defaults.workers);
    found.settings.batch_size = count("pipeline.batch.size", size).unwrap_or(defaults.batch_size);
    let delay = count("pipeline.batch.delay", delay).map(|delay| Duration::from_millis(delay as u64));
    found.settings.batch_delay = delay.unwrap_or(defaults.batch_delay);
    match ordered.as_deref() {
        None | Some("auto") => {}
        Some("true") => found.settings.ordered = EventOrder::Yes,
        Some("false") => found.settings.ordered = EventOrder::No,
        Some(other) => {
            problems.push(format!("[pipeline.ordered] must be auto, true or false, not [{other}]"))
        }
    }
    for (key, given, place) in [
        ("pipeline.enabled", enabled, &mut found.enabled),
        ("config.support_escapes", escapes, &mut found.support_escapes),
    ] {
        match given {
            Ok(given) => *place = given.unwrap_or(*place),
            Err(other) => problems.push(format!("[{key}] must be true or false, not [{other}]")),
        }
    }
    match ecs.as_deref().map(|mode| (mode, EcsCompatibility::parse(mode))) {
        None => {}
        Some((_, Some(mode))) => found.ecs_compatibility = mode,
        Some((other, None)) => {
            problems.push(format!("[pipeline.ecs_compatibility] must be disabled, v1 or v8, not [{other}]"))
        }
    }
    if max_events.is_some_and(|events| events != "0") {
        problems.push("[queue.max_events] must be 0: [queue.max_bytes] bounds the queue".to_owned());
    }
    match letter_bytes.as_deref().map(parse_bytes) {
        None => {}
        Some(Ok(Some(bytes))) if bytes >= MIN_LETTER_BYTES => found.dead_letters.max_bytes = bytes,
        Some(_) => problems
            .push("[dead_letter_queue.max_bytes] must be a size of at least 1mb, such as 1024mb".to_owned()),
    }
    match letter_policy.as_deref() {
        None | Some("drop_newer") => {}
        Some("drop_older") => found.dead_letters.policy = Policy::DropOlder,
        Some(other) => problems.push(format!(
            "[dead_letter_queue.storage_policy] must be drop_newer or drop_older, not [{other}]"
        )),
    }
    match letter_age.as_deref().map(|age| (age, age_of(age))) {
        None => {}
        Some((_, Some(age))) => found.dead_letters.retain = Some(age),
        Some((other, None)) => problems.push(format!(
            "[dead_letter_queue.retain.age] must be a time such as 2d, 12h, 30m or 90s, not [{other}]"
        )),
    }
    match queue.as_deref() {
        None | Some("memory") => {}
        Some("persisted") => match max_bytes.as_deref().map(parse_bytes) {
            None => found.persisted = Some(spool::MAX_BYTES),
            Some(Ok(Some(bytes))) if bytes >= MIN_QUEUE_BYTES => found.persisted = Some(bytes),
            Some(_) => {
                problems.push("[queue.max_bytes] must be a size of at least 1mb, such as 1024mb".to_owned())
            }
        },
        Some(other) => problems.push(format!("[queue.type] must be memory or persisted, not [{other}]")),
    }
    match (paths, string) {
        (Some(_), Some(_)) => {
            problems.push("[path.config] and [config.string] exclude each other".to_owned())
        }
        (None, None) => problems.push("[path.config] or [config.string] is needed".to_owned()),
        (None, Some(string)) => found.texts.push((format!("{DESCRIPTION} [config.string]"), string)),
        (Some(paths), None) => match files_of(directory, &paths) {
            Ok(files) => {
                for file in files {
                    found.add_file(&file);
                    described.insert(canonical(&file));
                }
            }
            Err(problem) => problems.push(problem),
        },
    }
    found.problems.extend(problems);
    found
}

/// A whole number of days, hours, minutes or seconds.
fn age_of(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "d" => 86_400,
        "h" => 3_600,
        "m" => 60,
        "s" => 1,
        _ => return None,
    };
    let number = number.parse::<u64>().ok().filter(|number| *number > 0)?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// Builds the graph of a pipeline's files.
pub(super) fn build(
    found: &PipelineSource,
    environment: Environment,
    before: Option<&Graph>,
) -> Result<Graph, String> {
    if !found.problems.is_empty() {
        return Err(found.problems.join("; "));
    }
    let dialect = Dialect { environment, support_escapes: found.support_escapes };
    let text = found.text();
    let built = language::parse(&text, &dialect).and_then(|mut definition| {
        definition.set_default_ecs(found.ecs_compatibility);
        tracing::info!(
            pipeline = found.id,
            ecs_compatibility = found.ecs_compatibility.name(),
            "plugins that do not say it name fields so"
        );
        Graph::build_after(definition, before)
    });
    built.map_err(|faults| {
        let lines = faults.iter().map(|fault| {
            let (file, line) = found.place(fault.at.line);
            format!("{file}:{line}:{}: {}", fault.at.column, fault.message)
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

#[cfg(test)]
mod tests;
