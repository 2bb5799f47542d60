//! Rules of roles for documents, as predicates.
//!
//! A rule is a query of the search language. [`check`] is asked where a role is made, [`documents`] whenever an index is
//! searched; what cannot be understood shows nothing.

use std::sync::{Arc, LazyLock};

use millrace_catalog::access::{DocumentRule, DocumentRules};
use millrace_dsl::query::{self, Query};
use millrace_mapping::Mapping;
use millrace_mapping::fields::FieldRules;
use millrace_runtime::GenerationalCache;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use serde_json::Value;

use crate::filters::hidden_field;
use crate::lower;
use crate::table::access_snapshot::Documents;
use crate::table::predicate::Predicate;

/// Bytes of the text of rules that are known as predicates, with what each takes beside it.
const KNOWN_BYTES: usize = 4 << 20;
const RULE_BYTES: usize = 1_024;

/// Predicates of rules, which are made again and again: their text alone defines their meaning.
static KNOWN: LazyLock<Mutex<GenerationalCache<DocumentRule, Predicate>>> =
    LazyLock::new(|| Mutex::new(GenerationalCache::new(KNOWN_BYTES)));

/// Checks that a query may be a rule.
///
/// # Errors
/// Those of the query; a query that takes values from other documents, which the reader might not see.
pub fn check(rule: &Value) -> Result<()> {
    parse(rule).map(drop)
}

/// Checks that a filter which is kept, as that of an alias, asks only fields that rules show to its writer: it is read with all
/// fields later.
///
/// # Errors
/// Those of the query; a field that is hidden, in the same words whether there is one or not.
pub fn check_kept(filter: &Value, rules: &[Arc<FieldRules>]) -> Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    match hidden_field(&query::parse(filter)?, rules) {
        None => Ok(()),
        Some(field) => Err(Error::IllegalArgument(format!(
            "the filter asks [{field}], and its writer may not see all of that: name fields that are shown"
        ))),
    }
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

/// Makes the predicates of the rules for the documents of an index, in the order of the rules; none where all are seen. `view` shows of
/// the mapping what some rules show: a rule names no more than its writer may see.
///
/// # Errors
/// A rule that cannot be understood: whoever it is for sees nothing.
pub fn documents(
    index: &str,
    rules: &DocumentRules,
    view: &dyn Fn(&[Arc<FieldRules>]) -> Arc<Mapping>,
) -> Result<Arc<[Documents]>> {
    let of = |rule: &DocumentRule| {
        Ok(Documents { predicate: predicate(index, rule)?, mapping: view(&rule.fields) })
    };
    rules.iter().map(of).collect()
}

fn predicate(index: &str, rule: &DocumentRule) -> Result<Predicate> {
    if let Some(known) = KNOWN.lock().get(rule) {
        return Ok(known);
    }
    let refused = |error: &dyn std::fmt::Display| {
        Error::Storage(millrace_runtime::Error::Internal(format!(
            "the query of a role for [{index}] cannot be understood, so nothing of it is shown: {error}"
        )))
    };
    let mut shown = Vec::with_capacity(rule.any_of.len());
    for query in &rule.any_of {
        let query: Value = serde_json::from_str(query).map_err(|error| refused(&error))?;
        shown.push(lower::lower_filter(&parse(&query).map_err(|error| refused(&error))?));
    }
    let predicate = if shown.is_empty() { nothing() } else { Predicate::any(shown) };
    let bytes = RULE_BYTES + rule.any_of.iter().map(|query| query.len()).sum::<usize>();
    KNOWN.lock().insert(rule.clone(), predicate.clone(), bytes);
    Ok(predicate)
}

/// Matches no document.
fn nothing() -> Predicate {
    Predicate::Not(Box::new(Predicate::All))
}
