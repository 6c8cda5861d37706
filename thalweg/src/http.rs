//! HTTP for operators: metrics and health.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use thalweg_broker::Tier;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What the pages show; the node implements it over its parts.
pub trait Status: Send + Sync + 'static {
    /// Metrics in the OpenMetrics text form, as many as `tier` has.
    fn metrics(&self, tier: Tier) -> BoxFuture<'_, String>;

    /// `Err` with the reason, one sentence, while the node does not serve.
    fn ready(&self) -> Result<(), String>;
}

/// Serves until `stop`; returns where.
///
/// # Errors
/// The address cannot be bound; names it and the key that sets it.
pub async fn start(listen: SocketAddr, status: Arc<dyn Status>, stop: CancellationToken) -> Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!("cannot listen on {listen} for HTTP; choose another address with --http or http.listen")
    })?;
    let address = listener.local_addr()?;
    let pages = Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready))
        .with_state(status);
    tokio::spawn(async move {
        let served = axum::serve(listener, pages).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "the HTTP service ended");
        }
    });
    Ok(address)
}

#[derive(Deserialize)]
struct Asked {
    tier: Option<String>,
}

async fn metrics(State(status): State<Arc<dyn Status>>, Query(asked): Query<Asked>) -> Response {
    match asked.tier.as_deref().map_or(Ok(Tier::Node), str::parse) {
        Ok(tier) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], status.metrics(tier).await).into_response()
        }
        Err(reason) => (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    }
}

async fn ready(State(status): State<Arc<dyn Status>>) -> impl IntoResponse {
    match status.ready() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[derive(Default)]
    struct Fake {
        ready: AtomicBool,
    }

    impl Status for Fake {
        fn metrics(&self, tier: Tier) -> BoxFuture<'_, String> {
            Box::pin(async move { format!("thalweg_test{{tier=\"{tier:?}\"}} 1\n# EOF\n") })
        }

        fn ready(&self) -> Result<(), String> {
            if self.ready.load(Ordering::SeqCst) { Ok(()) } else { Err("recovering 3 of 7 partitions".to_owned()) }
        }
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readiness_tells_why_not() {
        let status = Arc::new(Fake::default());
        let stop = CancellationToken::new();
        let address = start(SocketAddr::from(([127, 0, 0, 1], 0)), status.clone(), stop.clone()).await.unwrap();
        let answer = get(address, "/health/ready").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("recovering 3 of 7 partitions\n"), "{answer}");
        status.ready.store(true, Ordering::SeqCst);
        assert!(get(address, "/health/ready").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/metrics").await.contains("Node"));
        assert!(get(address, "/metrics?tier=partition").await.contains("Partition"));
        let unknown = get(address, "/metrics?tier=all").await;
        assert!(unknown.starts_with("HTTP/1.1 400") && unknown.contains("node, topic and partition"), "{unknown}");
        stop.cancel();
    }
}
