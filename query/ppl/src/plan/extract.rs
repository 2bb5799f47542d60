//! `parse`, `grok`, `rex` and `regex`: parts of texts, by regular expressions.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::{GrokCommand, ParseCommand, RegexCommand, RexCommand, RexMode};

/// Most named groups, each of which has the pattern in the plan.
const MAX_GROUPS: usize = 100;
/// Longest name of a group, in bytes.
const MAX_NAME: usize = 256;
/// Longest patterns of all groups of a command, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Refuses a command whose plan has the pattern and the source too often.
fn check_size(bytes: usize, groups: usize) -> Result<()> {
    match bytes.saturating_mul(groups) > MAX_BYTES {
        true => Err(SqlError::TooLarge(format!(
            "the pattern and its source are longer than {MAX_BYTES} bytes over all groups"
        ))),
        false => Ok(()),
    }
}

/// Lists the named groups of a regular expression, which name columns.
fn groups(pattern: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find("(?") {
        let behind = rest.get(at + 2..).unwrap_or_default();
        let escaped =
            rest.get(..at).unwrap_or_default().chars().rev().take_while(|own| *own == '\\').count() % 2 == 1;
        let name = behind.strip_prefix("P<").or_else(|| behind.strip_prefix('<'));
        if let Some(name) = name.filter(|name| !escaped && !name.starts_with(['=', '!']))
            && let Some((name, _)) = name.split_once('>')
        {
            let is_plain = name.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && name.chars().all(|letter| letter.is_ascii_alphanumeric());
            if !is_plain {
                return Err(SqlError::Semantic(format!(
                    "Invalid capture group name '{name}'. Java regex capture groups must be alphanumeric and start with a letter"
                )));
            }
            if name.len() > MAX_NAME || names.len() >= MAX_GROUPS {
                return Err(SqlError::TooLarge(format!(
                    "the pattern has more than {MAX_GROUPS} named groups, or a name of more than {MAX_NAME} bytes"
                )));
            }
            names.push(name.to_owned());
        }
        rest = behind;
    }
    Ok(names)
}

/// Plans `parse`: a column for each named group, empty where the text does not match.
pub(super) fn parse(
    command: &ParseCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let names = groups(&command.pattern.value)?;
    check_size(command.pattern.value.len() + command.source.text.len(), names.len())?;
    let source = planner.expression(&command.source, &mut pipe)?;
    for name in names {
        let args = vec![source.clone(), syntax::string(&command.pattern.value), syntax::string(&name)];
        pipe.extend(&name, syntax::call("parse_group", args), planner.sql)?;
    }
    Ok(pipe)
}

/// Plans `grok`: a column for each named pattern, empty where the text does not match.
pub(super) fn grok(command: &GrokCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let (pattern, names) = super::grok::expand(&command.pattern.value)?;
    check_size(pattern.len() + command.source.text.len(), names.len())?;
    let source = planner.expression(&command.source, &mut pipe)?;
    let mut added = Vec::with_capacity(names.len());
    for name in names {
        super::rename::check_name(&name)?;
        let args = vec![source.clone(), syntax::string(&pattern), syntax::string(&name)];
        added.push((name, syntax::call("parse_group", args)));
    }
    pipe.extend_together(added, planner.sql)?;
    Ok(pipe)
}

/// Plans `rex`: a column for each named group, null where the text does not match.
pub(super) fn rex(command: &RexCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let field = syntax::column(&command.field.path);
    let pattern = &command.pattern.value;
    if command.mode == RexMode::Sed {
        let args = vec![field, syntax::string(pattern)];
        pipe.replace(&command.field.path, syntax::call("sed", args), planner.sql)?;
        return Ok(pipe);
    }
    let names = groups(pattern)?;
    check_size(pattern.len(), names.len())?;
    if names.is_empty() {
        return Err(SqlError::Semantic(
            "Rex pattern must contain at least one named capture group".to_owned(),
        ));
    }
    let limit = planner.settings.rex_matches;
    let most = match command.max_match {
        0 if limit > 0 => limit,
        asked if limit > 0 && asked > limit => {
            return Err(SqlError::Semantic(format!(
                "Rex command max_match value ({asked}) exceeds the configured limit ({limit}). Consider using a smaller max_match value or adjust the plugins.ppl.rex.max_match.limit setting."
            )));
        }
        asked => asked,
    };
    for name in &names {
        let mut args = vec![field.clone(), syntax::string(pattern), syntax::string(name)];
        let extracted = match most {
            1 => syntax::call("rex_group", args),
            most => {
                args.push(syntax::number(most));
                syntax::call("rex_groups", args)
            }
        };
        pipe.extend(name, extracted, planner.sql)?;
    }
    if let Some(offsets) = &command.offset_field {
        let args = vec![field, syntax::string(pattern)];
        pipe.extend(&offsets.path, syntax::call("rex_offsets", args), planner.sql)?;
    }
    Ok(pipe)
}

/// Plans `regex`.
pub(super) fn regex(
    command: &RegexCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let path = &command.field.path;
    let ty = pipe.type_of(path, planner.sql)?;
    if !ty.is_string() && ty != millrace_sql::relational::SqlType::Undefined {
        return Err(SqlError::Semantic(format!(
            "Regex command requires field of string type, but got {} for field '{path}'",
            super::type_name(ty)
        )));
    }
    let args = vec![syntax::column(path), syntax::string(&command.pattern.value)];
    let condition = syntax::call("regexp_match", args);
    let condition: ast::Expr = if command.is_negated { syntax::not(condition) } else { condition };
    pipe.filter(condition, planner.sql)?;
    Ok(pipe)
}
