//! openraft's own storage tests, on the log and state machine over memory.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use thalweg_coordinator::registry::features;
use thalweg_coordinator::shell::log_store::LogStore;
use thalweg_coordinator::shell::state_machine::StateMachine;
use thalweg_coordinator::shell::types::TypeConfig;
use thalweg_coordinator::{FeedLimits, KvStore, MemStore};

struct InMemory;

impl StoreBuilder<TypeConfig, LogStore, StateMachine> for InMemory {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError<TypeConfig>> {
        let store: Arc<dyn KvStore> = Arc::new(MemStore::new());
        let state_machine = StateMachine::open(Arc::clone(&store), FeedLimits::default(), features::LEVEL).unwrap();
        Ok(((), LogStore::open(store).unwrap(), state_machine))
    }
}

#[tokio::test]
async fn the_store_keeps_rafts_contract() {
    Suite::test_all(InMemory).await.unwrap();
}
