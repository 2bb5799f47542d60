//! Environment variables that begin like ours and name no key: slips, to be refused, and strangers.
//!
//! Kubernetes sets variables in every pod for every service of the namespace, so that others' begin with
//! `MILLRACE_`, too: those of a service `millrace-console` are `MILLRACE_CONSOLE_SERVICE_HOST` and the like. To
//! refuse them would keep the server from starting because of a neighbour; to pass over a misspelt password would
//! start it without one. So what is close to a key is refused, and what is not is named in a warning. Close is also what goes
//! on behind a key's whole name (`_FILE`, as other images have it), and what has a word of a key for credentials or TLS.

use super::keys::{KEYS, Key, distance, nearest};

/// Returns whether the rest of a name behind `MILLRACE_` is of a form that others set: container platforms for a service, the
/// shell of SQL, and our own tests.
pub(super) fn is_foreign(name: &str) -> bool {
    // Names of services have no such part; keys below others do.
    if name.contains("__") {
        return false;
    }
    // What the name of a service ends with: nothing, or an underscore.
    let of_service = |rest: &str| rest.is_empty() || rest.ends_with('_');
    let ends = |end: &str| name.strip_suffix(end).is_some_and(of_service);
    let named_port = name.split_once("SERVICE_PORT_").is_some_and(|(rest, _)| of_service(rest));
    ["PORT", "SERVICE_HOST", "SERVICE_PORT"].into_iter().any(ends)
        || named_port
        || linked_port(name).is_some_and(of_service)
        || name.starts_with("TEST_")
        || name == "SQL_HISTORY"
}

/// Returns the text before `PORT_9200_TCP`, which may have `_ADDR`, `_PORT` or `_PROTO` behind it.
fn linked_port(name: &str) -> Option<&str> {
    let name = ["_ADDR", "_PORT", "_PROTO"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let name = ["_SCTP", "_TCP", "_UDP"].iter().find_map(|end| name.strip_suffix(end))?;
    let (name, number) = name.rsplit_once('_')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.strip_suffix("PORT"))?
}

/// Finds the key that the rest of a name behind `MILLRACE_` is close to: a few letters from its name, or made of its
/// words.
pub(super) fn close_to(name: &str) -> Option<&'static Key> {
    let dotted = name.to_ascii_lowercase().replace("__", ".");
    // `PASSWORD` is a word of keys in tables, too.
    let on_top = KEYS.iter().filter(|key| !key.name.contains('.')).find(|key| of_words(&dotted, key.name));
    let spelt = || nearest(&dotted, KEYS.iter().map(|key| key.name)).and_then(Key::find);
    let of_words = || KEYS.iter().find(|key| of_words(&dotted, key.name));
    // The longest: `data_dir` is rather `data` than nothing, but a key below it is meant before it.
    let goes_on = || KEYS.iter().filter(|key| goes_on(&dotted, key.name)).max_by_key(|key| key.name.len());
    let guarded = || {
        let counted = KEYS.iter().map(|key| (guarded_words(&dotted, key), key));
        counted.filter(|(count, _)| *count > 0).max_by_key(|(count, _)| *count).map(|(_, key)| key)
    };
    on_top.or_else(spelt).or_else(of_words).or_else(goes_on).or_else(guarded)
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', '.']).filter(|word| !word.is_empty())
}

/// Returns whether a name begins with all of a key's.
fn goes_on(name: &str, key: &str) -> bool {
    let mut name = words(name);
    words(key).all(|word| name.next() == Some(word))
}

/// Returns the number of words of a name that match a key for credentials or TLS; none where it is for something else.
fn guarded_words(name: &str, key: &Key) -> usize {
    let of_key: Vec<&str> = match key.name.rsplit_once('.') {
        _ if key.name.starts_with("tls.") => words(key.name).collect(),
        _ if !key.secret => return 0,
        // What stands before is of other keys, too.
        Some((_, last)) => words(last).collect(),
        None => words(key.name).collect(),
    };
    let is_of_key = |word: &&str| {
        of_key.iter().any(|of_key| word == of_key || (word.len() >= 4 && of_key.starts_with(*word)))
    };
    words(name).filter(is_of_key).count()
}

