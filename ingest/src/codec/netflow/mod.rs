//! `netflow`: flows of NetFlow versions 5 and 9 and of IPFIX.
//!
//! [`packets`] reads datagrams, by the names and kinds of fields in [`definitions`] and the layouts that exporters send, which
//! [`templates`] keeps. All streams of a codec share the templates, apart for each exporter.

mod definitions;
mod packets;
mod templates;
mod values;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{Codec, Decoder, Events};
use crate::{Event, Fault, FieldReference, Options, Setting};
use definitions::Definitions;
use packets::{IPFIX, PacketDecoder, PacketError, VERSION_5, VERSION_9};
use templates::TemplateCache;

/// Minutes that templates are kept where nothing is said.
const DEFAULT_LIFETIME_MINUTES: i64 = 4_000;
/// Longest time that templates are kept, in minutes.
const MAX_LIFETIME_MINUTES: i64 = 525_600;

#[derive(Clone, Debug)]
struct Netflow {
    reader: Arc<FlowReader>,
    peer: Option<IpAddr>,
}

#[derive(Debug)]
struct FlowReader {
    packets: PacketDecoder,
    target: FieldReference,
    versions: Vec<u16>,
    /// Number of packets that were not read whole.
    failures: AtomicU64,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let lifetime = options.integer("cache_ttl", 1..=MAX_LIFETIME_MINUTES).unwrap_or(DEFAULT_LIFETIME_MINUTES);
    // Exporters send their templates again every few minutes.
    let _ = options.take("cache_save_path");
    let target = options.field("target");
    let target = target.or_else(|| FieldReference::parse("netflow").ok());
    let include_flowset_id = options.boolean("include_flowset_id").unwrap_or(false);
    let versions = versions(&mut options);
    let (mut netflow, mut ipfix) = (Definitions::netflow(), Definitions::ipfix());
    for (name, definitions, has_enterprises) in
        [("netflow_definitions", &mut netflow, false), ("ipfix_definitions", &mut ipfix, true)]
    {
        let Some(path) = options.text(name).map(PathBuf::from) else { continue };
        if let Err(problem) = definitions.extend_from_file(&path, has_enterprises) {
            options.fault_here(format!("option [{name}] of [netflow]: {problem}"));
        }
    }
    // Fields have names of their own with the schema, too.
    let _ = options.ecs_compatibility();
    options.finish()?;
    let Some(target) = target else { return Err(Vec::new()) };
    let lifetime = Duration::from_secs(lifetime.unsigned_abs() * 60);
    let packets =
        PacketDecoder { netflow, ipfix, templates: TemplateCache::new(lifetime), include_flowset_id };
    let reader = FlowReader { packets, target, versions, failures: AtomicU64::new(0) };
    Ok(Arc::new(Netflow { reader: Arc::new(reader), peer: None }))
}

fn versions(options: &mut Options) -> Vec<u16> {
    let all = [VERSION_5, VERSION_9, IPFIX];
    let given = options.read("versions", "an array of [5, 9, 10]", |setting| {
        let version =
            |setting: &Setting| setting.as_text()?.parse().ok().filter(|version| all.contains(version));
        match setting {
            Setting::Array(elements) => elements.iter().map(version).collect::<Option<Vec<u16>>>(),
            single => version(single).map(|version| vec![version]),
        }
    });
    given.unwrap_or_else(|| all.to_vec())
}

impl Codec for Netflow {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    /// Writes JSON: the codec only reads flows.
    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        event.write_json(out);
    }
}

impl Decoder for Netflow {
    fn set_peer(&mut self, peer: IpAddr) {
        self.peer = Some(peer);
    }

    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let reader = &self.reader;
        let mut flows = Vec::new();
        let read =
            reader.packets.read(bytes, self.peer, |version| reader.versions.contains(&version), &mut flows);
        for flow in flows {
            let mut event = Event::new(flow.time);
            if event.set(&reader.target, Value::Object(flow.fields)).is_ok() {
                events.push(event);
            }
        }
        if let Err(error) = read {
            reader.report(&error, self.peer);
        }
    }

    fn finish(&mut self, _events: &mut Events) {}
}

impl FlowReader {
    /// Logs the first failures, and then ever fewer of them: an exporter without a template fails with each packet.
    fn report(&self, error: &PacketError, peer: Option<IpAddr>) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures.is_power_of_two() {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(%error, failures, peer, "the codec netflow did not read a packet whole");
        }
    }
}

#[cfg(test)]
mod tests;
