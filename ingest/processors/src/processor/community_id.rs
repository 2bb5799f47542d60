//! `community_id`: the Community ID of a flow (version 1, <https://github.com/corelight/community-id-spec>).

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument};
use crate::error::{ProcessorError, Result};
use crate::java;
use crate::pipeline::{BuildContext, PipelineRun};

/// Protocols by name.
const PROTOCOLS: [(&str, u8); 13] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("rdp", 27),
    ("ipv6", 41),
    ("gre", 47),
    ("icmp-v6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("sctp", 132),
];
/// Types of ICMP messages and of the answers to them.
const ICMP: [(u16, u16); 10] =
    [(8, 0), (0, 8), (13, 14), (14, 13), (15, 16), (16, 15), (17, 18), (18, 17), (10, 9), (9, 10)];
/// Types of ICMPv6 messages and of the answers to them.
const ICMP_V6: [(u16, u16); 12] = [
    (128, 129),
    (129, 128),
    (133, 134),
    (134, 133),
    (135, 136),
    (136, 135),
    (130, 131),
    (131, 130),
    (144, 145),
    (145, 144),
    (139, 140),
    (140, 139),
];

#[derive(Debug)]
struct CommunityId {
    source_ip: FieldPath,
    source_port: Option<FieldPath>,
    destination_ip: FieldPath,
    destination_port: Option<FieldPath>,
    protocol_number: Option<FieldPath>,
    protocol: Option<FieldPath>,
    icmp_type: Option<FieldPath>,
    icmp_code: Option<FieldPath>,
    seed: u16,
    target: FieldPath,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let source_ip = config.path("source_ip_field")?;
    let destination_ip = config.path("destination_ip_field")?;
    let mut optional = |name: &str| -> Result<Option<FieldPath>> {
        config.text(name)?.map(|text| FieldPath::parse(&text)).transpose()
    };
    let source_port = optional("source_port_field")?;
    let destination_port = optional("destination_port_field")?;
    let protocol_number = optional("iana_protocol_number_field")?;
    let protocol = optional("protocol_field")?;
    let icmp_type = optional("icmp_type_field")?;
    let icmp_code = optional("icmp_code_field")?;
    if protocol_number.is_none() && protocol.is_none() {
        return Err(config.refusal(
            "iana_protocol_number_field",
            "either iana_protocol_number_field or protocol_field must be set",
        ));
    }
    let seed = config.integer("seed")?.unwrap_or(0);
    let seed = u16::try_from(seed).map_err(|_| config.refusal("seed", "seed must be between 0 and 65535"))?;
    let target = config.path_or("target_field", &FieldPath::parse("community_id")?)?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    Ok(Box::new(CommunityId {
        source_ip,
        source_port,
        destination_ip,
        destination_port,
        protocol_number,
        protocol,
        icmp_type,
        icmp_code,
        seed,
        target,
        ignore_missing,
    }))
}

fn address(document: &IngestDocument, field: &FieldPath) -> Result<IpAddr> {
    let text = java::text_of(document.get(field)?);
    text.parse().map_err(|_| {
        ProcessorError::illegal_argument(format!(
            "ip address [{text}] in the field [{}] is not a valid ipv4/ipv6 address",
            field.as_str()
        ))
    })
}

fn number(
    document: &IngestDocument,
    field: Option<&FieldPath>,
    what: &str,
    bounds: std::ops::RangeInclusive<i64>,
) -> Result<u16> {
    let value = field.and_then(|field| document.find(field));
    let number = value.and_then(|value| value.as_i64().or_else(|| value.as_str()?.parse().ok()));
    let number =
        number.filter(|number| bounds.contains(number)).and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| {
        let name = field.map_or("", FieldPath::as_str);
        let shown = value.map_or_else(|| "null".to_owned(), java::text_of);
        ProcessorError::illegal_argument(format!("{what} [{shown}] in the field [{name}] is not valid"))
    })
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

impl CommunityId {
    fn protocol(&self, document: &IngestDocument) -> Result<u8> {
        if let Some(field) = &self.protocol_number
            && document.has(field)
        {
            let number = number(document, Some(field), "iana protocol number", 1..=255)?;
            return Ok(u8::try_from(number).unwrap_or_default());
        }
        let value = self.protocol.as_ref().and_then(|field| document.find(field)).unwrap_or(&Value::Null);
        let name = java::text_of(value).to_lowercase();
        let found = PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        found.ok_or_else(|| ProcessorError::illegal_argument(format!("unsupported protocol [{name}]")))
    }

    /// Returns the Community ID.
    fn compute(&self, document: &IngestDocument) -> Result<String> {
        let source = address(document, &self.source_ip)?;
        let destination = address(document, &self.destination_ip)?;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(ProcessorError::illegal_argument(
                "source ip and destination ip must be of one version of IP",
            ));
        }
        let protocol = self.protocol(document)?;
        let mut is_one_way = false;
        let ports = match protocol {
            6 | 17 | 132 => {
                let from = number(document, self.source_port.as_ref(), "source port", 0..=65_535)?;
                let to = number(document, self.destination_port.as_ref(), "destination port", 0..=65_535)?;
                Some((from, to))
            }
            1 | 58 => {
                let kind = number(document, self.icmp_type.as_ref(), "icmp message type", 0..=255)?;
                let table = if protocol == 1 { &ICMP[..] } else { &ICMP_V6[..] };
                match table.iter().find(|(known, _)| *known == kind) {
                    Some((_, answer)) => Some((kind, *answer)),
                    None => {
                        is_one_way = true;
                        Some((kind, number(document, self.icmp_code.as_ref(), "icmp message code", 0..=255)?))
                    }
                }
            }
            _ => None,
        };
        let (mut from, mut to) = (octets(source), octets(destination));
        let (mut first, mut second) = ports.unwrap_or_default();
        if !is_one_way && (&from, first) > (&to, second) {
            std::mem::swap(&mut from, &mut to);
            std::mem::swap(&mut first, &mut second);
        }
        let mut bytes = self.seed.to_be_bytes().to_vec();
        bytes.extend(from);
        bytes.extend(to);
        bytes.extend([protocol, 0]);
        if ports.is_some() {
            bytes.extend(first.to_be_bytes());
            bytes.extend(second.to_be_bytes());
        }
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &bytes);
        Ok(format!("1:{}", STANDARD.encode(hash)))
    }
}

impl Processor for CommunityId {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let needed = [&self.source_ip, &self.destination_ip];
        if self.ignore_missing && needed.iter().any(|field| !document.has(field)) {
            return Ok(Flow::Continue);
        }
        let id = self.compute(document)?;
        document.set(&self.target, id.into())?;
        Ok(Flow::Continue)
    }
}
