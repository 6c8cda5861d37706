//! How machines become nodes: tokens are made, shown, listed and revoked.

use thalweg_model::ErrorCode;
use thalweg_proto::v1;
use thalweg_proto::v1::command::Kind;
use thalweg_proto::v1::nodes_server::Nodes;
use thalweg_proto::v1::{
    AdmitNode, CreateToken, CreateTokenRequest, CreateTokenResponse, JoinClusterRequest, JoinClusterResponse,
    KafkaError, ListTokensRequest, ListTokensResponse, OfferRequest, OfferResponse, RevokeToken, RevokeTokenRequest,
    RevokeTokenResponse, TokenInfo,
};
use tonic::{Request, Response, Status};

use super::{Services, refusal};
use crate::registry::tokens::Admitted;
use crate::registry::{Outcome, error, ok};
use crate::token::JoinToken;

#[tonic::async_trait]
impl Nodes for Services {
    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let ttl_ms = request.into_inner().ttl_ms;
        self.barrier().await?;
        let cluster = self.cluster_id();
        let token = JoinToken::new(&cluster, rand::random(), rand::random());
        let command = CreateToken { id: token.id.clone(), secret_hash: token.secret_hash().into(), ttl_ms };
        let outcome = self.propose(Kind::CreateToken(command)).await?.outcome;
        if outcome != Outcome::Done {
            let error = Some(refusal(outcome));
            return Ok(Response::new(CreateTokenResponse { error, ..CreateTokenResponse::default() }));
        }
        let expires_at_ms = self.shared.machine().state().token(&token.id).map_or(0, |stored| stored.expires_at_ms);
        let (text, id) = (token.to_string(), token.id);
        Ok(Response::new(CreateTokenResponse { error: Some(ok()), token: text, id, expires_at_ms }))
    }

    async fn list_tokens(&self, _request: Request<ListTokensRequest>) -> Result<Response<ListTokensResponse>, Status> {
        self.barrier().await?;
        let machine = self.shared.machine();
        let tokens = machine.state().tokens().map(|token| TokenInfo {
            id: token.id.clone(),
            created_at_ms: token.created_at_ms,
            expires_at_ms: token.expires_at_ms,
            joined_count: token.joined_count,
        });
        Ok(Response::new(ListTokensResponse { tokens: tokens.collect(), now_ms: self.clock.wall().0 }))
    }

    async fn revoke_token(
        &self,
        request: Request<RevokeTokenRequest>,
    ) -> Result<Response<RevokeTokenResponse>, Status> {
        let command = RevokeToken { id: request.into_inner().id };
        let error = match self.propose(Kind::RevokeToken(command)).await?.outcome {
            Outcome::Done => ok(),
            other => refusal(other),
        };
        Ok(Response::new(RevokeTokenResponse { error: Some(error) }))
    }

    async fn offer(&self, request: Request<OfferRequest>) -> Result<Response<OfferResponse>, Status> {
        let OfferRequest { id, address } = request.into_inner();
        self.barrier().await?;
        let error = self.told(self.members.take_offer(id, address).await)?;
        Ok(Response::new(OfferResponse { error: Some(error.unwrap_or_else(ok)) }))
    }

    async fn join(&self, request: Request<JoinClusterRequest>) -> Result<Response<JoinClusterResponse>, Status> {
        let request = request.into_inner();
        self.barrier().await?;
        let admitted = match self.checked(&request) {
            Ok(token) => {
                let command = AdmitNode {
                    token_id: token.id.clone(),
                    secret_hash: token.secret_hash().into(),
                    broker: request.broker,
                    coordinator: request.coordinator,
                };
                match self.propose(Kind::AdmitNode(command)).await?.outcome {
                    Outcome::Admitted(admitted) => Ok(admitted),
                    other => Err(refusal(other)),
                }
            }
            Err(refused) => Err(refused),
        };
        Ok(Response::new(match admitted {
            Ok(Admitted { broker_id, coordinator_id }) => JoinClusterResponse {
                error: Some(ok()),
                cluster_id: self.cluster_id(),
                broker_id,
                coordinator_id,
                coordinators: self.coordinators(),
            },
            Err(error) => JoinClusterResponse { error: Some(error), broker_id: -1, ..JoinClusterResponse::default() },
        }))
    }
}

impl Services {
    fn cluster_id(&self) -> String {
        self.shared.machine().state().cluster_id().unwrap_or_default().to_owned()
    }

    /// As configuration names them.
    fn coordinators(&self) -> Vec<String> {
        let membership = self.members.membership();
        membership.nodes().map(|(id, node)| format!("{id}@{}", node.address)).collect()
    }

    /// What can be told before the registries are asked. The secret goes no further than this.
    fn checked(&self, request: &JoinClusterRequest) -> Result<JoinToken, KafkaError> {
        let unauthorized =
            |cause: crate::token::TokenError| error(ErrorCode::ClusterAuthorizationFailed, cause.to_string());
        let token: JoinToken = request.token.parse().map_err(unauthorized)?;
        let ours = self.cluster_id();
        if token.cluster_id != ours {
            let message = format!(
                "the token is of cluster {}, and this is cluster {ours}; name a node of that cluster with --join, or make a \
                 token here: thalweg cluster token create",
                token.cluster_id
            );
            return Err(error(ErrorCode::InconsistentClusterId, message));
        }
        let level = self.members.level();
        if !request.levels.is_some_and(|levels: v1::Levels| levels.contains(level)) {
            let message = format!(
                "the cluster is at level {level} of thalweg.version, at which version {} of the node that joins cannot work; \
                 start the version there that runs here",
                request.version
            );
            return Err(error(ErrorCode::UnsupportedVersion, message));
        }
        Ok(token)
    }
}
