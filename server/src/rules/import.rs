//! `millrace rules import`: rule files of ElastAlert's, printed or saved in a server.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use millrace_rules::definition::{self, ImportedRule, MissingChannels};
use reqwest::Method;
use serde_json::Value;

use super::{has_cases, read, say, tell};
use crate::cli::RulesImportArgs;
use crate::exit::Failure;
use crate::remote::Remote;
use crate::serve::runtime;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the command.
pub(super) fn run(args: &RulesImportArgs) -> Result<(), Failure> {
    let mut rules = Vec::new();
    let mut wrong = 0_usize;
    let missing = if args.skip_channels { MissingChannels::Skip } else { MissingChannels::Refuse };
    // Saved one behind the other, the second of a name would take the place of the first.
    let mut names: HashMap<String, &Path> = HashMap::new();
    for file in args.files.iter().filter(|file| !has_cases(file)) {
        match imported(file, missing) {
            Ok(ImportedRule { definition, warnings }) => {
                if let Some(first) = names.get(&definition.name) {
                    wrong += 1;
                    tell(format_args!(
                        "{}: [name] [{}] is that of {}, too: a rule has a name of its own",
                        file.display(),
                        definition.name,
                        first.display()
                    ));
                    continue;
                }
                names.insert(definition.name.clone(), file);
                for warning in warnings {
                    tell(format_args!("{}: [{}] {}", file.display(), warning.option, warning.reason));
                }
                rules.push((file, definition.document()));
            }
            Err(error) => {
                wrong += 1;
                tell(format_args!("{}: {error:#}", file.display()));
            }
        }
    }
    if wrong > 0 {
        let nothing = if args.url.is_some() { "; nothing was saved" } else { "" };
        return Err(Failure::other(anyhow!("{wrong} of {} files cannot be used{nothing}", args.files.len())));
    }
    let Some(url) = &args.url else {
        rules.iter().for_each(|(_, document)| say(format_args!("{document}")));
        return Ok(());
    };
    let remote =
        Remote::new(url, args.user.as_deref(), args.insecure_tls, TIMEOUT).map_err(Failure::other)?;
    runtime(0)?.block_on(async {
        for (file, document) in &rules {
            match save(&remote, document).await {
                Ok(saved) => say(format_args!("{}: {saved}", file.display())),
                Err(error) => {
                    wrong += 1;
                    tell(format_args!("{}: {error:#}", file.display()));
                }
            }
        }
    });
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::other(anyhow!("{wrong} of {} rules were not saved", rules.len()))),
    }
}

fn imported(file: &Path, missing: MissingChannels) -> Result<ImportedRule> {
    Ok(definition::import(&file.to_string_lossy(), &read(file)?, missing)?)
}

/// Saves a rule; returns what the server says.
async fn save(remote: &Remote, document: &Value) -> Result<String> {
    let url = format!("{}/api/alert/change", remote.url);
    let request = remote.request(Method::POST, url).header("console-xsrf", "true");
    let request = request.header("content-type", "application/json").body(document.to_string());
    let answer = request.send().await.with_context(|| format!("no answer from {}", remote.url))?;
    let status = answer.status();
    let text = answer.text().await.context("the answer broke off")?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    let message = answer["message"].as_str().unwrap_or_default();
    if answer["status"] != Value::Bool(true) {
        match message {
            "" => bail!("the server answered {status}: is {} a console?", remote.url),
            message => bail!("{message}"),
        }
    }
    let id = answer["id"].as_str().unwrap_or_default();
    Ok(match message {
        "" => format!("saved as [{id}]"),
        message => format!("saved as [{id}]: {message}"),
    })
}
