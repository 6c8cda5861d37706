//! Empty: only the native library of this crate's one dependency is wanted.
