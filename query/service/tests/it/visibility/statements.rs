//! Random statements of SQL and PPL that read the index `logs`, which roles restrict, in each position of the languages, and beside it
//! the index `open`, which all may read.

use millrace_catalog::access::Action;
use millrace_engine::Session;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::{Role, comparable, stores};
use crate::fixture::{Store, value};

/// Levels of queries within one another.
const DEPTH: usize = 2;

/// Writer of random statements. Each query within one answers a number `a` and a text `b`, so that any of them stands in any position.
pub(super) struct StatementGenerator {
    random: StdRng,
    names: usize,
}

impl StatementGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), names: 0 }
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.random_range(0..choices.len())]
    }

    fn alias(&mut self) -> String {
        self.names += 1;
        format!("t{}", self.names)
    }

    fn index(&mut self) -> &'static str {
        self.one_of(&["logs", "logs", "logs", "open"])
    }

    fn text(&mut self) -> &'static str {
        self.one_of(&["level", "level", "level", "level", "level", "tenant", "secret", "obj.b", "msg"])
    }

    fn word(&mut self) -> &'static str {
        self.one_of(&["alpha", "beta", "gamma", "delta"])
    }

    fn number(&mut self) -> u64 {
        self.random.random_range(0..20)
    }

    /// Writes a statement of SQL.
    pub(super) fn statement(&mut self) -> String {
        let query = self.query(DEPTH);
        match self.random.random_range(0..4) {
            0 => format!("WITH w AS ({query}) SELECT a, b FROM w"),
            1 => format!("SELECT COUNT(*) AS a, MAX(u.b) AS b, SUM(u.a) AS s FROM ({query}) AS u"),
            _ => query,
        }
    }

    fn query(&mut self, depth: usize) -> String {
        let (one, other) = (self.alias(), self.alias());
        if depth == 0 {
            let (index, text) = (self.index(), self.text());
            return match self.random.random_range(0..4) {
                0 => {
                    let limit = self.number();
                    format!(
                        "SELECT {one}.n AS a, {one}.{text} AS b FROM {index} AS {one} ORDER BY {one}.n LIMIT {limit}"
                    )
                }
                1 => format!("SELECT {one}.n AS a, {one}.{text} AS b FROM {index} AS {one}"),
                _ => {
                    let condition = self.condition(&one, 0);
                    format!("SELECT {one}.n AS a, {one}.{text} AS b FROM {index} AS {one} WHERE {condition}")
                }
            };
        }
        let within = self.query(depth - 1);
        match self.random.random_range(0..8) {
            0 => {
                let (index, text) = (self.index(), self.text());
                let condition = self.condition(&one, depth);
                format!("SELECT {one}.n AS a, {one}.{text} AS b FROM {index} AS {one} WHERE {condition}")
            }
            1 => {
                let kind = self.one_of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
                let key = self.one_of(&["a", "b"]);
                let right = self.query(depth - 1);
                format!(
                    "SELECT DISTINCT {one}.a AS a, {other}.b AS b FROM ({within}) AS {one} {kind} ({right}) AS {other} ON {one}.{key} = {other}.{key}"
                )
            }
            2 => {
                let (index, key) = (self.index(), self.text());
                format!(
                    "SELECT DISTINCT {other}.n AS a, {one}.b AS b FROM ({within}) AS {one}, {index} AS {other} WHERE {one}.b = {other}.{key} AND {one}.a >= {other}.n"
                )
            }
            3 => {
                let operator = self.one_of(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]);
                let right = self.query(depth - 1);
                let (first, second) = (self.alias(), self.alias());
                format!(
                    "SELECT {one}.a AS a, {one}.b AS b FROM (SELECT {first}.a AS a, {first}.b AS b FROM ({within}) AS {first} {operator} SELECT {second}.a, {second}.b FROM ({right}) AS {second}) AS {one}"
                )
            }
            4 => {
                let aggregate = self.one_of(&["COUNT(*)", "SUM(%.a)", "MAX(%.a)", "COUNT(DISTINCT %.a)"]);
                let (aggregate, least) = (aggregate.replace('%', &one), self.number() % 3);
                format!(
                    "SELECT {aggregate} AS a, {one}.b AS b FROM ({within}) AS {one} GROUP BY {one}.b HAVING COUNT(*) > {least}"
                )
            }
            5 => {
                let window = self.one_of(&[
                    "ROW_NUMBER() OVER (PARTITION BY %.b ORDER BY %.a)",
                    "RANK() OVER (ORDER BY %.a)",
                    "SUM(%.a) OVER (PARTITION BY %.b)",
                    "COUNT(*) OVER (ORDER BY %.a RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)",
                    "LAG(%.a) OVER (PARTITION BY %.b ORDER BY %.a)",
                    "MAX(%.a) OVER (PARTITION BY %.b ORDER BY %.a ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
                ]);
                let window = window.replace('%', &one);
                format!("SELECT {window} AS a, {one}.b AS b FROM ({within}) AS {one}")
            }
            6 => {
                let (index, text, edge) = (self.index(), self.text(), self.index());
                format!(
                    "SELECT (SELECT MAX({other}.n) FROM {edge} AS {other} WHERE {other}.n < {one}.n) AS a, {one}.{text} AS b FROM {index} AS {one}"
                )
            }
            _ => {
                let (shared, outer) = (self.alias(), self.alias());
                format!(
                    "SELECT {outer}.a AS a, {outer}.b AS b FROM (WITH {shared} AS ({within}) SELECT DISTINCT {one}.a AS a, {other}.b AS b FROM {shared} AS {one} JOIN {shared} AS {other} ON {one}.a = {other}.a) AS {outer}"
                )
            }
        }
    }

    /// Writes a condition on a document of an index.
    fn condition(&mut self, alias: &str, depth: usize) -> String {
        let (number, word, text, index) = (self.number(), self.word(), self.text(), self.index());
        let inner = self.alias();
        if depth == 0 {
            return match self.random.random_range(0..6) {
                0 => format!("{alias}.n > {number}"),
                1 => format!("{alias}.{text} = '{word}'"),
                2 => format!("match({alias}.msg, '{word}')"),
                3 => format!("{alias}.msg LIKE '%{word}%'"),
                4 => format!("NOT match({alias}.msg, '{word}') OR {alias}.n < {number}"),
                _ => format!("{alias}.{text} IS NULL OR {alias}.level <> '{word}'"),
            };
        }
        let within = self.query(depth - 1);
        match self.random.random_range(0..8) {
            0 => format!("{alias}.n IN (SELECT {inner}.a FROM ({within}) AS {inner})"),
            1 => format!("{alias}.n NOT IN (SELECT {inner}.a FROM ({within}) AS {inner})"),
            2 => format!("EXISTS (SELECT 1 FROM {index} AS {inner} WHERE {inner}.n = {alias}.n + {number})"),
            3 => format!(
                "NOT EXISTS (SELECT 1 FROM {index} AS {inner} WHERE {inner}.level = {alias}.level AND {inner}.n > {alias}.n)"
            ),
            4 => format!("{alias}.n >= (SELECT MIN({inner}.a) FROM ({within}) AS {inner})"),
            5 => format!("{alias}.n < ANY (SELECT {inner}.a FROM ({within}) AS {inner})"),
            6 => format!("{alias}.n >= ALL (SELECT {inner}.a FROM ({within}) AS {inner})"),
            _ => format!(
                "{alias}.level = '{word}' OR {alias}.n IN (SELECT {inner}.a FROM ({within}) AS {inner})"
            ),
        }
    }

    /// Writes a pipeline.
    pub(super) fn pipeline(&mut self) -> String {
        self.pipe(DEPTH)
    }

    fn pipe(&mut self, depth: usize) -> String {
        let (index, text, number, word) = (self.index(), self.text(), self.number(), self.word());
        let condition = match self.random.random_range(0..4) {
            0 => format!(" | where n > {number}"),
            1 => format!(" | where {text} = '{word}'"),
            2 => format!(" | where match(msg, '{word}')"),
            _ => String::new(),
        };
        let source = match self.random.random_range(0..4) {
            0 if depth > 0 => format!("source=[ {} ]", self.pipe(depth - 1)),
            1 => format!("source={index} {word} | eval a = n, b = {text} | fields a, b"),
            _ => format!("source={index}{condition} | eval a = n, b = {text} | fields a, b"),
        };
        let steps = if depth == 0 { 0 } else { self.random.random_range(1..4) };
        (0..steps).fold(source, |pipe, _| pipe + &self.command(depth - 1))
    }

    fn command(&mut self, depth: usize) -> String {
        let (index, text, word) = (self.index(), self.text(), self.word());
        match self.random.random_range(0..11) {
            0 => format!(" | append [ {} ]", self.pipe(depth)),
            1 => {
                let kind = self.one_of(&["inner", "left", "right", "full"]);
                format!(
                    " | join type={kind} left=l right=r on l.a = r.x [ {} | rename a as x, b as y ] | stats max(x) as a by b | fields a, b",
                    self.pipe(depth)
                )
            }
            2 => {
                let kind = self.one_of(&["semi", "anti"]);
                format!(
                    " | join type={kind} left=l right=r on l.b = r.y [ {} | rename a as x, b as y ] | fields a, b",
                    self.pipe(depth)
                )
            }
            3 => format!(" | lookup {index} n as a replace {text} as b"),
            4 => format!(" | where a in [ source={index} | where level = '{word}' | fields n ]"),
            5 => format!(" | where not a in [ {} | fields a ]", self.pipe(depth)),
            6 => format!(" | where exists [ source={index} | where n = a and level = '{word}' ]"),
            7 => format!(" | where a >= [ source={index} | stats min(n) as m ]"),
            8 => " | stats count() as a by b | fields a, b".to_owned(),
            9 => " | eventstats max(a) as m by b | eval a = m | fields a, b".to_owned(),
            _ => " | appendpipe [ stats sum(a) as a by b ] | dedup a, b".to_owned(),
        }
    }
}

