//! `ip_range`: buckets between addresses, or of networks.

use std::net::{IpAddr, Ipv6Addr};

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::range::{KNOWN, Members};
use super::source::{AcceptedMembers, ValuesSource};

/// An `ip_range` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct IpRange {
    /// Source of values.
    pub source: ValuesSource,
    /// `true` if buckets are members of an object.
    pub keyed: bool,
    /// The ranges, in the order of the request. Buckets come ordered by `from`, then `to`.
    pub ranges: Vec<IpRangeItem>,
}

/// One range: `from` belongs to it, `to` does not. Addresses are 16 bytes, IPv4 mapped.
#[derive(Clone, Debug, PartialEq)]
pub struct IpRangeItem {
    /// Key: as given, or the mask's text, or made of the bounds where absent.
    pub key: Option<String>,
    /// Lower bound; open where absent.
    pub from: Option<[u8; 16]>,
    /// Upper bound; open where absent.
    pub to: Option<[u8; 16]>,
}

impl IpRange {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let Members { source, keyed, ranges } =
            Members::parse(part, AcceptedMembers::Plain, KNOWN, members, IpRangeItem::parse)?;
        Ok(Self { source, keyed, ranges })
    }
}

impl IpRangeItem {
    fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut range, mut mask) = (Self { key: None, from: None, to: None }, None);
        for (key, value) in members {
            let text = match value {
                Value::Null => None,
                Value::String(text) => Some(text.as_str()),
                _ => {
                    return Err(Error::Parsing(format!("Unexpected ip range parameter: [{key}]")));
                }
            };
            match key.as_str() {
                "key" => range.key = text.map(str::to_owned),
                "from" => range.from = text.map(address).transpose()?,
                "to" => range.to = text.map(address).transpose()?,
                "mask" => mask = text,
                _ => {
                    return Err(Error::Parsing(format!("Unexpected ip range parameter: [{key}]")));
                }
            }
        }
        let _ = part;
        if let Some(mask) = mask {
            range = network(mask, range.key)?;
        }
        Ok(range)
    }
}

fn address(text: &str) -> Result<[u8; 16]> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => Ok(v4.to_ipv6_mapped().octets()),
        Ok(IpAddr::V6(v6)) => Ok(v6.octets()),
        Err(_) => Err(Error::IllegalArgument(format!("'{text}' is not an IP string literal."))),
    }
}

/// The range of a network, such as `10.0.0.0/8`.
fn network(mask: &str, key: Option<String>) -> Result<IpRangeItem> {
    let expected = || Error::IllegalArgument(format!("Expected [ip/prefix] but was [{mask}]"));
    let (base, prefix) = mask.split_once('/').ok_or_else(expected)?;
    let bytes = address(base)?;
    let v4 = !base.contains(':');
    let prefix: u32 = prefix.parse().map_err(|_| expected())?;
    if prefix > if v4 { 32 } else { 128 } {
        return Err(Error::IllegalArgument(format!(
            "Illegal prefix length [{prefix}] in [{mask}]. Must be 0-32 for IPv4 ranges, 0-128 for IPv6 ranges"
        )));
    }
    let bits = if v4 { prefix + 96 } else { prefix };
    let number = u128::from(Ipv6Addr::from(bytes));
    let (first, next) = match bits {
        0 => (0, None),
        _ => {
            let size = 1u128 << (128 - bits);
            let first = number & !(size - 1);
            (first, first.checked_add(size))
        }
    };
    let octets = |number: u128| Ipv6Addr::from(number).octets();
    Ok(IpRangeItem {
        key: Some(key.unwrap_or_else(|| mask.to_owned())),
        from: (first > 0).then(|| octets(first)),
        to: next.map(octets),
    })
}
