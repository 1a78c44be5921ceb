#!/bin/sh
# Makes a bare Debian what temper needs: Python for the sandbox, certificates for
# stores behind TLS, an init, and a user without rights. Run it as root.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends ca-certificates python3 tini
rm -rf /var/lib/apt/lists/*
groupadd --gid 10001 temper
useradd --uid 10001 --gid temper --create-home --shell /usr/sbin/nologin temper
install -d -o temper -g temper -m 0750 /data