/// Answer of a statement, whose rows may come in any order.
async fn answered(store: &Store, session: &Session, is_pipeline: bool, text: &str) -> Value {
    let outcome = match is_pipeline {
        true => store.service.ppl(session, Vec::new(), Some(json!({"query": text}))).await,
        false => store.service.sql(session, Vec::new(), Some(json!({"query": text, "fetch_size": 0}))).await,
    };
    let mut answer = comparable(value(outcome));
    if let Some(rows) = answer["datarows"].as_array_mut() {
        rows.sort_by_cached_key(Value::to_string);
    }
    answer
}

/// Compares answers of random statements with those over an index of what a role shows.
pub(super) async fn compare_statements(whole: &Store, alone: &Store, role: &Role, seed: u64) {
    let mut generator = StatementGenerator::new(seed);
    let restricted = role.session(whole, Action::Sql);
    for round in 0..14 {
        let is_pipeline = round % 2 == 1;
        let text = if is_pipeline { generator.pipeline() } else { generator.statement() };
        let expected = answered(alone, &alone.session, is_pipeline, &text).await;
        let found = answered(whole, &restricted, is_pipeline, &text).await;
        assert_eq!(found, expected, "{role:?} {text}");
    }
}

/// The statements are ones that are answered, so that comparing them says something.
#[tokio::test(flavor = "multi_thread")]
async fn random_statements_are_answered() {
    let role = Role { documents: None, grant: vec!["*"], except: vec![] };
    let document = |n: u64| {
        let word = ["alpha", "beta", "gamma", "delta"][n as usize % 4];
        json!({"tenant": "a", "level": word, "msg": "alpha beta", "secret": word, "obj": {"b": word}})
    };
    let documents: Vec<Value> = (0..12).map(document).collect();
    let (whole, alone) = stores(&documents, &role).await;
    let mut generator = StatementGenerator::new(7);
    let (mut refused, mut rows) = (Vec::new(), 0);
    for round in 0..120 {
        let is_pipeline = round % 2 == 1;
        let text = if is_pipeline { generator.pipeline() } else { generator.statement() };
        let answer = answered(&whole, &whole.session, is_pipeline, &text).await;
        match answer["datarows"].as_array() {
            Some(own) => rows += own.len(),
            None => refused.push(format!("{text}: {answer}")),
        }
    }
    assert!(
        refused.len() <= 2 && rows > 300,
        "{rows} rows, {} refused: {}",
        refused.len(),
        refused.join("\n")
    );
    whole.engine.shutdown().await.unwrap();
    alone.engine.shutdown().await.unwrap();
}
