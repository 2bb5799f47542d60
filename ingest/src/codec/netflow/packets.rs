//! Packets of NetFlow versions 5 and 9 and of IPFIX (RFC 3954, RFC 7011): their sets, templates and flows.

use std::net::IpAddr;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Map, Value};

use super::definitions::{Definitions, FieldDefinition};
use super::templates::{MAX_TEMPLATE_FIELDS, Template, TemplateCache, TemplateField, TemplateKey, VARIABLE};
use super::values::{Kind, number};

/// Versions of the protocol.
pub(super) const VERSION_5: u16 = 5;
pub(super) const VERSION_9: u16 = 9;
pub(super) const IPFIX: u16 = 10;
/// Flows of a packet of version 5 at most.
const MAX_FLOWS_OF_VERSION_5: u16 = 30;
/// Most bytes of a packet, which are those of a datagram.
const MAX_PACKET_BYTES: usize = 65_535;
/// Sets with numbers from here on have flows.
const FIRST_DATA_SET: u16 = 256;
/// Seconds between the epochs of NTP and of Unix.
const NTP_TO_UNIX_SECONDS: i64 = 2_208_988_800;
/// Names of the scopes of options in version 9, by their types from 1 on.
const SCOPES: [&str; 5] =
    ["scope_system", "scope_interface", "scope_line_card", "scope_netflow_cache", "scope_template"];
/// Fields of a flow of version 5 behind its addresses: name and bytes; a field without a name is padding.
const FIELDS_OF_VERSION_5: [(&str, usize); 17] = [
    ("input_snmp", 2),
    ("output_snmp", 2),
    ("in_pkts", 4),
    ("in_bytes", 4),
    ("first_switched", 4),
    ("last_switched", 4),
    ("l4_src_port", 2),
    ("l4_dst_port", 2),
    ("", 1),
    ("tcp_flags", 1),
    ("protocol", 1),
    ("src_tos", 1),
    ("src_as", 2),
    ("dst_as", 2),
    ("src_mask", 1),
    ("dst_mask", 1),
    ("", 2),
];

/// A flow, with the time of its packet.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) time: DateTime<Utc>,
    pub(super) fields: Map<String, Value>,
}

