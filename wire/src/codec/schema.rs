//! A message's declaration as data, so that tests and fuzzers can walk it.

use std::ops::{RangeFrom, RangeInclusive};

/// One declared field.
#[derive(Clone, Debug)]
pub struct FieldSpec {
    pub name: &'static str,
    pub kind: Kind,
    pub versions: Versions,
    pub nullable: Versions,
    /// `Some` for a tagged field.
    pub tag: Option<u32>,
}

/// The shape of a field.
#[derive(Clone, Debug)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uuid,
    String,
    Bytes,
    Array(Box<Kind>),
    Structure(fn() -> Vec<FieldSpec>),
}

/// A range of versions, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub min: i16,
    pub max: i16,
}

impl Versions {
    pub const NONE: Versions = Versions { min: 0, max: -1 };

    pub fn contains(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

impl From<RangeFrom<i16>> for Versions {
    fn from(range: RangeFrom<i16>) -> Versions {
        Versions { min: range.start, max: i16::MAX }
    }
}

impl From<RangeInclusive<i16>> for Versions {
    fn from(range: RangeInclusive<i16>) -> Versions {
        Versions { min: *range.start(), max: *range.end() }
    }
}
