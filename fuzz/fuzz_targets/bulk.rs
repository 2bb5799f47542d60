#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millrace_data_api::fuzzing::bulk(data));
