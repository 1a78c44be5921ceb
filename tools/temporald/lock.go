package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/server/common/headers"
)

// lockDatabase makes this process the only server on the file and returns what
// gives it up. The lock file keeps the version of the server that wrote the
// database: the SQLite schema is only ever created, never migrated, so a file
// belongs to one minor version. A server that was killed holds its lock for a moment
// longer: this one waits for that, and says so.
func lockDatabase(ctx context.Context, db string) (unlock func(), err error) {
	path := db + ".lock"
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--db: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := awaitLock(ctx, f, db); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("--db %s is in use by another temporald", db)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	written, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if v := strings.TrimSpace(string(written)); v != "" && minor(v) != minor(headers.ServerVersion) && exists(db) {
		return nil, fmt.Errorf("--db %s was written by server %s and this is %s: "+
			"use another file, SQLite files are not migrated", db, v, headers.ServerVersion)
	}
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte(headers.ServerVersion+"\n"), 0); err != nil {
		return nil, err
	}
	// The file stays: removing it would let two servers lock two inodes.
	return func() { _ = f.Close() }, nil
}

const (
	lockPatience = 5 * time.Second
	lockQuiet    = 500 * time.Millisecond // before a person is told
	lockPause    = 20 * time.Millisecond
)

// awaitLock locks the file. Errors: syscall.EWOULDBLOCK after lockPatience.
func awaitLock(ctx context.Context, f *os.File, db string) error {
	said := false
	for began := time.Now(); ; time.Sleep(lockPause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		past := time.Since(began)
		if !errors.Is(err, syscall.EWOULDBLOCK) || past > lockPatience || ctx.Err() != nil {
			return err
		}
		if past > lockQuiet && !said {
			said = true
			fmt.Fprintf(os.Stderr, "temporald: waiting up to %s for another temporald to leave %s\n", lockPatience, db)
		}
	}
}

// minor is the "1.32" of "1.32.2".
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
