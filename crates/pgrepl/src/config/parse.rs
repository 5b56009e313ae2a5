//! Connection strings taken apart into parameters: libpq's URLs and its `keyword = value` strings.
//!
//! <https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-CONNSTRING>

use percent_encoding::percent_decode_str;

use crate::Error;

/// Parameters in the order in which they were written; a later one overrides an earlier one.
pub(super) type Parameters = Vec<(String, String)>;

pub(super) fn parameters(text: &str) -> Result<Parameters, Error> {
    let text = text.trim();
    for scheme in ["postgresql://", "postgres://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            return url(rest);
        }
    }
    if let Some((scheme, _)) = text.split_once("://")
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return Err(Error::config(format!(
            "not a PostgreSQL URL: it must start with postgres:// or postgresql://, not with: {scheme}://"
        )));
    }
    keywords(text)
}

fn decode(text: &str, part: &str) -> Result<String, Error> {
    let bytes = text.as_bytes();
    let broken = bytes.iter().enumerate().any(|(at, byte)| {
        *byte == b'%'
            && !bytes
                .get(at.saturating_add(1)..at.saturating_add(3))
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    if broken {
        return Err(Error::config(format!(
            "the connection URL has a % that no two hexadecimal digits follow; write a literal % as %25, in its: {part}"
        )));
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| {
        Error::config(format!("the connection URL is not UTF-8 after decoding, in its: {part}"))
    })?;
    if decoded.contains('\0') {
        return Err(Error::config(format!("the connection URL must not contain %00, in its: {part}")));
    }
    Ok(decoded.into_owned())
}

/// What is wrong is not shown: it may be part of a password that has one of the URL's own characters in it.
fn misread(what: &str) -> Error {
    Error::config(format!(
        "the connection URL {what}; in a user name or password / is to be written as %2F, ? as %3F, @ as %40 and : as %3A"
    ))
}

/// `[user[:password]@][host][:port][,...][/dbname][?name=value&...]`
fn url(rest: &str) -> Result<Parameters, Error> {
    let mut found = Parameters::new();
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let credentials = rest.split_at_checked(authority_end).and_then(|(head, _)| head.split_once('@'));
    let mut rest = rest;
    if let Some((credentials, _)) = credentials {
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (credentials, None),
        };
        if !user.is_empty() {
            found.push(("user".into(), decode(user, "user")?));
        }
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            found.push(("password".into(), decode(password, "password")?));
        }
        rest = rest.split_once('@').map_or("", |(_, after)| after);
    }
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    let (hosts, dbname) = match place.split_once('/') {
        Some((hosts, dbname)) => (hosts, dbname),
        None => (place, ""),
    };
    url_hosts(hosts, &mut found)?;
    if !dbname.is_empty() {
        found.push(("dbname".into(), decode(dbname, "database name")?));
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| misread("has a parameter without a value"))?;
        let name = decode(name, "parameters")?;
        let value = decode(value, &name)?;
        // JDBC's spelling, which libpq understands too.
        match (name.as_str(), value.as_str()) {
            ("ssl", "true") => found.push(("sslmode".into(), "require".into())),
            _ => found.push((name, value)),
        }
    }
    Ok(found)
}

fn url_hosts(text: &str, found: &mut Parameters) -> Result<(), Error> {
    if text.is_empty() {
        return Ok(());
    }
    if text.contains('@') {
        return Err(misread("has an @ in a host name"));
    }
    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    for spec in text.split(',') {
        let (host, port) = match spec.strip_prefix('[') {
            Some(inner) => {
                let (address, after) = inner.split_once(']').ok_or_else(|| {
                    Error::config("the connection URL has an IPv6 address without its closing bracket ]")
                })?;
                match after.strip_prefix(':') {
                    Some(port) => (address, port),
                    None if after.is_empty() => (address, ""),
                    None => return Err(misread("has something other than :port after an IPv6 address")),
                }
            }
            None => spec.split_once(':').unwrap_or((spec, "")),
        };
        let port = decode(port, "port")?;
        if !port.trim().is_empty() && !port.trim().parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(misread("has a port that is not a number from 1 to 65535"));
        }
        hosts.push(decode(host, "host")?);
        ports.push(port);
    }
    if hosts.iter().any(|host| !host.is_empty()) {
        found.push(("host".into(), hosts.join(",")));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        found.push(("port".into(), ports.join(",")));
    }
    Ok(())
}

/// `name = value name = 'quoted \' value'`
fn keywords(text: &str) -> Result<Parameters, Error> {
    let mut found = Parameters::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut name = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            name.push(c);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if name.is_empty() && chars.peek().is_none() {
            return Ok(found);
        }
        if chars.next() != Some('=') || name.is_empty() {
            return Err(Error::config(
                "the connection string is neither a URL (postgres://user@host/database) nor a list of name=value",
            ));
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut value = String::new();
        let quoted = chars.next_if_eq(&'\'').is_some();
        loop {
            match chars.peek().copied() {
                Some('\'') if quoted => {
                    chars.next();
                    break;
                }
                None if quoted => {
                    return Err(Error::config(format!(
                        "the connection string does not close the quote of: {name}"
                    )));
                }
                None => break,
                Some(c) if !quoted && c.is_whitespace() => break,
                Some('\\') => {
                    chars.next();
                    value.extend(chars.next());
                }
                Some(c) => {
                    chars.next();
                    value.push(c);
                }
            }
        }
        found.push((name, value));
    }
}
