//! The machine's bare loops: the least that serving and storing a log could cost here.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rand::RngExt;

use crate::process::thread_cpu;

/// What one run of a loop took.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub bytes: u64,
    pub elapsed: Duration,
    /// Of the side that a broker would be.
    pub server_cpu: Duration,
    /// Of the other side.
    pub client_cpu: Duration,
}

/// Sends `path` over loopback TCP by `sendfile` until `bytes` are sent; the client reads and discards.
///
/// The file should be in the page cache. `pair_count` servers and clients share the bytes.
pub fn sendfile(path: &Path, bytes: u64, pair_count: usize) -> Result<Moved> {
    in_pairs(pair_count, |_| {
        let (mut client, server) = pair()?;
        let file = File::open(path)?;
        let bytes = bytes / pair_count as u64;
        let discard = move || -> Result<()> {
            let received = discard(&mut client)?;
            ensure!(received == bytes, "sent {bytes} bytes, received {received}");
            Ok(())
        };
        Ok((bytes, move || send(&server, &file, bytes), discard))
    })
}

/// Receives `bytes` in chunks over loopback TCP, takes the CRC-32C of each and appends it to a new file.
///
/// With `sync`, each chunk is on stable storage before the next is taken. `pair_count` servers, each with a file of
/// its own, and clients share the bytes.
pub fn receive(dir: &Path, bytes: u64, chunk_bytes: usize, sync: bool, pair_count: usize) -> Result<Moved> {
    let path = |index: usize| dir.join(format!("bare-receive-{index}"));
    let moved = in_pairs(pair_count, |index| {
        let (mut client, mut server) = pair()?;
        let mut file = File::create(path(index))?;
        let chunk_count = bytes / pair_count as u64 / chunk_bytes as u64;
        let store = move || -> Result<()> {
            let mut chunk = vec![0; chunk_bytes];
            for _ in 0..chunk_count {
                server.read_exact(&mut chunk)?;
                std::hint::black_box(crc32c::crc32c(&chunk));
                file.write_all(&chunk)?;
                if sync {
                    file.sync_data()?;
                }
            }
            Ok(())
        };
        let write = move || -> Result<()> {
            let mut chunk = vec![0; chunk_bytes];
            rand::rng().fill(chunk.as_mut_slice());
            for _ in 0..chunk_count {
                client.write_all(&chunk)?;
            }
            Ok(())
        };
        Ok((chunk_count * chunk_bytes as u64, store, write))
    });
    for index in 0..pair_count {
        fs::remove_file(path(index))?;
    }
    moved
}

/// Starts a server and a client thread for each pair that `make` returns with its share of the bytes; times them all.
fn in_pairs<S, C>(pair_count: usize, make: impl Fn(usize) -> Result<(u64, S, C)>) -> Result<Moved>
where
    S: FnOnce() -> Result<()> + Send + 'static,
    C: FnOnce() -> Result<()> + Send + 'static,
{
    let pairs = (0..pair_count).map(make).collect::<Result<Vec<_>>>()?;
    let mut moved = Moved { bytes: 0, elapsed: Duration::ZERO, server_cpu: Duration::ZERO, client_cpu: Duration::ZERO };
    let began = Instant::now();
    let mut threads = Vec::new();
    for (bytes, server, client) in pairs {
        moved.bytes += bytes;
        threads.push((with_cpu(server), with_cpu(client)));
    }
    for (server, client) in threads {
        moved.server_cpu += join(server)?;
        moved.client_cpu += join(client)?;
    }
    moved.elapsed = began.elapsed();
    Ok(moved)
}

/// Runs `work` in a thread; what CPU time it took.
fn with_cpu(work: impl FnOnce() -> Result<()> + Send + 'static) -> JoinHandle<Result<Duration>> {
    std::thread::spawn(move || {
        let cpu = thread_cpu();
        work()?;
        Ok(thread_cpu() - cpu)
    })
}

/// Appends and syncs 4 KiB at a time; the latency of each, in µs.
pub fn fdatasync(dir: &Path, count: usize) -> Result<Vec<f64>> {
    let path = dir.join("bare-fdatasync");
    let mut file = File::create(&path)?;
    let block = [0x5a; 4096];
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    fs::remove_file(&path)?;
    Ok(micros)
}

/// Sends `bytes` over loopback TCP and gets them back; the latency of each trip, in µs.
pub fn round_trip(bytes: usize, count: usize) -> Result<Vec<f64>> {
    let (mut client, mut server) = pair()?;
    let echo = with_cpu(move || {
        let mut message = vec![0; bytes];
        while server.read_exact(&mut message).is_ok() {
            server.write_all(&message)?;
        }
        Ok(())
    });
    let mut message = vec![0x5a; bytes];
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        client.write_all(&message)?;
        client.read_exact(&mut message)?;
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    drop(client);
    join(echo)?;
    Ok(micros)
}

/// Takes `bytes` of memory into the page cache and gives it back: a virtual machine's host hands out memory at the first
/// touch, and whoever touches first would seem slow.
pub fn touch_memory(dir: &Path, bytes: u64) -> Result<()> {
    let path = dir.join("bare-touch");
    write_file(&path, bytes)?;
    fs::remove_file(&path)?;
    Ok(())
}

/// A file of random bytes, left in the page cache.
pub fn cached_file(path: &Path, bytes: u64) -> Result<()> {
    // Written back now, so that it is not during a measurement.
    Ok(write_file(path, bytes)?.sync_data()?)
}

fn write_file(path: &Path, bytes: u64) -> Result<File> {
    let mut file = File::create(path)?;
    let mut chunk = vec![0; 1 << 20];
    rand::rng().fill(chunk.as_mut_slice());
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left.min(chunk.len() as u64))?;
        file.write_all(&chunk[..count])?;
        left -= count as u64;
    }
    Ok(file)
}

/// Sends from the file's start, and again from there at its end.
fn send(stream: &TcpStream, file: &File, bytes: u64) -> Result<()> {
    let length = file.metadata()?.len();
    let (mut left, mut position) = (bytes, 0);
    while left > 0 {
        let count = usize::try_from(left.min(SENDFILE_CHUNK).min(length - position))?;
        let sent = rustix::fs::sendfile(stream, file, Some(&mut position), count)? as u64;
        ensure!(sent > 0, "the file ended early");
        left -= sent;
        position %= length;
    }
    // Ends the client's reading before the stream is dropped.
    stream.shutdown(Shutdown::Write)?;
    Ok(())
}

/// Reads to the end and keeps nothing.
fn discard(stream: &mut TcpStream) -> Result<u64> {
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(received),
            count => received += count as u64,
        }
    }
}

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok((client, server))
}

fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread of a bare loop panicked"))?.context("the other side of a bare loop")
}

/// What each read may take; the load generator reads with the same.
pub const READ_BUFFER_BYTES: usize = 256 * 1024;
const SENDFILE_CHUNK: u64 = 1 << 20;
