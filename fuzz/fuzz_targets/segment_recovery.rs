#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::storage_targets::segment_recovery(data));
