//! Resolves the indices that an expression stands for, and the target of a write.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};

use super::{IndexMeta, IndicesOptions, Metadata, date_math};

/// Longest expression in bytes; request lines are bounded, bodies with lists of indices are not.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;

/// The indices found so far: in order, each once.
#[derive(Default)]
struct ResolvedIndices {
    names: HashSet<Arc<str>>,
    order: Vec<Arc<IndexMeta>>,
}

impl ResolvedIndices {
    fn add(&mut self, meta: &Arc<IndexMeta>) {
        if self.names.insert(meta.name.clone()) {
            self.order.push(meta.clone());
        }
    }

    fn remove(&mut self, name: &str) {
        if self.names.remove(name) {
            self.order.retain(|meta| &*meta.name != name);
        }
    }
}

pub(super) fn resolve(
    state: &Metadata,
    expression: &str,
    options: &IndicesOptions,
    now_ms: i64,
) -> Result<Vec<Arc<IndexMeta>>> {
    let mut found = ResolvedIndices::default();
    for (part, excluded) in parts(expression, now_ms)? {
        if is_pattern(&part) {
            if excluded {
                exclude_matching(state, &part, &mut found);
                continue;
            }
            let matching = expand(state, &part, options);
            if matching.is_empty() && !options.allow_no_indices {
                return Err(not_found(if part.is_empty() { "_all" } else { &part }));
            }
            for meta in matching {
                add(&mut found, &meta, options)?;
            }
        } else if excluded {
            found.remove(&part);
            for name in state.alias_indices(&part).unwrap_or_default().iter() {
                found.remove(name);
            }
            for name in state.data_stream(&part).iter().flat_map(|stream| &stream.indices) {
                found.remove(name);
            }
        } else {
            add_named(state, &part, options, &mut found)?;
        }
    }
    if found.order.is_empty() && !options.allow_no_indices {
        return Err(not_found(if expression.is_empty() { "_all" } else { expression }));
    }
    Ok(found.order)
}

/// Cuts an expression into its parts, date math resolved; whether each excludes what it names: it does
/// with a `-` behind a wildcard.
pub(super) fn parts(expression: &str, now_ms: i64) -> Result<Vec<(String, bool)>> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(Error::TooLarge(format!(
            "index expression of [{}] bytes exceeds [{MAX_EXPRESSION_BYTES}]",
            expression.len()
        )));
    }
    let mut wildcard_seen = false;
    let mut parts = Vec::new();
    for part in split(expression) {
        let (excluded, part) = match part.strip_prefix('-') {
            Some(rest) if wildcard_seen => (true, rest),
            _ => (false, part),
        };
        let part = date_math::resolve(part, now_ms)?;
        wildcard_seen |= is_pattern(&part);
        parts.push((part.into_owned(), excluded));
    }
    Ok(parts)
}

fn is_pattern(part: &str) -> bool {
    pattern::is_wildcard(part) || matches!(part, "" | "_all")
}

fn not_found(index: &str) -> Error {
    Error::IndexNotFound { index: index.to_owned() }
}

