//! Rules of roles for documents, as predicates.
//!
//! A rule is a query of the search language. [`check`] is asked where a role is made, [`documents`] whenever an index is
//! searched; what cannot be understood shows nothing.

use std::sync::LazyLock;

use millrace_dsl::query::{self, Query};
use millrace_storage::Recent;
use millrace_storage::access::DocumentRules;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use serde_json::Value;

use crate::lower;
use crate::table::predicate::Predicate;

/// Bytes of the text of rules that are known as predicates, with what each takes beside it.
const KNOWN_BYTES: usize = 4 << 20;
const RULE_BYTES: usize = 1_024;

/// Predicates of rules, which are made again and again: what they mean is said by their text alone.
static KNOWN: LazyLock<Mutex<Recent<DocumentRules, Predicate>>> =
    LazyLock::new(|| Mutex::new(Recent::new(KNOWN_BYTES)));

/// Checks that a query may be a rule.
///
/// # Errors
/// Those of the query; a query that takes values from other documents, which the reader might not see.
pub fn check(rule: &Value) -> Result<()> {
    parse(rule).map(drop)
}

fn parse(rule: &Value) -> Result<Query> {
    let query = query::parse(rule)?;
    let mut looks_up = false;
    query.walk(&mut |clause| looks_up |= !clause.lookups(&[""]).is_empty());
    if looks_up {
        return Err(Error::IllegalArgument(
            "the query of a role cannot take values from other documents".to_owned(),
        ));
    }
    Ok(query)
}

/// Joins rules for the documents of an index; `None` where all are seen.
///
/// # Errors
/// A rule that cannot be understood: whoever it is for sees nothing.
pub fn documents(index: &str, rules: &DocumentRules) -> Result<Option<Predicate>> {
    if rules.is_empty() {
        return Ok(None);
    }
    if let Some(known) = KNOWN.lock().get(rules) {
        return Ok(Some(known));
    }
    let refused = |error: &dyn std::fmt::Display| {
        Error::Storage(millrace_storage::Error::Internal(format!(
            "the query of a role for [{index}] cannot be understood, so nothing of it is shown: {error}"
        )))
    };
    let mut all = Vec::with_capacity(rules.len());
    for any in rules {
        let mut shown = Vec::with_capacity(any.len());
        for rule in any {
            let rule: Value = serde_json::from_str(rule).map_err(|error| refused(&error))?;
            shown.push(lower::lower_filter(&parse(&rule).map_err(|error| refused(&error))?));
        }
        all.push(if shown.is_empty() { nothing() } else { Predicate::any(shown) });
    }
    let predicate = Predicate::all(all);
    let bytes = rules.iter().flatten().map(|rule| RULE_BYTES + rule.len()).sum();
    KNOWN.lock().insert(rules.clone(), predicate.clone(), bytes);
    Ok(Some(predicate))
}

/// Matches no document.
fn nothing() -> Predicate {
    Predicate::Not(Box::new(Predicate::All))
}
