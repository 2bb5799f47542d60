//! Dashboards as files: each with the visualizations, saved searches and index patterns that it needs.
//!
//! [`file`] reads what Kibana and OpenSearch Dashboards export, [`legacy`] the objects of Kibana 5 and 6, [`references`] knows what an object needs, [`import`] and
//! [`export`] are the two ways.

mod export;
mod file;
mod import;
mod legacy;
mod references;

pub use self::export::run as export;
pub(crate) use self::import::read_only;
pub use self::import::run as import;
