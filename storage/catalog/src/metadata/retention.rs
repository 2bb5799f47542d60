//! Limits of retention by space, as the cluster settings `retention.max_bytes` and `retention.max_disk_used` have them.
//!
//! A setting is a comma-separated list of `pattern:limit`; a limit alone is for all indices.

use millrace_runtime::{Error, Result};
use serde_json::Value;

use super::{Metadata, parse_bytes};

/// Setting with the bytes that indices of a pattern may have.
pub(super) const MAX_BYTES: &str = "retention.max_bytes";
/// Setting with the used space of the disk, in percent or in bytes, from which on indices of a pattern are deleted.
pub(super) const MAX_DISK_USED: &str = "retention.max_disk_used";
/// Limits of a setting, at most.
const MAX_LIMITS: usize = 1_000;

/// Space that indices of a pattern may take.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionLimit {
    /// Key of the setting.
    pub setting: &'static str,
    /// Pattern of names of indices and data streams.
    pub pattern: String,
    /// The limit.
    pub limit: SpaceLimit,
}

/// A bound on space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpaceLimit {
    /// Bytes of the indices together.
    Bytes(u64),
    /// Used bytes of the disk.
    DiskBytes(u64),
    /// Used percent of the disk.
    DiskPercent(f64),
}

/// Reads the value of a setting.
///
/// # Errors
/// [`Error::IllegalArgument`] with the part that is no limit.
pub(super) fn parse(setting: &'static str, text: &str) -> Result<Vec<RetentionLimit>> {
    let mut limits = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (pattern, limit) = part.rsplit_once(':').unwrap_or(("*", part));
        let (pattern, limit) = (pattern.trim(), limit.trim());
        let refuse = || {
            Error::IllegalArgument(format!(
                "Failed to parse [{part}] for setting [{setting}], write [pattern:limit] such as [logs-*:50gb]"
            ))
        };
        let percent = limit.strip_suffix('%').map(str::parse::<f64>);
        let limit = match (setting, percent) {
            (MAX_DISK_USED, Some(Ok(percent))) if percent > 0.0 && percent <= 100.0 => {
                SpaceLimit::DiskPercent(percent)
            }
            (_, Some(_)) => return Err(refuse()),
            (_, None) => match parse_bytes(limit) {
                Ok(Some(bytes)) if setting == MAX_BYTES => SpaceLimit::Bytes(bytes),
                Ok(Some(bytes)) => SpaceLimit::DiskBytes(bytes),
                _ => return Err(refuse()),
            },
        };
        if pattern.is_empty() || limits.len() >= MAX_LIMITS {
            return Err(refuse());
        }
        limits.push(RetentionLimit { setting, pattern: pattern.to_owned(), limit });
    }
    Ok(limits)
}

impl Metadata {
    /// Lists the limits of retention by space.
    pub fn retention_limits(&self) -> Vec<RetentionLimit> {
        let read = |setting: &'static str| {
            let value = self.explicit_cluster_setting(setting).and_then(Value::as_str);
            // What is stored was checked.
            value.and_then(|text| parse(setting, text).ok()).unwrap_or_default()
        };
        let mut limits = read(MAX_BYTES);
        limits.extend(read(MAX_DISK_USED));
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_of_patterns() {
        let limits = parse(MAX_BYTES, "logs-*:50gb, 1kb").unwrap();
        assert_eq!(limits[0].pattern, "logs-*");
        assert_eq!(limits[0].limit, SpaceLimit::Bytes(50 << 30));
        assert_eq!((limits[1].pattern.as_str(), limits[1].limit), ("*", SpaceLimit::Bytes(1024)));
        let disk = parse(MAX_DISK_USED, "a*:80%,b*:1tb").unwrap();
        assert_eq!(
            (disk[0].limit, disk[1].limit),
            (SpaceLimit::DiskPercent(80.0), SpaceLimit::DiskBytes(1 << 40))
        );
        for (setting, text) in [
            (MAX_BYTES, "a:80%"),
            (MAX_BYTES, "a:"),
            (MAX_BYTES, ":1gb"),
            (MAX_BYTES, "a:-1"),
            (MAX_DISK_USED, "a:101%"),
            (MAX_DISK_USED, "a:x%"),
        ] {
            assert!(parse(setting, text).is_err(), "{text}");
        }
    }
}
