//! Completions of PPL, with the names of the server.

use millrace_query::ppl::{CompletionNames, completions, source_of};
use reqwest::Method;
use serde_json::Value;

use crate::remote::Remote;

/// Most completions that are listed.
const MAX_LISTED: usize = 100;

/// Lists the words that can stand at the end of a text. A server that cannot be asked adds no names.
pub(super) async fn complete(remote: &Remote, text: &str) -> Vec<String> {
    let indices = ask(remote, "_cat/indices?format=json&h=index").await;
    let indices = indices.as_array().into_iter().flatten();
    let indices = indices.filter_map(|row| row.get("index")?.as_str().map(str::to_owned)).collect();
    let mut fields = Vec::new();
    if let Some(source) = source_of(text) {
        let answer = ask(remote, &format!("{source}/_field_caps?fields=*")).await;
        let members = answer.get("fields").and_then(Value::as_object).into_iter().flatten();
        fields.extend(members.map(|(name, _)| name.clone()));
    }
    let names = CompletionNames { fields, indices, values: Vec::new() };
    let found = completions(text, text.len(), &names);
    let more = found.len().saturating_sub(MAX_LISTED);
    let mut listed: Vec<String> =
        found.into_iter().take(MAX_LISTED).map(|completion| completion.text).collect();
    if more > 0 {
        listed.push(format!("… and {more} more"));
    }
    listed
}

async fn ask(remote: &Remote, path: &str) -> Value {
    let Ok(response) = remote.request(Method::GET, format!("{}/{path}", remote.url)).send().await else {
        return Value::Null;
    };
    response.json().await.unwrap_or_default()
}
