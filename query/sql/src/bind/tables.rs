//! The index expressions that a query names, wherever a SELECT stands in it, and the names that WITH gives to queries.

use std::ops::ControlFlow;

use sqlparser::ast::{self, Visitor};

use super::from::table_name;
use crate::ast_walk::visit_tree;

/// Lists the index expressions that a query names, as often as it does.
pub(crate) fn tables(query: &ast::Query) -> Vec<String> {
    let mut tables = TableCollector::default();
    let _ = visit_tree(query, &mut tables);
    tables.names
}

/// Lists the names of an index expression such as `a, b`.
pub(super) fn list_members(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// Counts how often a query or a part of one names a table that no WITH within it defines.
pub(super) fn count_names(part: &impl ast::Visit, name: &str) -> usize {
    let mut tables = TableCollector::default();
    let _ = visit_tree(part, &mut tables);
    tables.names.iter().flat_map(|list| list_members(list)).filter(|own| *own == name).count()
}

/// Counts how often a query and those within it read a query of its WITH, which does not count itself.
pub(super) fn count_uses(query: &ast::Query, definition: &ast::Query) -> usize {
    let mut tables = TableCollector::default();
    let _ = visit_tree(query, &mut tables);
    tables.uses.iter().filter(|used| std::ptr::eq(**used, definition)).count()
}

/// Follows the queries of a statement.
#[derive(Default)]
struct TableCollector {
    names: Vec<String>,
    /// Addresses of the queries of WITH that others read, as often as they do.
    uses: Vec<*const ast::Query>,
    /// Queries around the one that is visited.
    open: Vec<OpenQuery>,
}

impl TableCollector {
    /// Finds the query of WITH that has a name here.
    fn definition(&self, name: &str) -> Option<*const ast::Query> {
        let visible = self.open.iter().rev().flat_map(|query| query.visible.iter().rev());
        visible.into_iter().find(|(_, own)| own == name).map(|(definition, _)| *definition)
    }

    fn add(&mut self, name: &str) {
        match self.definition(name) {
            None => self.names.push(name.to_owned()),
            Some(definition) if self.open.iter().any(|query| query.address == definition) => {}
            Some(definition) => self.uses.push(definition),
        }
    }
}

/// A query whose parts are visited.
struct OpenQuery {
    address: *const ast::Query,
    /// Aliases of its sources, of which `alias.path` names elements.
    aliases: Vec<String>,
    /// Addresses of the queries of its WITH, and their names.
    defined: Vec<(*const ast::Query, String)>,
    /// Those that were visited.
    visible: Vec<(*const ast::Query, String)>,
}

/// Lists the aliases of the tables in FROM.
fn source_aliases(body: &ast::SetExpr) -> Vec<String> {
    let ast::SetExpr::Select(select) = body else { return Vec::new() };
    let joins = select.from.iter().flat_map(|from| &from.joins).map(|join| &join.relation);
    let factors = select.from.iter().map(|from| &from.relation).chain(joins);
    let alias = |factor: &ast::TableFactor| match factor {
        ast::TableFactor::Table { alias, .. } => alias.as_ref().map(|alias| alias.name.value.clone()),
        _ => None,
    };
    factors.filter_map(alias).collect()
}

impl Visitor for TableCollector {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let (mut defined, mut visible) = (Vec::new(), Vec::new());
        if let Some(with) = &query.with {
            for table in &with.cte_tables {
                defined.push((std::ptr::from_ref(table.query.as_ref()), table.alias.name.value.clone()));
            }
            if with.recursive {
                visible.extend(defined.iter().cloned());
            }
        }
        let (address, aliases) = (std::ptr::from_ref(query), source_aliases(&query.body));
        self.open.push(OpenQuery { address, aliases, defined, visible });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.open.pop();
        if let Some(around) = self.open.last_mut()
            && let Some(definition) =
                around.defined.iter().find(|(defined, _)| *defined == std::ptr::from_ref(query))
        {
            around.visible.push(definition.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
        let list = table_name(relation);
        let of_alias = |query: &OpenQuery| {
            query
                .aliases
                .iter()
                .any(|alias| list.strip_prefix(alias).is_some_and(|rest| rest.starts_with('.')))
        };
        if self.open.iter().any(of_alias) {
            return ControlFlow::Continue(());
        }
        // Members of a list are sources of their own where one of them is a query of WITH.
        let is_named = list_members(&list).any(|member| self.definition(member).is_some());
        match is_named {
            true => list_members(&list).for_each(|member| self.add(member)),
            false => self.names.push(list),
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{Statement, parse};

    #[test]
    fn names_of_queries_are_no_indices() {
        for (text, expected) in [
            ("SELECT a FROM x WHERE a IN (SELECT b FROM y WHERE EXISTS (SELECT 1 FROM z))", "x y z"),
            ("WITH c AS (SELECT a FROM x) SELECT a FROM c JOIN y ON c.a = y.a", "x y"),
            ("WITH x AS (SELECT a FROM x) SELECT a FROM x", "x"),
            ("WITH x AS (SELECT a FROM x, y) SELECT a FROM x, z", "x,y z"),
            (
                "SELECT a FROM x UNION SELECT b FROM (SELECT b FROM y) AS d ORDER BY (SELECT 1 FROM z)",
                "x y z",
            ),
            ("SELECT e.a FROM x AS e, e.b AS p WHERE EXISTS (SELECT * FROM e.c AS q)", "x"),
            ("WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c) SELECT n FROM c", ""),
        ] {
            let Statement::Query(query, _) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(tables(&query).join(" "), expected, "{text}");
        }
    }
}
