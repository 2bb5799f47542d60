//! The index expressions that a query names, wherever a SELECT stands in it, and the names that WITH gives to queries.

use std::ops::ControlFlow;

use sqlparser::ast::{self, Visit, Visitor};

use super::from::table_name;

/// Lists the index expressions that a query names, as often as it does.
pub(crate) fn tables(query: &ast::Query) -> Vec<String> {
    let mut tables = TableCollector::default();
    let _ = query.visit(&mut tables);
    tables.names
}

/// Counts how often a query and those within it name a table.
pub(super) fn count_uses(query: &ast::Query, name: &str) -> usize {
    let mut uses = 0;
    let _ = ast::visit_relations(query, |relation| {
        uses += usize::from(table_name(relation) == name);
        ControlFlow::<()>::Continue(())
    });
    uses
}

/// Follows the queries of a statement.
#[derive(Default)]
struct TableCollector {
    names: Vec<String>,
    /// Queries around the one that is visited.
    open: Vec<OpenQuery>,
}

/// A query whose parts are visited.
struct OpenQuery {
    /// Addresses of the queries of its WITH, and their names.
    defined: Vec<(*const ast::Query, String)>,
    /// Names of those that were visited.
    visible: Vec<String>,
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
                visible.extend(defined.iter().map(|(_, name)| name.clone()));
            }
        }
        self.open.push(OpenQuery { defined, visible });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.open.pop();
        if let Some(around) = self.open.last_mut()
            && let Some((_, name)) =
                around.defined.iter().find(|(defined, _)| *defined == std::ptr::from_ref(query))
        {
            around.visible.push(name.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
        let name = table_name(relation);
        let defined = self.open.iter().any(|query| query.visible.contains(&name));
        if !defined {
            self.names.push(name);
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
            (
                "SELECT a FROM x UNION SELECT b FROM (SELECT b FROM y) AS d ORDER BY (SELECT 1 FROM z)",
                "x y z",
            ),
            ("WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c) SELECT n FROM c", ""),
        ] {
            let Statement::Query(query, _) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(tables(&query).join(" "), expected, "{text}");
        }
    }
}