/// Reason why a packet, or a set of it, is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PacketError {
    #[error("the packet ends within a field")]
    Truncated,
    #[error("the packet has version [{0}]")]
    Version(u16),
    #[error("a set has [{0}] bytes, which is no length")]
    SetLength(u16),
    #[error("the packet says [{0}] flows; version 5 has 1 to 30")]
    FlowCount(u16),
    #[error("the packet has more than {MAX_PACKET_BYTES} bytes")]
    TooLong,
    #[error("template [{0}] has no field, or too many")]
    Template(u16),
    #[error("no template [{number}] of domain [{domain}] has come yet")]
    MissingTemplate { number: u16, domain: u32 },
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], PacketError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(PacketError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, PacketError> {
        let bytes = self.take(2)?;
        bytes.try_into().map(u16::from_be_bytes).map_err(|_| PacketError::Truncated)
    }

    fn u32(&mut self) -> Result<u32, PacketError> {
        let bytes = self.take(4)?;
        bytes.try_into().map(u32::from_be_bytes).map_err(|_| PacketError::Truncated)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Header of a packet, as far as flows need it.
#[derive(Clone, Copy, Debug)]
struct Header {
    version: u16,
    time: DateTime<Utc>,
    /// Milliseconds since the exporter started.
    uptime: u32,
    sequence: u32,
    domain: u32,
}

/// Reader of packets: the definitions of fields, and the templates that exporters sent.
#[derive(Debug)]
pub(super) struct PacketDecoder {
    pub(super) netflow: Definitions,
    pub(super) ipfix: Definitions,
    pub(super) templates: TemplateCache,
    /// `true` if flows of IPFIX say the number of their set.
    pub(super) include_flowset_id: bool,
}

impl PacketDecoder {
    /// Reads the flows of a packet. Templates in it are kept for its later sets and for later packets.
    ///
    /// # Errors
    /// The reason why the packet, or one of its sets, is not read; flows of the others are there.
    pub(super) fn read(
        &self,
        packet: &[u8],
        peer: Option<IpAddr>,
        accepts: impl Fn(u16) -> bool,
        flows: &mut Vec<Flow>,
    ) -> Result<(), PacketError> {
        if packet.len() > MAX_PACKET_BYTES {
            return Err(PacketError::TooLong);
        }
        let mut reader = Reader(packet);
        let version = reader.u16()?;
        match version {
            other if !accepts(other) => Err(PacketError::Version(other)),
            VERSION_5 => read_version_5(reader, flows),
            VERSION_9 => {
                let _count = reader.u16()?;
                let uptime = reader.u32()?;
                let time = unix_time(reader.u32()?, 0);
                let (sequence, domain) = (reader.u32()?, reader.u32()?);
                self.read_sets(reader, Header { version, time, uptime, sequence, domain }, peer, flows)
            }
            IPFIX => {
                let length = usize::from(reader.u16()?);
                let time = unix_time(reader.u32()?, 0);
                let (sequence, domain) = (reader.u32()?, reader.u32()?);
                // The length counts the header of 16 bytes.
                let sets = length.checked_sub(16).ok_or(PacketError::Truncated)?;
                let sets = Reader(reader.0.get(..sets).unwrap_or(reader.0));
                self.read_sets(sets, Header { version, time, uptime: 0, sequence, domain }, peer, flows)
            }
            other => Err(PacketError::Version(other)),
        }
    }

    fn read_sets(
        &self,
        mut reader: Reader<'_>,
        header: Header,
        peer: Option<IpAddr>,
        flows: &mut Vec<Flow>,
    ) -> Result<(), PacketError> {
        let mut outcome = Ok(());
        while reader.len() >= 4 {
            let (number, length) = (reader.u16()?, reader.u16()?);
            if length == 0 {
                // Zeros up to the end of the datagram.
                break;
            }
            let content = usize::from(length).checked_sub(4).ok_or(PacketError::SetLength(length))?;
            let set = Reader(reader.take(content)?);
            let key = TemplateKey { peer, version: header.version, domain: header.domain, number };
            let read = match (header.version, number) {
                (VERSION_9, 0) => self.read_templates(set, key, false),
                (VERSION_9, 1) => self.read_option_templates(set, key),
                (IPFIX, 2) => self.read_templates(set, key, false),
                (IPFIX, 3) => self.read_templates(set, key, true),
                (_, FIRST_DATA_SET..) => self.read_flows(set, header, key, flows),
                // Numbers below are reserved.
                _ => Ok(()),
            };
            outcome = outcome.and(read);
        }
        outcome
    }

    /// Reads templates; those of IPFIX options have a count of scope fields, which are fields as the others are.
    fn read_templates(
        &self,
        mut set: Reader<'_>,
        key: TemplateKey,
        has_scope_count: bool,
    ) -> Result<(), PacketError> {
        while set.len() >= 4 {
            let (number, count) = (set.u16()?, set.u16()?);
            if number < FIRST_DATA_SET {
                // Padding.
                return Ok(());
            }
            if has_scope_count {
                let _scopes = set.u16()?;
            }
            let is_withdrawal = count == 0 && key.version == IPFIX;
            if is_withdrawal {
                continue;
            }
            if count == 0 || usize::from(count) > MAX_TEMPLATE_FIELDS {
                return Err(PacketError::Template(number));
            }
            let mut fields = Vec::with_capacity(usize::from(count).min(set.len() / 4));
            for _ in 0..count {
                fields.push(self.read_template_field(&mut set, key.version)?);
            }
            self.keep(TemplateKey { number, ..key }, fields)?;
        }
        Ok(())
    }

    fn read_template_field(&self, set: &mut Reader<'_>, version: u16) -> Result<TemplateField, PacketError> {
        let (kind, length) = (set.u16()?, set.u16()?);
        let (definitions, enterprise, kind) = match version {
            IPFIX if kind & 0x8000 != 0 => (&self.ipfix, set.u32()?, kind & 0x7fff),
            IPFIX => (&self.ipfix, 0, kind),
            _ => (&self.netflow, 0, kind),
        };
        let definition = definitions.get(enterprise, kind).cloned();
        // Flows keep the fields that are known.
        let definition = definition.unwrap_or(FieldDefinition { kind: Kind::Skip, name: None });
        Ok(TemplateField { definition, length })
    }

    /// Reads templates of options of version 9, whose counts are bytes.
    fn read_option_templates(&self, mut set: Reader<'_>, key: TemplateKey) -> Result<(), PacketError> {
        while set.len() >= 6 {
            let number = set.u16()?;
            let (scopes, options) = (usize::from(set.u16()?) / 4, usize::from(set.u16()?) / 4);
            if number < FIRST_DATA_SET {
                return Ok(());
            }
            if scopes + options == 0 || scopes + options > MAX_TEMPLATE_FIELDS {
                return Err(PacketError::Template(number));
            }
            let mut fields = Vec::with_capacity((scopes + options).min(set.len() / 4));
            for _ in 0..scopes {
                let (scope, length) = (set.u16()?, set.u16()?);
                let name = usize::from(scope).checked_sub(1).and_then(|at| SCOPES.get(at));
                let definition =
                    FieldDefinition { kind: Kind::Unsigned, name: name.map(|name| (*name).into()) };
                fields.push(TemplateField { definition, length });
            }
            for _ in 0..options {
                fields.push(self.read_template_field(&mut set, VERSION_9)?);
            }
            self.keep(TemplateKey { number, ..key }, fields)?;
        }
        Ok(())
    }

    fn keep(&self, key: TemplateKey, fields: Vec<TemplateField>) -> Result<(), PacketError> {
        // Fields without a byte would make flows of any number of fields.
        let template = Template::new(fields.into_iter().filter(|field| field.length > 0).collect());
        // Flows without a byte would have no end.
        if template.min_bytes == 0 {
            return Err(PacketError::Template(key.number));
        }
        self.templates.insert(key, template);
        Ok(())
    }

    fn read_flows(
        &self,
        mut set: Reader<'_>,
        header: Header,
        key: TemplateKey,
        flows: &mut Vec<Flow>,
    ) -> Result<(), PacketError> {
        let Some(template) = self.templates.get(&key) else {
            return Err(PacketError::MissingTemplate { number: key.number, domain: key.domain });
        };
        while set.len() >= template.min_bytes {
            let mut fields = Map::new();
            fields.insert("version".to_owned(), header.version.into());
            if header.version == VERSION_9 {
                fields.insert("flow_seq_num".to_owned(), header.sequence.into());
            }
            if header.version == VERSION_9 || self.include_flowset_id {
                fields.insert("flowset_id".to_owned(), key.number.into());
            }
            for field in &template.fields {
                let bytes = read_field(&mut set, field.length)?;
                let Some(name) = field.definition.name.as_deref() else { continue };
                // A version 9 field of no length is not there.
                if bytes.is_empty() && header.version == VERSION_9 {
                    continue;
                }
                let value = match time_value(name, bytes, header) {
                    Some(time) => Value::String(time),
                    None => field.definition.kind.value(bytes),
                };
                fields.insert(name.to_owned(), value);
            }
            flows.push(Flow { time: header.time, fields });
        }
        Ok(())
    }
}

fn read_field<'a>(set: &mut Reader<'a>, length: u16) -> Result<&'a [u8], PacketError> {
    let length = match length {
        VARIABLE => match set.take(1)? {
            [255] => usize::from(set.u16()?),
            short => short.first().map_or(0, |length| usize::from(*length)),
        },
        fixed => usize::from(fixed),
    };
    set.take(length)
}

