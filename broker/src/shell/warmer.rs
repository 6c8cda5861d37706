//! Brings cold file ranges into the page cache off the network threads, so that sendfile never waits for a disk there.

use std::sync::Arc;

use thalweg_world::send::{self, FileSlice};
use tokio::sync::Semaphore;
use tracing::debug;

/// A bound on threads that read cold ranges.
#[derive(Clone, Debug)]
pub struct Warmer {
    threads: Arc<Semaphore>,
}

impl Warmer {
    pub fn new(threads_max: usize) -> Warmer {
        Warmer { threads: Arc::new(Semaphore::new(threads_max.max(1))) }
    }

    /// Returns when the slices are in the page cache, or cannot be brought there (the send then says why).
    pub async fn warm(&self, slices: impl Iterator<Item = &FileSlice>) {
        let cold: Vec<FileSlice> = slices.filter(|slice| send::is_cold(slice)).cloned().collect();
        if cold.is_empty() {
            return;
        }
        let Ok(_thread) = self.threads.acquire().await else { return };
        let read = tokio::task::spawn_blocking(move || {
            for slice in &cold {
                if let Err(error) = send::warm(slice) {
                    debug!(%error, "a cold range cannot be read ahead");
                }
            }
        });
        // Cancelled only at shutdown.
        let _ = read.await;
    }
}
