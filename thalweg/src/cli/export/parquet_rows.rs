//! Records as rows of a Parquet file: topic, partition, offset, timestamp, key, value, headers.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use thalweg_client::Record;
use thalweg_model::{Timestamp, TopicPartition};

/// A Parquet file under way. Rows are gathered column by column and written a row group at a time.
pub struct ParquetRows {
    writer: SerializedFileWriter<BufWriter<File>>,
    topic: ByteArray,
    partition: i32,
    group: RowGroup,
}

/// The rows that are not written yet.
#[derive(Default)]
struct RowGroup {
    offsets: Vec<i64>,
    timestamps: Column<i64>,
    keys: Column<ByteArray>,
    values: Column<ByteArray>,
    header_keys: Column<ByteArray>,
    header_values: Column<ByteArray>,
    /// 0 where a record's headers begin, 1 for a further header of the same record; of both columns of headers.
    header_repetition_levels: Vec<i16>,
    bytes: u64,
}

/// The values that are there, and for each place how much of its path is: Parquet's definition levels.
#[derive(Default)]
struct Column<T> {
    values: Vec<T>,
    definition_levels: Vec<i16>,
}

impl ParquetRows {
    pub fn new(file: File, tp: &TopicPartition) -> io::Result<ParquetRows> {
        let schema = parse_message_type(SCHEMA).map_err(failed)?;
        let column = |name: &str| ColumnPath::from(name);
        // Offsets and times differ little from one to the next; values are seldom the same. What readers skip row
        // groups by is in the two: the largest and least value of the others would only cost.
        let properties = WriterProperties::builder()
            .set_created_by(concat!("thalweg ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).map_err(failed)?))
            .set_statistics_enabled(EnabledStatistics::None)
            .set_column_statistics_enabled(column("offset"), EnabledStatistics::Chunk)
            .set_column_statistics_enabled(column("timestamp"), EnabledStatistics::Chunk)
            .set_column_dictionary_enabled(column("offset"), false)
            .set_column_encoding(column("offset"), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(column("timestamp"), false)
            .set_column_encoding(column("timestamp"), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(column("value"), false)
            .build();
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(ParquetRows {
            writer: SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map_err(failed)?,
            topic: ByteArray::from(tp.topic.as_str()),
            partition: tp.partition.0,
            group: RowGroup::default(),
        })
    }

    pub fn append(&mut self, record: Record) -> io::Result<()> {
        self.group.append(record);
        if self.group.bytes >= GROUP_BYTES || self.group.offsets.len() >= GROUP_ROWS {
            self.write_group()?;
        }
        Ok(())
    }

    /// Written, and gathered before it is compressed.
    pub fn bytes_max(&self) -> u64 {
        self.writer.bytes_written() as u64 + self.group.bytes
    }

    pub fn finish(mut self) -> io::Result<File> {
        if !self.group.offsets.is_empty() {
            self.write_group()?;
        }
        self.writer.into_inner().map_err(failed)?.into_inner().map_err(io::IntoInnerError::into_error)
    }

    fn write_group(&mut self) -> io::Result<()> {
        let group = std::mem::take(&mut self.group);
        let row_count = group.offsets.len();
        let mut writer = self.writer.next_row_group().map_err(failed)?;
        let headers_at = Some(group.header_repetition_levels.as_slice());
        // In the order of the schema.
        write::<ByteArrayType>(&mut writer, &vec![self.topic.clone(); row_count], None, None)?;
        write::<Int32Type>(&mut writer, &vec![self.partition; row_count], None, None)?;
        write::<Int64Type>(&mut writer, &group.offsets, None, None)?;
        group.timestamps.write::<Int64Type>(&mut writer, None)?;
        group.keys.write::<ByteArrayType>(&mut writer, None)?;
        group.values.write::<ByteArrayType>(&mut writer, None)?;
        group.header_keys.write::<ByteArrayType>(&mut writer, headers_at)?;
        group.header_values.write::<ByteArrayType>(&mut writer, headers_at)?;
        writer.close().map_err(failed)?;
        Ok(())
    }
}

impl RowGroup {
    fn append(&mut self, record: Record) {
        let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len) as u64;
        self.bytes += ROW_BYTES + length(&record.key) + length(&record.value);
        self.offsets.push(record.offset.0);
        self.timestamps.push(Some(record.timestamp.0).filter(|_| record.timestamp != Timestamp::NONE), 0);
        self.keys.push(record.key.map(ByteArray::from), 0);
        self.values.push(record.value.map(ByteArray::from), 0);
        if record.headers.is_empty() {
            self.header_repetition_levels.push(0);
            self.header_keys.definition_levels.push(0);
            self.header_values.definition_levels.push(0);
        }
        for (i, header) in record.headers.iter().enumerate() {
            self.bytes += ROW_BYTES + header.key.len() as u64 + length(&header.value);
            self.header_repetition_levels.push(i16::from(i > 0));
            // A name is text: bytes that are no UTF-8 are replaced, as everywhere.
            self.header_keys.push(Some(ByteArray::from(header.key_text().as_ref())), 0);
            self.header_values.push(header.value.map(ByteArray::from), 1);
        }
    }
}

impl<T> Column<T> {
    /// A place whose path is there down to `depth`, and further if there is a value.
    fn push(&mut self, value: Option<T>, depth: i16) {
        self.definition_levels.push(depth + i16::from(value.is_some()));
        self.values.extend(value);
    }

    fn write<D: DataType<T = T>>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
        repetition_levels: Option<&[i16]>,
    ) -> io::Result<()> {
        write::<D>(group, &self.values, Some(&self.definition_levels), repetition_levels)
    }
}

/// Writes the next column of a row group.
fn write<D: DataType>(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<File>>,
    values: &[D::T],
    definition_levels: Option<&[i16]>,
    repetition_levels: Option<&[i16]>,
) -> io::Result<()> {
    let mut column = group.next_column().map_err(failed)?.expect("the schema has as many columns as are written");
    column.typed::<D>().write_batch(values, definition_levels, repetition_levels).map_err(failed)?;
    column.close().map_err(failed)
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(cause) => io::Error::other(cause),
        },
        other => io::Error::other(other),
    }
}

/// Keys and values are bytes: whether they are text is the topic's own matter.
const SCHEMA: &str = "
message record {
  REQUIRED BYTE_ARRAY topic (STRING);
  REQUIRED INT32 partition;
  REQUIRED INT64 offset;
  OPTIONAL INT64 timestamp (TIMESTAMP(MILLIS,true));
  OPTIONAL BYTE_ARRAY key;
  OPTIONAL BYTE_ARRAY value;
  REQUIRED GROUP headers (LIST) {
    REPEATED GROUP list {
      REQUIRED GROUP element {
        REQUIRED BYTE_ARRAY key (STRING);
        OPTIONAL BYTE_ARRAY value;
      }
    }
  }
}";
const BUFFER_BYTES: usize = 1 << 20;
/// Of a row group, before it is compressed.
const GROUP_BYTES: u64 = 32 << 20;
const GROUP_ROWS: usize = 1 << 20;
/// What a row or a header takes at most beside its bytes.
const ROW_BYTES: u64 = 32;
const ZSTD_LEVEL: i32 = 3;
