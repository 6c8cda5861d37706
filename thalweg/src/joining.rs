//! `thalweg start --join`: how a machine becomes a node of a running cluster, and what it keeps of that.
//!
//! A coordinator that is shown a token gives the node its numbers. They stand in `node.toml` in the data directory from then
//! on, so that no later start needs a token.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use thalweg_coordinator::{CoordinatorPeer, JoinToken};
use thalweg_model::ErrorCode;
use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::nodes_client::NodesClient;
use thalweg_proto::v1::{DescribeCoordinatorsRequest, JoinClusterRequest, JoinClusterResponse, Levels};
use thalweg_world::disk::create_dir_durable;
use tokio::time::{Instant, sleep};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tracing::{info, warn};

use crate::config::{NodeConfig, Role};

/// Whom to ask, and what to show.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JoinArguments {
    /// Become a node of a running cluster: HOST[:PORT] of one of its coordinators, port 9093 unless it says otherwise. Needs
    /// --token the first time; nothing changes if the node is part of the cluster already
    #[arg(long, env = "THALWEG_JOIN", value_name = "HOST[:PORT]", value_parser = join_address)]
    pub join: Option<String>,
    /// What `thalweg cluster token create` printed on a node of that cluster
    #[arg(long, env = "THALWEG_JOIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

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
}

