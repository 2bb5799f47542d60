//! Replacing what an expression matches.

use millrace_ingest::pattern::{Deadline, Expression, Replacement};
use millrace_ingest::{Event, FieldReference, Template};
use serde_json::Value;

/// A field with what is replaced in it.
#[derive(Debug)]
pub(super) struct Gsub {
    field: FieldReference,
    expression: Operand<Expression>,
    replacement: Template,
    /// The replacement, where all events have the same.
    fixed: Option<Replacement>,
}

/// Operand that is the same for all events, or made for each.
#[derive(Debug)]
enum Operand<T> {
    Fixed(T),
    PerEvent(Template),
}

impl Gsub {
    pub(super) fn parse(field: FieldReference, expression: &str, replacement: &str) -> Result<Self, String> {
        let template = Template::parse(expression);
        let replacement = Template::parse(replacement);
        if !template.is_constant() {
            return Ok(Self { field, expression: Operand::PerEvent(template), replacement, fixed: None });
        }
        let expression = Expression::compile(expression)?;
        let fixed = replacement.is_constant().then(|| Replacement::parse(replacement.as_str(), &expression));
        Ok(Self { field, expression: Operand::Fixed(expression), replacement, fixed })
    }

    pub(super) fn apply(&self, event: &mut Event) -> Result<(), String> {
        let Some(value) = event.get(&self.field) else { return Ok(()) };
        if !matches!(*value, Value::String(_) | Value::Array(_)) {
            return Ok(());
        }
        let compiled;
        let expression = match &self.expression {
            Operand::Fixed(expression) => expression,
            Operand::PerEvent(template) => {
                compiled = Expression::compile(&template.render(event))?;
                &compiled
            }
        };
        let rendered;
        let replacement = match &self.fixed {
            Some(replacement) => replacement,
            None => {
                rendered = Replacement::parse(&self.replacement.render(event), expression);
                &rendered
            }
        };
        let deadline = Deadline::default();
        let replace = |text: &str| -> Result<Option<String>, String> {
            let replaced = expression.replace_all(text, replacement, &deadline);
            replaced.map_err(|_| format!("[gsub] took too long, or made [{}] too long", self.field))
        };
        let changed = match &*value {
            Value::String(text) => replace(text)?.map(Value::String),
            Value::Array(elements) => {
                let mut changed = elements.clone();
                for element in &mut changed {
                    if let Value::String(text) = element
                        && let Some(replaced) = replace(text)?
                    {
                        *text = replaced;
                    }
                }
                Some(Value::Array(changed))
            }
            _ => None,
        };
        match changed {
            Some(changed) => event.set(&self.field, changed),
            None => Ok(()),
        }
    }
}
