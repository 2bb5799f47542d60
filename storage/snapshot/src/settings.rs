//! Settings of a repository: its type, where it is, and who may write.

use std::path::{Component, Path, PathBuf};

use millrace_catalog::metadata::parse_bytes;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::error::{Error, Result};

/// Setting with the bytes a second that snapshots write at most.
const SNAPSHOT_RATE: &str = "max_snapshot_bytes_per_sec";
/// Setting with the bytes a second that restores read at most.
const RESTORE_RATE: &str = "max_restore_bytes_per_sec";
/// Settings that a repository of type `fs` may have.
const FS: [&str; 7] = [
    "location",
    "readonly",
    "compress",
    "chunk_size",
    RESTORE_RATE,
    SNAPSHOT_RATE,
    "remote_store_index_shallow_copy",
];
/// Settings that a repository of type `s3` may have.
const S3: [&str; 8] =
    ["bucket", "base_path", "client", "readonly", "compress", "chunk_size", RESTORE_RATE, SNAPSHOT_RATE];

/// Place of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepositoryKind {
    /// A directory of this machine.
    Fs {
        /// The directory, below one of the configured ones.
        location: PathBuf,
    },
    /// A bucket of an S3-compatible service.
    S3 {
        /// Name of the bucket.
        bucket: String,
        /// Prefix within it.
        base_path: String,
    },
}

/// Settings of a repository.
#[derive(Clone, Debug, PartialEq)]
pub struct RepositorySettings {
    /// Its place.
    pub kind: RepositoryKind,
    /// `true` if nothing is written there.
    pub readonly: bool,
    /// Bytes a second that snapshots write at most; `None` is no bound.
    pub max_snapshot_bytes_per_sec: Option<u64>,
    /// Bytes a second that restores read at most; `None` is no bound.
    pub max_restore_bytes_per_sec: Option<u64>,
    /// Type and settings as they were given, values as text.
    pub body: Value,
}

impl RepositorySettings {
    /// Reads the body of a registration: `type` and `settings`.
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] for another type or member, [`Error::Repository`] for a place that is not allowed.
    pub fn parse(repository: &str, body: &Value, config: &Config) -> Result<Self> {
        let refuse = |reason: String| Error::Repository { repository: repository.to_owned(), reason };
        let members = body.as_object().ok_or_else(|| {
            Error::IllegalArgument(format!("the registration of repository [{repository}] must be an object"))
        })?;
        if let Some(other) =
            members.keys().find(|key| !["type", "settings", "verify"].contains(&key.as_str()))
        {
            return Err(Error::IllegalArgument(format!("unknown member [{other}] of a repository")));
        }
        let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
        let known: &[&str] = match kind {
            "fs" => &FS,
            "s3" => &S3,
            "" => return Err(Error::IllegalArgument("type is missing".to_owned())),
            service @ ("gcs" | "azure") => {
                return Err(refuse(format!(
                    "repositories of type [{service}] are not supported: use type [fs] or [s3], or copy the directory of an fs repository to \
                     the service, contents first, and register such a copy with readonly for a restore"
                )));
            }
            other => return Err(refuse(format!("repository type [{other}] does not exist"))),
        };
        let mut settings: Map<String, Value> = Map::new();
        match members.get("settings") {
            None | Some(Value::Null) => {}
            Some(Value::Object(given)) => {
                for (key, value) in given {
                    if !known.contains(&key.as_str()) {
                        return Err(refuse(format!(
                            "unknown setting [{key}] of a repository of type [{kind}]"
                        )));
                    }
                    let text = match value {
                        Value::String(text) => text.clone(),
                        Value::Bool(_) | Value::Number(_) => value.to_string(),
                        _ => {
                            return Err(refuse(format!("setting [{key}] must be a text, number or boolean")));
                        }
                    };
                    settings.insert(key.clone(), text.into());
                }
            }
            Some(_) => return Err(Error::IllegalArgument("settings must be an object".to_owned())),
        }
        let text = |key: &str| settings.get(key).and_then(Value::as_str);
        let readonly = match text("readonly") {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(refuse(format!("setting [readonly] is [{other}], not true or false"))),
        };
        let rate = |key: &str| match text(key) {
            None => Ok(None),
            // OpenSearch, too, has no bound where the rate is 0 or negative.
            Some(text) => parse_bytes(text).map(|rate| rate.filter(|rate| *rate > 0)).map_err(|reason| {
                refuse(format!(
                    "failed to parse setting [{key}] with value [{text}] as a size in bytes: {reason}"
                ))
            }),
        };
        let max_snapshot_bytes_per_sec = rate(SNAPSHOT_RATE)?;
        let max_restore_bytes_per_sec = rate(RESTORE_RATE)?;
        let place = match kind {
            "fs" => {
                let location = text("location").ok_or_else(|| refuse("missing location".to_owned()))?;
                RepositoryKind::Fs {
                    location: allowed_location(location, &config.path_repo).map_err(refuse)?,
                }
            }
            _ => {
                let bucket = text("bucket").filter(|bucket| !bucket.is_empty());
                let bucket =
                    bucket.ok_or_else(|| refuse("No bucket defined for s3 repository".to_owned()))?;
                if let Some(client) = text("client").filter(|client| *client != "default") {
                    return Err(refuse(format!(
                        "Unknown s3 client name [{client}]. Existing client configs: default"
                    )));
                }
                let base_path = text("base_path").unwrap_or_default().trim_matches('/').to_owned();
                RepositoryKind::S3 { bucket: bucket.to_owned(), base_path }
            }
        };
        let body = serde_json::json!({ "type": kind, "settings": settings });
        Ok(Self { kind: place, readonly, max_snapshot_bytes_per_sec, max_restore_bytes_per_sec, body })
    }
}

