#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millrace_query::fuzzing::sql(data));
