//! Limits on the number and size of everything.

use std::io;

use serde_json::Value;

use crate::error::{Error, Result};

/// Most users.
pub const MAX_USERS: usize = 100_000;
/// Most roles, built-in ones aside.
pub const MAX_ROLES: usize = 10_000;
/// Most role mappings.
pub const MAX_MAPPINGS: usize = 10_000;
/// Most API keys, those that ended lately included. One user has at most half of those that others leave.
pub const MAX_KEYS: usize = 200_000;
/// API keys of one user where no other has any, those that are over but not yet forgotten included: as many of the least as its
/// bytes are enough for.
pub const MAX_KEYS_OF_USER: usize = share(MAX_KEYS, 0);
/// Most login tokens.
pub const MAX_TOKENS: usize = 200_000;
/// Most login tokens of a user; at the bound a login ends the one that was used least lately.
pub const MAX_TOKENS_OF_USER: usize = 1_000;
/// Bytes of the records of all API keys together: users that may make their own keys need not be trusted with memory.
pub const MAX_KEY_BYTES: usize = 256 << 20;
/// Most bytes of those of one user, and of them at most half of those that others leave, too.
pub const MAX_KEY_BYTES_OF_USER: usize = MAX_KEY_BYTES / 16;
/// Bytes of a name.
pub const MAX_NAME_BYTES: usize = 507;
/// Wildcards of a pattern that names of API keys are compared with.
pub const MAX_WILDCARDS: usize = 8;
/// Bytes of a description, an e-mail address, a person's name and the like.
pub const MAX_TEXT_BYTES: usize = 4 << 10;
/// Bytes of a password.
pub const MAX_PASSWORD_BYTES: usize = 1 << 10;
/// Bytes of metadata, and of what else is kept for others only.
pub const MAX_METADATA_BYTES: usize = 64 << 10;
/// Roles, patterns, privileges, fields and what else an entry lists.
pub const MAX_LISTED: usize = 1_000;
/// Patterns of index names in all roles.
pub const MAX_PATTERNS: usize = 1_000_000;
/// Regular expressions among them.
pub const MAX_EXPRESSIONS: usize = 1_000;
/// Entries of all role mappings.
pub const MAX_MAPPED: usize = 100_000;
/// Hosts of all role mappings.
pub const MAX_HOSTS: usize = 1_000;
/// Roles that an API key describes.
pub const MAX_DESCRIPTORS: usize = 100;
/// Grants on indices in all of these: users that may make their own keys need not be trusted with the cost of checking them.
pub const MAX_GRANTS_OF_KEY: usize = 200;
/// Patterns of index names in all of these.
pub const MAX_PATTERNS_OF_KEY: usize = 1_000;
/// Bytes of the query of documents that a role shows.
pub const MAX_QUERY_BYTES: usize = 64 << 10;
/// Depth of it.
pub const MAX_QUERY_DEPTH: usize = 50;

/// Returns how much one may have of what there is room for so much of, where others have some: half of what these leave, so that one
/// alone leaves as much as it takes, and few do not take all.
pub(crate) const fn share(room: usize, of_others: usize) -> usize {
    room.saturating_sub(of_others).div_ceil(2)
}

/// Checks the name of a user, role or key.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let fault = if name.is_empty() || name.len() > MAX_NAME_BYTES {
        format!("must have 1 to {MAX_NAME_BYTES} bytes")
    } else if name.chars().any(char::is_control) {
        "must not have control characters".to_owned()
    } else if name.trim() != name {
        "must not begin or end with whitespace".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Invalid(format!("name of {what} [{}] {fault}", shorten(name))))
}

/// Checks a text that only people read.
pub(crate) fn check_text(what: &str, text: &str) -> Result<()> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(too_long(what, text.len(), MAX_TEXT_BYTES));
    }
    Ok(())
}

/// Checks a list of names, of which `all` says what they are.
pub(crate) fn check_names(all: &'static str, what: &'static str, names: &[String]) -> Result<()> {
    check_count(all, names.len())?;
    names.iter().try_for_each(|name| check_name(what, name))
}

/// Checks how much a list has.
pub(crate) fn check_count(what: &'static str, count: usize) -> Result<()> {
    if count > MAX_LISTED {
        return Err(Error::TooMany { what, limit: MAX_LISTED });
    }
    Ok(())
}

/// Checks JSON that is kept for others.
pub(crate) fn check_metadata(what: &str, value: &impl serde::Serialize) -> Result<()> {
    match serde_json::to_writer(ByteLimitWriter(MAX_METADATA_BYTES), value) {
        Ok(()) => Ok(()),
        Err(error) if error.is_io() => {
            Err(Error::Invalid(format!("{what} has more bytes than the limit of [{MAX_METADATA_BYTES}]")))
        }
        Err(error) => Err(Error::internal(error)),
    }
}

/// Takes so many bytes, and keeps none: a larger record is not written to its end.
struct ByteLimitWriter(usize);

impl io::Write for ByteLimitWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn too_long(what: &str, bytes: usize, limit: usize) -> Error {
    Error::Invalid(format!("{what} has [{bytes}] bytes, above the limit of [{limit}]"))
}

/// Cuts a name for a message.
pub(crate) fn shorten(name: &str) -> String {
    name.chars().take(100).collect()
}

/// Returns how deep objects and arrays of a value go.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_written_up_to_the_limit() {
        use std::cell::Cell;

        /// An element that notes how often it is written.
        struct SerializationProbe<'a>(&'a Cell<usize>);

        impl serde::Serialize for SerializationProbe<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.set(self.0.get() + 1);
                serializer.serialize_str("12345678")
            }
        }

        let text = |bytes: usize| Value::from("x".repeat(bytes - 2));
        check_metadata("metadata", &text(MAX_METADATA_BYTES)).unwrap();
        let refused = check_metadata("metadata", &text(MAX_METADATA_BYTES + 1)).unwrap_err();
        assert_eq!(refused.to_string(), "metadata has more bytes than the limit of [65536]");
        let written = Cell::new(0);
        let elements: Vec<_> = (0..1_000_000).map(|_| SerializationProbe(&written)).collect();
        check_metadata("metadata", &elements).unwrap_err();
        assert!(written.get() <= MAX_METADATA_BYTES / 8, "{}", written.get());
    }

    #[test]
    fn one_alone_leaves_half_and_those_behind_it_half_of_that() {
        assert_eq!(MAX_KEYS_OF_USER, 100_000);
        let mut taken = 0;
        let mut shares = Vec::new();
        while taken < MAX_KEYS {
            shares.push(share(MAX_KEYS, taken));
            taken += share(MAX_KEYS, taken);
        }
        assert_eq!((&shares[..4], shares.last()), ([100_000, 50_000, 25_000, 12_500].as_slice(), Some(&1)));
        assert_eq!((taken, shares.len()), (MAX_KEYS, 18));
        assert_eq!((share(MAX_KEYS, MAX_KEYS), share(MAX_KEYS, MAX_KEYS + 1)), (0, 0));
    }
}
