//! openraft's own storage tests, on the log and state machine over RocksDB.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;
use thalweg_coordinator::registry::features;
use thalweg_coordinator::shell::log_store::LogStore;
use thalweg_coordinator::shell::state_machine::StateMachine;
use thalweg_coordinator::shell::types::TypeConfig;
use thalweg_coordinator::{FeedLimits, KvStore};
use thalweg_coordinator_rocks::RocksStore;

struct OnRocks;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for OnRocks {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn KvStore> = Arc::new(RocksStore::open(dir.path()).unwrap());
        let state_machine = StateMachine::open(Arc::clone(&store), FeedLimits::default(), features::LEVEL).unwrap();
        Ok((dir, LogStore::open(store).unwrap(), state_machine))
    }
}

#[tokio::test]
async fn the_store_keeps_rafts_contract() {
    Suite::test_all(OnRocks).await.unwrap();
}

#[test]
fn a_second_opener_is_told_why_it_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let _first = RocksStore::open(dir.path()).unwrap();
    let Err(cause) = RocksStore::open(dir.path()) else { panic!("two processes share a store") };
    assert!(cause.to_string().contains("another process"), "{cause}");
}