fn read_version_5(mut reader: Reader<'_>, flows: &mut Vec<Flow>) -> Result<(), PacketError> {
    let count = reader.u16()?;
    if !(1..=MAX_FLOWS_OF_VERSION_5).contains(&count) {
        return Err(PacketError::FlowCount(count));
    }
    let uptime = reader.u32()?;
    let time = unix_time(reader.u32()?, reader.u32()?);
    let sequence = reader.u32()?;
    let engine = (reader.take(1)?, reader.take(1)?);
    let sampling = reader.u16()?;
    for _ in 0..count {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        set("version", VERSION_5.into());
        set("flow_seq_num", sequence.into());
        set("engine_type", Kind::Unsigned.value(engine.0));
        set("engine_id", Kind::Unsigned.value(engine.1));
        set("sampling_algorithm", (sampling >> 14).into());
        set("sampling_interval", (sampling & 0x3fff).into());
        set("flow_records", count.into());
        for name in ["ipv4_src_addr", "ipv4_dst_addr", "ipv4_next_hop"] {
            set(name, Kind::Ipv4.value(reader.take(4)?));
        }
        for (name, length) in FIELDS_OF_VERSION_5 {
            let bytes = reader.take(length)?;
            if name.ends_with("_switched") {
                let at = number(bytes).unwrap_or_default();
                set(name, Value::String(time_text(switched_time(time, uptime, at))));
            } else if !name.is_empty() {
                set(name, Kind::Unsigned.value(bytes));
            }
        }
        flows.push(Flow { time, fields });
    }
    Ok(())
}

