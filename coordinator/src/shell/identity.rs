//! Who this node is among coordinators: its id, its data, its life, its cluster (REPLICATION R5).
//!
//! An id names a node in configuration; an identity is made at random with an empty store and names the data. Calls between
//! coordinators carry both, so a node that lost its data, or has another's, is told apart from the one that it stands for.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use thalweg_model::TopicId;
use thalweg_proto::v1::RaftParties;
use tokio::sync::watch;

use super::codec;
use super::types::CoordinatorNode;
use crate::error::CoordinatorError;
use crate::store::{Batch, KvStore, Space};

pub struct Identity {
    pub node_id: u64,
    /// 16 bytes.
    pub identity: Bytes,
    /// How many times this data has been opened.
    life: u64,
    cluster: Mutex<Option<Bytes>>,
    /// The latest life of each member that has been heard from.
    lives: Mutex<BTreeMap<u64, u64>>,
    store: Arc<dyn KvStore>,
    failure: watch::Sender<Option<String>>,
}

/// Why a call from another coordinator is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the call does not say who asks whom")]
    Anonymous,
    #[error("this is coordinator {ours}, not {asked}; two addresses are mixed up")]
    OtherNode { ours: u64, asked: u64 },
    #[error(
        "coordinator {node_id} here does not have the data that the cluster knows: its data directory was lost or replaced. \
         Remove coordinator {node_id} from the cluster and start this node with another id"
    )]
    OtherData { node_id: u64 },
    #[error("coordinator {node_id} that asks does not have the data that this cluster knows of it")]
    OtherSender { node_id: u64 },
    #[error("this coordinator belongs to another cluster")]
    OtherCluster,
    #[error(
        "a later start of coordinator {node_id}'s own data has been heard from: this process is an older one, or runs on a \
         copy of a data directory"
    )]
    Superseded { node_id: u64 },
    #[error("the cluster's id cannot be stored: {0}")]
    Store(String),
}

impl Identity {
    /// Opens a store's identity, or makes it one; counts this life.
    ///
    /// # Errors
    /// The store is another node's, or failed.
    pub fn claim(store: Arc<dyn KvStore>, node_id: u64) -> Result<Identity, CoordinatorError> {
        let value = |key| store.value(Space::Meta, key).map_err(CoordinatorError::Store);
        let number = |bytes: Vec<u8>| <[u8; 8]>::try_from(bytes.as_slice()).map(u64::from_be_bytes).unwrap_or(u64::MAX);
        if let Some(stored) = value(NODE_ID)?.map(number)
            && stored != node_id
        {
            return Err(CoordinatorError::WrongNode { stored, configured: node_id });
        }
        let identity = match value(IDENTITY)? {
            Some(bytes) => bytes,
            None => rand::random::<[u8; 16]>().to_vec(),
        };
        let life = value(LIFE)?.map_or(0, number).saturating_add(1);
        let mut batch = Batch::default();
        batch.put(Space::Meta, NODE_ID, node_id.to_be_bytes());
        batch.put(Space::Meta, IDENTITY, identity.clone());
        batch.put(Space::Meta, LIFE, life.to_be_bytes());
        store.write(batch).and_then(|()| store.sync()).map_err(CoordinatorError::Store)?;
        let cluster = Mutex::new(value(CLUSTER)?.map(Bytes::from));
        let (identity, lives) = (identity.into(), Mutex::default());
        Ok(Identity { node_id, identity, life, cluster, lives, store, failure: watch::Sender::new(None) })
    }

    /// 16 bytes; `None` until the node founds a cluster or is called by one.
    pub fn cluster(&self) -> Option<Bytes> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Belongs to the cluster from now on; durable when this returns.
    ///
    /// # Errors
    /// It belongs to another one, or the store failed.
    pub fn bind(&self, cluster: &Bytes) -> Result<(), Refusal> {
        let mut bound = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match &*bound {
            Some(known) if known == cluster => Ok(()),
            Some(_) => Err(Refusal::OtherCluster),
            None if cluster.len() != 16 => Err(Refusal::Anonymous),
            None => {
                let mut batch = Batch::default();
                batch.put(Space::Meta, CLUSTER, cluster.to_vec());
                let stored = self.store.write(batch).and_then(|()| self.store.sync());
                stored.map_err(|cause| Refusal::Store(cause.to_string()))?;
                *bound = Some(cluster.clone());
                Ok(())
            }
        }
    }

    /// A store that was written before clusters had ids of their own here takes the one in its registries.
    ///
    /// # Errors
    /// The registries are another cluster's, or their id is damaged.
    pub fn bind_to(&self, cluster_id: &str) -> io::Result<()> {
        let TopicId(bytes) = TopicId::from_base64(cluster_id)
            .ok_or_else(|| codec::invalid(format!("the stored cluster id '{cluster_id}' is damaged")))?;
        self.bind(&Bytes::copy_from_slice(&bytes)).map_err(|cause| codec::invalid(cause.to_string()))
    }

    /// What a call to another coordinator says about both ends.
    pub fn parties(&self, to: u64, node: &CoordinatorNode) -> RaftParties {
        RaftParties {
            cluster_id: self.cluster().unwrap_or_default(),
            from: self.node_id,
            from_identity: self.identity.clone(),
            from_life: self.life,
            to,
            to_identity: node.identity.clone(),
        }
    }

