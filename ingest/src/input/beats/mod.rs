//! `beats`, `elastic_agent` and `lumberjack`: events of Beats, of Elastic Agents, and of the output `lumberjack`.
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
use self::window::{MESSAGE, WindowReader};
use super::stream::{Origin, StreamListener, listen};
use super::{Context, Input, InputError, additions};
use crate::codec::{self, Codec};
use crate::event::{Additions, METADATA};
use crate::{EcsCompatibility, Fault, Options, Setting};

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
    /// `true` if a tag says how the event was made.
    tags: bool,
    /// `true` if the text of an event that the codec leaves as it is is kept as its original.
    keeps_original: bool,
    inactivity: Option<Duration>,
    adds_host: bool,
    adds_source: bool,
    adds_subject: bool,
    ecs: EcsCompatibility,
}

impl Settings {
    /// Returns what the events of a connection get.
    fn additions(&self, origin: &Origin) -> Additions {
        let own: [&[&str]; 3] = [&["host"], &[METADATA, "ip_address"], &[METADATA, "tls_peer", "subject"]];
        let schema: [&[&str]; 3] = [
            &[METADATA, "input", "beats", "host", "name"],
            &[METADATA, "input", "beats", "host", "ip"],
            &[METADATA, "input", "beats", "tls", "client", "subject"],
        ];
        let [host, address, subject] = self.ecs.select(own, schema);
        let mut all = additions();
        if self.tags && self.codec.is_none() {
            all = all.tag_by_field(MESSAGE, "beats_input_codec_plain_applied", "beats_input_raw_event");
        }
        if self.adds_host {
            all = all.at(host, origin.address());
        }
        if self.adds_source {
            all = all.at(address, origin.address());
        }
        match &origin.subject {
            Some(own) if self.adds_subject => all.at(subject, &**own),
            _ => all,
        }
    }
}

/// Fields that `enrich` chooses.
struct Enrichment {
    source: bool,
    codec: bool,
    subject: bool,
}

/// Takes `enrich`, and the older option for tags.
fn enrichment(options: &mut Options) -> Enrichment {
    let is_given = options.given().any(|(given, _)| given == "enrich");
    let chosen = options.texts("enrich");
    let names = ["source_metadata", "codec_metadata", "ssl_peer_metadata"];
    let has = |name: &str| chosen.iter().any(|chosen| chosen == name);
    for name in &chosen {
        if !names.contains(&name.as_str()) && !["all", "none"].contains(&name.as_str()) {
            options
                .fault_here(format!("[enrich] has [{name}], not one of [{}, all, none]", names.join(", ")));
        }
    }
    if chosen.len() > 1 && (has("all") || has("none")) {
        options.fault_here("[enrich] has [all] or [none], which stand alone");
    }
    let tags = options.boolean("include_codec_tag");
    if is_given && tags.is_some() {
        options.fault_here("[include_codec_tag] is the older option for [enrich]: give one of them");
    }
    let [source, codec, subject] = names.map(|name| !is_given || has(name) || has("all"));
    Enrichment { source, codec: tags.unwrap_or(codec), subject }
}

impl Beats {
    /// Makes the input, under the name `beats`, `elastic_agent` or `lumberjack`.
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
        let ecs = options.ecs_compatibility();
        // The input of that name has no other fields.
        let ecs = if is_lumberjack { EcsCompatibility::Disabled } else { ecs };
        let codec_ecs = options.inherit(Options::new("plain", options.at(), [])).ecs_compatibility();
        let enrichment = enrichment(&mut options);
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
        let json = codec::build(Options::new("json", options.at(), []));
        options.finish()?;
        let silence = u64::try_from(silence).unwrap_or_default();
        let settings = Settings {
            json: json?,
            codec: Some(codec?).filter(|_| !is_plain),
            tags: enrichment.codec && !is_lumberjack,
            keeps_original: enrichment.codec && codec_ecs.is_enabled(),
            inactivity: (silence > 0).then(|| Duration::from_secs(silence)),
            adds_host: adds_host || is_lumberjack,
            adds_source: enrichment.source,
            adds_subject: enrichment.subject,
            ecs,
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
        let Settings { json, codec, keeps_original, inactivity, .. } = &*self.settings;
        let mut reader = WindowReader::new(json.line_decoder(), codec.clone());
        reader.keeps_original = *keeps_original;
        let context = self.context.clone();
        let additions = self.settings.additions(&origin);
        let mut session = Session::new((stream, connection), context, additions, reader, *inactivity);
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
    let mut reader = WindowReader::new(json.line_decoder(), Some(json));
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
