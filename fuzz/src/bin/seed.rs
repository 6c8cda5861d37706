//! Writes the first corpus of the wire targets: valid frames of every API, batches of every codec, names.
//!
//! `cargo run --manifest-path fuzz/Cargo.toml --bin seed` from the root of the repository.

use std::fs;
use std::io;
use std::path::Path;

use bytes::BytesMut;
use thalweg_model::{ProducerEpoch, ProducerId, Timestamp};
use thalweg_wire::compression::Compression;
use thalweg_wire::messages::{MessageInfo, all};
use thalweg_wire::records::RecordBatchBuilder;

#[path = "../../../wire/tests/messages/support.rs"]
mod support;

fn main() -> io::Result<()> {
    messages()?;
    batches()?;
    for (name, text) in
        [("plain", "orders"), ("dots", ".."), ("slash", "../x"), ("dir", "a.b-3"), ("id", "AAAAAAAAAAAAAAAAAAAAAQ")]
    {
        write("topic_name", name, text.as_bytes())?;
    }
    Ok(())
}

fn messages() -> io::Result<()> {
    for (info, version) in support::every_version(all()) {
        let sample = support::sample(&info, version, 1);
        let name = format!("{}_{version}", info.name);
        message(&info, version, &name, &sample.bytes)?;
        // The newest version with its last length made absurd as well.
        let length = sample.numbers.iter().rfind(|number| number.form == support::Form::Varint);
        if let Some(number) = length.filter(|_| version == info.version_max) {
            let mut body = sample.bytes[..number.position].to_vec();
            body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x07]);
            message(&info, version, &format!("{name}_huge"), &body)?;
        }
    }
    Ok(())
}

fn message(info: &MessageInfo, version: i16, name: &str, body: &[u8]) -> io::Result<()> {
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

fn batches() -> io::Result<()> {
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
