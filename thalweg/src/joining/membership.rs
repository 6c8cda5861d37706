//! What a node that joined is, as it stands in its data directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use thalweg_coordinator::CoordinatorPeer;
use thalweg_proto::v1::DescribeCoordinatorsRequest;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_world::disk::create_dir_durable;
use tokio::time::sleep;
use tonic::transport::Endpoint;
use tracing::warn;

use crate::config::{NodeConfig, Role};

/// What a node that joined is; kept in its data directory for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    pub cluster_id: String,
    /// With the role broker.
    pub broker_id: Option<i32>,
    /// With the role coordinator.
    pub coordinator_id: Option<u64>,
    /// id@host:port, as last heard.
    pub coordinators: Vec<String>,
}

impl Membership {
    /// `None` in the data directory of a node that was given its numbers by hand, or is new.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: says which file.
    pub fn load(data_dir: &Path) -> Result<Option<Membership>> {
        let path = data_dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let told = || format!("{} says which node this is, and is damaged; bring a copy of it back", path.display());
        let membership: Membership = toml::from_str(&text).with_context(told)?;
        for peer in &membership.coordinators {
            peer.parse::<CoordinatorPeer>().map_err(|cause| anyhow!(cause)).with_context(told)?;
        }
        Ok(Some(membership))
    }

    /// Durable when it returns; either the file before or this one is there, whatever happens.
    ///
    /// # Errors
    /// The disk's.
    pub fn store(&self, data_dir: &Path) -> Result<()> {
        let (path, next) = (data_dir.join(FILE), data_dir.join(format!("{FILE}.next")));
        let told = || format!("cannot write {}", path.display());
        let text = format!("{HEADING}{}", toml::to_string(self).with_context(told)?);
        let write = || {
            let mut file = File::create(&next)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            create_dir_durable(data_dir)?;
            File::open(data_dir)?.sync_all()
        };
        write().with_context(told)
    }

    /// Makes the node what it joined as.
    ///
    /// # Errors
    /// The configuration says another number, or a role that the node did not join with.
    pub fn apply(&self, config: &mut NodeConfig) -> Result<()> {
        let place = config.data_dir.join(FILE);
        let place = place.display();
        let lacks = |role: &str| {
            anyhow!(
                "this node joined without the role {role} ({place}), so it has no number as one; leave {role} out of roles, or \
                 join anew with an empty data directory"
            )
        };
        if config.has_role(Role::Broker) {
            let given = self.broker_id.ok_or_else(|| lacks("broker"))?;
            if let Some(other) = config.broker.id.filter(|id| *id != given) {
                bail!(
                    "broker.id is {other}, and this node joined its cluster as broker {given} ({place}); leave broker.id out"
                );
            }
            config.broker.id = Some(given);
        }
        let mut own = None;
        if config.has_role(Role::Coordinator) {
            let given = self.coordinator_id.ok_or_else(|| lacks("coordinator"))?;
            if let Some(other) = config.coordinator.id.filter(|id| *id != given) {
                bail!(
                    "coordinator.id is {other}, and this node joined its cluster as coordinator {given} ({place}); leave \
                     coordinator.id out"
                );
            }
            config.coordinator.id = Some(given);
            own = Some(given);
        }
        let others: Vec<CoordinatorPeer> = self.peers().filter(|peer| Some(peer.id) != own).collect();
        if config.coordinator.peers.is_empty() {
            config.coordinator.peers = others.iter().map(ToString::to_string).collect();
        }
        if config.broker.coordinators.is_empty() && own.is_none() {
            config.broker.coordinators = others.into_iter().map(|peer| peer.address).collect();
        }
        config.joined = Some(self.cluster_id.clone());
        Ok(())
    }

