//! Errors of pipelines as answers show them.

use millrace_sql::error::SqlError;
use serde_json::{Value, json};

/// Reason of the errors that a user can mend.
const REASON: &str = "Invalid Query";

/// Renders the body of the answer of an error, with its place in the text of the statement.
pub fn error_body(error: &SqlError, text: &str) -> Value {
    let mut body = error.to_body();
    let inner = inner(error);
    if let Some(members) = body.get_mut("error").and_then(Value::as_object_mut) {
        if members.get("reason") == Some(&json!("Invalid SQL query")) {
            members.insert("reason".to_owned(), json!(REASON));
        }
        if members.get("type") == Some(&json!("SQLFeatureNotSupportedException")) {
            members.insert("type".to_owned(), json!("UnsupportedOperationException"));
        }
        if members.get("type") == Some(&json!("SQLFeatureDisabledException")) {
            members.insert("type".to_owned(), json!("IllegalAccessException"));
        }
        members.insert("code".to_owned(), json!(code(inner)));
        members.insert("context".to_owned(), json!({"stage": stage(inner)}));
        if let SqlError::Query(missing) = error
            && let Some(place) = index_place(&missing.to_string(), text)
        {
            members.insert("location".to_owned(), json!([place]));
        }
        if let SqlError::Located(located) = error {
            let (start, end) = located.span;
            let (line, column) = position(start, text);
            let part: String = text.get(start..end).unwrap_or_default().chars().take(80).collect();
            let place = format!("line {line}, column {column}: [{}]", part.trim());
            members.insert("location".to_owned(), json!([place]));
            members.insert("position".to_owned(), json!({"line": line, "column": column, "offset": start}));
            if let Some(name) = &located.suggestion {
                members.insert("suggestion".to_owned(), json!(format!("Did you mean [{name}]?")));
            }
            if !located.expected.is_empty() {
                members.insert("expected".to_owned(), json!(located.expected));
            }
        }
    }
    body
}

/// Returns the line and the column of a byte of a text, from one.
fn position(start: usize, text: &str) -> (usize, usize) {
    let before = text.get(..start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    (line, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
}

/// Finds the place of the index that an error says is not there.
fn index_place(error: &str, text: &str) -> Option<String> {
    let (_, behind) = error.split_once("no such index [")?;
    let (index, _) = behind.split_once(']')?;
    let (line, column) = position(text.find(index)?, text);
    Some(format!("line {line}, column {column}: [{index}]"))
}

fn inner(error: &SqlError) -> &SqlError {
    match error {
        SqlError::Located(located) => inner(&located.error),
        other => other,
    }
}

fn code(error: &SqlError) -> &'static str {
    match error {
        SqlError::Syntax(_) => "SYNTAX_ERROR",
        SqlError::Semantic(details) if details.contains("namespace=FIELD_NAME") => "FIELD_NOT_FOUND",
        SqlError::Semantic(_) | SqlError::Evaluation(_) => "TYPE_ERROR",
        SqlError::Unsupported(_) | SqlError::Disabled(_) => "UNSUPPORTED_OPERATION",
        SqlError::TooLarge(_) => "RESOURCE_LIMIT_EXCEEDED",
        SqlError::Query(_) => match error.status() {
            404 => "INDEX_NOT_FOUND",
            401 | 403 => "PERMISSION_DENIED",
            429 => "RESOURCE_LIMIT_EXCEEDED",
            _ => "EXECUTION_ERROR",
        },
        _ => "INVALID_REQUEST",
    }
}

fn stage(error: &SqlError) -> &'static str {
    match error {
        SqlError::Evaluation(_) | SqlError::Query(_) | SqlError::Unread(_) => "executing",
        SqlError::TooLarge(_) => "plan conversion",
        _ => "analyzing",
    }
}

#[cfg(test)]
mod tests {
    use millrace_sql::error::LocatedError;

    use super::*;

    #[test]
    fn errors_have_a_place_and_a_code() {
        let error = SqlError::unknown_field("agee");
        let error = LocatedError::suggest(error, Some("age".to_owned()));
        let text = "source=a\n| where agee > 1";
        let body = error_body(&LocatedError::locate(error, 11, 25), text);
        assert_eq!(body["status"], 400);
        let error = &body["error"];
        assert_eq!(error["reason"], "Invalid Query");
        assert_eq!(error["code"], "FIELD_NOT_FOUND");
        assert_eq!(error["location"][0], "line 2, column 3: [where agee > 1]");
        assert_eq!(error["suggestion"], "Did you mean [age]?");
    }
}
