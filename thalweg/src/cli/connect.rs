//! Which cluster a verb talks to.

use std::time::Duration;

use clap::Args;
use thalweg_client::{Client, ClientConfig};

use super::failure::Failure;

/// Options of every verb that talks to a cluster.
#[derive(Debug, Args)]
pub struct Connection {
    /// Broker addresses, host:port, comma-separated; one that answers is enough
    #[arg(
        short = 'b',
        long,
        visible_alias = "bootstrap-server",
        env = "THALWEG_BROKERS",
        default_value = "127.0.0.1:9092",
        value_name = "ADDRESSES"
    )]
    brokers: String,
    /// How long to wait for an answer, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

impl Connection {
    /// # Errors
    /// Nobody answers; says what to do.
    pub async fn open(&self) -> Result<Client, Failure> {
        let config = ClientConfig::new(&self.brokers).request_timeout(Duration::from_secs(self.timeout));
        Ok(Client::connect(config).await?)
    }
}
