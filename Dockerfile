# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
# perl and make build the vendored OpenSSL; the compiler comes with the image.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make perl pkg-config \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package crabka \
    && cp target/release/crabka /usr/local/bin/crabka

FROM debian:bookworm-slim
# curl is for the health check.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/crabka --create-home --shell /usr/sbin/nologin crabka
COPY --from=build /usr/local/bin/crabka /usr/local/bin/crabka
# For file checkpoints, file sinks and what is spilled to disk.
VOLUME /var/lib/crabka
WORKDIR /var/lib/crabka
USER 10001
EXPOSE 8080
ENTRYPOINT ["crabka"]
CMD ["run", "-c", "/etc/crabka/crabka.toml"]