    fn peers(&self) -> impl Iterator<Item = CoordinatorPeer> + '_ {
        self.coordinators.iter().filter_map(|peer| peer.parse().ok())
    }

    /// With the coordinators as one of them knows them now; `None` if none answers.
    async fn look(&self) -> Option<Membership> {
        for peer in self.peers() {
            let Ok(endpoint) = Endpoint::from_shared(format!("http://{}", peer.address)) else { continue };
            let mut client = AdminClient::new(endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy());
            let mut call = tonic::Request::new(DescribeCoordinatorsRequest {});
            call.set_timeout(CALL_TIMEOUT);
            let Ok(answer) = client.describe_coordinators(call).await else { continue };
            let answer = answer.into_inner();
            // One that is spare itself knows nobody.
            let coordinators: Vec<String> = answer
                .nodes
                .iter()
                .filter(|node| !node.spare)
                .map(|node| CoordinatorPeer { id: node.id, address: node.address.clone() }.to_string())
                .collect();
            if answer.cluster_id == self.cluster_id && !coordinators.is_empty() {
                return Some(Membership { coordinators, ..self.clone() });
            }
        }
        None
    }
}

/// Keeps up with who coordinates, so that a node finds them when all that it was told of are gone: those that run now hear
/// it through `learn`, later starts from `node.toml`. Never returns.
pub async fn follow_coordinators(data_dir: PathBuf, learn: impl Fn(Vec<String>)) {
    loop {
        match Membership::load(&data_dir) {
            Ok(Some(known)) => {
                if let Some(now) = known.look().await {
                    learn(now.peers().map(|peer| peer.address).collect());
                    if now != known
                        && let Err(error) = now.store(&data_dir)
                    {
                        warn!("{error:#}");
                    }
                }
            }
            Ok(None) => return,
            Err(error) => warn!("{error:#}"),
        }
        sleep(FOLLOW_INTERVAL).await;
    }
}

const FILE: &str = "node.toml";
const HEADING: &str = "# Which node of which cluster this is, as it was told when it joined. Kept by the node; belongs to this data\n\
                       # directory for ever.\n";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const FOLLOW_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::Overrides;

    pub fn membership() -> Membership {
        Membership {
            cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
            broker_id: Some(2),
            coordinator_id: Some(3),
            coordinators: vec!["1@a:9093".to_owned(), "3@old:9093".to_owned()],
        }
    }

    pub fn config(data_dir: &Path) -> NodeConfig {
        let given = Overrides { data_dir: Some(data_dir.to_owned()), ..Overrides::default() };
        NodeConfig::read(None, given).unwrap()
    }

    #[test]
    fn what_a_node_is_outlives_a_restart_and_makes_its_configuration() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Membership::load(folder.path()).unwrap(), None);
        membership().store(folder.path()).unwrap();
        assert_eq!(Membership::load(folder.path()).unwrap(), Some(membership()));
        let config = config(folder.path());
        assert_eq!((config.broker.id, config.coordinator.id, config.joined.is_some()), (Some(2), Some(3), true));
        assert_eq!(config.coordinator.peers, ["1@a:9093"], "without its own, which may have moved");
    }

    #[test]
    fn numbers_and_roles_that_do_not_fit_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        membership().store(folder.path()).unwrap();
        let read = |overrides: Overrides| {
            let overrides = Overrides { data_dir: Some(folder.path().to_owned()), ..overrides };
            format!("{:#}", NodeConfig::read(None, overrides).unwrap_err())
        };
        assert!(read(Overrides { broker_id: Some(7), ..Overrides::default() }).contains("as broker 2"));
        assert!(read(Overrides { coordinator_id: Some(7), ..Overrides::default() }).contains("as coordinator 3"));
        Membership { coordinator_id: None, ..membership() }.store(folder.path()).unwrap();
        assert!(read(Overrides::default()).contains("joined without the role coordinator"));
        std::fs::write(folder.path().join(FILE), "cluster_id = 7").unwrap();
        assert!(read(Overrides::default()).contains("is damaged"));
    }
}
