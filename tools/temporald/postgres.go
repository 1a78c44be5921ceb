package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/iancoleman/strcase"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jmoiron/sqlx"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql/driver"
	v12 "go.temporal.io/server/schema/postgresql/v12"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/tools/common/schema"
	sqltool "go.temporal.io/server/tools/sql"
)

const (
	// passwordKey is the variable of the environment with the password, as
	// programs of Postgres name it: a command line is open to everybody.
	passwordKey = "PGPASSWORD"
	// numShards is fixed with the first start on a database. Several servers
	// share the shards among them.
	numShards = 16
	// setupLock is the advisory lock under which one server at a time makes or
	// upgrades the schema ("temporal" in ASCII).
	setupLock = 0x74656d706f72616c
	// postgresPatience bounds the wait for an answer at the start.
	postgresPatience = 10 * time.Second
	// maxConns bounds the connections of one server to each of its two databases,
	// below what a Postgres of stock settings gives out (100).
	maxConns = 20
)

// postgres is a server of Postgres with two databases: one of workflows, and one
// of the same name with "_visibility", in which they are found.
type postgres struct {
	address        string
	user, password string
	database       string
	attributes     map[string]string
}

// parsePostgres reads the value of --postgres.
func parsePostgres(text, password string) (*postgres, error) {
	const want = "want postgres://user@host:port/database?sslmode=verify-full&sslrootcert=FILE"
	u, err := url.Parse(text)
	if err != nil {
		var broken *url.Error
		if errors.As(err, &broken) {
			err = broken.Err // without the text, which may hold a password
		}
		return nil, usageError{fmt.Sprintf("--postgres: %v; %s", err, want)}
	}
	p := &postgres{address: u.Host, user: u.User.Username(), password: password, database: strings.TrimPrefix(u.Path, "/"), attributes: map[string]string{}}
	_, inside := u.User.Password()
	switch {
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		return nil, usageError{fmt.Sprintf("--postgres: the scheme is %q; %s", u.Scheme, want)}
	case inside:
		return nil, usageError{"--postgres holds a password, which everybody on the machine can read: put it into " + passwordKey}
	case u.Hostname() == "" || p.user == "":
		return nil, usageError{"--postgres names no host or no user; " + want}
	case p.database == "" || strings.ContainsAny(p.database, `/"\`):
		return nil, usageError{fmt.Sprintf("--postgres: the database is %q; %s", p.database, want)}
	}
	if u.Port() == "" {
		p.address = net.JoinHostPort(u.Hostname(), "5432")
	}
	for key, values := range u.Query() {
		p.attributes[key] = values[0]
	}
	return p, nil
}

// String is what people are told: it has no password.
func (p *postgres) String() string {
	return fmt.Sprintf("postgres://%s@%s/%s", p.user, p.address, p.database)
}

func (p *postgres) visibility() string { return p.database + "_visibility" }

// sql is the configuration of one of the databases. The plugin would write the
// password into a URL in a way that loses blanks, so that connections are ours.
func (p *postgres) sql(database string) *config.SQL {
	return &config.SQL{
		PluginName: postgresql.PluginNamePGX, ConnectAddr: p.address, ConnectProtocol: "tcp", DatabaseName: database, User: p.user,
		Connect: func(*config.SQL) (*sqlx.DB, error) {
			db, err := (&driver.PGXDriver{}).CreateConnection(p.dsn(database))
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(maxConns)
			db.SetMaxIdleConns(maxConns)
			db.SetConnMaxLifetime(time.Hour)
			db.MapperFunc(strcase.ToSnake) // of fields to columns, as the plugin does
			return db, nil
		},
	}
}

// persistence is what the server reads.
func (p *postgres) persistence() config.Persistence {
	return config.Persistence{
		DefaultStore: "workflows", VisibilityStore: "visibility", NumHistoryShards: numShards,
		DataStores: map[string]config.DataStore{"workflows": {SQL: p.sql(p.database)}, "visibility": {SQL: p.sql(p.visibility())}},
	}
}

// dsn names a database with the password.
func (p *postgres) dsn(database string) string {
	dsn := url.URL{Scheme: "postgres", User: url.UserPassword(p.user, p.password), Host: p.address, Path: "/" + database}
	query := url.Values{"sslmode": {"disable"}} // as the plugin does where nothing is stated
	for key, value := range p.attributes {
		query.Set(key, value)
	}
	dsn.RawQuery = query.Encode()
	return dsn.String()
}

// dial opens a connection of its own to a database and sees that it answers.
func (p *postgres) dial(ctx context.Context, database string) (*stdsql.DB, error) {
	db, err := stdsql.Open("pgx", p.dsn(database))
	if err == nil {
		if err = db.PingContext(ctx); err == nil {
			return db, nil
		}
		err = errors.Join(err, db.Close())
	}
	return nil, p.plain(ctx, database, err)
}

// plain says in one line why a database cannot be used, and what to do.
func (p *postgres) plain(ctx context.Context, database string, err error) error {
	var answer *pgconn.PgError
	var network *net.OpError
	where := "--postgres " + p.String()
	switch {
	case errors.As(err, &answer) && answer.Code == "28P01", errors.As(err, &answer) && answer.Code == "28000":
		return fmt.Errorf("%s refuses user %s: %s; put the password into %s", where, p.user, answer.Message, passwordKey)
	case errors.As(err, &answer) && answer.Code == "42501":
		return fmt.Errorf(`%s: %s; as its administrator: CREATE DATABASE "%s" OWNER "%s"`, where, answer.Message, database, p.user)
	case errors.As(err, &answer):
		return fmt.Errorf("%s: database %s: %s (SQLSTATE %s)", where, database, answer.Message, answer.Code)
	case errors.As(err, &network):
		return fmt.Errorf("%s does not answer (%w): start Postgres, or name another", where, network.Err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s does not answer within %v: start Postgres, or name another", where, postgresPatience)
	default:
		return fmt.Errorf("%s: database %s: %s", where, database, strings.Join(strings.Fields(err.Error()), " "))
	}
}

// prepare makes what is missing of the databases, brings their schema to that of
// this server, and makes the namespace. Servers that start at the same time do it
// one after another.
func (p *postgres) prepare(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, name := range []string{p.database, p.visibility()} {
		if err := p.ensureDatabase(ctx, name); err != nil {
			return err
		}
	}
	db, err := p.dial(ctx, p.database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // gives the lock up as well
	held, err := db.Conn(ctx)
	if err == nil {
		_, err = held.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(setupLock))
	}
	if err != nil {
		return p.plain(ctx, p.database, err)
	}
	defer func() { _ = held.Close() }()
	for database, s := range map[string]struct{ name, version string }{
		p.database:     {"postgresql/v12/temporal", v12.Version},
		p.visibility(): {"postgresql/v12/visibility", v12.VisibilityVersion},
	} {
		if err := p.upgrade(database, s.name, s.version); err != nil {
			return fmt.Errorf("--postgres %s: schema of %s: %w", p, database, err)
		}
	}
	ns, err := newNamespace(o)
	if err != nil {
		return err
	}
	if err := sqliteschema.CreateNamespaces(p.sql(p.database), ns); err != nil {
		return fmt.Errorf("--postgres %s: %w", p, err)
	}
	return nil
}

// ensureDatabase makes a database that is not there.
func (p *postgres) ensureDatabase(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, postgresPatience)
	defer cancel()
	db, err := p.dial(ctx, name)
	if err == nil {
		return db.Close()
	}
	if !strings.Contains(err.Error(), "SQLSTATE 3D000") { // there is no such database
		return err
	}
	if db, err = p.dial(ctx, "postgres"); err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, `CREATE DATABASE "`+name+`"`)
	var answer *pgconn.PgError
	if errors.As(err, &answer) && (answer.Code == "42P04" || answer.Code == "23505") { // another server was faster
		return nil
	}
	if err != nil {
		return p.plain(ctx, name, err)
	}
	return nil
}

// upgrade brings the schema of a database to a version. What an interrupted start left
// half done is gone on with: each statement is repeatable by the tool's own rules.
func (p *postgres) upgrade(database, name, version string) error {
	conn, err := sqltool.NewConnection(p.sql(database), log.NewNoopLogger())
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ReadSchemaVersion(); err != nil {
		setup := &schema.SetupConfig{InitialVersion: "0.0"}
		if err := schema.NewSetupSchemaTask(conn, setup, log.NewNoopLogger()).Run(); err != nil {
			return err
		}
	}
	update := &schema.UpdateConfig{SchemaName: name, TargetVersion: version}
	return schema.NewUpdateSchemaTask(conn, update, log.NewNoopLogger()).Run()
}

// watchEvery is the time between two questions whether Postgres answers.
const watchEvery = 2 * time.Second

// watch says in one line when Postgres is away and in another when it is back. The
// server itself tries again meanwhile. The returned function ends the watch.
func (p *postgres) watch(ctx context.Context, every time.Duration) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		away := false
		for ctx.Err() == nil {
			err := p.ask(ctx, every)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !away:
				fmt.Fprintf(os.Stderr, "temporald: %v; workflows wait until it is back\n", err)
			case err == nil && away:
				fmt.Fprintf(os.Stderr, "temporald: --postgres %s is back\n", p)
			}
			away = err != nil
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// ask opens a connection and closes it.
func (p *postgres) ask(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := p.dial(ctx, p.database)
	if err != nil {
		return err
	}
	return db.Close()
}