    /// Whether a call may be answered. `sender` is the node that the membership knows under the sender's id.
    ///
    /// Whoever calls this very data has it in its membership, so a node without a cluster belongs to the caller's from then
    /// on.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn admit(&self, parties: Option<&RaftParties>, sender: Option<&CoordinatorNode>) -> Result<(), Refusal> {
        let parties = parties.ok_or(Refusal::Anonymous)?;
        if parties.to != self.node_id {
            return Err(Refusal::OtherNode { ours: self.node_id, asked: parties.to });
        }
        if parties.to_identity != self.identity {
            return Err(Refusal::OtherData { node_id: self.node_id });
        }
        self.bind(&parties.cluster_id)?;
        let Some(sender) = sender else { return Ok(()) };
        if sender.identity != parties.from_identity {
            return Err(Refusal::OtherSender { node_id: parties.from });
        }
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = lives.entry(parties.from).or_default();
        if parties.from_life < *latest {
            return Err(Refusal::Superseded { node_id: parties.from });
        }
        *latest = parties.from_life;
        Ok(())
    }

    /// The node cannot go on, for this reason.
    pub fn fail(&self, reason: String) {
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            if is_first {
                *failure = Some(reason);
            }
            is_first
        });
    }

    /// Returns when the node cannot go on, and why.
    pub async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(reason)) => reason.clone(),
            // The sender lives as long as this.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

const NODE_ID: &[u8] = b"node";
const IDENTITY: &[u8] = b"identity";
const LIFE: &[u8] = b"life";
const CLUSTER: &[u8] = b"cluster";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemStore;

    fn node(identity: &Bytes) -> CoordinatorNode {
        CoordinatorNode { address: "h:1".into(), identity: identity.clone() }
    }

    fn cluster(byte: u8) -> Bytes {
        vec![byte; 16].into()
    }

    #[test]
    fn data_keeps_its_identity_and_counts_its_lives() {
        let store = Arc::new(MemStore::new());
        let open = |store: &Arc<MemStore>, id| Identity::claim(Arc::clone(store) as Arc<dyn KvStore>, id);
        let first = open(&store, 1).unwrap();
        first.bind(&cluster(1)).unwrap();
        let cut = Arc::new(store.power_cut());
        let again = open(&cut, 1).unwrap();
        assert_eq!((&again.identity, again.life, again.cluster()), (&first.identity, 2, Some(cluster(1))));
        assert!(matches!(open(&store, 2), Err(CoordinatorError::WrongNode { stored: 1, configured: 2 })));
        let other = open(&Arc::new(MemStore::new()), 1).unwrap();
        assert_ne!(other.identity, first.identity);
    }

    /// Goal: only the node that is meant answers, to the node that it says it is. Method: change one field at a time.
    #[test]
    fn a_call_that_does_not_fit_is_refused_for_its_own_reason() {
        let [one, two] = [1, 2].map(|id| Identity::claim(Arc::new(MemStore::new()), id).unwrap());
        two.bind(&cluster(1)).unwrap();
        let good = RaftParties { cluster_id: cluster(1), ..one.parties(2, &node(&two.identity)) };
        let admit = |parties: &RaftParties| two.admit(Some(parties), Some(&node(&one.identity)));
        assert_eq!(admit(&good), Ok(()));
        assert_eq!(two.admit(None, None), Err(Refusal::Anonymous));
        let cases = [
            (RaftParties { to: 3, ..good.clone() }, Refusal::OtherNode { ours: 2, asked: 3 }),
            (RaftParties { to_identity: cluster(9), ..good.clone() }, Refusal::OtherData { node_id: 2 }),
            (RaftParties { to_identity: Bytes::new(), ..good.clone() }, Refusal::OtherData { node_id: 2 }),
            (RaftParties { from_identity: cluster(9), ..good.clone() }, Refusal::OtherSender { node_id: 1 }),
            (RaftParties { cluster_id: cluster(2), ..good.clone() }, Refusal::OtherCluster),
        ];
        for (parties, refusal) in cases {
            assert_eq!(admit(&parties), Err(refusal), "{parties:?}");
        }
        assert_eq!(admit(&RaftParties { from_life: 7, ..good.clone() }), Ok(()));
        assert_eq!(admit(&good), Err(Refusal::Superseded { node_id: 1 }), "a copy of node 1's data was started since");
    }

    #[test]
    fn a_node_joins_the_cluster_that_first_makes_it_a_member() {
        let [one, two] = [1, 2].map(|id| Identity::claim(Arc::new(MemStore::new()), id).unwrap());
        let from = |cluster_id| RaftParties { cluster_id, ..one.parties(2, &node(&two.identity)) };
        assert_eq!(two.admit(Some(&from(Bytes::new())), None), Err(Refusal::Anonymous));
        assert_eq!(two.admit(Some(&from(cluster(1))), None), Ok(()));
        assert_eq!(two.admit(Some(&from(cluster(2))), None), Err(Refusal::OtherCluster));
    }
}
