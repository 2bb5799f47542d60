//! Parts of SQL's syntax tree, made rather than parsed.

use std::ops::ControlFlow;

use millrace_sql::ast_walk::visit_tree;
use sqlparser::ast::{self, Visitor};

/// Makes a name in backticks.
pub(crate) fn ident(name: &str) -> ast::Ident {
    ast::Ident::with_quote('`', name)
}

/// Refers to a column.
pub(crate) fn column(name: &str) -> ast::Expr {
    ast::Expr::Identifier(ident(name))
}

/// Refers to a column of a source.
pub(crate) fn column_of(source: &str, name: &str) -> ast::Expr {
    ast::Expr::CompoundIdentifier(vec![ident(source), ident(name)])
}

/// Reads the path of a column; `None` for any other expression.
pub(crate) fn path(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Identifier(ident) => Some(ident.value.clone()),
        ast::Expr::CompoundIdentifier(parts) => {
            Some(parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join("."))
        }
        ast::Expr::Nested(inner) => path(inner),
        _ => None,
    }
}

fn value(value: ast::Value) -> ast::Expr {
    ast::Expr::Value(value.into())
}

/// Makes a string.
pub(crate) fn string(text: &str) -> ast::Expr {
    value(ast::Value::SingleQuotedString(text.to_owned()))
}

/// Makes a number of its digits.
pub(crate) fn number(number: impl std::fmt::Display) -> ast::Expr {
    value(ast::Value::Number(number.to_string(), false))
}

/// Makes an integer.
pub(crate) fn integer(integer: i64) -> ast::Expr {
    signed(number(integer.unsigned_abs()), integer < 0)
}

/// Makes a decimal number, which has a point.
pub(crate) fn decimal(decimal: f64) -> ast::Expr {
    signed(number(format!("{:?}", decimal.abs())), decimal < 0.0)
}

fn signed(positive: ast::Expr, is_negative: bool) -> ast::Expr {
    match is_negative {
        true => ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: Box::new(positive) },
        false => positive,
    }
}

/// Makes NULL.
pub(crate) fn null() -> ast::Expr {
    value(ast::Value::Null)
}

/// Makes a truth value.
pub(crate) fn boolean(truth: bool) -> ast::Expr {
    value(ast::Value::Boolean(truth))
}

/// Refers to an item of SELECT by its position, from one.
pub(crate) fn ordinal(position: usize) -> ast::Expr {
    number(position)
}

/// Makes a call.
pub(crate) fn call(name: &str, args: Vec<ast::Expr>) -> ast::Expr {
    let args = args.into_iter().map(|arg| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg)));
    function(name, args.collect(), None)
}

/// Makes `count(*)`.
pub(crate) fn count_rows() -> ast::Expr {
    function("count", vec![ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)], None)
}

/// Makes the count of different values.
pub(crate) fn distinct_count(value: ast::Expr) -> ast::Expr {
    let mut count = call("count", vec![value]);
    if let ast::Expr::Function(ast::Function { args: ast::FunctionArguments::List(list), .. }) = &mut count {
        list.duplicate_treatment = Some(ast::DuplicateTreatment::Distinct);
    }
    count
}

/// Makes a call over a window.
pub(crate) fn over(call: ast::Expr, spec: ast::WindowSpec) -> ast::Expr {
    match call {
        ast::Expr::Function(call) => {
            ast::Expr::Function(ast::Function { over: Some(ast::WindowType::WindowSpec(spec)), ..call })
        }
        other => other,
    }
}

/// Makes a window.
pub(crate) fn window(
    partition_by: Vec<ast::Expr>,
    order_by: Vec<ast::OrderByExpr>,
    window_frame: Option<ast::WindowFrame>,
) -> ast::WindowSpec {
    ast::WindowSpec { window_name: None, partition_by, order_by, window_frame }
}

/// Makes a frame of rows: from so many rows before, all where absent, to so many, none where absent.
pub(crate) fn rows_frame(before: Option<u64>, until: Option<u64>) -> ast::WindowFrame {
    let bound = |rows: u64| match rows {
        0 => ast::WindowFrameBound::CurrentRow,
        rows => ast::WindowFrameBound::Preceding(Some(Box::new(number(rows)))),
    };
    ast::WindowFrame {
        units: ast::WindowFrameUnits::Rows,
        start_bound: before.map_or(ast::WindowFrameBound::Preceding(None), bound),
        end_bound: Some(until.map_or(ast::WindowFrameBound::CurrentRow, bound)),
    }
}

