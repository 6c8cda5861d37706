//! What `log dump` prints, for programs: one JSON object a line.

use std::io::Write;

use serde_json::{Map, Value, json};
use thalweg_wire::batch::verify_crc;
use thalweg_wire::records::{ControlRecord, Record, Records};

use super::segment::{FoundBatch, UNPACKED_BYTES_MAX};
use crate::cli::failure::Failure;
use crate::cli::topic::{as_base64, as_text};

/// A batch, with its records if they are wanted.
pub fn print_batch(out: &mut impl Write, batch: &FoundBatch, with_records: bool) -> Result<(), Failure> {
    let header = &batch.header;
    let mut value = json!({
        "base_offset": header.base_offset.0,
        "last_offset": header.last_offset().0,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence(),
        "producer_id": header.producer_id.0,
        "producer_epoch": header.producer_epoch.0,
        "leader_epoch": header.leader_epoch.0,
        "transactional": header.is_transactional(),
        "control": header.is_control(),
        "position": batch.position,
        "timestamp_type": super::dump::timestamp_type(header),
        "max_timestamp": header.max_timestamp.0,
        "size": header.size_bytes(),
        "compression": header.compression().map_or("unknown", |codec| codec.name()),
        "crc": header.crc,
        "valid": verify_crc(&batch.bytes).is_ok(),
    });
    if with_records {
        value["records"] = match Records::open(&batch.bytes, UNPACKED_BYTES_MAX) {
            Ok(records) => records
                .map(|record| match record {
                    Ok(record) => record_value(header.is_control(), &record),
                    Err(error) => json!({"error": error.to_string()}),
                })
                .collect(),
            Err(error) => json!([{"error": error.to_string()}]),
        };
    }
    print(out, &value)
}

/// `name: number name: number`, as the other files are printed, or a line of text.
pub fn print_line(out: &mut impl Write, line: &str) -> Result<(), Failure> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let pair = |pair: &[&str]| {
        let [name, number] = pair else { return None };
        Some((name.strip_suffix(':')?.to_owned(), Value::from(number.parse::<i64>().ok()?)))
    };
    let fields: Option<Map<String, Value>> = words.chunks(2).map(pair).collect();
    match fields.filter(|fields| !fields.is_empty()) {
        Some(fields) => print(out, &Value::Object(fields)),
        None => print(out, &json!({ "line": line })),
    }
}

/// Before what a file holds, where several are dumped.
pub fn print_file(out: &mut impl Write, path: &std::path::Path) -> Result<(), Failure> {
    print(out, &json!({ "file": path.display().to_string() }))
}

fn print(out: &mut impl Write, value: &Value) -> Result<(), Failure> {
    serde_json::to_writer(&mut *out, value)?;
    Ok(out.write_all(b"\n")?)
}

fn record_value(is_control: bool, record: &Record) -> Value {
    let headers = record.headers.iter().map(|header| {
        json!({
            "key": header.key_text(),
            "value": as_text(header.value.as_deref()),
            "value_base64": as_base64(header.value.as_deref()),
        })
    });
    let mut value = json!({
        "offset": record.offset.0,
        "timestamp": record.timestamp.0,
        "headers": headers.collect::<Vec<_>>(),
        "key": as_text(record.key.as_deref()),
        "value": as_text(record.value.as_deref()),
    });
    // Bytes that are no text come under a name of their own, as `topic consume -J` has them.
    for (name, bytes) in [("key_base64", &record.key), ("value_base64", &record.value)] {
        if let Some(encoded) = as_base64(bytes.as_deref()) {
            value[name] = encoded.into();
        }
    }
    if is_control {
        value["control"] = match ControlRecord::read(record) {
            Some(ControlRecord::Abort { .. }) => "abort".into(),
            Some(ControlRecord::Commit { .. }) => "commit".into(),
            Some(ControlRecord::Other { kind }) => kind.into(),
            None => Value::Null,
        };
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_numbers_become_objects_and_others_stay_text() {
        let printed = |line| {
            let mut out = Vec::new();
            print_line(&mut out, line).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed("offset: 7 position: 4096"), "{\"offset\":7,\"position\":4096}\n");
        assert_eq!(printed("topic_id: abc"), "{\"line\":\"topic_id: abc\"}\n");
        assert_eq!(printed("t 0 5"), "{\"line\":\"t 0 5\"}\n");
        assert_eq!(printed(""), "{\"line\":\"\"}\n");
    }
}
