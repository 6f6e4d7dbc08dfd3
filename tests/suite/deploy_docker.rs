//! `deploy/docker`, as far as it can be held without a Docker engine: what the Dockerfile copies and calls is there, the
//! compose file is valid and grants little, and the configurations in it work together.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::cli;
use crate::support::envoy::{Envoy, substitute};
use crate::support::manifests::{Judge, below, is_a_version, read_one};
use crate::support::mesh::PATIENT;
use crate::support::process::{Process, root};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::upstream::Upstream;

/// The instructions of the Dockerfile, each a word and the rest of the line.
fn instructions() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("deploy/docker/Dockerfile")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| line.split_once(' ').map(|(word, rest)| (word.into(), rest.into())).expect("one line each"))
        .collect()
}

/// What stands behind each of these instructions.
fn all(word: &str) -> Vec<String> {
    instructions().into_iter().filter(|(name, _)| name == word).map(|(_, rest)| rest).collect()
}

/// `["a", "b"]`
fn exec(form: &str) -> Vec<String> {
    serde_json::from_str(form).expect("the exec form: there is no shell in the image")
}

/// The files and folders that come from the repository.
fn copied() -> Vec<String> {
    let plain = all("COPY").into_iter().filter(|rest| !rest.starts_with("--from"));
    plain.flat_map(|rest| rest.split(' ').rev().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn what_the_image_is_built_from_is_there_and_enough_for_cargo() {
    let kept = fs::read_to_string(root().join("deploy/docker/Dockerfile.dockerignore")).unwrap();
    let context = tempfile::tempdir().unwrap();
    for name in copied() {
        assert!(root().join(&name).exists(), "{name} is not there");
        assert!(kept.lines().any(|line| line == format!("!{name}")), "{name} is kept out of the build");
        let done = Command::new("cp").arg("-r").arg(root().join(&name)).arg(context.path()).status();
        assert!(done.is_ok_and(|status| status.success()));
    }
    // Cargo reads the manifest whole, with every target that it names, before it looks for the one that is asked for: so
    // this tells in no time what a build would stop at.
    let cargo = std::env::var("CARGO").expect("cargo runs the tests");
    let mut command = Command::new(cargo);
    command.args(["check", "--offline", "--locked", "--bin", "none"]);
    let done = Process::spawn(command.current_dir(context.path())).finish(Duration::from_secs(60));
    assert!(done.stderr.contains("no bin target named `none`"), "{done:?}");
    for source in below("src", ".rs").iter().filter(|source| !source.ends_with("tests.rs")) {
        let text = fs::read_to_string(source).unwrap();
        for included in text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let path = source.parent().unwrap().join(included).canonicalize().expect("what is included is there");
            let path = path.strip_prefix(root().canonicalize().unwrap()).unwrap().to_owned();
            assert!(context.path().join(&path).exists(), "{} is needed and not copied", path.display());
        }
    }
}

#[test]
fn the_image_is_pinned_small_and_without_rights() {
    let stages = all("FROM");
    let [build, last] = &stages[..] else { panic!("{stages:?}") };
    let (image, _) = build.split_once(" AS ").unwrap();
    assert!(is_a_version(image.rsplit_once(':').unwrap().1), "{image}");
    let oldest = format!("rust:{}.0-", env!("CARGO_PKG_RUST_VERSION"));
    assert!(image.starts_with(&oldest), "{image} is not the Rust of Cargo.toml");
    assert_eq!(last, "scratch");
    let users = all("USER");
    assert_eq!(users, ["65532:65532"]);
}

#[test]
fn the_image_starts_what_the_binary_knows_and_its_health_check_tells_the_truth() {
    let [entry, arguments] = ["ENTRYPOINT", "CMD"].map(|word| exec(&all(word)[0]));
    assert_eq!(entry, ["/tallygate"]);
    assert_eq!(cli::run(&arguments).code, Some(78), "the arguments are known; that file is not here");

    let check = all("HEALTHCHECK").remove(0);
    let (_, command) = check.split_once(" CMD ").unwrap();
    let command = exec(command);
    assert_eq!(command[0], "/tallygate");
    let sidecar = Setup::memory().policy("orders", 1, "60s", "closed").start();
    // Ports are free ones here; the image's is the default.
    let asked = |address: &str| cli::run(&[&command[1..], &["--address".into(), address.into()]].concat());
    let address = sidecar.grpc().to_owned();
    assert_eq!(asked(&address).code, Some(0));
    drop(sidecar);
    assert_ne!(asked(&address).code, Some(0));
}

#[test]
fn the_compose_file_is_valid_and_grants_little() {
    let folder = root().join("deploy/docker");
    let compose = read_one(&folder.join("compose.yaml"));
    assert_eq!(Judge::new().problems_as("compose", &compose), None);
    for (name, service) in compose["services"].as_object().unwrap() {
        let image = service["image"].as_str().unwrap();
        assert!(is_a_version(image.rsplit_once(':').unwrap().1), "{image}");
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"][0], "ALL", "{name}");
        assert_eq!(service["security_opt"][0], "no-new-privileges:true", "{name}");
        for port in service["ports"].as_array().into_iter().flatten() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name}: {port} is open to the network");
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let file = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(folder.join(file).is_file(), "{name}: {file}");
        }
        for needed in service["depends_on"].as_object().into_iter().flatten() {
            assert!(compose["services"].get(needed.0).is_some(), "{name} waits for {}", needed.0);
        }
    }
    let build = &compose["services"]["tallygate"]["build"];
    let context = folder.join(build["context"].as_str().unwrap());
    assert!(context.join(build["dockerfile"].as_str().unwrap()).is_file());
    // The image's health check asks the default port, and the file mounted over it is the one that the image reads.
    let own = read_one(&folder.join("tallygate.yaml"));
    assert_eq!(own["server"]["listen"], "0.0.0.0:50051");
    assert_eq!(own["hmac"]["secret_file"], "/run/secrets/hmac");
}

