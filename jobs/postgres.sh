# Starts the Postgres of this machine on PGDATA, made when it is new, for the account PGUSER
# with PGPASSWORD; arguments are further ones of the server. As root it goes on as the user postgres, whom Debian's package makes.
set -eu
bin=${POSTGRES_BIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)}
if [ ! -x "$bin/initdb" ]; then
  echo "postgres: no initdb in \"$bin\": install the package postgresql on this node, or name its folder in programs.postgres" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$(dirname "$PGDATA")"
  install -d -o postgres -g postgres -m 0700 "$PGDATA"
  exec setpriv --reuid postgres --regid postgres --init-groups /bin/sh -c "$(cat "$0")" postgres "$@" # a file that postgres may not read
fi
cd "$PGDATA"
umask 077
if [ ! -s "$PGDATA/data/PG_VERSION" ]; then
  rm -rf "$PGDATA/new" "$PGDATA/words"
  printf '%s' "$PGPASSWORD" >"$PGDATA/words"
  "$bin/initdb" --pgdata "$PGDATA/new" --username "$PGUSER" --pwfile "$PGDATA/words" --auth scram-sha-256 --encoding UTF8 --locale C ${POSTGRES_INITDB_ARGS:-}
  rm "$PGDATA/words"
  mv "$PGDATA/new" "$PGDATA/data"
fi
unset PGPASSWORD
exec "$bin/postgres" -D "$PGDATA/data" -p "$PGPORT" -k '' -c listen_addresses=127.0.0.1 "$@"
