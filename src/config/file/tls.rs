//! `server.tls`: the certificate that Envoys are shown, and which of them may ask.

use std::path::PathBuf;
use std::sync::Arc;

use super::certificates::Certificates;
use super::identity::principal;
use crate::config::reader::Field;
use crate::tls::certificate::Role;
use crate::tls::server::{BadMaterial, Clients, Material, ServerConfig, server_config};

/// What handshakes go by, and the files that it was read from.
pub struct ServerTls {
    pub handshakes: Arc<ServerConfig>,
    pub files: Vec<PathBuf>,
}

pub fn listener(field: &Field<'_>, certificates: &Certificates) -> Option<ServerTls> {
    let section = field.section()?;
    let certificate = section.required("certificate_file", "/etc/tallygate/tls.crt");
    let private_key = section.required("private_key_file", "/etc/tallygate/tls.key");
    let authorities = section.optional("client_ca_file");
    let allowed = section.optional("allowed_clients");
    section.finish();
    match (&authorities, &allowed) {
        (None, Some(allowed)) => {
            allowed.problem("needs client_ca_file beside it: without an authority an ID is only a claim");
            return None;
        }
        (None, None) => field.warning(
            "proves who Tallygate is, and not who asks: whoever reaches the listener can spend every limit. Write \
             client_ca_file too",
        ),
        (Some(_), _) => {}
    }
    // Every file is read before any is given up, so that all problems are found.
    let chain = certificate.as_ref().and_then(|field| certificates.read(field, Role::Chain));
    let key = private_key.as_ref().and_then(|field| certificates.read_key(field));
    let known = authorities.as_ref().map(|field| certificates.read(field, Role::Authorities));
    let allowed = allowed.map_or(Some(Vec::new()), |field| {
        field.each("the list is empty: leave it out to let every client of the authority ask", |id| id.parse(principal))
    });
    let ((chain_path, chain), (key_path, key), allowed) = (chain?, key?, allowed?);
    let mut files = vec![chain_path, key_path];
    let known = known.map_or(Some(None), |read| read.map(Some))?;
    let clients = match &known {
        None => Clients::Anybody,
        Some((path, authorities)) => {
            files.push(path.clone());
            Clients::Known { authorities, allowed }
        }
    };
    match server_config(Material { certificate: &chain, private_key: &key, clients }) {
        Ok(config) => Some(ServerTls { handshakes: Arc::new(config), files }),
        Err(bad) => {
            let at = match bad {
                BadMaterial::Certificate(_) => certificate.as_ref(),
                BadMaterial::PrivateKey(_) | BadMaterial::Mismatch => private_key.as_ref(),
                BadMaterial::Authorities(_) => authorities.as_ref(),
                BadMaterial::Unusable(_) => Some(field),
            };
            at.unwrap_or(field).problem(bad);
            None
        }
    }
}
