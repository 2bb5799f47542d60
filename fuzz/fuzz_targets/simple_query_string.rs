#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millrace_query::fuzzing::simple_query_string(data));
