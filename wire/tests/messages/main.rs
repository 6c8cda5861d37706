//! The codec against its declarations, against another codec, and against hostile bytes.

mod allocation;
#[path = "../../../fuzz/src/counting_allocator.rs"]
mod counting_allocator;
mod differential;
mod golden;
mod round_trip;
mod support;