#[test]
fn the_filter_of_the_compose_file_is_the_one_that_is_documented() {
    let filter = |file: &str| -> Value {
        let config = read_one(&root().join(file));
        let manager = &config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
        let filters = manager["http_filters"].as_array().unwrap();
        filters.iter().find(|filter| filter["name"] == "envoy.filters.http.ext_authz").unwrap().clone()
    };
    assert_eq!(filter("deploy/docker/envoy.yaml"), filter("envoy/tallygate.yaml"));
}

#[test]
fn the_configurations_of_the_compose_file_limit_together() {
    let redis = RedisServer::start();
    let folder = root().join("deploy/docker");
    let text = fs::read_to_string(folder.join("tallygate.yaml")).unwrap();
    let url = format!("redis://127.0.0.1:{}{PATIENT}", redis.port());
    let places = [("0.0.0.0:50051", "127.0.0.1:0"), ("/run/secrets/hmac", "SECRET_FILE"), ("redis://redis:6379", &url)];
    let more = "admin: { listen: '127.0.0.1:0' }\ndecision_budget: 10s\n";
    let text = format!("{}{more}", substitute(&text, &places));
    let sidecar = Sidecar::start_placed(&text);
    let application = Upstream::start();
    let text = fs::read_to_string(folder.join("envoy.yaml")).unwrap();
    let address = |port: u16| format!("address: 127.0.0.1, port_value: {port} ");
    let places = [
        ("timeout: 0.4s", "timeout: 10s".into()),
        ("address: 0.0.0.0, port_value: 10000 ", address(0)),
        ("address: tallygate, port_value: 50051 ", address(sidecar.port())),
        ("address: application, port_value: 8080 ", address(application.port())),
    ];
    let places: Vec<_> = places.iter().map(|(from, to)| (*from, to.as_str())).collect();
    let admin = "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n";
    let envoy = Envoy::start(&format!("{admin}{}", substitute(&text, &places)));
    assert_eq!([(); 4].map(|()| envoy.get("/orders", &[]).status()), [200, 200, 200, 429]);
    assert_eq!(envoy.get("/else", &[]).status(), 200);
}