/// Splits at commas, but not within the angle brackets of date math.
fn split(expression: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    expression.split(move |c| {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn add_named(
    state: &Metadata,
    name: &str,
    options: &IndicesOptions,
    found: &mut ResolvedIndices,
) -> Result<()> {
    if name.starts_with('_') {
        return Err(Error::InvalidIndexName {
            index: name.to_owned(),
            reason: "must not start with '_'.".into(),
        });
    }
    if let Some(meta) = state.index(name) {
        return add(found, meta, options);
    }
    if let Some(stream) = state.data_stream(name) {
        if options.ignore_aliases && options.ignore_unavailable {
            return Ok(());
        }
        if options.ignore_aliases {
            return Err(Error::IllegalArgument(format!(
                "The provided expression [{name}] matches a data stream, specify the corresponding concrete indices \
                 instead."
            )));
        }
        for meta in stream.indices.iter().filter_map(|name| state.index(name)) {
            add(found, meta, options)?;
        }
        return Ok(());
    }
    match state.alias_indices(name) {
        Some(_) if options.ignore_aliases && options.ignore_unavailable => Ok(()),
        Some(_) if options.ignore_aliases => Err(Error::IllegalArgument(format!(
            "The provided expression [{name}] matches an alias, specify the corresponding concrete indices instead."
        ))),
        Some(names) => {
            for meta in names.iter().filter_map(|name| state.index(name)) {
                add(found, meta, options)?;
            }
            Ok(())
        }
        None if options.ignore_unavailable => Ok(()),
        // Before it is said to be missing: whether it is there is not told either.
        None if !state.sees(name) => state.check_name(name),
        None => Err(not_found(name)),
    }
}

fn add(found: &mut ResolvedIndices, meta: &Arc<IndexMeta>, options: &IndicesOptions) -> Result<()> {
    if !meta.open && options.forbid_closed {
        if options.ignore_unavailable {
            return Ok(());
        }
        return Err(Error::IndexClosed { index: meta.name.to_string() });
    }
    found.add(meta);
    Ok(())
}

fn is_all(part: &str) -> bool {
    matches!(part, "" | "_all" | "*")
}

/// Lists what a wildcard matches, by name.
fn expand(state: &Metadata, part: &str, options: &IndicesOptions) -> Vec<Arc<IndexMeta>> {
    let in_state =
        |meta: &&Arc<IndexMeta>| if meta.open { options.expand_open } else { options.expand_closed };
    // A pattern that itself begins with a dot asks for names that do.
    let visible = |name: &str, hidden: bool| {
        !hidden || options.expand_hidden || (part.starts_with('.') && name.starts_with('.'))
    };
    let mut found = ResolvedIndices::default();
    let reached = |name: &str| state.guard.as_ref().is_none_or(|guard| guard.reaches(part, name));
    for meta in state.indices.values().filter(in_state) {
        if (is_all(part) || pattern::matches(part, &meta.name))
            && reached(&meta.name)
            && visible(&meta.name, meta.hidden())
        {
            found.add(meta);
        }
    }
    if !options.ignore_aliases && !is_all(part) {
        for alias in state.alias_names().filter(|alias| pattern::matches(part, alias)) {
            let metas = || {
                let names = state.by_alias.get(alias).map(|names| names.as_slice()).unwrap_or_default();
                names.iter().filter(|name| reached(name)).filter_map(|name| state.indices.get(name))
            };
            let hidden = metas().any(|meta| alias_is_hidden(meta, alias));
            if visible(alias, hidden) {
                metas().filter(in_state).for_each(|meta| found.add(meta));
            }
        }
    }
    if !options.ignore_aliases {
        let matching =
            state.data_streams.iter().filter(|(name, _)| is_all(part) || pattern::matches(part, name));
        for (_, stream) in matching.filter(|(name, _)| visible(name, false)) {
            let metas = stream.indices.iter().filter(|name| reached(name));
            metas
                .filter_map(|name| state.indices.get(name))
                .filter(in_state)
                .for_each(|meta| found.add(meta));
        }
    }
    found.order.sort_by(|a, b| a.name.cmp(&b.name));
    found.order
}

fn alias_is_hidden(meta: &IndexMeta, alias: &str) -> bool {
    meta.aliases.get(alias).is_some_and(|alias| alias["is_hidden"] == true)
}

fn exclude_matching(state: &Metadata, part: &str, found: &mut ResolvedIndices) {
    let gone: Vec<Arc<str>> = found
        .order
        .iter()
        .filter(|meta| is_all(part) || pattern::matches(part, &meta.name))
        .map(|meta| meta.name.clone())
        .chain(
            state
                .alias_names()
                .filter(|alias| pattern::matches(part, alias))
                .flat_map(|alias| state.alias_indices(alias).unwrap_or_default().into_owned()),
        )
        .chain(
            state
                .data_streams()
                .filter(|stream| is_all(part) || pattern::matches(part, &stream.name))
                .flat_map(|stream| stream.indices.clone()),
        )
        .collect();
    for name in gone {
        found.remove(&name);
    }
}

pub(super) fn write_index(state: &Metadata, name: &str, now_ms: i64) -> Result<Option<Arc<IndexMeta>>> {
    let name = date_math::resolve(name, now_ms)?;
    if let Some(meta) = state.index(&name) {
        return Ok(Some(meta.clone()));
    }
    if let Some(stream) = state.data_streams.get(&*name) {
        let written = stream.write_index().and_then(|index| state.indices.get(index));
        return match written {
            Some(meta) => state.check_named(&meta.name, &name).map(|()| Some(meta.clone())),
            None => Ok(None),
        };
    }
    // All of them: which of them is written to does not depend on who asks.
    let Some(names) = state.by_alias.get(&*name).map(|names| names.as_slice()) else {
        state.check_name(&name)?;
        return Ok(None);
    };
    if !names.iter().any(|index| state.sees(index)) {
        state.check_name(&name)?;
    }
    let mut metas = names.iter().filter_map(|index| state.indices.get(index));
    let is_write =
        |meta: &IndexMeta| meta.aliases.get(&*name).and_then(|alias| alias["is_write_index"].as_bool());
    if let [only] = names
        && let Some(meta) = state.indices.get(only)
        && is_write(meta) != Some(false)
    {
        state.check_named(&meta.name, &name)?;
        return Ok(Some(meta.clone()));
    }
    match metas.find(|meta| is_write(meta) == Some(true)) {
        Some(meta) => {
            state.check_named(&meta.name, &name)?;
            Ok(Some(meta.clone()))
        }
        None => Err(Error::IllegalArgument(format!(
            "no write index is defined for alias [{name}]. The write index may be explicitly disabled using \
             is_write_index=false or the alias points to multiple indices without one being designated as a write index"
        ))),
    }
}
