//! `tallygate probe`: what a running sidecar answers, asked as Envoy asks.

mod request;
mod tls;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use envoy_types::pb::envoy::service::auth::v3::CheckResponse;
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::google::protobuf::value::Kind;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use self::tls::TlsArguments;
use super::{asked, exit, runtime};
use crate::config::duration;

#[derive(Args)]
pub struct Arguments {
    /// Where the sidecar listens: IP:PORT or unix:/PATH
    #[arg(long, default_value = "127.0.0.1:50051")]
    address: String,
    /// Ask for the process's health instead of a check
    #[arg(long, conflicts_with = "RequestArguments")]
    health: bool,
    #[command(flatten)]
    request: asked::RequestArguments,
    /// How long to wait for the answer
    #[arg(long, default_value = "2s", value_parser = duration::parse)]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsArguments,
}

pub fn run(arguments: Arguments) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    match runtime.block_on(ask(arguments)) {
        Ok(code) => code,
        Err(Unasked { code, text }) => {
            tell!("{text}");
            ExitCode::from(code)
        }
    }
}

/// Why there is no answer, and the exit code for it.
struct Unasked {
    code: u8,
    text: String,
}

fn usage(text: String) -> Unasked {
    Unasked { code: exit::USAGE, text }
}

async fn ask(arguments: Arguments) -> Result<ExitCode, Unasked> {
    let Arguments { address, health, request, timeout, tls } = arguments;
    let request = if health { None } else { Some(request::check(request.read().map_err(usage)?).map_err(usage)?) };
    let remedy = tls.remedy();
    let unavailable = |text: String| Unasked { code: exit::UNAVAILABLE, text: format!("{text}\n-> {remedy}") };
    let unreachable = |error: tonic::transport::Error| {
        unavailable(format!("no sidecar answers at {address}: {}", root_cause(&error)))
    };
    let channel = connect(&address, tls.read().map_err(usage)?, timeout).await.map_err(unreachable)?;
    let ended = |asked: &str, status: &tonic::Status| {
        unavailable(format!("{address}: the {asked} ended with gRPC {}: {}", status.code(), status.message()))
    };
    match request {
        None => is_serving(channel).await.map_err(|status| ended("question for its health", &status)),
        Some(request) => {
            let reply = AuthorizationClient::new(channel).check(request).await;
            reply.map(|reply| show(&reply.into_inner())).map_err(|status| ended("check", &status))
        }
    }
}

async fn connect(
    address: &str,
    tls: Option<ClientTlsConfig>,
    timeout: Duration,
) -> Result<Channel, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let uri = if address.starts_with("unix:") { address.to_owned() } else { format!("{scheme}://{address}") };
    let mut endpoint = Endpoint::from_shared(uri)?.connect_timeout(timeout).timeout(timeout);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls)?;
    }
    endpoint.connect().await
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

async fn is_serving(channel: Channel) -> Result<ExitCode, tonic::Status> {
    let reply = HealthClient::new(channel).check(HealthCheckRequest::default()).await?.into_inner();
    let serving = reply.status == ServingStatus::Serving as i32;
    say!("{}", if serving { "serving" } else { "not serving" });
    Ok(if serving { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

/// One line for the verdict and what explains it, one for each header that a client would get.
fn show(reply: &CheckResponse) -> ExitCode {
    let (status, headers) = match &reply.http_response {
        Some(HttpResponse::OkResponse(ok)) => (200, &ok.response_headers_to_add),
        Some(HttpResponse::DeniedResponse(no) | HttpResponse::ErrorResponse(no)) => {
            (no.status.as_ref().map_or(403, |status| status.code), &no.headers)
        }
        None => {
            say!("the sidecar sent an empty answer");
            return ExitCode::from(exit::SOFTWARE);
        }
    };
    let mut facts: Vec<_> = reply.dynamic_metadata.iter().flat_map(|metadata| &metadata.fields).collect();
    // The verdict first, then by name.
    facts.sort_by_key(|(name, _)| (*name != "verdict", (*name).clone()));
    let facts = facts.iter().map(|(name, value)| match &value.kind {
        Some(Kind::StringValue(text)) => format!("{name}={text}"),
        Some(Kind::NumberValue(number)) => format!("{name}={number}"),
        _ => (*name).clone(),
    });
    say!("HTTP {status} {}", facts.collect::<Vec<_>>().join(" "));
    for header in headers.iter().filter_map(|option| option.header.as_ref()) {
        say!("  {}: {}", header.key, header.value);
    }
    let allowed = reply.status.as_ref().is_some_and(|status| status.code == 0);
    if allowed { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) }
}
