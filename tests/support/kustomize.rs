//! Renders the kustomizations of `deploy/` as `kubectl kustomize` does, as far as they go: the tests look at what a user
//! would apply, and need no kubectl. A field that this does not know is an error, so nothing is passed over in silence.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::manifests::{kind, merge, read, read_one, replace};
use super::process::root;

const FIELDS: [&str; 10] = [
    "apiVersion",
    "kind",
    "namespace",
    "resources",
    "components",
    "configMapGenerator",
    "generatorOptions",
    "patches",
    "images",
    "metadata",
];

/// What `kubectl kustomize deploy/FOLDER` prints.
#[track_caller]
pub fn render(folder: &str) -> Vec<Value> {
    let mut manifests = Vec::new();
    apply(&root().join("deploy").join(folder), &mut manifests);
    manifests
}

/// Every folder of `deploy/` that can be applied by itself.
pub fn all() -> Vec<String> {
    let base = root().join("deploy");
    let files = super::manifests::below("deploy", "kustomization.yaml").into_iter();
    let whole = files.filter(|file| read_one(file)["kind"] == "Kustomization");
    let folder =
        |file: PathBuf| file.parent().and_then(|f| f.strip_prefix(&base).ok()).map(|f| f.display().to_string());
    whole.filter_map(folder).collect()
}

/// A kustomization makes manifests of its own; a component changes those that are there.
fn apply(folder: &Path, manifests: &mut Vec<Value>) {
    let own = read_one(&folder.join("kustomization.yaml"));
    for field in own.as_object().expect("a map").keys() {
        assert!(FIELDS.contains(&field.as_str()), "{}: {field} is not known here", folder.display());
    }
    for resource in texts(&own["resources"]) {
        let path = folder.join(resource);
        if path.is_dir() {
            let mut made = Vec::new();
            apply(&path, &mut made);
            manifests.append(&mut made);
        } else {
            manifests.extend(read(&path));
        }
    }
    for generator in items(&own["configMapGenerator"]) {
        generate(folder, &own, generator, manifests);
    }
    for component in texts(&own["components"]) {
        apply(&folder.join(component), manifests);
    }
    for patch in items(&own["patches"]) {
        lay(folder, patch, manifests);
    }
    for manifest in manifests.iter_mut() {
        if let (Some(namespace), false) = (own["namespace"].as_str(), kind(manifest).ends_with("/GatewayClass")) {
            manifest["metadata"]["namespace"] = json!(namespace);
        }
        for image in items(&own["images"]) {
            tag(manifest, image);
        }
    }
}

/// A ConfigMap of files, in the place of the one that a base has made.
fn generate(folder: &Path, own: &Value, generator: &Value, manifests: &mut Vec<Value>) {
    let options = [&generator["options"], &own["generatorOptions"]];
    let is_stable = options.iter().any(|options| options["disableNameSuffixHash"] == true);
    assert!(is_stable, "{}: a name with a hash would be a rollout and no reload", folder.display());
    let mut map =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": generator["name"] }, "data": {} });
    if let Some(namespace) = generator["namespace"].as_str() {
        map["metadata"]["namespace"] = json!(namespace);
    }
    for file in texts(&generator["files"]) {
        map["data"][file] = json!(fs::read_to_string(folder.join(file)).expect("a file of the ConfigMap"));
    }
    let same = |m: &Value| kind(m) == "v1/ConfigMap" && m["metadata"] == map["metadata"];
    match (generator["behavior"].as_str(), manifests.iter_mut().find(|m| same(m))) {
        (Some("replace"), Some(known)) => *known = map,
        (None, None) => manifests.push(map),
        other => panic!("{}: {other:?} of a ConfigMap", folder.display()),
    }
}

fn lay(folder: &Path, patch: &Value, manifests: &mut [Value]) {
    let file = folder.join(patch["path"].as_str().expect("a patch of a file"));
    let content = read_one(&file);
    let mut laid = 0;
    for manifest in manifests.iter_mut().filter(|manifest| is_target(&patch["target"], manifest)) {
        match content.as_array() {
            Some(operations) => operations.iter().for_each(|operation| operate(manifest, operation)),
            None => {
                // The name of a patch is a placeholder where a target is given.
                let mut content = content.clone();
                content["metadata"]["name"] = manifest["metadata"]["name"].clone();
                merge(manifest, &content);
            }
        }
        laid += 1;
    }
    assert!(laid > 0, "{} changes nothing: no manifest is its target", file.display());
}

fn is_target(target: &Value, manifest: &Value) -> bool {
    let group = target["group"].as_str().map_or(String::new(), |group| format!("{group}/"));
    let wanted = format!(
        "{group}{}/{}",
        target["version"].as_str().expect("a version"),
        target["kind"].as_str().expect("a kind")
    );
    let label = target["labelSelector"].as_str().and_then(|label| label.split_once('='));
    kind(manifest) == wanted
        && target["name"].as_str().is_none_or(|name| manifest["metadata"]["name"] == name)
        && label.is_none_or(|(label, value)| manifest["metadata"]["labels"][label] == value)
}

/// One step of a JSON patch (RFC 6902).
fn operate(manifest: &mut Value, operation: &Value) {
    let pointer = operation["path"].as_str().expect("a path");
    match operation["op"].as_str() {
        Some("test") => assert_eq!(manifest.pointer(pointer), Some(&operation["value"]), "{pointer}"),
        Some("replace") => replace(manifest, pointer, &operation["value"]),
        other => panic!("{other:?} is not known here"),
    }
}

fn tag(manifest: &mut Value, image: &Value) {
    for list in ["initContainers", "containers"] {
        let containers = manifest.pointer_mut(&format!("/spec/template/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter(|container| container["image"] == image["name"]) {
            let [name, tag] = ["newName", "newTag"].map(|field| image[field].as_str().expect("a name and a tag"));
            container["image"] = json!(format!("{name}:{tag}"));
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    items(value).map(|item| item.as_str().expect("a text"))
}
