//! Sends parts, bytes or file slices, over a socket.
//!
//! Bytes leave by writev, file slices by sendfile straight from the page cache; a disk that the kernel does not know
//! (the simulated one) and a stream that must see the bytes (TLS) get them copied.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::net::SendFlags;
use tokio::io::{AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::disk::DiskFile;

/// A piece of what is to be sent.
#[derive(Clone, Debug)]
pub enum Part {
    Bytes(Bytes),
    File(FileSlice),
}

/// A range of a file that stays as it is while it is being sent.
#[derive(Clone, Debug)]
pub struct FileSlice {
    pub file: Arc<dyn DiskFile>,
    pub position: u64,
    /// In bytes.
    pub length: u64,
}

/// How record bytes left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub sendfile_bytes: u64,
    pub copied_bytes: u64,
    /// Everything, record bytes or not.
    pub total_bytes: u64,
}

impl Part {
    pub fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(slice) => slice.length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sends all parts in order over a plain TCP connection.
///
/// File slices should be in the page cache: a cold one stalls the thread while the disk reads (see [`is_cold`]).
///
/// # Errors
/// The connection is unusable; some of the bytes may have left. `UnexpectedEof` if a file is shorter than its slice.
pub async fn send(stream: &TcpStream, parts: &[Part]) -> io::Result<Sent> {
    let mut sent = Sent::default();
    let last = parts.iter().rposition(|part| !part.is_empty());
    let mut index = 0;
    while let Some(part) = parts.get(index) {
        match part {
            Part::Bytes(_) => {
                let run = parts[index..].iter().take_while(|part| matches!(part, Part::Bytes(_))).count();
                let more = last.is_some_and(|last| last >= index + run);
                sent.total_bytes += send_bytes(stream, &parts[index..index + run], more).await?;
                index += run;
            }
            Part::File(slice) => {
                send_slice(stream, slice, &mut sent).await?;
                index += 1;
            }
        }
    }
    Ok(sent)
}

/// Sends all parts in order through anything that takes bytes, copying file slices.
///
/// # Errors
/// As [`send`].
pub async fn send_copied<W: AsyncWrite + Unpin>(stream: &mut W, parts: &[Part]) -> io::Result<Sent> {
    let mut sent = Sent::default();
    for part in parts {
        match part {
            Part::Bytes(bytes) => stream.write_all(bytes).await?,
            Part::File(slice) => {
                let mut done = 0;
                while done < slice.length {
                    let chunk = read_chunk(slice, done)?;
                    stream.write_all(&chunk).await?;
                    done += chunk.len() as u64;
                }
                sent.copied_bytes += done;
            }
        }
        sent.total_bytes += part.len();
    }
    stream.flush().await?;
    Ok(sent)
}

/// Whether reading the slice would wait for the disk: its first or last page is not in the page cache.
///
/// A guess that errs towards "no": the middle is not looked at, and kernels that cannot tell count as warm.
pub fn is_cold(slice: &FileSlice) -> bool {
    let Some(fd) = slice.file.fd() else { return false };
    let Some(last) = slice.length.checked_sub(1) else { return false };
    [slice.position, slice.position + last].into_iter().any(|position| {
        let mut byte = [0; 1];
        let buffers = &mut [io::IoSliceMut::new(&mut byte)];
        let read = rustix::io::preadv2(fd, buffers, position, rustix::io::ReadWriteFlags::NOWAIT);
        matches!(read, Err(rustix::io::Errno::AGAIN))
    })
}

/// Brings the slice into the page cache. Blocks; for a thread that may.
///
/// # Errors
/// The disk's.
pub fn warm(slice: &FileSlice) -> io::Result<()> {
    let mut done = 0;
    while done < slice.length {
        done += read_chunk(slice, done)?.len() as u64;
    }
    Ok(())
}

async fn send_bytes(stream: &TcpStream, parts: &[Part], more: bool) -> io::Result<u64> {
    let total: u64 = parts.iter().map(Part::len).sum();
    let mut done = 0;
    while done < total {
        done += write_from(stream, parts, done, more).await? as u64;
    }
    Ok(total)
}

/// One sendmsg of what is left after `done` bytes. `more` holds back a short segment until the file follows.
async fn write_from(stream: &TcpStream, parts: &[Part], done: u64, more: bool) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    let mut skip = done;
    for part in parts {
        let Part::Bytes(bytes) = part else { continue };
        let skipped = skip.min(bytes.len() as u64);
        skip -= skipped;
        let rest = &bytes[usize::try_from(skipped).unwrap_or(usize::MAX)..];
        if rest.is_empty() {
            continue;
        }
        if count == SLICES_MAX {
            break;
        }
        slices[count] = IoSlice::new(rest);
        count += 1;
    }
    let flags = if more { SendFlags::MORE | SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL };
    stream
        .async_io(Interest::WRITABLE, || {
            let mut control = rustix::net::SendAncillaryBuffer::default();
            Ok(rustix::net::sendmsg(stream.as_fd(), &slices[..count], &mut control, flags)?)
        })
        .await
}

