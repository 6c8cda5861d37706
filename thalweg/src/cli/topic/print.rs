//! How a record looks on stdout: kcat's percent words, or JSON.

use std::io::{self, Write};

use serde::Serialize;
use thalweg_client::RecordHeaders;

use super::produce::unescape;

/// A record to print.
pub struct Printed<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a RecordHeaders,
}

/// Writes records one way.
#[derive(Debug)]
pub enum Printer {
    Words(Vec<Word>),
    Json,
}

/// A piece of a format.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    Text(Vec<u8>),
    Value,
    ValueLength,
    ValueLengthBinary,
    Key,
    KeyLength,
    Headers,
    Topic,
    Partition,
    Offset,
    Timestamp,
}

impl Printer {
    /// `%s` (or `%v`) value, `%S` its length, `%R` its length as 4 bytes, `%k` key, `%K` its length, `%h` headers,
    /// `%t` topic, `%p` partition, `%o` offset, `%T` timestamp in ms, `%%`; `\n`, `\t`, `\r`, `\0`, `\\`, `\xFF`.
    /// A length is -1 for null. `json` is one object a line.
    ///
    /// # Errors
    /// Names the word that is not known.
    pub fn new(format: &str) -> Result<Printer, String> {
        if format == "json" {
            return Ok(Printer::Json);
        }
        let mut words = Vec::new();
        let mut text = String::new();
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                text.push(character);
                continue;
            }
            let word = match characters.next() {
                Some('s' | 'v') => Word::Value,
                Some('S' | 'V') => Word::ValueLength,
                Some('R') => Word::ValueLengthBinary,
                Some('k') => Word::Key,
                Some('K') => Word::KeyLength,
                Some('h') => Word::Headers,
                Some('t') => Word::Topic,
                Some('p') => Word::Partition,
                Some('o') => Word::Offset,
                Some('T' | 'd') => Word::Timestamp,
                Some('%') => {
                    text.push('%');
                    continue;
                }
                Some(other) => {
                    return Err(format!("%{other} is not known; known are %s %S %R %k %K %h %t %p %o %T %%"));
                }
                None => return Err("the format ends in a lone %; write %% for a percent sign".to_owned()),
            };
            if !text.is_empty() {
                words.push(Word::Text(unescape(&std::mem::take(&mut text))));
            }
            words.push(word);
        }
        if !text.is_empty() {
            words.push(Word::Text(unescape(&text)));
        }
        Ok(Printer::Words(words))
    }

    pub fn print(&self, out: &mut impl Write, record: &Printed) -> io::Result<()> {
        match self {
            Printer::Words(words) => words.iter().try_for_each(|word| word.print(out, record)),
            Printer::Json => print_json(out, record),
        }
    }
}

impl Word {
    fn print(&self, out: &mut impl Write, record: &Printed) -> io::Result<()> {
        let length = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        match self {
            Word::Text(text) => out.write_all(text),
            Word::Value => out.write_all(record.value.unwrap_or_default()),
            Word::ValueLength => write!(out, "{}", length(record.value)),
            Word::ValueLengthBinary => {
                out.write_all(&i32::try_from(length(record.value)).unwrap_or(i32::MAX).to_be_bytes())
            }
            Word::Key => out.write_all(record.key.unwrap_or_default()),
            Word::KeyLength => write!(out, "{}", length(record.key)),
            Word::Headers => print_headers(out, record.headers),
            Word::Topic => out.write_all(record.topic.as_bytes()),
            Word::Partition => write!(out, "{}", record.partition),
            Word::Offset => write!(out, "{}", record.offset),
            Word::Timestamp => write!(out, "{}", record.timestamp),
        }
    }
}

/// `a=1,b=NULL`, as kcat writes them.
fn print_headers(out: &mut impl Write, headers: &RecordHeaders) -> io::Result<()> {
    for (i, header) in headers.iter().enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        out.write_all(&header.key)?;
        out.write_all(b"=")?;
        out.write_all(header.value.as_deref().unwrap_or(b"NULL"))?;
    }
    Ok(())
}

/// kcat's names. Bytes that are no UTF-8 come as base64 under a name of their own; of headers' values, which are a list
/// with names between, at the same places of a list of their own.
#[derive(Serialize)]
struct JsonRecord<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    ts: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Option<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers_base64: Vec<Option<String>>,
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

fn print_json(out: &mut impl Write, record: &Printed) -> io::Result<()> {
    let headers = record.headers.iter().flat_map(|header| {
        let value = as_text(header.value.as_deref()).map(str::to_owned);
        [Some(header.key_text().into_owned()), value]
    });
    let mut headers_base64: Vec<Option<String>> =
        record.headers.iter().flat_map(|header| [None, as_base64(header.value.as_deref())]).collect();
    if headers_base64.iter().all(Option::is_none) {
        headers_base64.clear();
    }
    let json = JsonRecord {
        topic: record.topic,
        partition: record.partition,
        offset: record.offset,
        ts: record.timestamp,
        headers: headers.collect(),
        headers_base64,
        key: as_text(record.key),
        key_base64: as_base64(record.key),
        payload: as_text(record.value),
        payload_base64: as_base64(record.value),
    };
    serde_json::to_writer(&mut *out, &json).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

pub fn as_text(bytes: Option<&[u8]>) -> Option<&str> {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok())
}

pub fn as_base64(bytes: Option<&[u8]>) -> Option<String> {
    bytes.filter(|bytes| std::str::from_utf8(bytes).is_err()).map(base64)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().enumerate().fold(0u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: &str, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
        let record = Printed {
            topic: "t",
            partition: 3,
            offset: 42,
            timestamp: 1_700,
            key,
            value,
            headers: &RecordHeaders::default(),
        };
        let mut out = Vec::new();
        Printer::new(format).unwrap().print(&mut out, &record).unwrap();
        out
    }

    #[test]
    fn percent_words_are_kcats() {
        let out = printed(r"%t-%p@%o %T [%k:%K] %S=%s%%\n", Some(b"key"), Some(b"\xffv"));
        assert_eq!(out, b"t-3@42 1700 [key:3] 2=\xffv%\n");
        assert_eq!(printed("%R%s", None, Some(b"ab")), b"\0\0\0\x02ab");
        assert_eq!(printed("%S %K", None, None), b"-1 -1");
    }

    #[test]
    fn an_unknown_word_is_named() {
        assert!(Printer::new("%q").unwrap_err().contains("%q"));
        assert!(Printer::new("50%").is_err());
    }

    #[test]
    fn json_tells_null_text_and_bytes_apart() {
        let out = String::from_utf8(printed("json", None, Some(b"a\"b"))).unwrap();
        assert_eq!(
            out,
            "{\"topic\":\"t\",\"partition\":3,\"offset\":42,\"ts\":1700,\"key\":null,\"payload\":\"a\\\"b\"}\n"
        );
        let out = String::from_utf8(printed("json", Some(b""), Some(b"\xff\xfe"))).unwrap();
        assert!(out.contains("\"key\":\"\"") && out.contains("\"payload\":null,\"payload_base64\":\"//4=\""), "{out}");
    }

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
