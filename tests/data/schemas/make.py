#!/usr/bin/env python3
"""Makes the schemas beside it anew, from packages of PyPI and npm. README.md says which, and what is in them.

Needs pip, npm and Node.js, and a network; the tests need none of them. Run it to take newer versions, and look at the diff.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
KUBERNETES = ("kubernetes-validate==1.37.0", "v1.37.0-local-strict")
COMPOSE = "docker-compose==1.29.2"
NPM = [
    "@kubernetes-models/istio@3.0.1",
    "@kubernetes-models/envoy-gateway@2.0.0",
    "@kubernetes-models/gateway-api@2.0.0",
    "ts-json-schema-generator@2.4.0",
]
CORE = {
    "v1/ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "v1/Secret": "io.k8s.api.core.v1.Secret",
    "v1/Service": "io.k8s.api.core.v1.Service",
    "apps/v1/Deployment": "io.k8s.api.apps.v1.Deployment",
    "autoscaling/v2/HorizontalPodAutoscaler": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "policy/v1/PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "networking.k8s.io/v1/NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
}
CUSTOM = {
    "istio": [
        "security.istio.io/v1/AuthorizationPolicy",
        "security.istio.io/v1/PeerAuthentication",
        "security.istio.io/v1/RequestAuthentication",
        "networking.istio.io/v1/ServiceEntry",
        "networking.istio.io/v1/DestinationRule",
        "networking.istio.io/v1alpha3/EnvoyFilter",
    ],
    "envoy-gateway": [
        "gateway.envoyproxy.io/v1alpha1/SecurityPolicy",
        "gateway.envoyproxy.io/v1alpha1/EnvoyProxy",
    ],
    "gateway-api": [
        "gateway.networking.k8s.io/v1/Gateway",
        "gateway.networking.k8s.io/v1/GatewayClass",
        "gateway.networking.k8s.io/v1/HTTPRoute",
        "gateway.networking.k8s.io/v1beta1/ReferenceGrant",
    ],
}


def trimmed(schema):
    """Without prose and without Kubernetes' own extensions of the language."""
    if isinstance(schema, list):
        return [trimmed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    prose = {key for key, value in schema.items() if key == "description" and isinstance(value, str)}
    if schema.get("type") == "object" and "properties" not in schema and schema.get("additionalProperties") is False:
        return {"type": "object"}  # any object: the configuration within an EnvoyFilter
    return {key: trimmed(part) for key, part in schema.items() if key not in prose and not key.startswith("x-")}


def member(folder, package, name):
    """A JSON file of a wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob(package.split("==")[0].replace("-", "_") + "-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read(name))


def core(folder):
    package, version = KUBERNETES
    path = "kubernetes_validate/kubernetes-json-schema/%s/_definitions.json" % version
    known = member(folder, package, path)["$defs"]
    definitions, wanted = {}, list(CORE.values())
    while wanted:
        name = wanted.pop()
        if name not in definitions:
            definitions[name] = trimmed(known[name])
            text = json.dumps(definitions[name])
            wanted += [ref.split('"')[0] for ref in text.split('"#/$defs/')[1:]]
    return {"kinds": {kind: {"$ref": "#/$defs/" + name} for kind, name in CORE.items()}, "$defs": definitions}


def optional(schema):
    """Of «one of these or none» Istio's types have kept «one of these» (for CUSTOM's provider, too)."""
    if isinstance(schema, list):
        for part in schema:
            optional(part)
    elif isinstance(schema, dict):
        for choice in schema.get("anyOf", []):
            choice.pop("required", None)
        for part in schema.values():
            optional(part)


def custom(folder, package, kind):
    """The schema of a TypeScript interface, with everything that it refers to written into it."""
    path = "node_modules/@kubernetes-models/%s/%s.d.ts" % (package, kind)
    command = ["npx", "ts-json-schema-generator", "--path", path, "--type", "I" + kind.split("/")[-1]]
    command += ["--tsconfig", "tsconfig.json", "--no-type-check", "--expose", "none", "--jsDoc", "none"]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
    schema = trimmed(json.loads(done.stdout))
    schema.pop("$schema")
    (name,) = [schema.pop("$ref").split("/")[-1]]
    schema = schema["definitions"][name]
    schema["properties"].pop("status", None)
    # Metadata is the same for every kind, and Kubernetes' own schema of it is stricter.
    schema["properties"]["metadata"] = {}
    if package == "istio":
        optional(schema)
    if name == "IAuthorizationPolicy":
        schema["properties"]["spec"].pop("required")
    if name == "ISecurityPolicy":
        # Newer than the package: Envoy Gateway 1.8.
        schema["properties"]["spec"]["properties"]["extAuth"]["properties"]["statusOnError"] = {"type": "integer"}
    return kind, schema


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        compose = trimmed(member(folder, COMPOSE, "compose/config/compose_spec.json"))
        files = {"kubernetes": core(folder), "compose": {**compose, "kinds": {"compose": {"$ref": "#"}}}}
        (folder / "package.json").write_text("{}")
        options = {"module": "nodenext", "moduleResolution": "nodenext", "strict": True, "skipLibCheck": True}
        (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": []}))
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *NPM], cwd=folder, check=True)
        with ThreadPoolExecutor(2) as pool:
            for package, kinds in CUSTOM.items():
                made = pool.map(lambda kind: custom(folder, package, kind), kinds)
                files[package] = {"kinds": dict(made)}
    for name, schema in files.items():
        text = json.dumps(schema, separators=(",", ":"), sort_keys=True)
        (HERE / (name + ".json")).write_text(text + "\n")


main()