/// Returns the time at which an exporter was up for so many milliseconds.
fn switched_time(time: DateTime<Utc>, uptime: u32, at: u64) -> DateTime<Utc> {
    let before = i64::from(uptime) - i64::try_from(at).unwrap_or(i64::MAX);
    TimeDelta::try_milliseconds(before).and_then(|before| time.checked_sub_signed(before)).unwrap_or(time)
}

/// Reads a field that is a time; `None` for any other, and for a time beyond the calendar.
fn time_value(name: &str, bytes: &[u8], header: Header) -> Option<String> {
    let time = if header.version == VERSION_9 {
        name.strip_suffix("_switched")?;
        // The header has whole seconds: as in Logstash, the packet counts as sent at the end of its second.
        let sent = header.time + TimeDelta::seconds(1);
        switched_time(sent, header.uptime, number(bytes)?)
    } else {
        let unit = name.strip_prefix("flowStart").or_else(|| name.strip_prefix("flowEnd"))?;
        let number = number(bytes)?;
        match unit {
            "Seconds" => DateTime::from_timestamp(i64::try_from(number).ok()?, 0)?,
            "Milliseconds" => DateTime::from_timestamp_millis(i64::try_from(number).ok()?)?,
            "Microseconds" | "Nanoseconds" => ntp_time(number)?,
            _ => return None,
        }
    };
    Some(time_text(time))
}

/// Reads a time of NTP: seconds since 1900 and a binary fraction.
fn ntp_time(number: u64) -> Option<DateTime<Utc>> {
    let seconds = i64::try_from(number >> 32).ok()? - NTP_TO_UNIX_SECONDS;
    let micros = ((number & 0xffff_ffff) * 1_000_000) >> 32;
    DateTime::from_timestamp(seconds, u32::try_from(micros).ok()? * 1_000)
}

fn unix_time(seconds: u32, nanos: u32) -> DateTime<Utc> {
    // Exporters send any number as nanoseconds.
    let micros = i64::from(nanos / 1_000);
    DateTime::from_timestamp(i64::from(seconds), 0)
        .and_then(|time| time.checked_add_signed(TimeDelta::microseconds(micros)))
        .unwrap_or_default()
}

fn time_text(time: DateTime<Utc>) -> String {
    let format = match time.timestamp_subsec_nanos() {
        nanos if nanos.is_multiple_of(1_000_000) => SecondsFormat::Millis,
        _ => SecondsFormat::Micros,
    };
    time.to_rfc3339_opts(format, true)
}