/// Resolves a location: relative ones lie below the first allowed directory, absolute ones below any.
fn allowed_location(location: &str, allowed: &[PathBuf]) -> Result<PathBuf, String> {
    let given = Path::new(location);
    let strays = given.components().any(|part| matches!(part, Component::ParentDir | Component::CurDir));
    let refused = |why: String| {
        Err(format!("location [{location}] doesn't match any of the locations specified by path.repo {why}"))
    };
    let Some(first) = allowed.first() else {
        return refused("because this setting is empty (snapshot.path_repo)".to_owned());
    };
    let full = if given.is_absolute() { given.to_owned() } else { first.join(given) };
    if strays || location.is_empty() || !allowed.iter().any(|directory| full.starts_with(directory)) {
        return refused(format!("{allowed:?} (snapshot.path_repo)"));
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(body: Value) -> Result<RepositorySettings> {
        let config = Config { path_repo: vec!["/backup".into(), "/mnt/other".into()], ..Config::default() };
        RepositorySettings::parse("r", &body, &config)
    }

    #[test]
    fn locations_lie_below_an_allowed_directory() {
        let at = |location: &str| parse(json!({"type": "fs", "settings": {"location": location}}));
        for (given, full) in
            [("a/b", "/backup/a/b"), ("/mnt/other/x", "/mnt/other/x"), ("/backup", "/backup")]
        {
            assert_eq!(at(given).unwrap().kind, RepositoryKind::Fs { location: full.into() });
        }
        for wrong in ["/etc", "../etc", "a/../../etc", "/backup/../etc", "", "/backups/x"] {
            let error = at(wrong).unwrap_err().to_string();
            assert!(error.contains("path.repo"), "{wrong}: {error}");
        }
        let nowhere = RepositorySettings::parse(
            "r",
            &json!({"type": "fs", "settings": {"location": "a"}}),
            &Config::default(),
        );
        assert!(nowhere.unwrap_err().to_string().contains("this setting is empty"));
    }

    #[test]
    fn settings_are_known_by_name() {
        for (body, needle) in [
            (json!({"type": "tape"}), "repository type [tape] does not exist"),
            (
                json!({"type": "gcs", "settings": {"bucket": "b"}}),
                "type [gcs] are not supported: use type [fs]",
            ),
            (json!({"type": "azure"}), "type [azure] are not supported"),
            (json!({"type": "fs"}), "missing location"),
            (json!({"type": "fs", "settings": {"location": "a", "password": "x"}}), "[password]"),
            (json!({"type": "s3", "settings": {}}), "No bucket"),
            (json!({"type": "s3", "settings": {"bucket": "b", "access_key": "x"}}), "[access_key]"),
            (json!({"type": "fs", "settings": {"location": "a", "readonly": "maybe"}}), "[maybe]"),
            (json!({"settings": {}}), "type is missing"),
            (
                json!({"type": "fs", "settings": {"location": "a", "max_snapshot_bytes_per_sec": 40}}),
                "failed to parse setting [max_snapshot_bytes_per_sec] with value [40]",
            ),
        ] {
            let error = parse(body).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
        let given = parse(json!({"type": "fs", "settings": {"location": "a", "readonly": true}})).unwrap();
        assert!(given.readonly);
        assert_eq!(given.body["settings"]["readonly"], "true");
        assert_eq!((given.max_snapshot_bytes_per_sec, given.max_restore_bytes_per_sec), (None, None));
    }

    #[test]
    fn rates_are_sizes_and_none_without_a_bound() {
        for (text, rate) in
            [("40mb", Some(40 << 20)), ("1kb", Some(1 << 10)), ("0", None), ("0b", None), ("-1", None)]
        {
            let settings =
                json!({"bucket": "b", "max_snapshot_bytes_per_sec": text, "max_restore_bytes_per_sec": text});
            let given = parse(json!({"type": "s3", "settings": settings})).unwrap();
            assert_eq!((given.max_snapshot_bytes_per_sec, given.max_restore_bytes_per_sec), (rate, rate));
            assert_eq!(given.body["settings"]["max_restore_bytes_per_sec"], text);
        }
    }
}
