#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| millrace_saved_objects::fuzzing::dashboards(data));
