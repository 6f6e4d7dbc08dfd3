//! Every pod of `deploy/` runs with no more rights than it needs, gets its configuration so that a reload comes, keeps its
//! secret out of the repository, and leaves in order.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::cli;
use crate::support::kustomize::{all, render};
use crate::support::manifests::{below, find, is_a_version, kind};
use crate::support::process::root;

/// Each pod template of every kustomization, with the namespace and the rest of what is applied with it.
fn pods() -> Vec<(String, Value, Vec<Value>)> {
    let mut pods = Vec::new();
    for folder in all() {
        let rendered = render(&folder);
        for manifest in rendered.iter().filter(|manifest| manifest.pointer("/spec/template/spec").is_some()) {
            let name = format!("deploy/{folder}: {} {}", kind(manifest), manifest["metadata"]["name"]);
            pods.push((name, manifest.clone(), rendered.clone()));
        }
    }
    assert!(pods.len() >= 8, "only {} pods were found", pods.len());
    pods
}

fn spec(manifest: &Value) -> &Value {
    &manifest["spec"]["template"]["spec"]
}

fn containers(manifest: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers"].map(|list| &spec(manifest)[list]);
    lists.into_iter().filter_map(Value::as_array).flatten()
}

fn tallygate(manifest: &Value) -> &Value {
    containers(manifest).find(|container| container["name"] == "tallygate").expect("a container tallygate")
}

