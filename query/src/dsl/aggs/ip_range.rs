//! `ip_range`: buckets between addresses, or of networks.

/// An `ip_range` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IpRange {
    /// What is read.
    pub source: super::source::ValuesSource,
    /// Whether buckets are members of an object.
    pub keyed: bool,
    /// The ranges, in the order of the request. Buckets come ordered by `from`, then `to`.
    pub ranges: Vec<IpRangeItem>,
}

/// One range: `from` belongs to it, `to` does not. Addresses are 16 bytes, IPv4 mapped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IpRangeItem {
    /// Key: as given, or the mask's text, or made of the bounds where absent.
    pub key: Option<String>,
    /// Lower bound; open where absent.
    pub from: Option<[u8; 16]>,
    /// Upper bound; open where absent.
    pub to: Option<[u8; 16]>,
}
