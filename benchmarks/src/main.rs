//! Measures Millrace, alone or beside a peer with the same API, and tests that it survives crashes.
//!
//! [`shape`] makes documents, [`corpus`] keeps them on disk, [`load`], [`probe`] and [`query`] drive a
//! server ([`target`], [`server`]), [`measure`] combines them, [`suite`] runs everything and [`report`]
//! writes it down. [`pipelines`] does the same for pipelines, [`bulk`] for bulk requests alone, [`flight`] for Arrow Flight SQL,
//! [`rules`] for continuous rules, [`many`] for many small things, [`agents`] for keep-alives, [`cancellation`] for cancelled tasks,
//! [`spans`] for traces that nobody collects. [`crash`] kills the server and checks what it kept;
//! [`hostile`] means it harm and [`calls`] asks everything of it at once.

mod agents;
mod arguments;
mod bulk;
mod calls;
mod cancellation;
mod cli;
mod corpus;
mod crash;
mod duckdb;
mod flight;
mod hardware;
mod hostile;
mod latency;
mod load;
mod many;
mod measure;
mod pipelines;
mod probe;
mod process;
mod query;
mod random;
mod report;
mod rules;
mod server;
mod shape;
mod spans;
mod suite;
mod table;
mod target;
mod timestamp;
mod words;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    // An error says that one is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match cli::Cli::parse().run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
