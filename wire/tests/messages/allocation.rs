//! No body makes the decoder hold more than 4 bytes per byte received and 64 KiB on top.

use bytes::Bytes;
use thalweg_wire::DecodeErrorKind;
use thalweg_wire::messages::{MessageInfo, all};

use crate::counting_allocator::peak_bytes;
use crate::support::{Form, Random, every_version, sample};

fn bound(length: usize) -> usize {
    4 * length + (64 << 10)
}

/// Decodes and checks the bound; says whether decoding was stopped by it.
fn decode(info: &MessageInfo, version: i16, body: Vec<u8>) -> bool {
    let body = Bytes::from(body);
    let (result, peak) = peak_bytes(|| (info.decode)(&body, version));
    // Sharing the frame between slices takes a small header of its own.
    let allowed = bound(body.len()) + 64;
    assert!(peak <= allowed, "{} v{version}: {peak} bytes held for {} received", info.name, body.len());
    matches!(result, Err(error) if matches!(error.kind, DecodeErrorKind::TooMuchMemory { .. }))
}

#[test]
fn counting_sees_what_is_held_and_what_is_given_back() {
    let (_, peak) = peak_bytes(|| drop(vec![0u8; 5000]));
    assert!((5000..6000).contains(&peak), "{peak}");
    let (kept, peak) = peak_bytes(|| vec![vec![1u8; 100]; 100]);
    assert!(peak >= 100 * 100 && kept.len() == 100);
}

/// Goal: a count that is honest about wire bytes cannot blow up in memory. Method: each number in turn becomes a
/// count of 10,000, followed by that many bytes that read as the smallest elements.
#[test]
fn many_small_elements_stay_within_the_bound() {
    let count: u32 = 10_000;
    let mut stopped = 0;
    for (info, version) in every_version(all()) {
        let sample = sample(&info, version, 1);
        for number in sample.numbers {
            let encoded = match number.form {
                Form::Varint => vec![0x91, 0x4e], // 10,000 + 1
                Form::Int32 => count.to_be_bytes().to_vec(),
                _ => continue,
            };
            for filler in [0u8, 1] {
                let mut body = sample.bytes[..number.position].to_vec();
                body.extend_from_slice(&encoded);
                body.resize(body.len() + count as usize, filler);
                stopped += usize::from(decode(&info, version, body));
            }
        }
    }
    assert!(stopped > 100, "only {stopped} bodies came near the bound");
}

#[test]
fn random_bodies_stay_within_the_bound() {
    let mut random = Random(7);
    for (info, version) in every_version(all()) {
        for length in [10, 1000, 20_000] {
            // Small values make plausible counts and lengths.
            let limit = [256, 16, 4][random.below(3) as usize];
            let body = (0..length).map(|_| random.below(limit) as u8).collect();
            decode(&info, version, body);
        }
    }
}
