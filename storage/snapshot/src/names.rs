//! Names of repositories and snapshots, and the names of files that stand for them.

/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Longest file name of a manifest, in bytes.
const MAX_FILE_NAME_BYTES: usize = 240;
/// End of a manifest's file name.
const MANIFEST_SUFFIX: &str = ".manifest";
/// Characters that names must not have.
const FORBIDDEN: [char; 10] = ['\\', '/', '*', '?', '"', '<', '>', '|', ' ', ','];

/// Says why a name cannot be that of a snapshot; `None` where it can.
pub(crate) fn snapshot_name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("cannot be empty".to_owned());
    }
    if name.contains(char::is_whitespace) {
        return Some("must not contain whitespace".to_owned());
    }
    if name.contains(',') {
        return Some("must not contain ','".to_owned());
    }
    if name.contains('#') {
        return Some("must not contain '#'".to_owned());
    }
    if name.starts_with('_') {
        return Some("must not start with '_'".to_owned());
    }
    if name.to_lowercase() != name {
        return Some("must be lowercase".to_owned());
    }
    if name.contains(FORBIDDEN) || name.contains(char::is_control) {
        return Some("must not contain the following characters [\\, /, *, ?, \", <, >, |,  , ,]".to_owned());
    }
    if name.len() > MAX_NAME_BYTES || manifest_file_name(name).len() > MAX_FILE_NAME_BYTES {
        return Some(format!("is longer than the [{MAX_NAME_BYTES}] bytes that a name may have"));
    }
    None
}

/// Says why a name cannot be that of a repository; `None` where it can.
pub(crate) fn repository_name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("cannot be empty".to_owned());
    }
    if name.contains('#') {
        return Some("must not contain '#'".to_owned());
    }
    if name.contains(FORBIDDEN) || name.contains(char::is_control) {
        return Some("must not contain the following characters [\\, /, *, ?, \", <, >, |,  , ,]".to_owned());
    }
    (name.len() > MAX_NAME_BYTES).then(|| format!("is longer than [{MAX_NAME_BYTES}] bytes"))
}

/// Returns the file name of a snapshot's manifest: bytes other than `a-z`, `0-9`, `-`, `_` and `.` behind the first are escaped as
/// `=` and two hexadecimal digits.
pub(crate) fn manifest_file_name(snapshot: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::with_capacity(snapshot.len() + MANIFEST_SUFFIX.len());
    for (at, byte) in snapshot.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b'.' if at > 0 => name.push('.'),
            _ => _ = write!(name, "={byte:02x}"),
        }
    }
    name + MANIFEST_SUFFIX
}

/// Returns the name of the snapshot whose manifest has a file name; `None` for a file that is none.
pub(crate) fn snapshot_of_file(file: &str) -> Option<String> {
    let escaped = file.strip_suffix(MANIFEST_SUFFIX)?.as_bytes();
    let (mut bytes, mut at) = (Vec::with_capacity(escaped.len()), 0);
    while at < escaped.len() {
        if escaped[at] == b'=' {
            let digits = std::str::from_utf8(escaped.get(at + 1..at + 3)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            at += 3;
        } else {
            bytes.push(escaped[at]);
            at += 1;
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (manifest_file_name(&name) == file).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_snapshots_follow_opensearch() {
        for good in ["a", "daily-2026.11.29", "x+y", "größe"] {
            assert_eq!(snapshot_name_fault(good), None, "{good}");
        }
        let long = "x".repeat(256);
        for bad in ["", "a b", "a,b", "a#b", "_a", "Upper", "a/b", "a*", &long] {
            assert!(snapshot_name_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn file_names_stand_for_one_snapshot_each() {
        for name in ["a", ".hidden", "..", "größe", "a=b", "daily-2026.11.29"] {
            let file = manifest_file_name(name);
            assert!(!file.starts_with('.') && file.is_ascii(), "{file}");
            assert_eq!(snapshot_of_file(&file).as_deref(), Some(name));
        }
        for other in ["a", "=zz.manifest", "=61.manifest", "A.manifest", "=f.manifest"] {
            assert_eq!(snapshot_of_file(other), None, "{other}");
        }
    }
}
