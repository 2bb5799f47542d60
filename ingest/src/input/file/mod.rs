//! `file`: lines of files, as they are written or once.
//!
//! How far each file was read is stored with its events, so a file that only grows is read exactly once,
//! also across rotation: an open file is read to its end whatever its name is by then, and one that was renamed while
//! the server was down is looked for in its directory. `watch` finds files, `reader` reads one, `position`
//! says what a file is.

mod delimiter;
mod descriptors;
mod position;
mod reader;
mod steps;
#[cfg(test)]
mod tests;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::delimiter::Delimiter;
use super::{Context, Input, InputError, host_name};
use crate::codec::{self, Codec, WideCharset};
use crate::glob::Glob;
use crate::{EcsCompatibility, Fault, Options, Setting};

const SECOND: f64 = 1.0;
const HOUR: f64 = 3600.0;
/// Longest time that an option may say, in seconds.
const LONGEST: f64 = 1e9;
/// Value of `sincedb_path` that says that positions are not to be kept.
const NOWHERE: [&str; 2] = ["/dev/null", "NUL"];

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Tail {
    settings: Arc<Settings>,
}

/// Settings of the file input.
#[derive(Debug)]
struct Settings {
    paths: Vec<String>,
    globs: Vec<Glob>,
    exclude: Vec<Glob>,
    delimiter: Delimiter,
    codec: Arc<dyn Codec>,
    ecs: EcsCompatibility,
    host: String,
    /// Files are read once, rather than followed.
    once: bool,
    from_beginning: bool,
    stat_interval: Duration,
    discover_interval: Duration,
    close_older: Duration,
    ignore_older: Option<Duration>,
    clean_after: Duration,
    max_open_files: usize,
    /// `true` if positions are stored.
    stored: bool,
    sort_by_path: bool,
    descending: bool,
    exit_after_read: bool,
    check_archives: bool,
    completed: CompletionOptions,
}

/// Actions on a file that was read to its end.
#[derive(Debug, Default)]
struct CompletionOptions {
    delete: bool,
    log: Option<PathBuf>,
}

