//! The floor: the ext_authz service with the same libraries and server settings, and an answer that is made beforehand.

use std::fs;

use envoy_types::pb::envoy::service::auth::v3::authorization_server::{Authorization, AuthorizationServer};
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{CheckRequest, CheckResponse, OkHttpResponse};
use envoy_types::pb::google::rpc::Status;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response};

struct Floor(CheckResponse);

#[tonic::async_trait]
impl Authorization for Floor {
    async fn check(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, tonic::Status> {
        Ok(Response::new(self.0.clone()))
    }
}

/// Serves until it is killed, and writes its port into `port_file`.
pub fn serve(port_file: &str) {
    let answer = CheckResponse {
        status: Some(Status::default()),
        http_response: Some(HttpResponse::OkResponse(OkHttpResponse::default())),
        ..Default::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        fs::write(format!("{port_file}.new"), port.to_string()).expect("a temporary file can be written");
        fs::rename(format!("{port_file}.new"), port_file).expect("and renamed");
        let service = AuthorizationServer::new(Floor(answer));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        Server::builder().add_service(service).serve_with_incoming(incoming).await.expect("it serves");
    });
}
