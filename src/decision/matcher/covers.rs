//! Whether one matcher takes every request that another would take: the other is never reached behind it.
//!
//! It errs to one side: *yes* is certain, *no* may only mean that it is not plain to see.

use super::{HostPattern, Matcher, PathPattern};

impl Matcher {
    /// Whether every request for `later` is one for this matcher too, condition by condition.
    pub fn covers(&self, later: &Self) -> bool {
        let path = match (&self.path, &later.path) {
            (None, _) => true,
            (Some(path), Some(later)) => path.covers(later),
            (Some(_), None) => false,
        };
        let host = match (&self.host, &later.host) {
            (None, _) => true,
            (Some(host), Some(later)) => host.covers(later),
            (Some(_), None) => false,
        };
        let methods = self.methods.is_empty()
            || !later.methods.is_empty() && later.methods.iter().all(|method| self.methods.contains(method));
        let route = self.route.iter().all(|condition| later.route.contains(condition));
        path && host && methods && route
    }
}

impl PathPattern {
    fn covers(&self, later: &Self) -> bool {
        match (self, later) {
            (_, Self::Exact(path)) => self.holds(path),
            (Self::Prefix(own), Self::Prefix(path)) => own.is_empty() || self.holds(path),
            // What the prefix asks for are literal segments of the template.
            (Self::Prefix(own), Self::Template(segments)) => {
                let mut segments = segments.iter();
                own.split('/').skip(1).all(|part| segments.next().is_some_and(|found| found.as_deref() == Some(part)))
            }
            (Self::Template(own), Self::Template(segments)) => {
                own.len() == segments.len()
                    && own.iter().zip(segments).all(|(own, found)| match (own, found) {
                        (None, found) => found.as_deref() != Some(""),
                        (own, found) => own == found,
                    })
            }
            (Self::Exact(own), Self::Template(segments)) => {
                let mut literal = String::new();
                segments.iter().flatten().for_each(|segment| literal += &format!("/{segment}"));
                segments.iter().all(Option::is_some) && literal == *own
            }
            (Self::Exact(_) | Self::Template(_), Self::Prefix(_)) => false,
        }
    }
}

impl HostPattern {
    fn covers(&self, later: &Self) -> bool {
        match (self, later) {
            (_, Self::Exact(name)) => self.holds(name),
            (Self::Below(own), Self::Below(suffix)) => suffix.ends_with(own.as_str()),
            (Self::Exact(_), Self::Below(_)) => false,
        }
    }
}
