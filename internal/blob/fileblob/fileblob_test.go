package fileblob_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/fileblob"
)

func open(t *testing.T, dir string) *fileblob.Store {
	t.Helper()
	s, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return open(t, t.TempDir()) })
}

const dirVariable = "TEMPER_FILEBLOB_TEST_DIR"

// TestProcessesRace has several processes put the same keys: each key must
// have one winner over all of them.
func TestProcessesRace(t *testing.T) {
	const keys, processes = 30, 4
	if dir := os.Getenv(dirVariable); dir != "" {
		s := open(t, dir)
		for i := range keys {
			_, err := blob.PutBytes(t.Context(), s, fmt.Sprintf("k/%d", i), []byte(fmt.Sprint(os.Getpid())), blob.IfAbsent)
			if err == nil {
				fmt.Println("won")
			} else if !errors.Is(err, blob.ErrExists) {
				t.Fatal(err)
			}
		}
		return
	}
	won := 0
	for _, out := range startCopies(t, "TestProcessesRace", t.TempDir(), processes) {
		won += strings.Count(out, "won")
	}
	if won != keys {
		t.Errorf("%d puts of %d keys won, want one for each", won, keys)
	}
}

// TestProcessesCount has several processes count in one blob: no step may get lost.
func TestProcessesCount(t *testing.T) {
	const each, processes = 25, 4
	if dir := os.Getenv(dirVariable); dir != "" {
		if err := blobtest.CountSwaps(t.Context(), open(t, dir), "count", each); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	startCopies(t, "TestProcessesCount", dir, processes)
	got, err := blob.ReadKey(t.Context(), open(t, dir), "count")
	if want := strconv.Itoa(each * processes); err != nil || string(got) != want {
		t.Errorf("counted to %s (error %v), want %s", got, err, want)
	}
}

// startCopies runs the test in n processes on one folder and returns what they print.
func startCopies(t *testing.T, test, dir string, n int) []string {
	t.Helper()
	commands, outputs := make([]*exec.Cmd, n), make([]strings.Builder, n)
	for i := range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), dirVariable+"="+dir)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		commands[i] = cmd
	}
	var out []string
	for i, cmd := range commands {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v\n%s", i, err, outputs[i].String())
		}
		out = append(out, outputs[i].String())
	}
	return out
}

// TestAHeldLockEndsWithTheContext has a swap wait for a lock that nobody gives up.
func TestAHeldLockEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	f, err := os.Open(filepath.Join(dir, ".staging"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Swap(ctx, "k", blob.Ref{}, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Swap gave %v, want DeadlineExceeded", err)
	}
}

func TestLocateIsTheAbsolutePath(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := blob.PutBytes(t.Context(), s, "a/b", []byte("x"), blob.Always); err != nil {
		t.Fatal(err)
	}
	got := s.Locate("a/b")
	if data, err := os.ReadFile(got); !filepath.IsAbs(got) || err != nil || string(data) != "x" {
		t.Errorf("Locate gave %s, which holds %q (error %v)", got, data, err)
	}
}

func TestSymlinksCannotLeadOut(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	s := open(t, dir)
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if data, err := blob.ReadKey(t.Context(), s, "link/secret"); err == nil {
		t.Errorf("read %q through a link", data)
	}
	if _, err := blob.PutBytes(t.Context(), s, "link/new", []byte("x"), blob.Always); err == nil {
		t.Error("wrote through a link")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside holds %v (error %v), want the secret alone", entries, err)
	}
}

func TestNewSweepsOldRemainsOnly(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	old, young := filepath.Join(dir, ".staging", "put-1"), filepath.Join(dir, ".staging", "put-2")
	for _, name := range []string{old, young} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Unix(1e9, 0)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file is still there (error %v)", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young file may belong to a living writer: %v", err)
	}
	if infos, err := s.List(t.Context(), ""); err != nil || len(infos) != 0 {
		t.Errorf("List shows %v (error %v)", infos, err)
	}
	if _, err := blob.PutBytes(t.Context(), s, ".staging/x", nil, blob.Always); err == nil {
		t.Error("a key in the staging folder was accepted")
	}
}

// TestEmptyFoldersGo with their last key, up to the store's own.
func TestEmptyFoldersGo(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, key := range []string{"a/b/c/d", "a/b/e", "f"} {
		if _, err := blob.PutBytes(t.Context(), s, key, []byte(key), blob.Always); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ key, gone, stays string }{
		{"a/b/c/d", "a/b/c", "a/b/e"}, {"a/b/e", "a", "f"}, {"f", "f", ".staging"}, {"x/y", "x", "."},
	} {
		if err := s.Delete(t.Context(), c.key); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, c.gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the deletion of %s: %s is there (%v)", c.key, c.gone, err)
		}
		if _, err := os.Stat(filepath.Join(dir, c.stays)); err != nil {
			t.Errorf("after the deletion of %s: %v", c.key, err)
		}
	}
}

// TestPutsAndDeletesShareFolders: a Put whose folder a Delete takes away still
// stores its blob, under each condition.
func TestPutsAndDeletesShareFolders(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	const workers, rounds = 8, 60
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			key := fmt.Sprintf("steps/one/%d", w)
			if w%2 == 0 {
				key = fmt.Sprintf("steps/one/deeper/%d", w)
			}
			for round := range rounds {
				cond := blob.Always
				if round%2 == 0 {
					cond = blob.IfAbsent
				}
				ref, err := blob.PutBytes(t.Context(), s, key, fmt.Append(nil, round), cond)
				if err == nil {
					_, err = blob.ReadRef(t.Context(), s, ref)
				}
				if err == nil {
					err = s.Delete(t.Context(), key)
				}
				if err != nil {
					t.Errorf("worker %d, round %d: %v", w, round, err)
					return
				}
			}
		})
	}
	all.Wait()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v (%v), want the staging folder alone", entries, err)
	}
}
