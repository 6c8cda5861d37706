#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::wire_targets::frame_header_request(data));
