//! Which connection each broker was heard on, so that its end is noticed (REPLICATION B5).

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::server::Connected;

use super::leader::Sessions;
use crate::session::{Event, Life};

/// An accepted connection. Whoever holds its [`Connection`] notices when it ends.
pub struct Tracked {
    stream: TcpStream,
    connection: Connection,
    _ended: DropGuard,
}

/// Goes with every request that came over it.
#[derive(Clone)]
pub struct Connection(CancellationToken);

/// Cheap to clone.
#[derive(Clone)]
pub struct Connections {
    sessions: Sessions,
    stop: CancellationToken,
    /// The connection that a broker was heard on last.
    heard: Arc<Mutex<BTreeMap<i32, (i64, CancellationToken)>>>,
}

impl Connections {
    pub fn new(sessions: Sessions, stop: CancellationToken) -> Connections {
        Connections { sessions, stop, heard: Arc::default() }
    }

    /// This life of a broker was heard over `connection`; its sessions are told when that ends, unless it was heard over
    /// another one meanwhile.
    pub fn heard(&self, life: Life, connection: Option<&Connection>) {
        let Some(Connection(ended)) = connection else { return };
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |(epoch, known): &(i64, CancellationToken)| *epoch == life.epoch && same(known, ended);
        if heard.get(&life.id.0).is_some_and(is_known) {
            return;
        }
        heard.insert(life.id.0, (life.epoch, ended.clone()));
        drop(heard);
        let (this, ended) = (self.clone(), ended.clone());
        // Ends with the connection or the node.
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = this.stop.cancelled() => return,
                () = ended.cancelled() => {}
            }
            let mut heard = this.heard.lock().unwrap_or_else(PoisonError::into_inner);
            if heard.get(&life.id.0).is_some_and(|(_, known)| same(known, &ended)) {
                heard.remove(&life.id.0);
                drop(heard);
                this.sessions.notice(Event::ConnectionLost(life));
            }
        });
    }
}

/// Whether both stand for one connection.
fn same(one: &CancellationToken, other: &CancellationToken) -> bool {
    one == other
}

impl Tracked {
    pub fn new(stream: TcpStream) -> Tracked {
        let ended = CancellationToken::new();
        Tracked { stream, connection: Connection(ended.clone()), _ended: ended.drop_guard() }
    }
}

impl Connected for Tracked {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl AsyncRead for Tracked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tracked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
