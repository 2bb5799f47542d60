//! `beats` and `lumberjack`: events of Beats, and of the output `lumberjack`.
//!
//! Senders wait for an answer after each window of events. It is sent once the events are stored, so what was answered is there
//! after a crash, and what was not is sent again. A sender that sends again makes such events twice.

mod frames;
mod session;
#[cfg(test)]
mod tests;
mod window;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millrace_listen::{ByteStream, StreamConnection, StreamService};

use self::session::Session;
use self::window::WindowReader;
use super::stream::{Origin, StreamListener, listen};
use super::{Context, Input, InputError};
use crate::codec::{self, Codec};
use crate::{Fault, Options, Setting};

/// Seconds that a sender may be silent where nothing is said.
const INACTIVITY: i64 = 60;

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Beats {
    name: &'static str,
    listener: StreamListener,
    settings: Arc<Settings>,
}

#[derive(Debug)]
struct Settings {
    /// Codec of JSON.
    json: Arc<dyn Codec>,
    /// Codec of the field `message`; `None` for one that leaves it as it is.
    codec: Option<Arc<dyn Codec>>,
    tags: bool,
    inactivity: Option<Duration>,
    host_field: Option<&'static str>,
}

impl Beats {
    /// Makes the input, under the name `beats` or `lumberjack`.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options, name: &'static str) -> Result<Self, Vec<Fault>> {
        let is_lumberjack = name == "lumberjack";
        if is_lumberjack {
            options.set_missing("ssl_enabled", Setting::Text("true".to_owned()));
        }
        let listener = StreamListener::take(&mut options, name, None);
        let is_plain = options.given().all(|(given, setting)| {
            given != "codec" || matches!(setting, Setting::Text(codec) if codec == "plain")
        });
        let codec = codec::take(&mut options, "plain");
        let tags = !is_lumberjack && options.boolean("include_codec_tag").unwrap_or(true);
        let adds_host = options.boolean("add_hostname").unwrap_or(false);
        let silence = options.integer("client_inactivity_timeout", 0..=86_400).unwrap_or(INACTIVITY);
        // Connections are tasks here, and the pipeline's memory is what congestion is measured by.
        for name in
            ["executor_threads", "event_loop_threads", "congestion_threshold", "target_field_for_codec"]
        {
            let _ = options.take(name);
        }
        // The subject of a certificate is there anyway.
        let _ = options.boolean("ssl_peer_metadata");
        if let Some((at, _)) = options.take("enrich") {
            options
                .fault(at, "option [enrich] is not supported: give [include_codec_tag] and [add_hostname]");
        }
        let _ = options.one_of("ecs_compatibility", &["disabled"]);
        let json = codec::build(Options::new("json", options.at(), []));
        options.finish()?;
        let silence = u64::try_from(silence).unwrap_or_default();
        let settings = Settings {
            json: json?,
            codec: Some(codec?).filter(|_| !is_plain),
            tags,
            inactivity: (silence > 0).then(|| Duration::from_secs(silence)),
            host_field: (adds_host || is_lumberjack).then_some("host"),
        };
        Ok(Self { name, listener, settings: Arc::new(settings) })
    }
}

#[async_trait]
impl Input for Beats {
    fn identity(&self) -> String {
        format!("{} {}:{}", self.name, self.listener.host, self.listener.port)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        *self.listener.address.borrow()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let service = Sessions { settings: Arc::clone(&self.settings), context: context.clone() };
        listen(&self.listener, service, &context).await
    }
}

struct Sessions {
    settings: Arc<Settings>,
    context: Context,
}

impl StreamService for Sessions {
    async fn serve(&self, stream: ByteStream, connection: StreamConnection) {
        let peer = connection.peer();
        let mut origin = Origin::new(peer);
        origin.subject = connection.certificate().map(|certificate| Arc::clone(&certificate.subject));
        let Settings { json, codec, tags, inactivity, host_field } = &*self.settings;
        let reader = WindowReader::new(json.line_decoder(), codec.clone(), *tags);
        let context = self.context.clone();
        let mut session =
            Session::new((stream, connection), context, origin, reader, *inactivity, *host_field);
        match session.run().await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                tracing::debug!(%peer, %error, "a connection of the beats protocol is closed");
            }
            Err(error) => tracing::warn!(%peer, %error, "a connection of the beats protocol is closed"),
        }
    }
}

/// Reads frames, as they are and compressed; for fuzzing.
pub(super) fn fuzz(stream: &[u8]) {
    let Ok(json) = codec::build(Options::new("json", crate::Location::default(), [])) else { return };
    let mut reader = WindowReader::new(json.line_decoder(), Some(json), true);
    let mut rest = stream;
    while let Ok(Some(length)) = frames::frame_length(rest) {
        let (frame, behind) = rest.split_at(length);
        if reader.take(frame).is_err() {
            break;
        }
        rest = behind;
    }
    // A refusal is an answer.
    drop(reader.take_compressed(stream));
}
