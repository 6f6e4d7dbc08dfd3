//! Reads the Prometheus text format.

use std::collections::BTreeMap;

/// One scrape: series (name and labels as written) and their values, as written.
pub struct Metrics(BTreeMap<String, String>);

impl Metrics {
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        Self(lines.map(|line| series(line).unwrap_or_else(|| panic!("not a sample: {line}"))).collect())
    }

    /// The sum over the series of `name` that carry all of `labels`. Panics if there is none: which series exist
    /// follows from the configuration, so a missing one is a fault.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).map(|value| value.parse::<f64>().expect("a sample is a number")).sum()
    }

    /// The same for what counts whole things.
    #[track_caller]
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let whole = |value: &str| value.strip_suffix(".0").unwrap_or(value).parse::<u64>();
        self.find(name, labels).map(|value| whole(value).expect("a count is a whole number")).sum()
    }

    #[track_caller]
    fn find<'a>(&'a self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &'a str> {
        let wanted: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let matching = |series: &str| {
            let (own, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels: Vec<_> = labels.trim_end_matches('}').split(',').collect();
            own == name && wanted.iter().all(|label| labels.contains(&label.as_str()))
        };
        let found: Vec<_> = self.0.iter().filter(|(series, _)| matching(series)).collect();
        assert!(!found.is_empty(), "no series {name} {labels:?} in:\n{:#?}", self.names());
        found.into_iter().map(|(_, value)| value.as_str())
    }

    /// Verdicts of one kind under one policy.
    #[track_caller]
    pub fn verdicts(&self, policy: &str, verdict: &str) -> u64 {
        self.count("tallygate_verdicts_total", &[("policy", policy), ("verdict", verdict)])
    }

    /// Foreign state of one kind met by one policy.
    #[track_caller]
    pub fn foreign(&self, policy: &str, reason: &str) -> u64 {
        self.count("tallygate_foreign_state_total", &[("policy", policy), ("reason", reason)])
    }

    /// Store errors of one class.
    #[track_caller]
    pub fn store_errors(&self, class: &str) -> u64 {
        self.count("tallygate_store_errors_total", &[("class", class)])
    }

    /// Every series, in order.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

/// `name{labels} value`, perhaps with a timestamp or an exemplar behind it.
fn series(line: &str) -> Option<(String, String)> {
    let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
    let value = line[end..].split_whitespace().next()?;
    Some((line[..end].to_owned(), value.to_owned()))
}