/// Makes a frame of all rows.
pub(crate) fn whole_frame() -> ast::WindowFrame {
    ast::WindowFrame {
        units: ast::WindowFrameUnits::Rows,
        start_bound: ast::WindowFrameBound::Preceding(None),
        end_bound: Some(ast::WindowFrameBound::Following(None)),
    }
}

fn function(name: &str, args: Vec<ast::FunctionArg>, over: Option<ast::WindowType>) -> ast::Expr {
    ast::Expr::Function(ast::Function {
        name: ast::ObjectName::from(vec![ast::Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over,
        within_group: Vec::new(),
    })
}

/// Makes a lambda.
pub(crate) fn lambda(names: &[String], body: ast::Expr) -> ast::Expr {
    let parameter = |name: &String| ast::LambdaFunctionParameter { name: ident(name), data_type: None };
    let params = ast::OneOrManyWithParens::Many(names.iter().map(parameter).collect());
    ast::Expr::Lambda(ast::LambdaFunction { params, body: Box::new(body), syntax: ast::LambdaSyntax::Arrow })
}

/// Makes an operation.
pub(crate) fn binary(left: ast::Expr, op: ast::BinaryOperator, right: ast::Expr) -> ast::Expr {
    let nested = |expr: ast::Expr| match expr {
        ast::Expr::BinaryOp { .. } => ast::Expr::Nested(Box::new(expr)),
        other => other,
    };
    ast::Expr::BinaryOp { left: Box::new(nested(left)), op, right: Box::new(nested(right)) }
}

/// Makes a sum, as a balanced tree; `None` of no term.
pub(crate) fn sum(mut terms: Vec<ast::Expr>) -> Option<ast::Expr> {
    while terms.len() > 1 {
        let mut sums = Vec::with_capacity(terms.len().div_ceil(2));
        let mut rest = terms.into_iter();
        while let Some(left) = rest.next() {
            sums.push(match rest.next() {
                Some(right) => ast::Expr::Nested(Box::new(binary(left, ast::BinaryOperator::Plus, right))),
                None => left,
            });
        }
        terms = sums;
    }
    terms.pop()
}

/// Makes a conjunction; `None` of no condition.
pub(crate) fn all_of(conditions: Vec<ast::Expr>) -> Option<ast::Expr> {
    connected(conditions, &ast::BinaryOperator::And)
}

/// Makes a disjunction; `None` of no condition.
pub(crate) fn any_of(conditions: Vec<ast::Expr>) -> Option<ast::Expr> {
    connected(conditions, &ast::BinaryOperator::Or)
}

fn connected(conditions: Vec<ast::Expr>, op: &ast::BinaryOperator) -> Option<ast::Expr> {
    conditions.into_iter().reduce(|left, right| {
        let right = match &right {
            ast::Expr::BinaryOp { op: ast::BinaryOperator::Or | ast::BinaryOperator::And, .. } => {
                ast::Expr::Nested(Box::new(right))
            }
            _ => right,
        };
        let left = match &left {
            ast::Expr::BinaryOp {
                op: own @ (ast::BinaryOperator::Or | ast::BinaryOperator::And), ..
            } if own != op => ast::Expr::Nested(Box::new(left)),
            _ => left,
        };
        ast::Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) }
    })
}

/// Negates a condition.
pub(crate) fn not(condition: ast::Expr) -> ast::Expr {
    ast::Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(ast::Expr::Nested(Box::new(condition))) }
}

/// Makes `IS NULL`.
pub(crate) fn is_null(expr: ast::Expr) -> ast::Expr {
    ast::Expr::IsNull(Box::new(expr))
}

/// Makes `IS NOT NULL`.
pub(crate) fn is_not_null(expr: ast::Expr) -> ast::Expr {
    ast::Expr::IsNotNull(Box::new(expr))
}

