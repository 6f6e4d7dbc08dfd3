//! Every Envoy configuration that we ship is one that Envoy accepts.

use std::fs;

use crate::support::envoy;
use crate::support::process::root;

#[test]
fn envoy_accepts_every_shipped_configuration() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("envoy")).expect("the folder of Envoy configurations") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let done = envoy::validate(&path);
            assert_eq!(done.code, Some(0), "{}:\n{}", path.display(), done.stderr);
            // A deprecated field is accepted today and refused tomorrow.
            assert!(!done.stderr.to_lowercase().contains("deprecated"), "{}:\n{}", path.display(), done.stderr);
            seen += 1;
        }
    }
    assert!(seen > 0, "there is at least tallygate.yaml");
}
