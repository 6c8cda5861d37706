//! Valid bytes of every message and codec, for other programs.
//!
//! `samples print`: lines `request|response KEY VERSION HEX` and `batch CODEC HEX`; `wire/tests/kafka/check` gives them
//! to Apache Kafka's own classes. `samples corpus`: the first corpus of the fuzz targets, into `fuzz/corpus`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use thalweg_model::{ProducerEpoch, ProducerId, Timestamp};
use thalweg_wire::compression::Compression;
use thalweg_wire::messages::{MessageInfo, all};
use thalweg_wire::records::{BuildError, RecordBatchBuilder};

#[path = "../tests/messages/support.rs"]
mod support;

fn main() -> io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("print") => print(),
        Some("corpus") => corpus(),
        _ => Err(io::Error::other("say print or corpus")),
    }
}

fn print() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (info, version) in support::every_version(all()) {
        let kind = if info.is_request { "request" } else { "response" };
        for seed in 0..20 {
            let sample = support::sample(&info, version, seed);
            writeln!(out, "{kind} {} {version} {}", info.key.code(), hex(&sample.bytes))?;
        }
    }
    for codec in Compression::ALL {
        writeln!(out, "batch {} {}", codec.id(), hex(&batch(codec).map_err(io::Error::other)?))?;
    }
    out.flush()
}

/// 3,000 records, so that every codec writes several blocks; Check.java knows what is in them.
fn batch(codec: Compression) -> Result<Bytes, BuildError> {
    let mut builder = RecordBatchBuilder::new(codec).producer(ProducerId(7), ProducerEpoch(1), 5);
    for i in 0..3000 {
        let key = format!("key {i}");
        let key = (i % 3 != 0).then_some(key.as_bytes());
        let value = format!("value {i} ").repeat(10);
        let value = (i % 5 != 0).then_some(value.as_bytes());
        builder.append(Timestamp(1_000_000 + i), key, value, &[("header", Some(&[i as u8])), ("null", None)]);
    }
    builder.build()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn corpus() -> io::Result<()> {
    corpus_messages()?;
    corpus_batches()?;
    for (name, text) in
        [("plain", "orders"), ("dots", ".."), ("slash", "../x"), ("dir", "a.b-3"), ("id", "AAAAAAAAAAAAAAAAAAAAAQ")]
    {
        write("topic_name", name, text.as_bytes())?;
    }
    Ok(())
}

fn corpus_messages() -> io::Result<()> {
    for (info, version) in support::every_version(all()) {
        let sample = support::sample(&info, version, 1);
        let name = format!("{}_{version}", info.name);
        corpus_message(&info, version, &name, &sample.bytes)?;
        // The newest version with its last length made absurd as well.
        let length = sample.numbers.iter().rfind(|number| number.form == support::Form::Varint);
        if let Some(number) = length.filter(|_| version == info.version_max) {
            let mut body = sample.bytes[..number.position].to_vec();
            body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x07]);
            corpus_message(&info, version, &format!("{name}_huge"), &body)?;
        }
    }
    Ok(())
}

fn corpus_message(info: &MessageInfo, version: i16, name: &str, body: &[u8]) -> io::Result<()> {
    if !info.is_request {
        let mut response = vec![info.key.code() as u8, version as u8, 0, 0, 0, 1];
        response.resize(response.len() + info.key.response_header_version(version) as usize, 0);
        response.extend_from_slice(body);
        return write("response", name, &response);
    }
    if !info.key.accepts(version) {
        return Ok(());
    }
    let mut frame = BytesMut::new();
    frame.extend_from_slice(&info.key.code().to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 1, b'c']);
    if info.key.is_flexible(version) {
        frame.extend_from_slice(&[0]);
    }
    frame.extend_from_slice(body);
    let size = (frame.len() as u32).to_be_bytes();
    // Odd versions with their size in front, even ones without: the target takes both.
    let framed = if version % 2 == 0 { frame.to_vec() } else { [&size, &frame[..]].concat() };
    write("frame_header_request", name, &framed)
}

fn corpus_batches() -> io::Result<()> {
    for codec in Compression::ALL {
        let mut builder = RecordBatchBuilder::new(codec).producer(ProducerId(1), ProducerEpoch(0), 0);
        builder.append(Timestamp(1000), Some(b"key"), Some(b"value"), &[("name", Some(b"header")), ("null", None)]);
        builder.append(Timestamp(1001), None, Some(&[b'v'; 300]), &[]);
        let batch = builder.build().map_err(io::Error::other)?;
        write("record_batch", codec.name(), &[&[codec.id()], &batch[..]].concat())?;
        let payload = [&[codec.id()], &batch[61..]].concat();
        write("record_batch", &format!("{}_payload", codec.name()), &payload)?;
    }
    Ok(())
}

fn write(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let dir = Path::new("fuzz/corpus").join(target);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(name), bytes)
}
