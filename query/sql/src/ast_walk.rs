//! Walks over the syntax tree, each compiled once: sqlparser's walk is code of tens of thousands of lines for each type of visitor.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor,
    VisitorMut,
};

/// Follows a tree with a visitor; breaks where the visitor does.
pub fn visit_tree(tree: &impl Visit, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
    tree.visit(&mut DynVisitor(visitor))
}

/// Shows each expression of a tree, before those within it, until one breaks.
pub(crate) fn visit_expressions(
    tree: &impl Visit,
    mut visit: impl FnMut(&Expr) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visit_tree(tree, &mut ExprVisitor(&mut visit))
}

/// Shows each expression of a tree for changes, after those within it, until one breaks.
pub(crate) fn visit_expressions_mut(
    tree: &mut impl VisitMut,
    mut visit: impl FnMut(&mut Expr) -> ControlFlow<()>,
) -> ControlFlow<()> {
    tree.visit(&mut ExprVisitorMut(&mut visit))
}

/// The one type of visitor that trees are compiled for.
struct DynVisitor<'a>(&'a mut dyn Visitor<Break = ()>);

macro_rules! forward {
    ($($method:ident($node:ty)),+ $(,)?) => {
        impl Visitor for DynVisitor<'_> {
            type Break = ();

            $(fn $method(&mut self, node: &$node) -> ControlFlow<()> {
                self.0.$method(node)
            })+
        }
    };
}

forward!(
    pre_visit_query(Query),
    post_visit_query(Query),
    pre_visit_select(Select),
    post_visit_select(Select),
    pre_visit_relation(ObjectName),
    post_visit_relation(ObjectName),
    pre_visit_table_factor(TableFactor),
    post_visit_table_factor(TableFactor),
    pre_visit_expr(Expr),
    post_visit_expr(Expr),
    pre_visit_statement(Statement),
    post_visit_statement(Statement),
    pre_visit_value(ValueWithSpan),
    post_visit_value(ValueWithSpan),
);

struct ExprVisitor<'a>(&'a mut dyn FnMut(&Expr) -> ControlFlow<()>);

impl Visitor for ExprVisitor<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        (self.0)(expr)
    }
}

struct ExprVisitorMut<'a>(&'a mut dyn FnMut(&mut Expr) -> ControlFlow<()>);

impl VisitorMut for ExprVisitorMut<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        (self.0)(expr)
    }
}