impl Tail {
    /// Makes the input.
    ///
    /// # Errors
    /// The faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let at = options.at();
        let paths = options.texts("path");
        if paths.is_empty() {
            options.fault_here("[file] needs the option [path]");
        }
        let mut globs = Vec::new();
        for path in &paths {
            match Glob::path(path) {
                Ok(glob) => globs.push(glob),
                Err(reason) => options.fault(at, reason),
            }
        }
        let mut exclude = Vec::new();
        for pattern in options.texts("exclude") {
            match Glob::new(&pattern) {
                Ok(glob) => exclude.push(glob),
                Err(reason) => options.fault(at, reason),
            }
        }
        let codec = codec::take(&mut options, "plain");
        let delimiter = options.text("delimiter").unwrap_or_else(|| "\n".to_owned());
        // A configuration without escapes can only write them out.
        let delimiter =
            delimiter.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t").replace("\\0", "\0");
        if delimiter.is_empty() || delimiter.len() > position::FIRST_BYTES / 2 {
            options.fault_here("[delimiter] must not be empty, and at most 512 bytes");
        }
        let once = options.one_of("mode", &["tail", "read"]) == Some("read");
        let from_beginning = options.one_of("start_position", &["beginning", "end"]) == Some("beginning");
        let stat_interval = duration(&mut options, "stat_interval", SECOND);
        let looks = options.integer("discover_interval", 1..=1_000_000).unwrap_or(15);
        let close_older = duration(&mut options, "close_older", HOUR);
        let ignore_older =
            options.read("ignore_older", "a time such as [1 day]", seconds).map(Duration::from_secs_f64);
        let clean_after =
            options.read("sincedb_clean_after", "a time such as [2 weeks] or days", |setting| {
                // A bare number is in days.
                let days = setting.as_text()?.parse::<f64>().ok().map(|days| days * 24.0 * HOUR);
                days.filter(|seconds| (0.0..=LONGEST).contains(seconds)).or_else(|| seconds(setting))
            });
        let max_open_files = options.integer("max_open_files", 1..=100_000).unwrap_or(4095);
        let nowhere = options.text("sincedb_path").is_some_and(|path| NOWHERE.contains(&path.as_str()));
        // The store keeps positions, with each batch; and files are read a batch at a time.
        let _ = duration(&mut options, "sincedb_write_interval", SECOND);
        let _ = options.integer("file_chunk_count", 1..=i64::MAX);
        let _ = options.integer("file_chunk_size", 1..=i64::MAX);
        let sort_by_path = options.one_of("file_sort_by", &["last_modified", "path"]) == Some("path");
        let descending = options.one_of("file_sort_direction", &["asc", "desc"]) == Some("desc");
        let exit_after_read = options.boolean("exit_after_read").unwrap_or(false);
        let check_archives = options.boolean("check_archive_validity").unwrap_or(false);
        let completed = completed(&mut options, once);
        if exit_after_read && !once {
            options.fault_here("[exit_after_read] needs [mode => \"read\"]");
        }
        let ecs = options.ecs_compatibility();
        if codec.as_ref().is_ok_and(|codec| codec.charset().as_wide().is_some_and(WideCharset::needs_mark)) {
            options.fault_here(
                "[file] reads lines from any place of a file: give the order of bytes in [charset], such as UTF-16LE",
            );
        }
        options.finish()?;
        let codec = codec?;
        let settings = Settings {
            globs,
            paths,
            exclude,
            delimiter: Delimiter::new(&delimiter, codec.charset()),
            codec,
            ecs,
            host: host_name(),
            once,
            from_beginning,
            stat_interval,
            discover_interval: stat_interval.saturating_mul(u32::try_from(looks).unwrap_or(u32::MAX)),
            close_older,
            ignore_older,
            clean_after: Duration::from_secs_f64(clean_after.unwrap_or(14.0 * 24.0 * HOUR)),
            max_open_files: usize::try_from(max_open_files).unwrap_or(usize::MAX),
            stored: !nowhere,
            sort_by_path,
            descending,
            exit_after_read,
            check_archives,
            completed,
        };
        Ok(Self { settings: Arc::new(settings) })
    }
}

fn completed(options: &mut Options, once: bool) -> CompletionOptions {
    let action = options.one_of("file_completed_action", &["delete", "log", "log_and_delete"]);
    let log = options.text("file_completed_log_path").map(PathBuf::from);
    if !once {
        return CompletionOptions::default();
    }
    let action = action.unwrap_or("delete");
    let logs = action != "delete";
    if logs && log.is_none() {
        options
            .fault_here(format!("[file_completed_action => \"{action}\"] needs [file_completed_log_path]"));
    }
    CompletionOptions { delete: action != "log", log: log.filter(|_| logs) }
}

fn duration(options: &mut Options, name: &'static str, default: f64) -> Duration {
    let given = options.read(name, "a time in seconds, or such as [1 hour]", seconds);
    Duration::from_secs_f64(given.unwrap_or(default))
}

/// Seconds of a number, or of a text with a unit.
fn seconds(setting: &Setting) -> Option<f64> {
    let text = setting.as_text()?;
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "us" | "usec" | "usecs" => 1e-6,
        "ms" | "msec" | "msecs" => 1e-3,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => 24.0 * HOUR,
        "w" | "week" | "weeks" => 7.0 * 24.0 * HOUR,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * factor;
    (0.0..=LONGEST).contains(&seconds).then_some(seconds)
}

#[async_trait]
impl Input for Tail {
    fn identity(&self) -> String {
        let mut paths = self.settings.paths.clone();
        paths.sort();
        format!("file {}", paths.join(" "))
    }

    fn needs_name(&self) -> bool {
        true
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        watch::Watch::begin(Arc::clone(&self.settings), context).await?.run().await
    }
}
