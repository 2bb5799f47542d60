//! The `delimited_payload` filter, for which what stands behind a delimiter is no part of the term, and
//! `type_as_payload`.

use super::{Filter, InSynonyms, Stage, each};

/// Encoding of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encoding {
    /// Four bytes of a float.
    Float,
    /// Four bytes of an integer.
    Int,
    /// UTF-8.
    Identity,
}

/// Moves what is behind the last delimiter into the payload.
#[derive(Debug)]
pub(crate) struct DelimitedPayload {
    pub(crate) delimiter: char,
    pub(crate) encoding: Encoding,
}

impl Filter for DelimitedPayload {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                token.payload = None;
                if let Some(at) = token.text.find(self.delimiter) {
                    let value = &token.text[at + self.delimiter.len_utf8()..];
                    // A value that is no number leaves no payload: the term is what is searched for.
                    token.payload = match self.encoding {
                        Encoding::Float => value.trim().parse::<f32>().ok().map(|n| n.to_be_bytes().into()),
                        Encoding::Int => value.parse::<i32>().ok().map(|n| n.to_be_bytes().into()),
                        Encoding::Identity => Some(value.as_bytes().into()),
                    };
                    token.text.truncate(at);
                }
                true
            },
            next,
        )
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Same
    }
}

/// Takes the type of a token for its payload.
#[derive(Debug)]
pub(crate) struct TypeAsPayload;

impl Filter for TypeAsPayload {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                token.payload = Some(token.kind.as_bytes().into());
                true
            },
            next,
        )
    }
}
