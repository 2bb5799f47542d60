//! Expressions, written as SQL writes the tree.

use crate::ast::{CommandKind, Expression, placeholder_name, subsearch_index};
use sqlparser::ast::Expr;

use super::command;

fn expression(text: &str) -> Expression {
    match command(&format!("where {text}\n")) {
        CommandKind::Where(command) => command.condition,
        other => panic!("{other:?}"),
    }
}

#[test]
fn expressions_have_the_trees_of_sql() {
    for line in include_str!("expressions.txt").lines() {
        let (text, expected) = line.split_once(" => ").expect("a line is a text and its tree");
        assert_eq!(expression(text).expr.to_string(), expected, "{text}");
    }
}

#[test]
fn subsearches_are_found_by_number() {
    let found = expression("a in [ source=b | head 1 ] and c = [ source=d ]");
    assert_eq!(found.subsearches.len(), 2);
    assert_eq!(found.subsearches[0].commands.len(), 1);
    let Expr::BinaryOp { left, .. } = found.expr else { panic!("AND") };
    let Expr::InSubquery { subquery, .. } = *left else { panic!("IN") };
    assert_eq!(subsearch_index(&subquery), Some(0));
}

#[test]
fn subsearches_belong_to_the_innermost_expression() {
    let outer = expression("a in [ source=b | where c in [ source=d ] | where e = [ source=f ] ]");
    assert_eq!(outer.subsearches.len(), 1);
    for command in &outer.subsearches[0].commands {
        let CommandKind::Where(inner) = &command.kind else { panic!("{command:?}") };
        assert_eq!(inner.condition.subsearches.len(), 1);
    }
}

#[test]
fn names_and_literals_know_lines_and_columns() {
    let found = expression("é = 'x'\n  and b = 1");
    let Expr::BinaryOp { right, .. } = found.expr else { panic!("AND") };
    let Expr::BinaryOp { left, .. } = *right else { panic!("=") };
    let Expr::Identifier(name) = *left else { panic!("a name") };
    assert_eq!((name.span.start.line, name.span.start.column), (2, 7));
    assert_eq!(found.text, "é = 'x'\n  and b = 1");
}

#[test]
fn placeholders_are_names_in_angle_brackets() {
    let CommandKind::Foreach(found) = command("foreach a_* [ eval <<FIELD>>_x = <<FIELD>> * 2 < 5 ]") else {
        panic!("foreach")
    };
    assert_eq!(found.assignments[0].target, "<<FIELD>>_x");
    let Expr::BinaryOp { left, .. } = &found.assignments[0].value.expr else { panic!("<") };
    let Expr::BinaryOp { left, .. } = left.as_ref() else { panic!("*") };
    assert_eq!(placeholder_name(left), Some("FIELD"));
}
