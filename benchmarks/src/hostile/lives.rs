//! Starts of a server that mean harm: settings made narrower than what was stored, a lost catalog, an environment that somebody else wrote.

use std::path::Path;

use anyhow::{Context, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::server::Launch;

/// Documents of each index.
const DOCS: u64 = 50;

/// Plays all; returns what was violated.
///
/// # Errors
/// A server cannot be started even once.
pub(super) async fn run(server: &Path, directory: &Path) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    let lives: [(&str, ConnectionLife); 3] = [
        ("narrowed", ConnectionLife::Narrowed),
        ("kubernetes", ConnectionLife::Kubernetes),
        ("lost-catalog", ConnectionLife::LostCatalog),
    ];
    for (name, life) in lives {
        let here = directory.join(name);
        std::fs::create_dir_all(&here)?;
        let mut launch = Launch::new(server, &here)?;
        launch.environment = vec![("MILLRACE_LOG__LEVEL".to_owned(), "warn".to_owned())];
        match life.play(launch).await {
            Ok(()) => println!("start: {name}: right"),
            Err(error) => violations.push(format!("start: {name}: {error:#}")),
        }
    }
    Ok(violations)
}

#[derive(Clone, Copy, Debug)]
enum ConnectionLife {
    /// Limits and mappings that were lowered after documents were accepted.
    Narrowed,
    /// Variables of services beside this one.
    Kubernetes,
    /// A data directory without its catalog.
    LostCatalog,
}

impl ConnectionLife {
    async fn play(self, mut launch: Launch) -> Result<()> {
        if matches!(self, Self::Kubernetes) {
            for (name, value) in [
                ("MILLRACE_CONSOLE_SERVICE_HOST", "10.0.0.1"),
                ("MILLRACE_0_PORT_9200_TCP_ADDR", "10.0.0.2"),
                ("MILLRACE_PORT", "tcp://10.0.0.3:9200"),
            ] {
                launch.environment.push((name.to_owned(), value.to_owned()));
            }
        }
        let mut server = launch.start().await?;
        let target = server.target.clone();
        let mapping = json!({"settings": {"number_of_replicas": 0},
            "mappings": {"properties": {"items": {"type": "nested"}}}});
        for index in ["first", "second"] {
            target.recreate(index, &mapping).await?;
            for id in 0..DOCS {
                let items: Vec<Value> = (0..100).map(|k| json!({"k": k})).collect();
                let document = json!({"n": id, "items": items, (format!("field{id}")): 1});
                target.ask(Method::PUT, &format!("/{index}/_doc/{id}"), &document).await?;
            }
        }
        target.ask(Method::POST, "/first/_flush", &Value::Null).await?;
        if matches!(self, Self::Narrowed) {
            for (path, body) in [
                ("/second/_settings", json!({"index.mapping.nested_objects.limit": 10})),
                ("/second/_settings", json!({"index.mapping.total_fields.limit": 5})),
                ("/second/_settings", json!({"index.mapping.depth.limit": 1})),
                ("/second/_mapping", json!({"dynamic": "strict"})),
            ] {
                // A server may refuse to narrow; then there is nothing to survive.
                target.json(Method::PUT, path, &body).await?;
            }
        }
        server.kill()?;
        if !matches!(self, Self::LostCatalog) {
            let server = launch.start().await.context("start after a kill")?;
            for index in ["first", "second"] {
                let counted = server.target.refresh_and_count(index).await?;
                if counted != DOCS {
                    bail!("{counted} of {DOCS} documents are in [{index}]");
                }
            }
            server.stop()?;
            return Ok(());
        }
        let segments = files(&launch.data);
        let lost: Vec<_> = std::fs::read_dir(&launch.data)?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("catalog"))
            .collect();
        if lost.is_empty() {
            bail!("there is no catalog in {}", launch.data.display());
        }
        for entry in lost {
            std::fs::remove_file(entry.path())?;
        }
        if let Ok(server) = launch.start().await {
            let (status, _) = server.target.json(Method::GET, "/first/_count", &Value::Null).await?;
            if status != StatusCode::OK {
                bail!("it starts without its catalog, and the documents are gone");
            }
        }
        let left = files(&launch.data);
        if let Some(gone) =
            segments.iter().find(|path| path.ends_with("data.parquet") && !left.contains(path))
        {
            bail!("{gone} was deleted by a start without the catalog");
        }
        Ok(())
    }
}

/// Lists the files below a directory.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                _ => found.push(entry.path().display().to_string()),
            }
        }
    }
    found
}
