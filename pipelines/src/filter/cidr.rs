//! `cidr`: matches addresses against networks.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrace_ingest::event::text_of;
use millrace_ingest::{Event, Fault, FieldReference, Options, Template};
use serde_json::Value;

use super::refresh::{RefreshedFile, read_text};
use super::{Filter, Outcome};

/// Largest file of networks, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug)]
struct Cidr {
    addresses: Vec<Template>,
    address_field: Option<FieldReference>,
    networks: Networks,
}

#[derive(Debug)]
enum Networks {
    Fixed(Vec<Network>),
    /// Networks that events name.
    PerEvent(Vec<Template>),
    File(RefreshedFile<Vec<Network>>),
}

/// An address with the number of bits that count. IPv4 addresses and their mapped forms in IPv6 are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    bits: u128,
    mask: u128,
    is_v4: bool,
}

impl Network {
    /// Parses `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `::1` and the like.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let length = match length.map(str::trim) {
            None => width,
            Some(length) => match length.parse::<u32>() {
                Ok(length) => Some(length).filter(|length| *length <= width)?,
                Err(_) => {
                    let mask: IpAddr = length.parse().ok()?;
                    prefix_length(mask).filter(|_| mask.is_ipv4() == address.is_ipv4())?
                }
            },
        };
        let mask = u128::MAX.checked_shl(width - length).unwrap_or(0) & (u128::MAX >> (128 - width));
        let bits = bits(address) & mask;
        Some(Self { bits, mask, is_v4: address.is_ipv4() })
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let address = match address {
            IpAddr::V6(address) if self.is_v4 => {
                address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
            }
            other => other,
        };
        address.is_ipv4() == self.is_v4 && bits(address) & self.mask == self.bits
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

/// Returns the number of leading ones of a mask that has nothing but zeros behind them.
fn prefix_length(mask: IpAddr) -> Option<u32> {
    let (bits, width) = match mask {
        IpAddr::V4(mask) => (u128::from(mask.to_bits()) << 96, 32),
        IpAddr::V6(mask) => (mask.to_bits(), 128),
    };
    let ones = bits.leading_ones();
    (bits.checked_shl(ones).unwrap_or(0) == 0 && ones <= width).then_some(ones)
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let addresses: Vec<Template> =
        options.texts("address").iter().map(|text| Template::parse(text)).collect();
    let address_field = options.field("address_field");
    let texts = options.texts("network");
    let path = options.text("network_path").map(PathBuf::from);
    let interval = options.integer("refresh_interval", 0..=31_536_000).unwrap_or(600);
    let separator =
        options.text("separator").filter(|text| !text.is_empty()).unwrap_or_else(|| "\n".to_owned());
    if address_field.is_some() && !addresses.is_empty() {
        options.fault_here("[cidr] takes [address] or [address_field], not both");
    }
    let networks = match path {
        Some(_) if !texts.is_empty() => {
            options.fault_here("[cidr] takes [network] or [network_path], not both");
            Networks::Fixed(Vec::new())
        }
        Some(path) => {
            let load = move |path: &std::path::Path| {
                let text = read_text(path, MAX_FILE_BYTES)?;
                let networks: Vec<Network> = text.split(&separator).filter_map(Network::parse).collect();
                if networks.is_empty() {
                    return Err(format!("[{}] has no network: check [separator]", path.display()));
                }
                Ok(networks)
            };
            match RefreshedFile::open(path, Duration::from_secs(interval.unsigned_abs()), load) {
                Ok(file) => Networks::File(file),
                Err(fault) => {
                    options.fault_here(fault);
                    Networks::Fixed(Vec::new())
                }
            }
        }
        None => {
            let templates: Vec<Template> = texts.iter().map(|text| Template::parse(text)).collect();
            if templates.iter().all(Template::is_constant) {
                let mut networks = Vec::new();
                for text in texts.iter().flat_map(|text| text.split(',')) {
                    match Network::parse(text) {
                        Some(network) => networks.push(network),
                        None => options
                            .fault_here(format!("option [network] of [cidr]: [{text}] is not a network")),
                    }
                }
                Networks::Fixed(networks)
            } else {
                Networks::PerEvent(templates)
            }
        }
    };
    options.finish()?;
    Ok(Arc::new(Cidr { addresses, address_field, networks }))
}

impl Cidr {
    fn addresses(&self, event: &Event) -> Vec<IpAddr> {
        let texts: Vec<String> = match &self.address_field {
            None => self.addresses.iter().map(|address| address.render(event)).collect(),
            Some(field) => match event.get(field).as_deref() {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(elements)) => elements.iter().map(text_of).collect(),
                Some(single) => vec![text_of(single)],
            },
        };
        texts.iter().filter_map(|text| text.trim().parse().ok()).collect()
    }
}

impl Filter for Cidr {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let addresses = self.addresses(event);
        if addresses.is_empty() {
            return Outcome::Unmatched;
        }
        let any = |networks: &[Network]| {
            networks.iter().any(|network| addresses.iter().any(|address| network.contains(*address)))
        };
        let matched = match &self.networks {
            Networks::Fixed(networks) => any(networks),
            Networks::File(file) => any(&file.current()),
            Networks::PerEvent(templates) => {
                let texts = templates.iter().map(|template| template.render(event));
                let networks: Vec<Network> = texts
                    .flat_map(|text| text.split(',').filter_map(Network::parse).collect::<Vec<_>>())
                    .collect();
                any(&networks)
            }
        };
        if matched { Outcome::Matched } else { Outcome::Unmatched }
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn networks_contain_their_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.1.2.3", "11.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("192.168.0.0/255.255.0.0", "::ffff:192.168.9.9", "192.169.0.0"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("fe80::/64", "fe80::1", "fe80:0:0:1::1"),
            ("::/0", "::1", "1.2.3.4"),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network}");
        }
        for wrong in [
            "",
            "x",
            "10.0.0.0/33",
            "10.0.0.0/255.0.255.0",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/ffff::",
            "::/255.0.0.0",
        ] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}
