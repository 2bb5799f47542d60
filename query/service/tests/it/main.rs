//! Searches over a real store.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod aggregations;
mod alike;
mod answers;
mod collapse;
mod compound;
mod contexts;
mod cursors;
mod dates;
mod delete_by_query;
mod endpoints;
mod fields;
mod filters_as_searches;
mod fixture;
mod highlight;
mod idle;
mod many_phrases;
mod many_rows;
mod metadata_fields;
mod nested;
mod ordered_buckets;
mod ppl;
mod property;
mod query_strings;
mod repeated_texts;
mod robustness;
mod scroll;
mod search;
mod sort;
mod sql;
mod sql_batches;
mod sql_bounds;
mod sql_conditions;
mod sql_elasticsearch;
mod sql_groups;
mod sql_instants;
mod sql_json;
mod sql_lines;
mod sql_nested;
mod sql_relations;
mod sql_rights;
mod suggest;
mod terms_and_phrases;
mod visibility;
mod zones;
