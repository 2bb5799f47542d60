//! Depth of the tree of a statement, and its bound.
//!
//! Most of what is done with the tree follows it by recursion: parsing, binding, planning, evaluating, dropping. The parser bounds
//! what it parses by recursion itself, but chains of operators (`1 + 1 + …`, `a IS NULL IS NULL …`, `a::int::int …`)
//! it reads in loops, into trees that lean to the left, a level for each. So tokens are bounded before there is a tree
//! ([`check_tokens`]), by what the threads of statements have the stack to parse and drop, whatever the forms; the tree is
//! then measured ([`check_tree`]), for all that comes behind.

use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, Expr, Query, Statement, Visit, Visitor};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::ast_walk::visit_tree;
use crate::error::{Result, SqlError};

/// Deepest nesting that the parser follows by recursion.
pub(super) const MAX_NESTING: usize = 48;
/// Most parentheses and brackets that are open at once.
const MAX_OPEN: usize = 2 * MAX_NESTING;
/// Most tokens of an expression: each may be a level of the tree, unless a comma parts them.
const MAX_TOKENS: usize = 20_000;
/// Most UNIONs and the like, whose tree leans to the left too, across commas.
const MAX_SET_OPERATIONS: usize = 100;
/// Most levels of an expression. ANDs and ORs in a row are one level: they are bound as a balanced tree.
const MAX_LEVELS: usize = 200;

/// The tokens between two parentheses.
#[derive(Default)]
struct ParenthesizedTokens {
    /// Tokens since the last comma.
    tokens: usize,
    /// Most tokens that may be above one another within the parentheses since then.
    deepest: usize,
    /// The same of what was before.
    before: usize,
    /// `true` if it is where the sources of a query are.
    sources: bool,
    /// `true` if a source may stand behind the last token.
    source: bool,
    /// `true` if FROM parts arguments here.
    arguments: bool,
}

impl ParenthesizedTokens {
    fn depth(&self) -> usize {
        self.before.max(self.tokens + self.deepest)
    }
}

/// Refuses a statement whose tree may be deeper than the parser's thread can hold.
pub(super) fn check_tokens(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut open = vec![ParenthesizedTokens::default()];
    let (mut set_operations, mut arrays) = (0, 0);
    let mut array = false;
    let mut last = Keyword::NoKeyword;
    // Whether the last token is a parenthesis where a source may stand.
    let mut opened = false;
    for token in tokens.iter().map(|token| &token.token) {
        if matches!(token, Token::Whitespace(_)) {
            continue;
        }
        // The type `ARRAY<ARRAY<…>>` is read by a recursion that the parser does not count.
        arrays += usize::from(array && *token == Token::Lt);
        array = matches!(token, Token::Word(word) if word.keyword == Keyword::ARRAY);
        let word = match token {
            Token::Word(word) if word.quote_style.is_none() => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let source = open.last_mut().is_some_and(|within| std::mem::take(&mut within.source));
        if opened && *token == Token::LParen {
            return Err(SqlError::Unsupported(
                "FROM and JOIN take an index or one query in parentheses; what is in more of them is not supported".to_owned(),
            ));
        }
        opened = source && *token == Token::LParen;
        if let Some(within) = open.last_mut() {
            match word {
                Keyword::FROM if !within.arguments => (within.sources, within.source) = (true, true),
                Keyword::JOIN => within.source = true,
                Keyword::LATERAL => within.source = source,
                Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::WINDOW
                | Keyword::ORDER
                | Keyword::SELECT => {
                    within.sources = false;
                }
                _ => within.source = *token == Token::Comma && within.sources,
            }
        }
        let arguments = matches!(last, Keyword::EXTRACT | Keyword::SUBSTRING | Keyword::TRIM);
        last = word;
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push(ParenthesizedTokens { arguments, ..ParenthesizedTokens::default() });
            }
            Token::RParen | Token::RBracket | Token::RBrace if open.len() > 1 => {
                let depth = open.pop().map_or(0, |within| within.depth());
                if let Some(within) = open.last_mut() {
                    within.tokens += 1;
                    within.deepest = within.deepest.max(depth);
                }
            }
            Token::Comma => {
                if let Some(within) = open.last_mut() {
                    within.before = within.depth();
                    (within.tokens, within.deepest) = (0, 0);
                }
            }
            Token::Word(word) => {
                let sets = matches!(
                    word.keyword,
                    Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS
                );
                set_operations += usize::from(sets && word.quote_style.is_none());
                open.last_mut().into_iter().for_each(|within| within.tokens += 1);
            }
            _ => open.last_mut().into_iter().for_each(|within| within.tokens += 1),
        }
        if open.len() > MAX_OPEN || arrays > MAX_NESTING {
            return Err(too_deep());
        }
        if set_operations > MAX_SET_OPERATIONS {
            return Err(SqlError::TooLarge(format!(
                "the statement has more than {MAX_SET_OPERATIONS} set operations"
            )));
        }
        if open.last().is_some_and(|within| within.depth() > MAX_TOKENS) {
            return Err(SqlError::TooLarge(format!(
                "an expression has more than {MAX_TOKENS} words and signs; use IN for long lists of values"
            )));
        }
    }
    Ok(())
}

/// Refuses a statement whose expressions are too deep to be bound, planned and evaluated.
pub(super) fn check_tree(statement: &Statement) -> Result<()> {
    levels(statement).map(drop)
}

/// Returns the most levels of the expressions of a query of another language.
///
/// # Errors
/// The expressions are too deep to be bound, planned and evaluated.
pub(crate) fn check_query(query: &Query) -> Result<usize> {
    levels(query)
}

fn levels(tree: &impl Visit) -> Result<usize> {
    let mut measure = Measure { above: Vec::new(), levels: 0, deepest: 0 };
    match visit_tree(tree, &mut measure) {
        ControlFlow::Continue(()) => Ok(measure.deepest),
        ControlFlow::Break(()) => Err(SqlError::TooLarge(format!(
            "an expression is nested deeper than {MAX_LEVELS} levels; each operator of a chain is one, except AND and OR"
        ))),
    }
}

pub(super) fn too_deep() -> SqlError {
    SqlError::TooLarge(format!("the statement is nested deeper than {MAX_NESTING} levels"))
}

/// Follows the expressions of a statement.
struct Measure {
    /// `Some(true)` for each AND above this expression, `Some(false)` for each OR, `None` for others. An operator right below its
    /// like opens no level.
    above: Vec<Option<bool>>,
    levels: usize,
    /// Most levels so far.
    deepest: usize,
}

impl Measure {
    /// Returns whether an expression is an AND, or an OR.
    fn connective(expr: &Expr) -> Option<bool> {
        match expr {
            Expr::BinaryOp { op: BinaryOperator::And, .. } => Some(true),
            Expr::BinaryOp { op: BinaryOperator::Or, .. } => Some(false),
            _ => None,
        }
    }

    /// Returns whether an expression is a level of its own below its parent.
    fn is_level(&self, own: Option<bool>) -> bool {
        own.is_none() || self.above.last().copied().flatten() != own
    }
}

impl Visitor for Measure {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let own = Self::connective(expr);
        self.levels += usize::from(self.is_level(own));
        self.deepest = self.deepest.max(self.levels);
        self.above.push(own);
        if self.levels > MAX_LEVELS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.above.pop();
        self.levels -= usize::from(self.is_level(Self::connective(expr)));
        ControlFlow::Continue(())
    }
}
