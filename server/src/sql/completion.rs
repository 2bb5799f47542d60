//! Completions of PPL, with the names of the server.

use millrace_query::ppl::{CompletionNames, compared_field, completions, source_of};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::remote::Remote;

/// Most completions that are listed.
const MAX_LISTED: usize = 100;
/// Most values of a field that are asked for.
const MAX_VALUES: usize = 50;

/// Lists the words that can stand at the end of a text. A server that cannot be asked adds no names.
pub(super) async fn complete(remote: &Remote, text: &str) -> Vec<String> {
    let indices = get(remote, "_cat/indices?format=json&h=index").await;
    let indices = indices.as_array().into_iter().flatten();
    let indices = indices.filter_map(|row| row.get("index")?.as_str().map(str::to_owned)).collect();
    let (mut fields, mut values) = (Vec::new(), Vec::new());
    if let Some(source) = source_of(text) {
        let answer = get(remote, &format!("{source}/_field_caps?fields=*")).await;
        let members = answer.get("fields").and_then(Value::as_object).into_iter().flatten();
        fields.extend(members.map(|(name, _)| name.clone()));
        if let Some(field) = word_start(text).and_then(compared_field) {
            let keyword = format!("{field}.keyword");
            let path = if fields.contains(&keyword) { keyword.as_str() } else { field };
            let found = frequent_values(remote, &source, path).await;
            values.extend(found.into_iter().map(|value| (field.to_owned(), value)));
        }
    }
    let names = CompletionNames { fields, indices, values };
    let found = completions(text, text.len(), &names);
    let more = found.len().saturating_sub(MAX_LISTED);
    let mut listed: Vec<String> =
        found.into_iter().take(MAX_LISTED).map(|completion| completion.text).collect();
    if more > 0 {
        listed.push(format!("… and {more} more"));
    }
    listed
}

/// Returns the text in front of the word at its end.
fn word_start(text: &str) -> Option<&str> {
    let is_word = |letter: char| letter.is_alphanumeric() || "_@.*-".contains(letter);
    let end = text.trim_end_matches(is_word).len();
    text.get(..end)
}

/// Finds the most frequent values of a field.
async fn frequent_values(remote: &Remote, source: &str, field: &str) -> Vec<String> {
    let terms = json!({ "terms": { "field": field, "size": MAX_VALUES } });
    let body = json!({ "size": 0, "aggs": { "values": terms } });
    let request = remote.request(Method::POST, format!("{}/{source}/_search", remote.url)).json(&body);
    let answer = answer_of(request).await;
    let buckets = answer.pointer("/aggregations/values/buckets").and_then(Value::as_array);
    let keys = buckets.into_iter().flatten().filter_map(|bucket| bucket.get("key")?.as_str());
    keys.map(str::to_owned).collect()
}

async fn get(remote: &Remote, path: &str) -> Value {
    answer_of(remote.request(Method::GET, format!("{}/{path}", remote.url))).await
}

async fn answer_of(request: RequestBuilder) -> Value {
    let Ok(response) = request.send().await else { return Value::Null };
    response.json().await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_complete_the_word_behind_a_comparison() {
        for (text, expected) in
            [("source=a | where level = er", Some("level")), ("source=a | where le", None)]
        {
            assert_eq!(word_start(text).and_then(compared_field), expected, "{text}");
        }
    }
}
