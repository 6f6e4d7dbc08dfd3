//! Speaks to the sidecar as Envoy does, over TCP or a Unix socket, and with malformed bytes where Envoy would not.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::auth::v3::CheckRequest;
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use futures_util::stream::{self, StreamExt};
use http::uri::PathAndQuery;
use prost::bytes::{Buf, BufMut};
use tokio::runtime::{Builder, Runtime};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::answer::Answer;
use super::check::Check;
use super::tls::pem;

pub const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// No answer takes so long: a test that hangs says so.
const PATIENCE: Duration = Duration::from_secs(20);

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"));

#[derive(Clone)]
pub struct Client(Channel);

impl Client {
    /// `address` as the sidecar logs it: `127.0.0.1:PORT` or `unix:/path`.
    #[track_caller]
    pub fn connect(address: &str) -> Self {
        let uri = if address.starts_with("unix:") { address.to_owned() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(uri).expect("an address is a URI");
        match RUNTIME.block_on(endpoint.connect()) {
            Ok(channel) => Self(channel),
            Err(error) => panic!("cannot connect to {address}: {error:?}"),
        }
    }

    /// The same over TLS, believing the authority `ca` and showing the certificate `own` of `certs/`, if any. The error is how
    /// the connection ended.
    pub fn over_tls(address: &str, ca: &str, own: Option<&str>) -> Result<Self, String> {
        let read = |name: &str| std::fs::read(pem(name)).expect("a certificate of the tests");
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)));
        if let Some(own) = own {
            tls = tls.identity(Identity::from_pem(read(own), read(&format!("{own}-key"))));
        }
        let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address is a URI");
        let endpoint = endpoint.tls_config(tls).expect("the certificates of the tests");
        RUNTIME.block_on(endpoint.connect()).map(Self).map_err(|error| format!("{error:?}"))
    }

    /// One check, which must get a `CheckResponse`.
    #[track_caller]
    pub fn check(&self, check: &Check) -> Answer {
        match self.try_check(check) {
            Ok(answer) => answer,
            Err(status) => panic!("the call itself failed: {status:?}"),
        }
    }

    /// One check; the error is that of the call.
    pub fn try_check(&self, check: &Check) -> Result<Answer, Status> {
        RUNTIME.block_on(call(self.0.clone(), Request::new(check.clone().build())))
    }

    /// One check with a `grpc-timeout`, as Envoy always sends it.
    pub fn check_within(&self, check: &Check, timeout: Duration) -> Result<Answer, Status> {
        let mut request = Request::new(check.clone().build());
        request.set_timeout(timeout);
        RUNTIME.block_on(call(self.0.clone(), request))
    }

    /// All of these at once, answers in order. Each must get a `CheckResponse`.
    #[track_caller]
    pub fn check_all(&self, checks: &[Check]) -> Vec<Answer> {
        let started: Vec<_> = checks.iter().map(|check| self.start(check)).collect();
        started.into_iter().map(InFlight::join).collect()
    }

    /// `n` equal checks at once.
    #[track_caller]
    pub fn check_times(&self, check: &Check, n: usize) -> Vec<Answer> {
        self.check_all(&vec![check.clone(); n])
    }

    /// Sends a check and does not wait for its answer.
    pub fn start(&self, check: &Check) -> InFlight {
        let request = Request::new(check.clone().build());
        InFlight(RUNTIME.spawn(call(self.0.clone(), request)))
    }

    /// All of these, `at_once` at a time: when each was sent, and its answer, unless its client had patience for so long only and
    /// left. Each that was waited for must get a `CheckResponse`.
    #[track_caller]
    pub fn check_impatiently(
        &self,
        checks: Vec<(Check, Option<Duration>)>,
        at_once: usize,
    ) -> Vec<(Instant, Option<Answer>)> {
        let calls = checks.into_iter().map(|(check, patience)| {
            let call = call(self.0.clone(), Request::new(check.build()));
            async move {
                let sent = Instant::now();
                let answer = match patience {
                    None => Some(call.await),
                    // Dropping the call cancels it.
                    Some(patience) => tokio::time::timeout(patience, call).await.ok(),
                };
                (sent, answer.map(|answer| answer.expect("the call itself succeeds")))
            }
        });
        let answers = RUNTIME.spawn(stream::iter(calls.collect::<Vec<_>>()).buffered(at_once).collect());
        RUNTIME.block_on(answers).expect("a call does not panic")
    }

    /// Sends these bytes as the request message; the bytes of the reply message.
    pub fn raw(&self, method: &'static str, message: Vec<u8>) -> Result<Vec<u8>, Status> {
        self.raw_with(method, message, &[])
    }

    /// The same with metadata on the call.
    pub fn raw_with(
        &self,
        method: &'static str,
        message: Vec<u8>,
        metadata: &[(&'static str, &str)],
    ) -> Result<Vec<u8>, Status> {
        let mut request = Request::new(message);
        for (name, value) in metadata {
            request.metadata_mut().insert(*name, value.parse().expect("a value of metadata"));
        }
        let channel = self.0.clone();
        bounded(async move {
            let mut grpc = tonic::client::Grpc::new(channel);
            grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
            let path = PathAndQuery::from_static(method);
            Ok(grpc.unary(request, path, Bytes).await?.into_inner())
        })
    }

    /// grpc.health.v1 Check.
    pub fn health(&self, service: &str) -> Result<ServingStatus, Status> {
        let mut client = HealthClient::new(self.0.clone());
        let request = HealthCheckRequest { service: service.into() };
        bounded(async move { Ok(client.check(request).await?.into_inner().status()) })
    }

    /// grpc.health.v1 Watch.
    #[track_caller]
    pub fn watch_health(&self) -> Watch {
        self.try_watch_health().expect("health can be watched")
    }

    /// The same where the stream may be refused.
    pub fn try_watch_health(&self) -> Result<Watch, Status> {
        let mut client = HealthClient::new(self.0.clone());
        let stream = bounded(async move { client.watch(HealthCheckRequest::default()).await })?;
        Ok(Watch(stream.into_inner()))
    }
}

/// A check that was sent.
pub struct InFlight(tokio::task::JoinHandle<Result<Answer, Status>>);

impl InFlight {
    /// Ends the call from this side, as Envoy does when its own client has gone.
    pub fn leave(self) {
        self.0.abort();
    }

    #[track_caller]
    pub fn join(self) -> Answer {
        match self.try_join() {
            Ok(answer) => answer,
            Err(status) => panic!("the call itself failed: {status:?}"),
        }
    }

    /// Its answer; the error is that of the call.
    pub fn try_join(self) -> Result<Answer, Status> {
        RUNTIME.block_on(self.0).expect("a call does not panic")
    }
}

/// A stream of health states.
pub struct Watch(tonic::Streaming<tonic_health::pb::HealthCheckResponse>);

impl Watch {
    /// The next state, or `None` at the end of the stream.
    pub fn next(&mut self) -> Option<ServingStatus> {
        let next = bounded(self.0.message());
        next.ok().flatten().map(|response| response.status())
    }
}

async fn call(channel: Channel, request: Request<CheckRequest>) -> Result<Answer, Status> {
    let sent = Instant::now();
    let mut client = AuthorizationClient::new(channel);
    let response = tokio::time::timeout(PATIENCE, client.check(request)).await.map_err(|_| hung())??;
    Ok(Answer { message: response.into_inner(), took: sent.elapsed() })
}

fn bounded<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    RUNTIME.block_on(async { tokio::time::timeout(PATIENCE, call).await.map_err(|_| hung())? })
}

fn hung() -> Status {
    Status::new(Code::DeadlineExceeded, format!("no answer in {PATIENCE:?}"))
}

/// Messages as they are.
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}
