//! `foreach`: an `eval` for each field that a pattern names. It keeps the order.

use std::ops::ControlFlow;

use millrace_sql::error::Result;
use sqlparser::ast;

use super::columns::captures;
use super::pipe::Pipe;
use super::{Planner, refused, syntax};
use crate::command::{ForeachCommand, ForeachMode, ForeachTarget};

/// Plans the command.
pub(super) fn plan(
    command: &ForeachCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.mode != ForeachMode::Multifield {
        return refused("foreach over elements");
    }
    for target in &command.targets {
        let ForeachTarget::Fields(pattern) = target else { return refused("foreach over elements") };
        let names = match pattern.is_wildcard() {
            true => pipe.visible(planner.sql)?,
            false => vec![pattern.pattern.clone()],
        };
        for name in names {
            let Some(texts) = captures(&pattern.pattern, &name) else { continue };
            let mut words: Vec<(String, String)> = vec![
                (command.fieldstr.clone().unwrap_or_else(|| "<<FIELD>>".to_owned()), name.clone()),
                (command.matchstr.clone().unwrap_or_else(|| "<<MATCHSTR>>".to_owned()), texts.concat()),
            ];
            for (at, text) in texts.iter().enumerate() {
                let word = command.matchsegs.get(at).cloned().flatten();
                words.push((word.unwrap_or_else(|| format!("<<MATCHSEG{}>>", at + 1)), text.clone()));
            }
            for assignment in &command.assignments {
                let mut expr = planner.expression(&assignment.value, &mut pipe)?;
                substitute(&mut expr, &words);
                let column = substituted(&assignment.target, &words);
                super::rename::check_name(&column)?;
                pipe.extend(&column, expr, planner.sql)?;
            }
        }
    }
    Ok(pipe)
}

fn substituted(text: &str, words: &[(String, String)]) -> String {
    words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word.as_str(), value))
}

/// Puts the texts of words into names and strings.
fn substitute(expr: &mut ast::Expr, words: &[(String, String)]) {
    let _ = ast::visit_expressions_mut(expr, |expr| {
        match expr {
            ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) => {
                let path = syntax::path(expr).unwrap_or_default();
                *expr = syntax::column(&substituted(&path, words));
            }
            ast::Expr::Value(value) => {
                if let ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) =
                    &value.value
                {
                    *expr = syntax::string(&substituted(text, words));
                }
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
}