/// Returns whether a name is made of words of a key's, each misspelt or cut a little.
fn of_words(name: &str, key: &str) -> bool {
    let mut words = name.split(['_', '.']).filter(|word| !word.is_empty()).peekable();
    let is_word = |word: &str| {
        key.split(['_', '.']).any(|of_key| {
            word == of_key
                || (word.len() >= 4 && (of_key.starts_with(word) || distance(word, of_key) <= word.len() / 3))
        })
    };
    words.peek().is_some() && words.all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_platforms_set_is_foreign() {
        for name in [
            "PORT",
            "PORT_9200_TCP",
            "PORT_9200_TCP_ADDR",
            "PORT_9200_TCP_PORT",
            "PORT_9200_TCP_PROTO",
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_HTTP",
            "CONSOLE_SERVICE_HOST",
            "CONSOLE_SERVICE_PORT_HTTPS",
            "CONSOLE_PORT",
            "0_PORT_9200_TCP_ADDR",
            "DATA_PORT_9200_UDP",
            "LISTEN_SERVICE_HOST",
            "TEST_S3_ENDPOINT",
        ] {
            assert!(is_foreign(name), "{name}");
        }
        for name in ["LISTEN", "REPORT", "CONSOLE", "MICROSERVICE_X", "PORTS", "TCP", "PORT_X_TCP_ADDRESS"] {
            assert!(!is_foreign(name), "{name}");
        }
        for key in KEYS {
            assert!(!is_foreign(&key.variable()[super::super::PREFIX.len()..]), "{}", key.name);
        }
    }

    #[test]
    fn slips_are_close_to_their_keys() {
        for (name, key) in [
            ("ADMIN_PASSWRD", "admin_password"),
            ("ADMIN_PASS", "admin_password"),
            ("ADMINPASSWORD", "admin_password"),
            ("PASSWORD", "admin_password"),
            ("PASSWD", "admin_password"),
            ("LISTNE", "listen"),
            ("STORAGE_FLUSH_BYTES", "storage.flush_bytes"),
            ("FLUSH_BYTES", "storage.flush_bytes"),
            ("S3__SECRET_ACCESS_KEY", "snapshot.s3.secret_access_key"),
            ("SECRET_KEY", "notifications.secret_key"),
            ("SECRET_ACCESS_KEY", "snapshot.s3.secret_access_key"),
            ("OBJECT_STORE_BUCKET", "storage.object_store.bucket"),
            ("TLS_CERT", "tls.certificate"),
            ("LOGLEVEL", "log.level"),
            ("INSECUR", "insecure"),
            ("ADMIN_PASSWORD_FILE", "admin_password"),
            ("ADMIN_PW", "admin_password"),
            ("DATA_DIR", "data"),
            ("TLS_CERT_FILE", "tls.certificate"),
            ("TLS_CERTIFICATE_FILE", "tls.certificate"),
            ("TLS_KEY_FILE", "tls.key"),
            ("TLS_CA_FILE", "tls.client_authorities"),
            ("TLS_CLIENT_AUTH", "tls.client_authentication"),
            ("STORAGE__OBJECT_STORE__SECRET_ACCESS_KEY_FILE", "storage.object_store.secret_access_key"),
        ] {
            assert_eq!(close_to(name).map(|key| key.name), Some(key), "{name}");
        }
        for name in
            ["CONSOLE_URL", "NAMESPACE", "POD_NAME", "VERSION", "IMAGE", "0_HOSTNAME", "REPLICAS", "", "_"]
        {
            assert_eq!(close_to(name).map(|key| key.name), None, "{name}");
        }
    }
}
