//! Logging in: the startup packet, and whatever proof of identity the server asks for.
//!
//! <https://www.postgresql.org/docs/18/protocol-flow.html#PROTOCOL-FLOW-START-UP>

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use postgres_protocol::message::frontend;

use crate::Error;
use crate::config::{ChannelBinding, Config};
use crate::link::Link;
use crate::protocol::backend::{self, Authentication, tag};

const LOGGING_IN: &str = "logging in";

/// What has been proven so far.
#[derive(Default)]
struct Progress {
    scram: Option<ScramSha256>,
    /// SCRAM was tied to the TLS session.
    bound: bool,
    /// The server has proven that it knows the password too.
    server_verified: bool,
}

/// Sends the startup packet and answers the server until it accepts the user.
pub(crate) async fn log_in(link: &mut Link, config: &Config) -> Result<(), Error> {
    let parameters = config.startup_parameters();
    let pairs = parameters.iter().map(|(name, value)| (*name, value.as_str()));
    frontend::startup_message(pairs, &mut link.out).map_err(unsendable)?;
    let mut progress = Progress::default();
    loop {
        let frame = link.frame(LOGGING_IN).await?;
        match frame.tag {
            tag::AUTHENTICATION => {
                if answer(link, config, &mut progress, backend::authentication(&frame.body)?)? {
                    return Ok(());
                }
            }
            tag::ERROR_RESPONSE => {
                return Err(Error::Server(Box::new(backend::server_message(&frame.body)?)));
            }
            tag::NOTICE_RESPONSE | tag::NEGOTIATE_PROTOCOL_VERSION => {}
            other => {
                return Err(Error::protocol(format!(
                    "unexpected message while logging in: {:?}",
                    char::from(other)
                )));
            }
        }
    }
}

fn unsendable(error: std::io::Error) -> Error {
    Error::config(format!("a connection parameter cannot be sent: {error}"))
}

/// Queues the answer to one request; true when the user is accepted.
fn answer(
    link: &mut Link,
    config: &Config,
    progress: &mut Progress,
    request: Authentication<'_>,
) -> Result<bool, Error> {
    let binding_required = config.channel_binding == ChannelBinding::Require;
    match request {
        Authentication::Ok => {
            if progress.scram.is_some() && !progress.server_verified {
                return Err(Error::auth(
                    "the server accepted the login without proving that it knows the password",
                ));
            }
            if binding_required && !(progress.bound && progress.server_verified) {
                return Err(Error::auth(
                    "channel_binding=require, but the server accepted the login without it; use scram-sha-256 over \
                     TLS in pg_hba.conf",
                ));
            }
            return Ok(true);
        }
        Authentication::Cleartext | Authentication::Md5 { .. } if binding_required => {
            return Err(Error::auth(
                "channel_binding=require, but the server asks for a password that is not bound to the TLS session; \
                 use scram-sha-256 over TLS in pg_hba.conf",
            ));
        }
        Authentication::Cleartext => {
            let password = exposed_password(link, config, "in clear")?;
            frontend::password_message(password.as_bytes(), &mut link.out).map_err(unsendable)?;
        }
        Authentication::Md5 { salt } => {
            let password = exposed_password(link, config, "as an MD5 hash")?;
            let hash = md5_hash(config.user().as_bytes(), password.as_bytes(), salt);
            frontend::password_message(hash.as_bytes(), &mut link.out).map_err(unsendable)?;
        }
        Authentication::Sasl { mechanisms } => start_scram(link, config, progress, &mechanisms)?,
        Authentication::SaslContinue(data) => {
            let scram = in_scram(progress)?;
            scram.update(data).map_err(|error| Error::auth(format!("SCRAM failed: {error}")))?;
            frontend::sasl_response(scram.message(), &mut link.out).map_err(unsendable)?;
        }
        Authentication::SaslFinal(data) => {
            in_scram(progress)?
                .finish(data)
                .map_err(|error| Error::auth(format!("SCRAM failed: {error}")))?;
            progress.server_verified = true;
        }
        Authentication::Unsupported(kind) => {
            return Err(Error::auth(format!(
                "the server asks for an authentication method that is not supported; use scram-sha-256, a client \
                 certificate or a password in pg_hba.conf instead of: {}",
                method_name(kind)
            )));
        }
    }
    Ok(false)
}

fn in_scram(progress: &mut Progress) -> Result<&mut ScramSha256, Error> {
    match &mut progress.scram {
        Some(scram) if !progress.server_verified => Ok(scram),
        _ => Err(Error::protocol("a SASL message outside a SASL exchange")),
    }
}

fn method_name(kind: i32) -> String {
    match kind {
        2 => "Kerberos V5".into(),
        6 => "SCM credentials".into(),
        7 | 8 => "GSSAPI".into(),
        9 => "SSPI".into(),
        other => format!("method {other}"),
    }
}

fn start_scram(
    link: &mut Link,
    config: &Config,
    progress: &mut Progress,
    mechanisms: &[&[u8]],
) -> Result<(), Error> {
    if progress.scram.is_some() {
        return Err(Error::protocol("a second SASL exchange"));
    }
    let offered = |name: &str| mechanisms.contains(&name.as_bytes());
    let end_point = match config.channel_binding {
        ChannelBinding::Disable => None,
        ChannelBinding::Prefer | ChannelBinding::Require => {
            link.transport.tls_server_end_point().map(<[u8]>::to_vec)
        }
    };
    let (mechanism, binding) = match end_point {
        Some(hash) if offered(SCRAM_SHA_256_PLUS) => {
            progress.bound = true;
            (SCRAM_SHA_256_PLUS, sasl::ChannelBinding::tls_server_end_point(hash))
        }
        _ if config.channel_binding == ChannelBinding::Require => {
            return Err(Error::auth(
                "channel_binding=require needs TLS and a server that offers SCRAM-SHA-256-PLUS; check sslmode and \
                 the server's certificate",
            ));
        }
        // Says "we could have": a server that does offer it knows then that somebody has removed the offer.
        Some(_) => (SCRAM_SHA_256, sasl::ChannelBinding::unrequested()),
        None => (SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
    };
    if !offered(mechanism) {
        let names: Vec<_> = mechanisms.iter().map(|name| String::from_utf8_lossy(name)).collect();
        return Err(Error::auth(format!(
            "the server offers no SASL mechanism that is supported: {}",
            names.join(", ")
        )));
    }
    let password = password(link, config)?;
    let scram = ScramSha256::new(password.as_bytes(), binding);
    frontend::sasl_initial_response(mechanism, scram.message(), &mut link.out).map_err(unsendable)?;
    progress.scram = Some(scram);
    Ok(())
}

fn password(link: &Link, config: &Config) -> Result<String, Error> {
    config.password_for(link.transport.peer())?.ok_or_else(|| {
        let file = config
            .passfile()
            .map_or_else(String::new, |path| format!(", or add a line to {}", path.display()));
        Error::auth(format!(
            "the server asks for a password and none was given; set PGPASSWORD{file}, for user: {}",
            config.user()
        ))
    })
}

fn exposed_password(link: &Link, config: &Config, how: &str) -> Result<String, Error> {
    if !link.transport.is_private() && !config.allow_insecure_password {
        return Err(Error::auth(format!(
            "refused to send the password {how} over a connection without TLS; set sslmode=require, or use \
             scram-sha-256 in pg_hba.conf"
        )));
    }
    password(link, config)
}
