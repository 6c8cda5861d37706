//! Every message in every version, against samples written from its declaration.

use bytes::Bytes;
use thalweg_wire::DecodeErrorKind;
use thalweg_wire::messages::{TranscodeError, all};

use crate::support::{Form, Number, Sample, every_version, sample};

const SEEDS: u64 = 40;

/// Goal: decoder, encoder and declaration agree. Method: bytes written from the declaration alone come back equal.
#[test]
fn every_message_reads_and_writes_back_in_every_version() {
    let mut checked = 0;
    for (info, version) in every_version(all()) {
        for seed in 0..SEEDS {
            let bytes = Bytes::from(sample(&info, version, seed).bytes);
            let again = (info.transcode)(&bytes, version)
                .unwrap_or_else(|error| panic!("{} v{version} seed {seed}: {error}", info.name));
            assert_eq!(again, bytes, "{} v{version} seed {seed}", info.name);
            checked += 1;
        }
    }
    assert!(checked > 10_000, "{checked}");
}

/// Kafka ignores what follows the last field of a request.
#[test]
fn bytes_after_the_last_field_are_ignored() {
    for (info, version) in every_version(all()) {
        let clean = sample(&info, version, 1).bytes;
        let longer = Bytes::from([&clean[..], &[0xff; 9]].concat());
        assert_eq!((info.transcode)(&longer, version).unwrap(), clean, "{} v{version}", info.name);
    }
}

#[test]
fn a_body_cut_anywhere_is_an_error() {
    for (info, version) in every_version(all()) {
        let bytes = Bytes::from(sample(&info, version, 2).bytes);
        for length in 0..bytes.len() {
            let result = (info.transcode)(&bytes.slice(..length), version);
            assert!(matches!(result, Err(TranscodeError::Decode(_))), "{} v{version} cut at {length}", info.name);
        }
    }
}

/// Goal: no number makes the decoder panic, loop or believe it. Method: each number in turn takes each extreme; what
/// still decodes must also encode.
#[test]
fn a_hostile_number_anywhere_is_survived() {
    for (info, version) in every_version(all()) {
        for seed in 0..2 {
            let Sample { bytes, numbers } = sample(&info, version, seed);
            for number in numbers {
                for hostile in extremes(number.form) {
                    let mutated = Bytes::from(replaced(&bytes, number, hostile));
                    match (info.transcode)(&mutated, version) {
                        Ok(_) | Err(TranscodeError::Decode(_)) => {}
                        Err(error) => panic!("{} v{version} {number:?}: {error}", info.name),
                    }
                }
            }
        }
    }
}

#[test]
fn a_version_outside_the_range_is_an_error_not_a_guess() {
    for info in all() {
        for version in [info.version_min - 1, info.version_max + 1, i16::MAX, i16::MIN] {
            let error = (info.transcode)(&Bytes::from_static(&[0; 64]), version).unwrap_err();
            let TranscodeError::Decode(error) = error else { panic!("{error}") };
            assert_eq!(error.kind, DecodeErrorKind::UnsupportedVersion { version });
        }
    }
}

/// Goal: an unknown tag is skipped, a known one in a version without it closes. Method: Fetch 16 and 15, whose
/// answers differ by the tag 0 of version 16.
#[test]
fn unknown_tags_are_skipped_and_misplaced_ones_refused() {
    use thalweg_wire::messages::FetchResponse;
    use thalweg_wire::{Message, Reader};
    // throttle, error, session, no topics; one tag: number, size, value.
    let with_tag = |tag: u8, value: &[u8]| {
        let head = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, tag, value.len() as u8];
        Bytes::from([&head[..], value].concat())
    };
    let endpoint = [2, 0, 0, 0, 7, 2, b'h', 0, 0, 0, 9, 0, 0];
    let read = |bytes: Bytes, version| FetchResponse::decode(&mut Reader::new(bytes), version);
    assert_eq!(read(with_tag(0, &endpoint), 16).unwrap().node_endpoints.len(), 1);
    assert_eq!(
        read(with_tag(0, &endpoint), 15).unwrap_err().kind,
        DecodeErrorKind::TagNotInVersion { tag: 0, version: 15 }
    );
    assert_eq!(read(with_tag(99, &endpoint), 15).unwrap().throttle_time_ms, 1);
}

fn extremes(form: Form) -> Vec<Vec<u8>> {
    let signed = |bytes: usize| -> Vec<Vec<u8>> {
        let mut largest = vec![0xff; bytes];
        largest[0] = 0x7f;
        let mut smallest = vec![0; bytes];
        smallest[0] = 0x80;
        let mut minus_two = vec![0xff; bytes];
        minus_two[bytes - 1] = 0xfe;
        vec![largest, smallest, minus_two, vec![0xff; bytes], vec![0; bytes]]
    };
    match form {
        Form::Int8 => signed(1),
        Form::Int16 => signed(2),
        Form::Int32 => signed(4),
        Form::Int64 => signed(8),
        Form::Varint => vec![
            vec![0xff, 0xff, 0xff, 0xff, 0x0f],
            vec![0xff, 0xff, 0xff, 0xff, 0x07],
            vec![0xff; 10],
            vec![0x80, 0x80, 0x3d],
            vec![0],
            vec![1],
            vec![0x7f],
        ],
    }
}

fn replaced(bytes: &[u8], number: Number, with: Vec<u8>) -> Vec<u8> {
    let length = match number.form {
        Form::Varint => 1 + bytes[number.position..].iter().take_while(|byte| **byte & 0x80 != 0).count(),
        _ => with.len(),
    };
    [&bytes[..number.position], &with, &bytes[number.position + length..]].concat()
}
