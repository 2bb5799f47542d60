//! Random pipelines against an evaluator that applies command after command to rows in memory.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::ask;
use crate::fixture::Store;

/// Pipelines of a run, where the variable of the environment says nothing else.
const PIPELINES: usize = 150;
/// Variable of the environment with the number of pipelines.
const VARIABLE: &str = "MILLRACE_RANDOM_PIPELINES";

type Row = BTreeMap<String, Option<i64>>;

/// A pipeline with the rows that it answers.
struct NaivePipeline {
    text: String,
    columns: Vec<String>,
    rows: Vec<Row>,
    /// `true` if the rows have one order.
    ordered: bool,
}

impl NaivePipeline {
    fn value(row: &Row, name: &str) -> Option<i64> {
        row.get(name).copied().flatten()
    }

    fn column(&self, random: &mut StdRng) -> String {
        self.columns[random.random_range(0..self.columns.len())].clone()
    }

    fn step(&mut self, number: usize, random: &mut StdRng) {
        let name = self.column(random);
        let limit = random.random_range(-5..20);
        match random.random_range(0..11) {
            0 => {
                self.text.push_str(&format!(" | where {name} > {limit}"));
                self.rows.retain(|row| Self::value(row, &name).is_some_and(|own| own > limit));
            }
            1 => {
                self.text.push_str(&format!(" | where isnull({name}) or {name} < {limit}"));
                self.rows.retain(|row| Self::value(row, &name).is_none_or(|own| own < limit));
            }
            2 => {
                let target = format!("e{number}");
                self.text.push_str(&format!(" | eval {target} = {name} + {limit}"));
                for row in &mut self.rows {
                    let sum = Self::value(row, &name).map(|own| own + limit);
                    row.insert(target.clone(), sum);
                }
                self.columns.push(target);
            }
            3 => {
                let descending = random.random_bool(0.5);
                let others = self.columns.iter().filter(|column| **column != name).cloned();
                let keys: Vec<String> = [name.clone()].into_iter().chain(others).collect();
                let shown: Vec<String> = keys
                    .iter()
                    .map(|key| if descending { format!("- {key}") } else { key.clone() })
                    .collect();
                self.text.push_str(&format!(" | sort {}", shown.join(", ")));
                let key = |row: &Row| keys.iter().map(|key| Self::value(row, key)).collect::<Vec<_>>();
                self.rows.sort_by(|one, other| match descending {
                    true => key(other).cmp(&key(one)),
                    false => key(one).cmp(&key(other)),
                });
                self.ordered = true;
            }
            4 if self.ordered => {
                let (count, skip) = (random.random_range(0..12), random.random_range(0..3));
                self.text.push_str(&format!(" | head {count} from {skip}"));
                self.rows = self.rows.drain(..).skip(skip).take(count).collect();
            }
            5 if self.columns.len() > 1 => {
                self.text.push_str(&format!(" | fields - {name}"));
                self.columns.retain(|column| *column != name);
                self.rows.iter_mut().for_each(|row| {
                    row.remove(&name);
                });
            }
            6 => {
                let target = format!("r{number}");
                self.text.push_str(&format!(" | rename {name} as {target}"));
                for column in &mut self.columns {
                    if *column == name {
                        *column = target.clone();
                    }
                }
                for row in &mut self.rows {
                    let own = row.remove(&name).flatten();
                    row.insert(target.clone(), own);
                }
            }
            7 if random.random_bool(0.5) => self.stats(number, &name, random),
            8 if self.ordered => {
                self.text.push_str(" | reverse");
                self.rows.reverse();
            }
            9 => {
                self.text.push_str(&format!(" | fillnull with {limit} in {name}"));
                for row in &mut self.rows {
                    row.entry(name.clone()).or_default().get_or_insert(limit);
                }
            }
            10 if self.ordered => {
                self.text.push_str(&format!(" | dedup 2 {name}"));
                let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
                self.rows.retain(|row| match Self::value(row, &name) {
                    None => false,
                    Some(own) => {
                        let count = counts.entry(own).or_default();
                        *count += 1;
                        *count <= 2
                    }
                });
            }
            _ => {}
        }
    }

    fn stats(&mut self, number: usize, by: &str, random: &mut StdRng) {
        let of = self.column(random);
        let (count, sum, key) = (format!("c{number}"), format!("s{number}"), format!("k{number}"));
        self.text.push_str(&format!(
            " | stats count() as {count}, sum({of}) as {sum} by {by} | rename {by} as {key}"
        ));
        let mut groups: BTreeMap<Option<i64>, (i64, Option<i64>)> = BTreeMap::new();
        for row in &self.rows {
            let group = groups.entry(Self::value(row, by)).or_insert((0, None));
            group.0 += 1;
            if let Some(own) = Self::value(row, &of) {
                group.1 = Some(group.1.unwrap_or(0) + own);
            }
        }
        let rows = groups.into_iter().map(|(group, (rows, total))| {
            Row::from([(count.clone(), Some(rows)), (sum.clone(), total), (key.clone(), group)])
        });
        self.rows = rows.collect();
        self.columns = vec![count, sum, key];
        self.ordered = false;
    }
}

#[tokio::test]
async fn random_pipelines_answer_what_commands_say_one_by_one() {
    let store = Store::open().await;
    let long = json!({"type": "long"});
    let properties = json!({"a": long, "b": long, "c": long});
    store.create("rows", &json!({"mappings": {"properties": properties}})).await;
    let mut random = StdRng::seed_from_u64(37);
    let mut rows: Vec<Row> = Vec::new();
    for number in 0..40 {
        let b = random.random_bool(0.8).then(|| random.random_range(-3..12));
        let c = random.random_bool(0.8).then(|| random.random_range(0..4));
        rows.push(Row::from([("a".to_owned(), Some(number)), ("b".to_owned(), b), ("c".to_owned(), c)]));
    }
    let documents: Vec<Value> = rows.iter().map(|row| json!(row)).collect();
    store.index("rows", &documents).await;
    let pipelines = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(PIPELINES);
    for _ in 0..pipelines {
        let mut naive = NaivePipeline {
            text: "source=rows".to_owned(),
            columns: ["a", "b", "c"].map(str::to_owned).into(),
            rows: rows.clone(),
            ordered: false,
        };
        for number in 0..random.random_range(1..=10) {
            naive.step(number, &mut random);
        }
        naive.text.push_str(&format!(" | fields {}", naive.columns.join(", ")));
        let (status, answer) = ask(&store, &store.session, &naive.text).await;
        assert_eq!(status, 200, "{}: {answer}", naive.text);
        let shown = |row: &Row| -> Value {
            naive.columns.iter().map(|name| json!(NaivePipeline::value(row, name))).collect()
        };
        let mut expected: Vec<Value> = naive.rows.iter().map(shown).collect();
        let mut found: Vec<Value> = answer["datarows"].as_array().unwrap().clone();
        if !naive.ordered {
            expected.sort_by_key(Value::to_string);
            found.sort_by_key(Value::to_string);
        }
        assert_eq!(found, expected, "{}", naive.text);
    }
}
