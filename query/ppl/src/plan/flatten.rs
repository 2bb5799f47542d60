//! `flatten`: members of an object as columns of their own. It keeps the order.

use millrace_sql::error::{Result, SqlError};

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::FlattenCommand;

/// Plans the command.
pub(super) fn plan(
    command: &FlattenCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let path = &command.field.path;
    pipe.check(path, planner.sql)?;
    let Some(index) = pipe.index().map(str::to_owned) else {
        return Err(SqlError::Unsupported(format!(
            "flatten of [{path}] is only supported for the objects of an index; name its members, such as {path}.a"
        )));
    };
    let below = format!("{path}.");
    let members: Vec<String> = planner
        .sql
        .field_paths(&index)
        .into_iter()
        .filter_map(|own| own.strip_prefix(&below).map(str::to_owned))
        .collect();
    if members.is_empty() {
        return Err(SqlError::Semantic(format!("[{path}] is no object with members")));
    }
    if !command.aliases.is_empty() && command.aliases.len() != members.len() {
        return Err(SqlError::Semantic(format!(
            "flatten has {} names for the {} members [{}] of [{path}]",
            command.aliases.len(),
            members.len(),
            members.join(", ")
        )));
    }
    let mut added = Vec::with_capacity(members.len());
    for (at, member) in members.iter().enumerate() {
        let name = command.aliases.get(at).map_or(member, |alias| &alias.path);
        super::rename::check_name(name)?;
        added.push((name.clone(), syntax::column(&format!("{below}{member}"))));
    }
    pipe.extend_together(added, planner.sql)?;
    Ok(pipe)
}