/// Makes a choice.
pub(crate) fn case(branches: Vec<(ast::Expr, ast::Expr)>, last: Option<ast::Expr>) -> ast::Expr {
    ast::Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: branches
            .into_iter()
            .map(|(condition, result)| ast::CaseWhen { condition, result })
            .collect(),
        else_result: last.map(Box::new),
    }
}

/// Makes `CAST`.
pub(crate) fn cast(expr: ast::Expr, data_type: ast::DataType) -> ast::Expr {
    ast::Expr::Cast { kind: ast::CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Makes a source of FROM.
pub(crate) fn table(name: &str, alias: Option<&str>) -> ast::TableFactor {
    ast::TableFactor::Table {
        name: ast::ObjectName::from(vec![ident(name)]),
        alias: alias.map(|alias| ast::TableAlias {
            explicit: true,
            name: ident(alias),
            columns: Vec::new(),
            at: None,
        }),
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// Makes a SELECT of named items.
pub(crate) fn select<'n>(
    items: impl Iterator<Item = (&'n str, ast::Expr)>,
    from: Option<ast::TableFactor>,
) -> ast::Select {
    let items = items.map(|(name, expr)| ast::SelectItem::ExprWithAlias { expr, alias: ident(name) });
    ast::Select {
        select_token: ast::helpers::attached_token::AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: items.collect(),
        exclude: None,
        into: None,
        from: from.into_iter().map(|relation| ast::TableWithJoins { relation, joins: Vec::new() }).collect(),
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: ast::GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: ast::SelectFlavor::Standard,
    }
}

/// Makes GROUP BY.
pub(crate) fn group_by(keys: impl Iterator<Item = ast::Expr>) -> ast::GroupByExpr {
    ast::GroupByExpr::Expressions(keys.collect(), Vec::new())
}

/// Makes a key of ORDER BY.
pub(crate) fn order_by(expr: ast::Expr, ascending: bool, nulls_first: bool) -> ast::OrderByExpr {
    let options = ast::OrderByOptions { asc: Some(ascending), nulls_first: Some(nulls_first) };
    ast::OrderByExpr { expr, options, with_fill: None }
}

/// Makes a query of a SELECT.
pub(crate) fn query(
    select: ast::Select,
    order_by: Vec<ast::OrderByExpr>,
    limit: Option<(u64, Option<u64>)>,
) -> ast::Query {
    let mut query = query_of(ast::SetExpr::Select(Box::new(select)));
    if !order_by.is_empty() {
        query.order_by =
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(order_by), interpolate: None });
    }
    query.limit_clause = limit.map(|(skip, count)| ast::LimitClause::LimitOffset {
        limit: count.map(number),
        offset: (skip > 0).then(|| ast::Offset { value: number(skip), rows: ast::OffsetRows::None }),
        limit_by: Vec::new(),
    });
    query
}

/// Makes a query of its body.
pub(crate) fn query_of(body: ast::SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// Makes VALUES.
pub(crate) fn values(rows: Vec<Vec<ast::Expr>>) -> ast::Query {
    let rows = rows.into_iter().map(ast::Parens::with_empty_span).collect();
    query_of(ast::SetExpr::Values(ast::Values { explicit_row: false, value_keyword: false, rows }))
}

/// Unites queries by position.
pub(crate) fn union_all(left: ast::SetExpr, right: ast::SetExpr) -> ast::SetExpr {
    ast::SetExpr::SetOperation {
        op: ast::SetOperator::Union,
        set_quantifier: ast::SetQuantifier::All,
        left: Box::new(left),
        right: Box::new(right),
    }
}

/// Lists the paths of the columns in an expression, without those of queries in it.
pub(crate) fn paths(expr: &ast::Expr) -> Vec<String> {
    #[derive(Default)]
    struct Paths {
        found: Vec<String>,
        queries: usize,
    }
    impl Visitor for Paths {
        type Break = ();

        fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
            if self.queries == 0 && !matches!(expr, ast::Expr::Nested(_)) {
                self.found.extend(path(expr));
            }
            ControlFlow::Continue(())
        }
    }
    let mut paths = Paths::default();
    let _ = visit_tree(expr, &mut paths);
    paths.found
}