async fn send_slice(stream: &TcpStream, slice: &FileSlice, sent: &mut Sent) -> io::Result<()> {
    let Some(fd) = slice.file.fd() else {
        let mut done = 0;
        while done < slice.length {
            let chunk = [Part::Bytes(read_chunk(slice, done)?)];
            done += send_bytes(stream, &chunk, false).await?;
        }
        sent.copied_bytes += done;
        sent.total_bytes += done;
        return Ok(());
    };
    let mut position = slice.position;
    let end = slice.position.saturating_add(slice.length);
    while position < end {
        // Bounded, so that one fast reader does not keep the thread from the other connections.
        let count = usize::try_from(end - position).unwrap_or(usize::MAX).min(SENDFILE_BYTES);
        let moved = stream
            .async_io(Interest::WRITABLE, || {
                let mut offset = position;
                Ok(rustix::fs::sendfile(stream.as_fd(), fd, Some(&mut offset), count)?)
            })
            .await?;
        if moved == 0 {
            return Err(too_short(slice));
        }
        position += moved as u64;
        sent.sendfile_bytes += moved as u64;
        sent.total_bytes += moved as u64;
    }
    Ok(())
}

fn read_chunk(slice: &FileSlice, done: u64) -> io::Result<Bytes> {
    let length = usize::try_from(slice.length - done).unwrap_or(usize::MAX).min(COPY_BYTES);
    let mut chunk = vec![0; length];
    let read = slice.file.read_at(&mut chunk, slice.position + done)?;
    if read == 0 {
        return Err(too_short(slice));
    }
    chunk.truncate(read);
    Ok(chunk.into())
}

fn too_short(slice: &FileSlice) -> io::Error {
    let message = format!("a file ends within a slice of {} bytes at {}", slice.length, slice.position);
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

const SLICES_MAX: usize = 64;
const SENDFILE_BYTES: usize = 1 << 20;
const COPY_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::disk::{Disk, OpenMode, RealDisk, SimDisk};

    fn file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Arc<dyn DiskFile> {
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
        file
    }

    fn parts(file: &Arc<dyn DiskFile>) -> Vec<Part> {
        let slice = |position, length| Part::File(FileSlice { file: Arc::clone(file), position, length });
        vec![
            Part::Bytes(Bytes::from_static(b"head")),
            Part::Bytes(Bytes::new()),
            slice(3, 2_000_000),
            Part::Bytes(Bytes::from_static(b"middle")),
            slice(0, 1),
            slice(5, 0),
            Part::Bytes(Bytes::from_static(b"end")),
        ]
    }

    async fn received(parts: Vec<Part>) -> (Vec<u8>, io::Result<Sent>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sender = async move { send(&stream, &parts).await };
        let mut bytes = Vec::new();
        let (sent, read) = tokio::join!(sender, reader.read_to_end(&mut bytes));
        read.unwrap();
        (bytes, sent)
    }

    fn content() -> Vec<u8> {
        (0..2_000_010u32).map(|i| (i % 251) as u8).collect()
    }

    fn expected(content: &[u8]) -> Vec<u8> {
        [b"head", &content[3..2_000_003], b"middle", &content[..1], b"end"].concat()
    }

    #[tokio::test]
    async fn a_real_file_leaves_by_sendfile_in_its_place_between_the_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let content = content();
        let (bytes, sent) = received(parts(&file(&RealDisk, &dir.path().join("f"), &content))).await;
        assert!(bytes == expected(&content));
        let total = bytes.len() as u64;
        assert_eq!(sent.unwrap(), Sent { sendfile_bytes: 2_000_001, copied_bytes: 0, total_bytes: total });
    }

    #[tokio::test]
    async fn a_file_without_descriptor_is_copied() {
        let content = content();
        let (bytes, sent) = received(parts(&file(&SimDisk::new(), Path::new("/f"), &content))).await;
        assert!(bytes == expected(&content));
        let total = bytes.len() as u64;
        assert_eq!(sent.unwrap(), Sent { sendfile_bytes: 0, copied_bytes: 2_000_001, total_bytes: total });
    }

    #[tokio::test]
    async fn any_stream_gets_the_same_bytes_copied() {
        let dir = tempfile::tempdir().unwrap();
        let content = content();
        let mut out = Vec::new();
        let sent = send_copied(&mut out, &parts(&file(&RealDisk, &dir.path().join("f"), &content))).await.unwrap();
        assert!(out == expected(&content));
        assert_eq!((sent.sendfile_bytes, sent.copied_bytes), (0, 2_000_001));
    }

    #[tokio::test]
    async fn a_file_that_is_too_short_is_an_error_not_a_hang() {
        let dir = tempfile::tempdir().unwrap();
        let short = file(&RealDisk, &dir.path().join("f"), b"123");
        let slice = FileSlice { file: short, position: 1, length: 5 };
        let (bytes, sent) = received(vec![Part::File(slice)]).await;
        assert_eq!(bytes, b"23");
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
