//! Lists of what there is, which may be long: written entry by entry, and charged to the request as they grow. How much an entry
//! is says nobody before it is written, so none is written on the threads that serve connections.

use serde_json::Value;

use super::offload::aside;
use super::{MemoryAllowance, json};
use crate::error::Error;

/// Writes an object of named entries.
///
/// # Errors
/// 413 and 429 where it takes more than there is.
pub fn members<T, N: AsRef<str>>(
    allowance: &MemoryAllowance,
    entries: &[T],
    write: impl Fn(&T) -> (N, Value),
) -> Result<Vec<u8>, Error> {
    list(allowance, entries, [b'{', b'}'], |entry, out| {
        let (name, value) = write(entry);
        json::push_str(out, name.as_ref());
        out.push(b':');
        serde_json::to_writer(out, &value).expect("writing to memory cannot fail");
    })
}

/// Writes an array.
///
/// # Errors
/// 413 and 429 where it takes more than there is.
pub fn items<T>(
    allowance: &MemoryAllowance,
    entries: &[T],
    write: impl Fn(&T) -> Value,
) -> Result<Vec<u8>, Error> {
    list(allowance, entries, [b'[', b']'], |entry, out| {
        serde_json::to_writer(out, &write(entry)).expect("writing to memory cannot fail");
    })
}

fn list<T>(
    allowance: &MemoryAllowance,
    entries: &[T],
    [open, close]: [u8; 2],
    write: impl Fn(&T, &mut Vec<u8>),
) -> Result<Vec<u8>, Error> {
    let make = || {
        let mut out = vec![open];
        for (place, entry) in entries.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            let before = out.len();
            write(entry, &mut out);
            // It has grown to up to twice its length.
            allowance.take(2 * (out.len() - before))?;
        }
        out.push(close);
        Ok(out)
    };
    if entries.is_empty() { make() } else { aside(make) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_while_a_list_is_written() {
        let (sender, receiver) = mpsc::channel();
        let list = tokio::spawn(async move {
            // Behind this one, on the only thread.
            tokio::spawn(async move { sender.send(()) });
            items(&MemoryAllowance::with_limit(0), &[()], |()| {
                receiver.recv_timeout(Duration::from_secs(60)).unwrap();
                Value::Null
            })
            .unwrap()
        });
        assert_eq!(list.await.unwrap(), b"[null]");
    }

    #[test]
    fn lists_are_charged_as_they_grow() {
        let entries = ["a", "b\"c"];
        let object =
            members(&MemoryAllowance::with_limit(0), &entries, |entry| (*entry, Value::from(1))).unwrap();
        assert_eq!(object, br#"{"a":1,"b\"c":1}"#);
        assert_eq!(
            items(&MemoryAllowance::with_limit(0), &entries, |entry| Value::from(*entry)).unwrap(),
            br#"["a","b\"c"]"#
        );
        assert_eq!(items(&MemoryAllowance::with_limit(0), &[0; 0], |_| Value::Null).unwrap(), b"[]");
        let long = "x".repeat(1 << 20);
        let error = items(&MemoryAllowance::with_limit(16 << 20), &[(); 16], |()| Value::from(long.as_str()))
            .unwrap_err();
        assert_eq!(error.status(), 413);
    }
}
