//! The snapshot format: checked frames (snapshot.proto, `SnapshotHeader`; REPLICATION R7).

use std::io::{self, Read, Seek, SeekFrom, Write};

use prost::Message;
use thalweg_proto::v1::{Applied, SnapshotHeader};

use super::codec;
use super::state_machine::read_applied;
use crate::store::{KvStore, SnapshotFile};

/// Writes the state as of now into a new file. The newest snapshot only once it is published.
///
/// # Errors
/// The store or the file failed.
pub fn write(store: &dyn KvStore) -> io::Result<(Applied, SnapshotFile)> {
    // Progress and records come from one view, so they belong together whatever is applied meanwhile.
    let view = store.view()?;
    let (applied, generation) = read_applied(&*view)?;
    let mut record_count = 0;
    view.scan(generation, &[], &mut |_, _| {
        record_count += 1;
        Ok(true)
    })?;
    let mut file = io::BufWriter::new(store.snapshots().create()?);
    let header = SnapshotHeader { version: VERSION, applied: Some(applied.clone()), record_count };
    write_frame(&mut file, &header.encode_to_vec())?;
    view.scan(generation, &[], &mut |_, record| write_frame(&mut file, record).map(|()| true))?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok((applied, file))
}

/// Reads a snapshot frame by frame. Refuses one that is cut, damaged, or goes on behind its end.
pub struct Reader<R> {
    source: R,
    left: u64,
}

impl<R: Read> Reader<R> {
    /// # Errors
    /// No snapshot, a damaged one, or one of another version.
    pub fn open(mut source: R) -> io::Result<(Applied, Reader<R>)> {
        let bytes = read_frame(&mut source)?.ok_or_else(|| codec::invalid("the snapshot is empty"))?;
        let header: SnapshotHeader = codec::decode(&bytes, "the snapshot's header")?;
        if header.version != VERSION {
            return Err(codec::invalid(format!(
                "the snapshot has version {}, this program reads version {VERSION}",
                header.version
            )));
        }
        let applied = header.applied.ok_or_else(|| codec::invalid("the snapshot does not say where it ends"))?;
        Ok((applied, Reader { source, left: header.record_count }))
    }

    /// The next record's bytes; `None` at the proper end.
    ///
    /// # Errors
    /// The snapshot is cut or damaged.
    pub fn next_record(&mut self) -> io::Result<Option<Vec<u8>>> {
        let frame = read_frame(&mut self.source)?;
        match (frame, self.left) {
            (Some(_), 0) => Err(codec::invalid("the snapshot goes on behind its last record")),
            (None, 0) => Ok(None),
            (None, left) => Err(codec::invalid(format!("the snapshot ends {left} records too early"))),
            (Some(record), _) => {
                self.left -= 1;
                Ok(Some(record))
            }
        }
    }
}

/// Where the snapshot ends, with the file at its start again.
///
/// # Errors
/// As [`Reader::open`].
pub fn peek(file: &mut SnapshotFile) -> io::Result<Applied> {
    file.seek(SeekFrom::Start(0))?;
    let (applied, _) = Reader::open(&mut *file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(applied)
}

pub fn write_frame(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| codec::invalid("a record is larger than 4 GiB"))?;
    out.write_all(&length.to_be_bytes())?;
    out.write_all(&crc32c::crc32c(bytes).to_be_bytes())?;
    out.write_all(bytes)
}

/// `None` at the end of the source, if that is where a frame would start.
fn read_frame(source: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::with_capacity(8);
    source.by_ref().take(8).read_to_end(&mut head)?;
    let Ok(head) = <[u8; 8]>::try_from(head.as_slice()) else {
        return if head.is_empty() { Ok(None) } else { Err(codec::invalid("the snapshot ends within a frame")) };
    };
    let [a, b, c, d, e, f, g, h] = head;
    let (length, crc) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    // Grows with what is really there: a damaged length allocates nothing.
    let mut bytes = Vec::new();
    source.by_ref().take(u64::from(length)).read_to_end(&mut bytes)?;
    if bytes.len() != length as usize {
        return Err(codec::invalid("the snapshot ends within a frame"));
    }
    if crc32c::crc32c(&bytes) != crc {
        return Err(codec::invalid("a frame of the snapshot has a wrong checksum; the file is damaged"));
    }
    Ok(Some(bytes))
}

const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(declared: u64, records: &[&[u8]]) -> Vec<u8> {
        let header = SnapshotHeader { version: VERSION, applied: Some(Applied::default()), record_count: declared };
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &header.encode_to_vec()).unwrap();
        records.iter().for_each(|record| write_frame(&mut bytes, record).unwrap());
        bytes
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let (_, mut reader) = Reader::open(bytes)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn a_whole_snapshot_reads_back() {
        assert_eq!(read(&snapshot(2, &[b"a", b""])).unwrap(), [b"a".to_vec(), Vec::new()]);
    }

    /// REPLICATION R7: on mismatch refuse, never repair silently.
    #[test]
    fn any_cut_and_any_flipped_bit_is_refused() {
        let whole = snapshot(2, &[b"first", b"second"]);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "cut at {length}");
        }
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
        assert!(read(&snapshot(1, &[b"a", b"b"])).is_err(), "more than declared");
    }
}