/// Makes the node part of the cluster, if it is to join one and has not yet. The data directory is locked.
///
/// # Errors
/// One sentence with cause and remedy: a token that is garbled, foreign, revoked or expired; a data directory with data of
/// its own; listeners that the cluster could not reach; nobody who answers.
pub async fn join(config: &mut NodeConfig, arguments: &JoinArguments) -> Result<()> {
    let token = arguments.token.as_deref().filter(|token| !token.trim().is_empty());
    let token: Option<JoinToken> = token.map(str::parse).transpose().context("--token")?;
    if let Some(known) = Membership::load(&config.data_dir)? {
        if let Some(token) = token.filter(|token| token.cluster_id != known.cluster_id) {
            bail!(
                "the data directory {} belongs to cluster {}, and the token is of cluster {}; leave --join and --token out to \
                 start the node where it belongs, or give it an empty data directory",
                config.data_dir.display(),
                known.cluster_id,
                token.cluster_id
            );
        }
        return Ok(());
    }
    let Some(address) = &arguments.join else {
        if token.is_some() {
            bail!("a token without --join HOST[:PORT]: name a coordinator of the cluster that the token is of");
        }
        return Ok(());
    };
    let Some(token) = token else {
        bail!(
            "joining a cluster needs a token: make one on a node of that cluster with `thalweg cluster token create`, and give \
             it with --token or THALWEG_JOIN_TOKEN"
        );
    };
    check_is_new(config)?;
    check_listeners(config, address)?;
    let answer = ask(config, address, &token).await?;
    let membership = Membership {
        cluster_id: answer.cluster_id,
        broker_id: Some(answer.broker_id).filter(|_| config.has_role(Role::Broker)),
        coordinator_id: Some(answer.coordinator_id).filter(|_| config.has_role(Role::Coordinator)),
        coordinators: answer.coordinators,
    };
    membership.store(&config.data_dir)?;
    info!(
        cluster_id = membership.cluster_id,
        broker_id = membership.broker_id,
        coordinator_id = membership.coordinator_id,
        "this node is part of the cluster"
    );
    membership.apply(config)
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

impl Membership {
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

/// A node that has data is somebody already.
fn check_is_new(config: &NodeConfig) -> Result<()> {
    if config.broker.id.is_some() || config.coordinator.id.is_some() {
        bail!("a node that joins is given its numbers: leave broker.id and coordinator.id out");
    }
    if !config.coordinator.peers.is_empty() {
        bail!("coordinator.peers is for clusters that are put together by hand; leave it out together with --join");
    }
    let stores = [config.data_dir.join("coordinator")].into_iter();
    let dirs = match config.broker.log_dirs.as_slice() {
        [] => vec![config.data_dir.join("logs")],
        dirs => dirs.to_vec(),
    };
    let metas = dirs.into_iter().map(|dir| dir.join("meta.properties"));
    let found: Vec<PathBuf> = stores.chain(metas).filter(|path| path.exists()).collect();
    let Some(found) = found.first() else { return Ok(()) };
    let cluster = cluster_of(found).map(|id| format!(", of cluster {id}")).unwrap_or_default();
    bail!(
        "there is data of a node already ({}{cluster}); start it without --join where it belongs, or give --data-dir an empty \
         directory",
        found.display()
    )
}

/// From a `meta.properties`.
fn cluster_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let id = text.lines().find_map(|line| line.trim().strip_prefix("cluster.id="))?;
    Some(id.to_owned())
}

/// A node that listens for its own machine only is of no use to a cluster on others.
fn check_listeners(config: &NodeConfig, address: &str) -> Result<()> {
    // Of a name that does not resolve the caller hears when it is called.
    let Some(local) = local_address(address).filter(|local| !local.is_loopback()) else { return Ok(()) };
    let unreachable = |what: &str, flag: &str, listen: SocketAddr| {
        let port = listen.port();
        anyhow!(
            "the cluster at {address} cannot reach this node: {what} listens on {listen}, for this machine alone; give {flag} \
             0.0.0.0:{port} or {local}:{port}"
        )
    };
    let kafka = config.broker.listen.iter().find(|listen| listen.address.ip().is_loopback());
    if config.has_role(Role::Broker)
        && config.broker.listen.iter().all(|listen| listen.address.ip().is_loopback())
        && let Some(listen) = kafka
    {
        return Err(unreachable("the broker", "--listen", listen.address));
    }
    let grpc = config.coordinator.listen;
    if config.has_role(Role::Coordinator) && grpc.ip().is_loopback() {
        return Err(unreachable("the coordinator", "--coordinator-listen", grpc));
    }
    Ok(())
}

/// From which of this machine's addresses another one is reached. Nothing is sent.
pub fn local_address(to: &str) -> Option<IpAddr> {
    let any: [SocketAddr; 2] = [([0, 0, 0, 0], 0).into(), (Ipv6Addr::UNSPECIFIED, 0).into()];
    any.into_iter().find_map(|any| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

/// Asks until somebody who leads has an answer.
async fn ask(config: &NodeConfig, address: &str, token: &JoinToken) -> Result<JoinClusterResponse> {
    let request = JoinClusterRequest {
        token: token.to_string(),
        broker: config.has_role(Role::Broker),
        coordinator: config.has_role(Role::Coordinator),
        levels: Some(Levels::ours()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let deadline = Instant::now() + PATIENCE;
    let mut backoff = BACKOFF_FIRST;
    let mut is_told = false;
    loop {
        let cause = match ask_once(address, &request).await? {
            Ok(answer) => return judged(answer),
            Err(cause) => cause,
        };
        if Instant::now() + backoff >= deadline {
            bail!(
                "no coordinator that leads answers at {address}, for {} s: {cause}; --join takes a coordinator's address (port \
                 9093 unless that says otherwise), which listens beyond its own machine only with --coordinator-listen",
                PATIENCE.as_secs()
            );
        }
        if !std::mem::replace(&mut is_told, true) {
            warn!(address, cause, "no coordinator answers yet, asking again");
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

fn judged(answer: JoinClusterResponse) -> Result<JoinClusterResponse> {
    let error = answer.error.clone().unwrap_or_default();
    if error.code != i32::from(ErrorCode::None.code()) {
        bail!("the cluster does not let this node in: {}", error.message);
    }
    if let Some(wrong) = answer.coordinators.iter().find(|peer| peer.parse::<CoordinatorPeer>().is_err()) {
        bail!("the cluster names a coordinator '{wrong}', which is no id@host:port; are both of one version?");
    }
    Ok(answer)
}

/// The address and whom it names as the leader, each once. The inner error is worth another round.
async fn ask_once(address: &str, request: &JoinClusterRequest) -> Result<Result<JoinClusterResponse, String>> {
    let mut left = VecDeque::from([address.to_owned()]);
    let mut asked = Vec::new();
    let mut cause = String::new();
    while let Some(address) = left.pop_front() {
        if asked.contains(&address) {
            continue;
        }
        asked.push(address.clone());
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| anyhow!("--join: '{address}' is not HOST[:PORT]"))?;
        let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy();
        let mut call = tonic::Request::new(request.clone());
        call.set_timeout(CALL_TIMEOUT);
        let status = match NodesClient::new(channel).join(call).await {
            Ok(answer) => return Ok(Ok(answer.into_inner())),
            Err(status) => status,
        };
        if status.code() == Code::Unimplemented {
            bail!(
                "the coordinator at {address} is of a version before there were tokens; start the newer version there, and \
                 raise the cluster's level: thalweg cluster upgrade status"
            );
        }
        let leader = status.metadata().get(LEADER).and_then(|leader| leader.to_str().ok());
        if let Some((_, leader)) = leader.and_then(|leader| leader.split_once('@')) {
            left.push_back(leader.to_owned());
        }
        cause = format!("{address}: {}", told(&status));
    }
    Ok(Err(cause))
}

/// The innermost cause, which is what the machine said.
fn told(status: &Status) -> String {
    let mut causes = std::iter::successors(std::error::Error::source(status), |cause| cause.source());
    let innermost = causes.by_ref().last();
    innermost.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

/// `HOST` or `HOST:PORT`; an IPv6 address with a port in brackets.
fn join_address(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]:{PORT}"));
    }
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', ' ', ',']);
    let bracketed = text.starts_with('[') && text.ends_with(']');
    match text.rsplit_once(':').filter(|_| !bracketed) {
        None if is_host(text) => Ok(format!("{text}:{PORT}")),
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(text.to_owned()),
        None | Some(_) => Err("it is HOST or HOST:PORT of one coordinator, such as a.example:9093".to_owned()),
    }
}

const FILE: &str = "node.toml";
const HEADING: &str = "# Which node of which cluster this is, as it was told when it joined. Kept by the node; belongs to this data\n\
                       # directory for ever.\n";
const PORT: u16 = 9093;
const LEADER: &str = "thalweg-leader";
const PATIENCE: Duration = Duration::from_secs(60);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const FOLLOW_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn membership() -> Membership {
        Membership {
            cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
            broker_id: Some(2),
            coordinator_id: Some(3),
            coordinators: vec!["1@a:9093".to_owned(), "3@old:9093".to_owned()],
        }
    }

    fn config(data_dir: &Path) -> NodeConfig {
        let given = Overrides { data_dir: Some(data_dir.to_owned()), ..Overrides::default() };
        NodeConfig::read(None, given).unwrap()
    }

    fn refused(config: &mut NodeConfig, join: Option<&str>, token: Option<&str>) -> String {
        let arguments = JoinArguments { join: join.map(str::to_owned), token: token.map(str::to_owned) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        format!("{:#}", runtime.block_on(super::join(config, &arguments)).unwrap_err())
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

    #[test]
    fn a_node_that_cannot_join_is_told_why_before_anybody_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let token = JoinToken::new("AAAAAAAAAAAAAAAAAAAAAA", 1, [1; 16]).to_string();
        let other = JoinToken::new("BAAAAAAAAAAAAAAAAAAAAA", 1, [1; 16]).to_string();
        let mut config = config(folder.path());
        assert!(refused(&mut config, Some("127.0.0.1:1"), None).contains("token create"));
        assert!(refused(&mut config, None, Some(&token)).contains("--join HOST"));
        assert!(refused(&mut config, Some("127.0.0.1:1"), Some("nonsense")).contains("no token"));
        assert!(refused(&mut config, Some("127.0.0.1:1"), Some(&token[..token.len() - 1])).contains("garbled"));
        config.broker.id = Some(1);
        assert!(refused(&mut config, Some("127.0.0.1:1"), Some(&token)).contains("given its numbers"));
        config.broker.id = None;
        config.coordinator.peers = vec!["1@a:1".to_owned()];
        assert!(refused(&mut config, Some("127.0.0.1:1"), Some(&token)).contains("coordinator.peers"));
        config.coordinator.peers.clear();
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        std::fs::write(folder.path().join("logs/meta.properties"), "version=1\ncluster.id=other\n").unwrap();
        let has_data = refused(&mut config, Some("127.0.0.1:1"), Some(&token));
        assert!(has_data.contains("of cluster other") && has_data.contains("empty directory"), "{has_data}");
        membership().store(folder.path()).unwrap();
        let foreign = refused(&mut config, Some("127.0.0.1:1"), Some(&other));
        assert!(foreign.contains("belongs to cluster AAAA") && foreign.contains("of cluster BAAA"), "{foreign}");
    }

    #[test]
    fn a_node_for_its_own_machine_does_not_join_a_cluster_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        check_listeners(&config, "127.0.0.1:9093").unwrap();
        // A machine without a way out has nowhere else to join either.
        if local_address("192.0.2.1:9093").is_some_and(|local| !local.is_loopback()) {
            let message = check_listeners(&config, "192.0.2.1:9093").unwrap_err().to_string();
            assert!(message.contains("--listen 0.0.0.0:9092"), "{message}");
        }
    }

    #[test]
    fn a_coordinator_is_named_with_or_without_its_port() {
        for (text, address) in [
            ("a.example", "a.example:9093"),
            ("a:1", "a:1"),
            ("::1", "[::1]:9093"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:9093"),
        ] {
            assert_eq!(join_address(text).as_deref(), Ok(address));
        }
        for wrong in ["", ":9093", "a:0", "a:x", "a:99999", "http://a:1", "1@a:1", "a,b"] {
            assert!(join_address(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
    }
}
