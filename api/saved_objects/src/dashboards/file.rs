//! The text of a file: `{"version": …, "objects": […]}`, an array of objects, or the objects one behind the other, a line each.
//!
//! Objects are handed on as slices of the file, one at a time: whoever takes them holds the values of one object only.

use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::bulk::MAX_OBJECTS;
use crate::error::Error;
use crate::http::json::without_mark;

/// An object of a file.
#[derive(Clone, Debug)]
pub(super) struct FileObject<'a> {
    /// Location in the file, for messages.
    pub(super) place: String,
    pub(super) text: &'a [u8],
}

/// A file that is one value.
#[derive(Debug, Deserialize)]
struct SingleValueFile<'a> {
    #[serde(borrow)]
    objects: Option<Objects<'a>>,
}

/// The objects of such a file, no more than there may be.
#[derive(Debug)]
struct Objects<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Objects<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;

        impl<'de> Visitor<'de> for Elements {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = access.next_element()? {
                    if elements.len() == MAX_OBJECTS {
                        return Err(de::Error::custom(format_args!("more than [{MAX_OBJECTS}] objects")));
                    }
                    elements.push(element);
                }
                Ok(elements)
            }
        }
        deserializer.deserialize_seq(Elements).map(Self)
    }
}

/// Finds the objects of a file.
///
/// # Errors
/// 400 for what is neither form, and for more objects than there may be.
pub(super) fn parts<'f>(file: &'f [u8]) -> Result<Vec<FileObject<'f>>, Error> {
    let refused =
        |error: serde_json::Error| Error::illegal_argument(format!("[file] cannot be read: {error}"));
    let mut values = serde_json::Deserializer::from_slice(without_mark(file)).into_iter::<&RawValue>();
    let Some(first) = values.next().transpose().map_err(refused)? else {
        return Err(Error::illegal_argument("[file] is empty: the body must be an exported file"));
    };
    let of_elements = |objects: Vec<&'f RawValue>| {
        let part = |(at, object): (usize, &'f RawValue)| FileObject {
            place: format!("objects[{at}]"),
            text: object.get().as_bytes(),
        };
        objects.into_iter().enumerate().map(part).collect()
    };
    if first.get().starts_with('[') {
        let Objects(objects) = serde_json::from_str(first.get()).map_err(refused)?;
        if values.next().is_some() {
            return Err(Error::illegal_argument("[file] goes on behind the array of objects"));
        }
        return Ok(of_elements(objects));
    }
    if first.get().starts_with('{') {
        let whole: SingleValueFile<'_> = serde_json::from_str(first.get()).map_err(refused)?;
        if let Some(Objects(objects)) = whole.objects {
            if values.next().is_some() {
                return Err(Error::illegal_argument("[file] goes on behind the object with [objects]"));
            }
            return Ok(of_elements(objects));
        }
    }
    let mut found = Vec::new();
    let mut next = Some(first);
    while let Some(value) = next {
        // The last one may be details of the export.
        if found.len() > MAX_OBJECTS {
            return Err(Error::illegal_argument(format!("[file] has more than [{MAX_OBJECTS}] objects")));
        }
        found.push(FileObject { place: format!("object {}", found.len() + 1), text: value.get().as_bytes() });
        next = values.next().transpose().map_err(refused)?;
    }
    Ok(found)
}
