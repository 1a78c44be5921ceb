package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// databaseConfig opens the file so that an acknowledged event survives a power loss.
func databaseConfig(path string) *config.SQL {
	return sqliteConfig(path, map[string]string{
		"mode": "rwc", "journal_mode": "wal", "synchronous": "full", "busy_timeout": "5000",
	})
}

func sqliteConfig(path string, attributes map[string]string) *config.SQL {
	return &config.SQL{PluginName: sqlite.PluginName, DatabaseName: path, ConnectAttributes: attributes}
}

// storage is where the server keeps everything.
type storage interface {
	// prepare makes what is missing, with the schema and the namespace.
	prepare(ctx context.Context, o options) error
	// persistence is what the server reads of it.
	persistence() config.Persistence
	// String names it, without a password.
	String() string
}

func (o options) storage() storage {
	if o.postgres != nil {
		return o.postgres
	}
	return sqliteFile(o.db)
}

// sqliteFile is a database in one file. One process owns it, so that it has one shard.
type sqliteFile string

func (f sqliteFile) String() string { return string(f) }

func (f sqliteFile) persistence() config.Persistence {
	return config.Persistence{
		DefaultStore: sqlite.PluginName, VisibilityStore: sqlite.PluginName, NumHistoryShards: 1,
		DataStores: map[string]config.DataStore{sqlite.PluginName: {SQL: databaseConfig(string(f))}},
	}
}

// prepare makes the file. The caller holds its lock.
func (f sqliteFile) prepare(_ context.Context, o options) error {
	made, err := hasSchema(o.db)
	if err != nil {
		return err
	}
	if !made {
		if err := createDatabase(o.db); err != nil {
			return fmt.Errorf("--db %s: create schema: %w", o.db, err)
		}
	}
	ns, err := newNamespace(o)
	if err != nil {
		return err
	}
	if err := sqliteschema.CreateNamespaces(databaseConfig(string(f)), ns); err != nil {
		return fmt.Errorf("--db %s: %w", o.db, err)
	}
	return nil
}

// newNamespace is the namespace as it is made on an empty database.
func newNamespace(o options) (*sqliteschema.NamespaceConfig, error) {
	ns, err := sqliteschema.NewNamespaceConfig(clusterName, o.namespace, false, searchAttributes())
	if err == nil {
		ns.Detail.Config.Retention = durationpb.New(o.retention)
	}
	return ns, err
}

// hasSchema reports whether the file holds a whole database. A file without any
// table counts as absent. One with some of the tables is an error: it belongs to
// another program, or its making was cut short before files were made whole.
func hasSchema(path string) (bool, error) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("--db: %w", err)
		}
		return false, nil
	}
	// The plugin keeps each connection for the life of the process, one for each
	// set of attributes: these differ from the server's, which must not open a
	// file that is about to be replaced.
	admin, err := openAdmin(sqliteConfig(path, map[string]string{"mode": "rw", "busy_timeout": "5000"}))
	if err != nil {
		return false, fmt.Errorf("--db %s: %w", path, err)
	}
	tables, err := admin.ListTables(path)
	if err != nil {
		return false, fmt.Errorf("--db %s: %w", path, err)
	}
	if len(tables) == 0 {
		return false, nil
	}
	for _, want := range []string{"namespaces", "cluster_metadata_info", "executions_visibility_fts_keyword_list"} {
		if !slices.Contains(tables, want) {
			return false, fmt.Errorf("--db %s lacks the table %s: the file was never completed or is not Temporal's; use another file, or remove this one if nothing else uses it", path, want)
		}
	}
	return true, nil
}

// createDatabase builds the schema in a file beside path and renames it when it
// is whole and on disk, so that a kill at any moment leaves no half-made one.
func createDatabase(path string) error {
	tmp := path + ".new"
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(tmp + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // of a start that was killed
		}
	}
	// Each statement must be in the file itself and in no log beside it, because
	// the connection stays open and the file is renamed under it.
	admin, err := openAdmin(sqliteConfig(tmp, map[string]string{"mode": "rwc", "journal_mode": "delete", "synchronous": "off"}))
	if err != nil {
		return err
	}
	if err := sqliteschema.SetupSchemaOnDB(admin); err != nil {
		return err
	}
	if err := syncFile(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncFile(filepath.Dir(path))
}

func openAdmin(conf *config.SQL) (sqlplugin.AdminDB, error) {
	return sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, conf, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
}

// syncFile brings a file or a directory to the disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
