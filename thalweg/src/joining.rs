//! `thalweg start --join`: how a machine becomes a node of a running cluster, and what it keeps of that.
//!
//! A coordinator that is shown a token gives the node its numbers. They stand in `node.toml` in the data directory from then
//! on, so that no later start needs a token.

mod ask;
mod membership;

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use thalweg_coordinator::JoinToken;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::config::{NodeConfig, Role};

pub use membership::{Membership, follow_coordinators};

/// Whom to ask, and what to show.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct JoinArguments {
    /// Become a node of a running cluster: HOST[:PORT] of one of its coordinators, port 9093 unless it says otherwise. Needs
    /// --token or --token-file the first time; nothing changes if the node is part of the cluster already
    #[arg(long, env = "THALWEG_JOIN", value_name = "HOST[:PORT]", value_parser = join_address)]
    pub join: Option<String>,
    /// What `thalweg cluster token create` printed on a node of that cluster
    #[arg(long, env = "THALWEG_JOIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A file that has the token or will have it: it is waited for
    #[arg(long, env = "THALWEG_JOIN_TOKEN_FILE", value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}

/// What lets the node in, or where it will stand.
enum Given<'a> {
    Token(JoinToken),
    File(&'a Path),
}

/// Makes the node part of the cluster, if it is to join one and has not yet. The data directory is locked.
///
/// # Errors
/// One sentence with cause and remedy: a token that is garbled, foreign, revoked or expired; a data directory with data of
/// its own; listeners that the cluster could not reach; nobody who answers.
pub async fn join(config: &mut NodeConfig, arguments: &JoinArguments) -> Result<()> {
    let token: Option<JoinToken> = arguments.token.as_deref().map(str::parse).transpose().context("--token")?;
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
        if token.is_some() || arguments.token_file.is_some() {
            bail!("a token without --join HOST[:PORT]: name a coordinator of the cluster that the token is of");
        }
        return Ok(());
    };
    let given = match (token, &arguments.token_file) {
        (Some(token), _) => Given::Token(token),
        (None, Some(path)) => Given::File(path),
        (None, None) => bail!(
            "joining a cluster needs a token: make one on a node of that cluster with `thalweg cluster token create`, and give \
             it with --token, or in a file with --token-file"
        ),
    };
    check_is_new(config)?;
    check_listeners(config, address)?;
    let token = match given {
        Given::Token(token) => token,
        Given::File(path) => token_in(path).await?,
    };
    let answer = ask::ask(config, address, &token).await?;
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

/// The token in a file that somebody else writes as a whole, and perhaps has not yet.
async fn token_in(path: &Path) -> Result<JoinToken> {
    let named = || format!("--token-file {}", path.display());
    let deadline = Instant::now() + TOKEN_PATIENCE;
    let mut is_told = false;
    loop {
        match fs::read_to_string(path) {
            Ok(text) if !text.trim().is_empty() => return text.trim().parse().with_context(named),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(named),
        }
        if Instant::now() >= deadline {
            let patience = TOKEN_PATIENCE.as_secs();
            bail!(
                "{} has no token, for {patience} s: write one there with `thalweg cluster token create --out FILE`",
                path.display()
            );
        }
        if !std::mem::replace(&mut is_told, true) {
            info!(path = %path.display(), "waiting for a token");
        }
        sleep(TOKEN_INTERVAL).await;
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

const PORT: u16 = 9093;
/// Whoever starts this node again has more.
const TOKEN_PATIENCE: Duration = Duration::from_secs(60);
const TOKEN_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::membership::tests::{config, membership};
    use super::*;

    fn refused(config: &mut NodeConfig, join: Option<&str>, token: Option<&str>) -> String {
        let arguments = JoinArguments {
            join: join.map(str::to_owned),
            token: token.map(str::to_owned),
            ..JoinArguments::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        format!("{:#}", runtime.block_on(super::join(config, &arguments)).unwrap_err())
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
