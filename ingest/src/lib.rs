//! Sources and sinks: plugins that bring bytes into Millrace, and plugins that send events on.
//!
//! [`input`] reads webhooks, databases, Kafka and files; a [`codec`] makes [`Event`]s of the bytes;
//! a [`Batch`] carries them with the position that they move and the acknowledgement that their source
//! waits for; a [`budget`] bounds what all of them have in memory. [`output`] is the other end. What happens between, and in which order, is decided by
//! `millrace-pipelines`, which hands each plugin its [`Options`].

pub mod batch;
pub mod budget;
mod cloud;
pub mod codec;
pub mod csv;
pub mod database;
pub mod dead_letter;
pub mod dissect;
pub mod event;
mod former_options;
#[doc(hidden)]
pub mod fuzzing;
pub mod geoip;
mod glob;
mod hosts;
pub mod http_client;
pub mod input;
mod kafka;
pub mod number;
mod offload;
pub mod options;
pub mod output;
pub mod pattern;
mod pipeline_address;
mod rabbitmq_server;
mod redis_server;
pub mod refresh;
mod s3_bucket;
mod secret;
pub mod syslog_names;
pub mod tls;
pub mod user_agent;

pub use batch::{Ack, Batch, Move};
pub use cloud::resolve_cloud_options;
pub use event::{Event, FieldReference, Provenance, Template};
pub use options::{EcsCompatibility, Fault, Location, Options, Setting};
pub use secret::Secret;
