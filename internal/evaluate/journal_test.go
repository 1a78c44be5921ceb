package evaluate

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// limitFiles bounds the length of the files that this process writes, as a full disk does.
func limitFiles(t *testing.T, bytes uint64) {
	t.Helper()
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit)
	if err == nil {
		limit.Cur = min(bytes, limit.Max)
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestJournalOfAFullDisk: what other samples add after a line that was cut hides behind no piece of it.
func TestJournalOfAFullDisk(t *testing.T) {
	c := Config{Folder: t.TempDir()}
	j, err := openJournal(c)
	if err != nil {
		t.Fatal(err)
	}
	sample := func(n int) Sample { return Sample{Set: "s", Problem: "p", Sample: n, Response: "four"} }
	if err := j.add(sample(0)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.Stat(filepath.Join(c.Folder, journalName))
	if err != nil {
		t.Fatal(err)
	}
	limitFiles(t, uint64(whole.Size())+20)
	err = j.add(sample(1))
	limitFiles(t, unix.RLIM_INFINITY)
	if err == nil {
		t.Error("no error though the disk was full")
	}
	want := 1
	if j.add(sample(2)) == nil { // of another worker, when there is room again
		want++
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(c); err != nil {
		t.Fatal(err)
	}
	if got := j.samples(); len(got) != want {
		t.Errorf("%d samples are there, want %d", len(got), want)
	}
	if err := j.close(); err != nil {
		t.Error(err)
	}
}
