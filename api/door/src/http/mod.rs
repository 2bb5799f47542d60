//! Requests and answers as handlers see them, and everything between them and the wire.
//!
//! The dispatcher makes a [`Request`] (after authentication, body decoded) and renders the
//! [`Response`] that a handler returned: [`content`] knows media types, [`json`] reads values,
//! [`render`] applies `pretty`, `filter_path`, `format` and compression, [`memory_allowance`] bounds what requests take,
//! [`listing`] writes long lists within it. A handler takes what it
//! knows from [`Params`], calls [`Request::finish`] *before it changes anything*, then acts.

mod body_chunks;
pub mod content;
pub mod filter_path;
pub mod json;
pub mod listing;
mod memory_allowance;
mod offload;
mod params;
pub mod path;
pub mod render;
mod rewrite;
mod warning;
mod yaml;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method};
use millrace_listen::ReservedBody;
use serde_json::Value;

pub use body_chunks::{AnswerBody, BodyChunks};
use filter_path::FilterPath;
pub use memory_allowance::MemoryAllowance;
pub use offload::{LARGE, offload};
pub use params::Params;
pub use params::{nearest, parse_time};
use warning::warning_header;

use crate::error::Error;

/// A request after authentication, body decoded (gunzipped), parameters split.
#[derive(Debug)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Percent-decoded segments; empty ones (doubled and trailing slashes) dropped.
    pub path: Vec<String>,
    /// Query parameters.
    pub params: Params,
    /// The body, decompressed; JSON (or newline-delimited JSON) whatever the client's format was.
    pub body: Bytes,
    /// Memory that the request may take beside its body.
    pub allowance: MemoryAllowance,
    /// Memory allowance of the answer, until it is sent.
    pub answer: MemoryAllowance,
    /// Filter of the answer.
    pub filter: Arc<FilterPath>,
    /// The header `Accept`, for answers with media types of their own.
    pub accept: Option<HeaderValue>,
    /// The header `Content-Type`, for routes whose bodies are read by their handlers.
    pub media_type: Option<HeaderValue>,
    /// Reservation of its body, until the request ends or somebody takes it.
    pub held: Option<ReservedBody>,
}

impl Request {
    /// Parses the body as JSON; `None` where it is empty.
    ///
    /// # Errors
    /// `json_parse_exception` for malformed JSON, nesting beyond 128 levels, or an object that names
    /// a member twice; 429 and 413 where the values take more memory than there is.
    pub fn json(&self) -> Result<Option<Value>, Error> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        offload(self.body.len(), || json::parse(&self.body, &self.allowance)).map(Some)
    }

    /// Takes the body with what it and what was made of it are charged for. Whoever has no use for these any more, while the request
    /// goes on for long, gives them back by dropping it.
    pub fn take_held(&mut self) -> (Bytes, MemoryAllowance, Option<ReservedBody>) {
        let allowance = self.allowance.sibling();
        (std::mem::take(&mut self.body), std::mem::replace(&mut self.allowance, allowance), self.held.take())
    }

    /// Refuses parameters that no one has taken. Call it once every known parameter is taken and
    /// before anything is changed.
    ///
    /// # Errors
    /// `illegal_argument_exception` that names the parameters and the nearest known ones.
    pub fn finish(&self) -> Result<(), Error> {
        self.params.refuse_rest(&self.uri())
    }

    /// Returns the path, decoded, for messages.
    pub fn uri(&self) -> String {
        let mut uri = String::new();
        for segment in &self.path {
            uri.push('/');
            uri.push_str(segment);
        }
        if uri.is_empty() { "/".to_owned() } else { uri }
    }
}

/// An answer before rendering.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Body,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
}

/// Body of an answer.
#[derive(Debug)]
pub enum Body {
    /// JSON, subject to `pretty`, `human`, `filter_path` and `format`.
    Json(Value),
    /// The same as serialized text: written as it is where none of those is asked.
    RawJson(Bytes),
    /// The same, where the text holds the memory that it is accounted for by.
    HeldJson(Bytes),
    /// Bytes of another type, sent as they are.
    Bytes {
        /// Media type.
        content_type: &'static str,
        /// Content.
        bytes: Bytes,
    },
    /// Plain text, sent as it is.
    Text(String),
    /// Plain text, sent part by part as it comes.
    Parts(BodyChunks),
    /// Nothing.
    Empty,
}

impl Error {
    /// Turns the error into the answer.
    pub fn into_response(self) -> Response {
        let (status, body) = (self.status(), Body::Json(self.to_json()));
        Response { status, body, headers: self.into_headers() }
    }
}

impl Response {
    /// Makes a JSON answer.
    pub fn json(status: u16, body: Value) -> Self {
        Self { status, body: Body::Json(body), headers: Vec::new() }
    }

    /// Makes an answer of serialized JSON.
    pub fn raw_json(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, body: Body::RawJson(body.into()), headers: Vec::new() }
    }

    /// Makes an answer of serialized JSON, which is accounted for by a room until it is sent.
    pub fn held_json(status: u16, text: Vec<u8>, allowance: &MemoryAllowance) -> Self {
        Self { status, body: Body::HeldJson(allowance.hold(text)), headers: Vec::new() }
    }

    /// Makes a plain text answer.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, body: Body::Text(body.into()), headers: Vec::new() }
    }

    /// Makes a picture, of which a browser runs and fetches nothing.
    pub fn svg(picture: String) -> Self {
        let body = Body::Bytes { content_type: "image/svg+xml", bytes: picture.into() };
        let policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox";
        let headers = [("content-security-policy", policy), ("x-content-type-options", "nosniff")];
        Self { status: 200, body, headers: headers.map(|(name, value)| (name, value.to_owned())).to_vec() }
    }

    /// Makes an answer without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, body: Body::Empty, headers: Vec::new() }
    }

    /// Adds warnings for the client (`Warning: 299 …`).
    #[must_use]
    pub fn warning(mut self, texts: &[String]) -> Self {
        self.headers.extend(warning_header(texts));
        self
    }

    /// Makes `{"acknowledged": true}`.
    pub fn acknowledged() -> Self {
        Self::json(200, serde_json::json!({ "acknowledged": true }))
    }
}
