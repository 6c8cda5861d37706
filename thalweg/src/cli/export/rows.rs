//! Records into a file, as lines of JSON or as Parquet.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use thalweg_client::Record;
use thalweg_model::TopicPartition;

use super::Format;
use super::parquet_rows::ParquetRows;
use crate::cli::topic::print::{Printed, Printer};

/// A file under way, of one partition.
pub enum Rows {
    Json(JsonRows),
    Parquet(Box<ParquetRows>),
}

/// One object a line, as `thalweg topic consume --json` prints them.
pub struct JsonRows {
    out: BufWriter<File>,
    tp: TopicPartition,
    line: Vec<u8>,
    written_bytes: u64,
}

impl Rows {
    /// # Errors
    /// The file cannot be written.
    pub fn new(file: File, tp: &TopicPartition, format: Format) -> io::Result<Rows> {
        Ok(match format {
            Format::Json => Rows::Json(JsonRows {
                out: BufWriter::with_capacity(BUFFER_BYTES, file),
                tp: tp.clone(),
                line: Vec::new(),
                written_bytes: 0,
            }),
            Format::Parquet => Rows::Parquet(Box::new(ParquetRows::new(file, tp)?)),
        })
    }

    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        match self {
            Rows::Json(rows) => rows.append(&record),
            Rows::Parquet(rows) => rows.append(record),
        }
    }

    /// What the file would have if it ended here; of Parquet at most that.
    pub fn bytes(&self) -> u64 {
        match self {
            Rows::Json(rows) => rows.written_bytes,
            Rows::Parquet(rows) => rows.bytes_max(),
        }
    }

    /// Ends the file; when this returns all of it is on the disk. Gives its size.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> io::Result<u64> {
        let file = match self {
            Rows::Json(rows) => rows.out.into_inner().map_err(io::IntoInnerError::into_error)?,
            Rows::Parquet(rows) => rows.finish()?,
        };
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

impl JsonRows {
    fn append(&mut self, record: &Record) -> io::Result<()> {
        let printed = Printed {
            topic: self.tp.topic.as_str(),
            partition: self.tp.partition.0,
            offset: record.offset.0,
            timestamp: record.timestamp.0,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &record.headers,
        };
        self.line.clear();
        Printer::Json.print(&mut self.line, &printed)?;
        self.written_bytes += self.line.len() as u64;
        self.out.write_all(&self.line)
    }
}

const BUFFER_BYTES: usize = 1 << 20;
