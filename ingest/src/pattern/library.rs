//! Definitions of patterns by name.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::{EcsCompatibility, glob};

/// Files of definitions that every installation knows.
const FILES: [(&str, &str); 21] = [
    ("aws", include_str!("definitions/aws")),
    ("bacula", include_str!("definitions/bacula")),
    ("bind", include_str!("definitions/bind")),
    ("bro", include_str!("definitions/bro")),
    ("exim", include_str!("definitions/exim")),
    ("firewalls", include_str!("definitions/firewalls")),
    ("grok-patterns", include_str!("definitions/grok-patterns")),
    ("haproxy", include_str!("definitions/haproxy")),
    ("httpd", include_str!("definitions/httpd")),
    ("java", include_str!("definitions/java")),
    ("junos", include_str!("definitions/junos")),
    ("linux-syslog", include_str!("definitions/linux-syslog")),
    ("maven", include_str!("definitions/maven")),
    ("mcollective", include_str!("definitions/mcollective")),
    ("mongodb", include_str!("definitions/mongodb")),
    ("nagios", include_str!("definitions/nagios")),
    ("postgresql", include_str!("definitions/postgresql")),
    ("rails", include_str!("definitions/rails")),
    ("redis", include_str!("definitions/redis")),
    ("ruby", include_str!("definitions/ruby")),
    ("squid", include_str!("definitions/squid")),
];

/// The same files, whose fields have the names of the Elastic Common Schema.
const ECS_FILES: [(&str, &str); 22] = [
    ("aws", include_str!("definitions/ecs-v1/aws")),
    ("bacula", include_str!("definitions/ecs-v1/bacula")),
    ("bind", include_str!("definitions/ecs-v1/bind")),
    ("bro", include_str!("definitions/ecs-v1/bro")),
    ("exim", include_str!("definitions/ecs-v1/exim")),
    ("firewalls", include_str!("definitions/ecs-v1/firewalls")),
    ("grok-patterns", include_str!("definitions/ecs-v1/grok-patterns")),
    ("haproxy", include_str!("definitions/ecs-v1/haproxy")),
    ("httpd", include_str!("definitions/ecs-v1/httpd")),
    ("java", include_str!("definitions/ecs-v1/java")),
    ("junos", include_str!("definitions/ecs-v1/junos")),
    ("linux-syslog", include_str!("definitions/ecs-v1/linux-syslog")),
    ("maven", include_str!("definitions/ecs-v1/maven")),
    ("mcollective", include_str!("definitions/ecs-v1/mcollective")),
    ("mongodb", include_str!("definitions/ecs-v1/mongodb")),
    ("nagios", include_str!("definitions/ecs-v1/nagios")),
    ("postgresql", include_str!("definitions/ecs-v1/postgresql")),
    ("rails", include_str!("definitions/ecs-v1/rails")),
    ("redis", include_str!("definitions/ecs-v1/redis")),
    ("ruby", include_str!("definitions/ecs-v1/ruby")),
    ("squid", include_str!("definitions/ecs-v1/squid")),
    ("zeek", include_str!("definitions/ecs-v1/zeek")),
];

/// Largest file of definitions.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Most files that one directory gives.
const MAX_FILES: usize = 1_000;

/// Definitions of patterns.
#[derive(Clone, Debug, Default)]
pub struct Library {
    own: HashMap<String, Arc<str>>,
    ecs: EcsCompatibility,
}

impl Library {
    /// A library with what every installation knows.
    pub fn new() -> Self {
        Self::default()
    }

    /// A library whose fields have the names that a schema gives them.
    pub fn with_ecs(ecs: EcsCompatibility) -> Self {
        Self { ecs, ..Self::default() }
    }

    fn standard(&self) -> &'static HashMap<&'static str, &'static str> {
        if self.ecs.is_enabled() { ecs_standard() } else { standard() }
    }

    /// Defines a pattern, in place of one that has the name.
    ///
    /// # Errors
    /// The name is none.
    pub fn define(&mut self, name: &str, definition: &str) -> Result<(), String> {
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!("[{name}] cannot name a pattern: letters, digits and underscores can"));
        }
        self.own.insert(name.to_owned(), Arc::from(definition));
        Ok(())
    }

    /// Defines what the files in a directory define whose names match `glob`, in the order of their names.
    ///
    /// # Errors
    /// What cannot be read or is no definition, naming it.
    pub fn load(&mut self, directory: &Path, glob: &str) -> Result<(), String> {
        for path in files(directory, glob)? {
            let unreadable =
                |error: std::io::Error| format!("cannot read the patterns in [{}]: {error}", path.display());
            let file = fs::File::open(&path).map_err(unreadable)?;
            let mut text = String::new();
            let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
            if length as u64 > MAX_FILE_BYTES {
                return Err(format!(
                    "the file of patterns [{}] has more than {MAX_FILE_BYTES} bytes",
                    path.display()
                ));
            }
            for (name, definition) in definitions(&text) {
                self.define(name, definition).map_err(|fault| format!("{}: {fault}", path.display()))?;
            }
        }
        Ok(())
    }

    /// The definition of a pattern.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.own.get(name).map(|definition| &**definition).or_else(|| self.standard().get(name).copied())
    }

    /// Lists the names and definitions of all patterns, those of the library itself first.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.own.iter().map(|(name, definition)| (name.as_str(), &**definition));
        own.chain(standard().iter().map(|(name, definition)| (*name, *definition)))
    }

    /// Names of all patterns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.own.keys().map(String::as_str).chain(self.standard().keys().copied())
    }
}

fn standard() -> &'static HashMap<&'static str, &'static str> {
    static STANDARD: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    STANDARD.get_or_init(|| FILES.iter().flat_map(|(_, text)| definitions(text)).collect())
}

fn ecs_standard() -> &'static HashMap<&'static str, &'static str> {
    static STANDARD: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    STANDARD.get_or_init(|| ECS_FILES.iter().flat_map(|(_, text)| definitions(text)).collect())
}

/// Definitions of a file: a name, space, and the rest of the line. Lines that begin with `#` are comments.
fn definitions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        if line.starts_with('#') {
            return None;
        }
        let (name, definition) = line.split_once([' ', '\t'])?;
        Some((name, definition.trim_start()))
    })
}

/// Returns whether a byte can be part of a pattern's name.
pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn files(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error: std::io::Error| {
        format!("cannot read the directory of patterns [{}]: {error}", directory.display())
    };
    if directory.is_file() {
        return Ok(vec![directory.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_file() && glob::matches(pattern, name) {
            found.push(path);
        }
        if found.len() > MAX_FILES {
            return Err(format!(
                "the directory of patterns [{}] has more than {MAX_FILES} files",
                directory.display()
            ));
        }
    }
    found.sort();
    Ok(found)
}
