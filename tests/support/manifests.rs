//! The files of `deploy/`, read as Kubernetes reads them, and judged by the schemas in `tests/data/schemas`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use serde_json::{Value, json};

use super::process::root;

/// Every file below `folder` of the repository whose name ends so, sorted.
pub fn below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The YAML documents of a file.
#[track_caller]
pub fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_yaml::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The only document of a file.
#[track_caller]
pub fn read_one(path: &Path) -> Value {
    let mut documents = read(path);
    assert_eq!(documents.len(), 1, "{} has one document", path.display());
    documents.remove(0)
}

/// `apps/v1/Deployment`
pub fn kind(document: &Value) -> String {
    let text = |field: &str| document[field].as_str().unwrap_or("?").to_owned();
    format!("{}/{}", text("apiVersion"), text("kind"))
}

/// The manifests of this kind and name.
#[track_caller]
pub fn find<'m>(manifests: &'m [Value], kind_of: &str, name: &str) -> &'m Value {
    let mut found = manifests.iter().filter(|m| kind(m).ends_with(kind_of) && m["metadata"]["name"] == name);
    let first = found.next().unwrap_or_else(|| panic!("no {kind_of} {name}"));
    assert!(found.next().is_none(), "more than one {kind_of} {name}");
    first
}

/// What the API servers would say about a manifest, unknown fields included.
pub struct Judge {
    schemas: Schemas,
    kinds: HashMap<String, SchemaIndex>,
    metadata: SchemaIndex,
}

impl Judge {
    pub fn new() -> Self {
        let (mut schemas, mut compiler, mut kinds) = (Schemas::new(), Compiler::new(), HashMap::new());
        compiler.set_default_draft(Draft::V2020_12);
        for path in below("tests/data/schemas", ".json") {
            let name = path.file_name().and_then(OsStr::to_str).expect("a name").to_owned();
            let document: Value = serde_json::from_str(&fs::read_to_string(&path).expect("a schema")).expect("JSON");
            let names: Vec<_> = document["kinds"].as_object().expect("kinds").keys().cloned().collect();
            compiler.add_resource(&name, document).expect("a resource");
            for kind in names {
                let place = format!("{name}#/kinds/{}", kind.replace('/', "~1"));
                kinds.insert(kind, compiler.compile(&place, &mut schemas).expect("a schema"));
            }
        }
        let place = "kubernetes.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let metadata = compiler.compile(place, &mut schemas).expect("a schema");
        Self { schemas, kinds, metadata }
    }

    /// What is wrong with it; `None` for a good one. Panics where no schema knows the kind.
    #[track_caller]
    pub fn problems(&self, manifest: &Value) -> Option<String> {
        let metadata = self.schemas.validate(&manifest["metadata"], self.metadata);
        self.problems_as(&kind(manifest), manifest).or_else(|| metadata.err().map(|error| format!("{error:#}")))
    }

    /// The same of a document that does not say what it is.
    #[track_caller]
    pub fn problems_as(&self, kind: &str, document: &Value) -> Option<String> {
        let index = self.kinds.get(kind).unwrap_or_else(|| panic!("no schema of {kind}"));
        self.schemas.validate(document, *index).err().map(|error| format!("{error:#}"))
    }
}

/// `value` at the place of a JSON pointer, which must exist.
#[track_caller]
pub fn replace(document: &mut Value, pointer: &str, value: &Value) {
    let place = document.pointer_mut(pointer).unwrap_or_else(|| panic!("nothing at {pointer}"));
    *place = value.clone();
}

/// `patch` laid over `target` as kustomize does it for Kubernetes' own kinds: objects by field, lists of named things by
/// name, with new ones at their start, other lists whole.
pub fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (field, value) in patch {
                merge(target.entry(field).or_insert(json!(null)), value);
            }
        }
        (Value::Array(target), Value::Array(patch)) if patch.iter().all(|item| item["name"].is_string()) => {
            let is_known = |item: &&Value| target.iter().any(|known| known["name"] == item["name"]);
            let new: Vec<_> = patch.iter().filter(|item| !is_known(item)).cloned().collect();
            for known in target.iter_mut() {
                let name = known["name"].clone();
                patch.iter().filter(|item| item["name"] == name).for_each(|item| merge(known, item));
            }
            target.splice(..0, new);
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// Whether an image's tag is pinned: three numbers somewhere in it, as in `distroless-v1.40.0`.
pub fn is_a_version(tag: &str) -> bool {
    let words = tag.split('-').map(|word| word.trim_start_matches('v').split('.'));
    words.into_iter().any(|numbers| {
        let numbers: Vec<_> = numbers.collect();
        numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u32>().is_ok())
    })
}
