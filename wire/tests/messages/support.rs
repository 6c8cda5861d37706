//! Writes random valid messages from a message's declaration, without using the encoder under test.

use bytes::{BufMut, BytesMut};
use thalweg_wire::codec::{FieldSpec, Kind};
use thalweg_wire::messages::MessageInfo;

/// A body and where its numbers lie.
pub struct Sample {
    pub bytes: Vec<u8>,
    pub numbers: Vec<Number>,
}

/// A number on the wire: a value, a length or a count.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    pub position: usize,
    pub form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Int8,
    Int16,
    Int32,
    Int64,
    Varint,
}

/// A body of `info` in `version`; the same seed gives the same body.
///
/// Tagged fields are present and not at their default, so that the body is the one canonical form of its value.
pub fn sample(info: &MessageInfo, version: i16, seed: u64) -> Sample {
    let mut writer = Writer {
        out: BytesMut::new(),
        numbers: Vec::new(),
        random: Random(seed),
        version,
        flexible: version >= info.flexible_from,
        plain: false,
    };
    writer.structure(&(info.fields)());
    Sample { bytes: writer.out.to_vec(), numbers: writer.numbers }
}

/// Every message in every version that it knows.
pub fn every_version(all: Vec<MessageInfo>) -> impl Iterator<Item = (MessageInfo, i16)> {
    all.into_iter().flat_map(|info| (info.version_min..=info.version_max).map(move |version| (info, version)))
}

struct Writer {
    out: BytesMut,
    numbers: Vec<Number>,
    random: Random,
    version: i16,
    flexible: bool,
    /// Inside a tagged field: no value may be a default.
    plain: bool,
}

impl Writer {
    fn structure(&mut self, fields: &[FieldSpec]) {
        let present = |field: &&FieldSpec| field.versions.contains(self.version);
        let (tagged, untagged): (Vec<_>, Vec<_>) = fields.iter().filter(present).partition(|f| f.tag.is_some());
        for field in untagged {
            let null = field.nullable.contains(self.version);
            self.field(&field.kind, null);
        }
        if self.flexible {
            self.varint(tagged.len() as u32);
            for field in tagged {
                self.tagged(field);
            }
        }
    }

    fn tagged(&mut self, field: &FieldSpec) {
        let mut value = Writer {
            out: BytesMut::new(),
            numbers: Vec::new(),
            random: Random(self.random.next()),
            version: self.version,
            flexible: self.flexible,
            plain: true,
        };
        value.field(&field.kind, field.nullable.contains(self.version));
        self.varint(field.tag.expect("only tagged fields come here"));
        self.varint(value.out.len() as u32);
        let start = self.out.len();
        let moved = value.numbers.iter().map(|number| Number { position: start + number.position, ..*number });
        self.numbers.extend(moved);
        self.out.put_slice(&value.out);
    }

    fn field(&mut self, kind: &Kind, nullable: bool) {
        let null = nullable && !self.plain && self.random.below(4) == 0;
        match kind {
            Kind::Bool => {
                let value = self.plain || self.random.below(2) == 0;
                self.out.put_u8(u8::from(value));
            }
            Kind::Int8 => self.number(Form::Int8),
            Kind::Int16 => self.number(Form::Int16),
            Kind::Int32 => self.number(Form::Int32),
            Kind::Int64 => self.number(Form::Int64),
            Kind::Uuid => {
                for _ in 0..2 {
                    let half = self.random.next() | 1;
                    self.out.put_u64(half);
                }
            }
            Kind::String => {
                let length = self.length(null, Form::Int16);
                for _ in 0..length {
                    let letter = b'a' + self.random.below(26) as u8;
                    self.out.put_u8(letter);
                }
            }
            Kind::Bytes => {
                let length = self.length(null, Form::Int32);
                for _ in 0..length {
                    let byte = self.random.next() as u8;
                    self.out.put_u8(byte);
                }
            }
            Kind::Array(element) => {
                for _ in 0..self.length(null, Form::Int32) {
                    self.field(element, false);
                }
            }
            Kind::Structure(fields) => {
                if nullable {
                    self.mark(Form::Int8);
                    self.out.put_i8(if null { -1 } else { 1 });
                }
                if !null {
                    self.structure(&fields());
                }
            }
        }
    }

    /// Writes a length in the form of the version; returns how many bytes or elements are to follow.
    fn length(&mut self, null: bool, form: Form) -> usize {
        let length = self.random.below(4) as usize + usize::from(self.plain);
        match (self.flexible, null) {
            (true, true) => self.varint(0),
            (true, false) => self.varint(length as u32 + 1),
            (false, _) => {
                self.mark(form);
                let written = if null { -1 } else { length as i32 };
                match form {
                    Form::Int16 => self.out.put_i16(written as i16),
                    _ => self.out.put_i32(written),
                }
            }
        }
        if null { 0 } else { length }
    }

    fn number(&mut self, form: Form) {
        self.mark(form);
        // Defaults are 0, -1 and the extremes: 2 to 101 is none of them.
        let value = if self.plain || self.random.below(2) == 0 {
            self.random.below(100) as i64 + 2
        } else {
            self.random.next() as i64
        };
        match form {
            Form::Int8 => self.out.put_i8(value as i8),
            Form::Int16 => self.out.put_i16(value as i16),
            Form::Int32 => self.out.put_i32(value as i32),
            _ => self.out.put_i64(value),
        }
    }

    fn varint(&mut self, value: u32) {
        self.mark(Form::Varint);
        assert!(value < 1 << 14, "samples are small");
        if value >= 0x80 {
            self.out.put_u8(value as u8 | 0x80);
            self.out.put_u8((value >> 7) as u8);
        } else {
            self.out.put_u8(value as u8);
        }
    }

    fn mark(&mut self, form: Form) {
        self.numbers.push(Number { position: self.out.len(), form });
    }
}

/// SplitMix64: a seed gives the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
