//! Pipelines: definitions in the Logstash configuration language, checked whole, then run.
//!
//! [`language`] parses a definition; the graph that is made of it holds inputs, codecs and outputs of
//! `millrace-ingest` and the [`filter`]s of this crate.

pub mod filter;
