//! Alerts and dashboard ask for series that there are: an alert on a name that nobody exports never fires.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::envoy::Envoy;
use crate::support::manifests::read_one;
use crate::support::metrics::Metrics;
use crate::support::policy::{Policy, SUBJECT};
use crate::support::process::root;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// What a query selects: a metric's name, and the labels with the values that one of its series must have.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Selector {
    name: String,
    labels: Vec<(String, Vec<String>)>,
}

/// The selectors of our metrics and of Envoy's in a PromQL query.
fn selectors(query: &str) -> Vec<Selector> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut found, mut rest) = (Vec::new(), query);
    while let Some(start) = rest.find(is_name) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        rest = &rest[end..];
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let (matchers, after) = inside.split_once('}').expect("a closing brace");
            rest = after;
            for matcher in matchers.split(", ").filter(|matcher| !matcher.is_empty()) {
                let (label, value) = matcher.split_once('=').expect("label=value");
                let values = value.trim_start_matches('~').trim_matches('"').split('|').map(str::to_owned);
                labels.push((label.to_owned(), values.collect()));
            }
        }
        if ["tallygate_", "envoy_"].iter().any(|ours| name.starts_with(ours)) {
            found.push(Selector { name: name.to_owned(), labels });
        }
    }
    found
}

/// Every query of the rules, with its rule.
fn rules() -> Vec<Value> {
    let file = read_one(&root().join("deploy/prometheus/alerts.yaml"));
    let groups = file["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(root().join("deploy/grafana/tallygate.json")).unwrap()).unwrap()
}

fn panel_queries() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("[$__rate_interval]", "[5m]")).collect()
}

#[test]
fn queries_are_read_as_they_are_meant() {
    let read = selectors(r#"sum by (a) (rate(tallygate_x_total{v=~"b|c", d="e"}[5m])) / tallygate_y > 0.5"#);
    let text = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let labels = vec![("v".to_owned(), text(&["b", "c"])), ("d".to_owned(), text(&["e"]))];
    let first = Selector { name: "tallygate_x_total".into(), labels };
    assert_eq!(read, [first, Selector { name: "tallygate_y".into(), labels: vec![] }]);
}

/// A sidecar's and an Envoy's series, with every kind of them.
fn exported() -> [Metrics; 2] {
    let watched = Policy::new("orders").limit("real", SUBJECT, "fixed_window: { limit: 3, window: 60s }");
    let watched = watched.limit("tried", SUBJECT, "fixed_window: { limit: 1, window: 60s }, mode: shadow");
    let sidecar = Setup::memory().with(&watched).start();
    let application = Upstream::start();
    let envoy = Envoy::shipped(sidecar.port(), application.port());
    // Some of Envoy's counters are there from the first request on.
    envoy.get("/orders", &[]);
    [sidecar.metrics(), envoy.prometheus()]
}

#[test]
fn every_alert_and_panel_asks_for_series_that_a_sidecar_or_envoy_has() {
    let [own, envoys] = exported();
    let mut names = BTreeSet::new();
    let alerts = rules().iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    for selector in alerts.iter().chain(&panel_queries()).flat_map(|query| selectors(query)) {
        let metrics = if selector.name.starts_with("envoy_") { &envoys } else { &own };
        for (label, values) in &selector.labels {
            for value in values.iter().filter(|_| label != "namespace") {
                metrics.value(&selector.name, &[(label, value)]);
            }
        }
        metrics.value(&selector.name, &[]);
        names.insert(selector.name);
    }
    assert!(names.len() >= 15, "only {names:?} were asked for");
    // Whatever a sidecar has is worth a look: nothing is exported that neither an alert nor a panel shows.
    let base = |series: &str| series.split('{').next().unwrap().to_owned();
    let shown = |name: &String| {
        names.contains(name) || names.contains(&name.replace("_sum", "_bucket").replace("_count", "_bucket"))
    };
    let hidden: BTreeSet<_> = own.names().into_iter().map(base).filter(|name| !shown(name)).collect();
    assert_eq!(hidden, BTreeSet::from(["tallygate_config_generation".to_owned()]));
}

#[test]
fn every_alert_says_how_urgent_it_is_and_what_it_means() {
    let mut names = BTreeSet::new();
    for rule in rules() {
        let known = ["alert", "expr", "for", "labels", "annotations"];
        assert!(rule.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{rule}");
        assert!(["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].as_str().is_some_and(|text| text.len() > 20), "{rule}");
        }
        // A label that the query does not keep would be empty in the summary.
        let (query, summary) = (rule["expr"].as_str().unwrap(), rule["annotations"]["summary"].as_str().unwrap());
        for label in summary.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap()) {
            let kept =
                query.split("by (").skip(1).any(|by| by.split(')').next().unwrap().split(", ").any(|l| l == label));
            assert!(kept || !query.contains(" by ") && label == "instance", "{label} in {summary}");
        }
        assert!(names.insert(rule["alert"].as_str().unwrap().to_owned()), "{rule} twice");
    }
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_i64().unwrap()));
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "of whichever Prometheus there is");
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()));
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_i64().unwrap());
        assert!(x + w <= 24, "a row has 24 columns");
        for cell in (x..x + w).flat_map(|column| (y..y + h).map(move |row| (column, row))) {
            assert!(cells.insert(cell), "{} lies over another", panel["title"]);
        }
    }
    let variables: Vec<_> =
        dashboard["templating"]["list"].as_array().unwrap().iter().map(|v| v["name"].clone()).collect();
    assert_eq!(variables, ["datasource", "namespace"]);
}