#[test]
fn every_container_has_no_more_rights_than_it_needs() {
    for (name, manifest, _) in pods() {
        let pod = spec(&manifest);
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        for shared in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
            assert_eq!(pod.get(shared), None, "{name}");
        }
        for container in containers(&manifest) {
            let own = &container["securityContext"];
            let either = |field: &str| if own[field].is_null() { &pod["securityContext"][field] } else { &own[field] };
            let name = format!("{name}, {}", container["name"]);
            assert_eq!(own["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(own["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(own["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
            assert_eq!(*either("runAsNonRoot"), true, "{name}");
            assert_eq!(*either("seccompProfile"), json!({ "type": "RuntimeDefault" }), "{name}");
            assert_eq!(own.get("privileged"), None, "{name}");
            for needed in ["/resources/requests/cpu", "/resources/requests/memory", "/resources/limits/memory"] {
                assert!(container.pointer(needed).is_some(), "{name}: {needed}");
            }
        }
        // In the pod of an application Tallygate's rights are not left to what the application's pod happens to say.
        let own = &tallygate(&manifest)["securityContext"];
        let stated = ["runAsNonRoot", "seccompProfile"].iter().all(|field| !own[field].is_null());
        assert!(stated || spec(&manifest)["containers"][0]["name"] == "tallygate", "{name}");
    }
}

#[test]
fn every_image_is_pinned_by_its_version() {
    for (name, manifest, _) in pods() {
        for container in containers(&manifest) {
            let image = container["image"].as_str().expect("an image");
            let (_, tag) = image.rsplit_once(':').unwrap_or((image, ""));
            assert!(is_a_version(tag), "{name}: {image}");
        }
        let own = tallygate(&manifest)["image"].as_str().unwrap().to_owned();
        assert_eq!(own, format!("tallygate:{}", env!("CARGO_PKG_VERSION")), "{name}");
    }
}

#[test]
fn the_configuration_comes_as_a_folder_and_the_secret_is_made_by_the_operator() {
    for (name, manifest, rendered) in pods() {
        let container = tallygate(&manifest);
        let mounts = container["volumeMounts"].as_array().unwrap();
        let volume = |mount: &Value| {
            let volumes = spec(&manifest)["volumes"].as_array().unwrap();
            volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("a volume").clone()
        };
        for mount in mounts {
            assert_eq!(mount.get("subPath"), None, "{name}: a file mounted so is never updated");
        }
        let arguments: Vec<_> = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        let file = arguments.iter().position(|a| *a == "--config").map(|at| arguments[at + 1]).expect("--config");
        let config = mounts.iter().find(|m| file.starts_with(m["mountPath"].as_str().unwrap())).expect("the folder");
        let map = volume(config)["configMap"]["name"].as_str().expect("a ConfigMap").to_owned();
        let map = find(&rendered, "v1/ConfigMap", &map);
        assert_eq!(map["metadata"]["namespace"], manifest["metadata"]["namespace"], "{name}");
        let leaf = file.rsplit('/').next().unwrap();
        let text = map["data"][leaf].as_str().unwrap_or_else(|| panic!("{name}: the ConfigMap has no {leaf}"));

        let parsed: Value = serde_yaml::from_str(text).unwrap();
        let secret = parsed["hmac"]["secret_file"].as_str().expect("a file");
        let mount = mounts.iter().find(|m| secret.starts_with(m["mountPath"].as_str().unwrap())).expect("its folder");
        let volume = volume(mount);
        assert_eq!(volume["secret"]["secretName"], "tallygate-hmac", "{name}");
        assert!(rendered.iter().all(|m| kind(m) != "v1/Secret"), "{name}: a secret in the repository is none");
        // And nobody else in the pod has it.
        for other in containers(&manifest).filter(|other| other["name"] != "tallygate") {
            let mounts = other["volumeMounts"].as_array().into_iter().flatten();
            assert!(mounts.into_iter().all(|m| m["name"] != volume["name"]), "{name}");
        }
    }
}

/// The only warning that a shipped file may have: a service has to listen to others.
const BEYOND: &str = "server.listen: whoever reaches this address can spend every limit";

#[test]
fn every_configuration_is_valid_and_listens_where_its_pod_says() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("hmac.key");
    fs::write(&secret, "an HMAC secret for tests, 32+ bytes").unwrap();
    for (name, manifest, rendered) in pods() {
        let text = find(&rendered, "v1/ConfigMap", "tallygate")["data"]["tallygate.yaml"].as_str().unwrap();
        let file = folder.path().join("tallygate.yaml");
        fs::write(&file, text.replace("/etc/tallygate/secret/hmac.key", secret.to_str().unwrap())).unwrap();
        let done = cli::run(&["check-config", "--config", file.to_str().unwrap()]);
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
        let warnings: Vec<_> = done.stderr.lines().filter(|line| line.contains("warning")).collect();

        let parsed: Value = serde_yaml::from_str(text).unwrap();
        let port = |listen: &str| listen.rsplit(':').next().and_then(|port| port.parse::<i64>().ok());
        let container = tallygate(&manifest);
        let named = |wanted: Option<i64>| {
            container["ports"].as_array().unwrap().iter().any(|p| p["containerPort"].as_i64() == wanted)
        };
        let (listen, admin) =
            (parsed["server"]["listen"].as_str().unwrap(), parsed["admin"]["listen"].as_str().unwrap());
        assert!(
            admin.starts_with("0.0.0.0:") && named(port(admin)),
            "{name}: kubelet and Prometheus come from outside"
        );
        if listen.starts_with("0.0.0.0:") {
            assert!(named(port(listen)), "{name}");
            assert!(warnings.len() == 1 && warnings[0].contains(BEYOND), "{name}: {warnings:?}");
        } else {
            assert!(listen.starts_with("127.0.0.1:") || listen.starts_with("unix:/"), "{name}: {listen}");
            assert_eq!(warnings, [""; 0], "{name}");
        }
    }
}

#[test]
fn probes_ask_what_the_binary_answers_and_the_pod_outlives_the_drain() {
    for (name, manifest, rendered) in pods() {
        let container = tallygate(&manifest);
        let admin = container["ports"].as_array().unwrap().iter().find(|p| p["containerPort"] == 9180).expect("a port");
        let mut paths = BTreeSet::new();
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            if let Some(get) = container[probe].get("httpGet") {
                assert_eq!(get["port"], admin["name"], "{name}, {probe}");
                paths.insert(get["path"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(paths, BTreeSet::from(["/livez".to_owned(), "/readyz".to_owned()]), "{name}");

        let text = find(&rendered, "v1/ConfigMap", "tallygate")["data"]["tallygate.yaml"].as_str().unwrap();
        // 5 s is the default; none of these files says another.
        assert!(!text.contains("drain:"), "{name}: this test knows the default only");
        let grace = spec(&manifest)["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let first = container.pointer("/lifecycle/preStop/sleep/seconds").and_then(Value::as_i64).unwrap_or(0);
        assert!(grace > first + 5, "{name}: {grace} s for {first} s and a drain of 5 s");
        if container.get("restartPolicy").is_some() {
            assert_eq!(container["restartPolicy"], "Always", "{name}: a native sidecar");
            assert!(container.get("startupProbe").is_some(), "{name}: what comes after waits for it");
        }
    }
}

#[test]
fn the_command_line_of_each_container_is_one_that_the_binary_takes() {
    for (name, manifest, _) in pods() {
        let arguments: Vec<_> =
            tallygate(&manifest)["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        // The file of the image is not here: 78 says so, where a wrong argument is 2.
        let done = cli::run(&arguments);
        assert_eq!(done.code, Some(78), "{name}: {done:?}");
    }
}

#[test]
fn the_network_lets_callers_ask_and_nobody_else() {
    let rendered = render("kubernetes/central");
    let policy = &find(&rendered, "NetworkPolicy", "tallygate")["spec"];
    let labels = &find(&rendered, "Deployment", "tallygate")["spec"]["template"]["metadata"]["labels"];
    assert_eq!(policy["podSelector"]["matchLabels"], *labels, "it selects Tallygate's pods");
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    for rule in policy["ingress"].as_array().unwrap() {
        let from = rule["from"].as_array().expect("from is said: without it everybody may");
        assert!(from.iter().all(|peer| peer["namespaceSelector"]["matchLabels"].is_object()), "{rule}");
        assert_eq!(rule["ports"].as_array().map(Vec::len), Some(1), "each for one port");
    }
    let egress = policy["egress"].as_array().unwrap().iter().flat_map(|rule| rule["ports"].as_array().unwrap());
    let out: BTreeSet<_> = egress.map(|port| port["port"].as_i64().unwrap()).collect();
    assert_eq!(out, BTreeSet::from([53, 6379]), "names, and Redis");
    for selecting in ["PodDisruptionBudget", "v1/Service"] {
        let manifest = find(&rendered, selecting, "tallygate");
        let selector = manifest.pointer("/spec/selector/matchLabels").unwrap_or(&manifest["spec"]["selector"]);
        assert_eq!(*selector, *labels, "{selecting}");
    }
    let target = &find(&rendered, "HorizontalPodAutoscaler", "tallygate")["spec"]["scaleTargetRef"];
    assert_eq!(*target, json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "tallygate" }));
}

// What goes past Istio's proxy, and what it shares with Tallygate, is told in annotations, which nothing checks.
#[test]
fn annotations_for_istio_agree_with_the_configuration() {
    let meshed: Vec<_> = pods().into_iter().filter(|(name, ..)| name.contains("/istio/")).collect();
    assert_eq!(meshed.len(), 7);
    for (name, manifest, rendered) in meshed {
        let text = find(&rendered, "v1/ConfigMap", "tallygate")["data"]["tallygate.yaml"].as_str().unwrap();
        let config: Value = serde_yaml::from_str(text).unwrap();
        let annotations = &manifest["spec"]["template"]["metadata"]["annotations"];
        let port = |address: &Value| address.as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        let [inbound, outbound] = ["excludeInboundPorts", "excludeOutboundPorts"]
            .map(|which| annotations[format!("traffic.sidecar.istio.io/{which}")].clone());
        assert_eq!(inbound, port(&config["admin"]["listen"]), "{name}");
        assert_eq!(outbound, port(&config["store"]["redis"]["url"]), "{name}");

        let Some(socket) = config["server"]["listen"].as_str().unwrap().strip_prefix("unix:") else { continue };
        let shared: Value =
            serde_json::from_str(annotations["sidecar.istio.io/userVolumeMount"].as_str().unwrap()).unwrap();
        let mounts = tallygate(&manifest)["volumeMounts"].as_array().unwrap();
        let own = mounts.iter().find(|mount| mount["name"] == shared[0]["name"]).expect("the same volume");
        assert_eq!(own["mountPath"], shared[0]["mountPath"], "{name}: at the same place");
        assert!(socket.starts_with(own["mountPath"].as_str().unwrap()), "{name}");
        assert_eq!(spec(&manifest)["securityContext"]["fsGroup"], config["server"]["socket_group"], "{name}");
    }
}

// A file that no kustomization and no page names would be applied by nobody, and checked by no test.
#[test]
fn every_file_has_its_place() {
    let texts: Vec<_> =
        [below("deploy", "kustomization.yaml"), below("deploy", ".md"), below("deploy", "compose.yaml")]
            .concat()
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .collect();
    for file in below("deploy", "") {
        let name = file.file_name().unwrap().to_str().unwrap();
        let is_index = ["kustomization.yaml", "README.md", "Dockerfile.dockerignore"].contains(&name);
        assert!(is_index || texts.iter().any(|text| text.contains(name)), "{} is named nowhere", file.display());
        assert!(!name.ends_with(".key") && !name.ends_with(".pem"), "{} is a secret", file.display());
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("PRIVATE KEY") && !text.contains("kind: Secret"), "{} has a secret", file.display());
    }
    assert!(fs::read_to_string(root().join(".gitignore")).unwrap().contains("*.key"));
}
