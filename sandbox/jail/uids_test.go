package jail

import (
	"os"
	"path/filepath"
	"testing"
)

// TestJailsOfAMachineShareNoUser: ranges are claimed by a lock, and free again when
// their owner is gone.
func TestJailsOfAMachineShareNoUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives calls users of their own")
	}
	dir := filepath.Join(t.TempDir(), "ranges")
	a, b := claimUIDs(dir), claimUIDs(dir)
	if a.lock == nil || b.lock == nil {
		t.Fatal("no lock was taken")
	}
	if a.first() == b.first() {
		t.Errorf("two jails have the range from %#x", a.first())
	}
	if id := a.acquire(); id <= a.first() || id >= a.first()+rangeSize {
		t.Errorf("user %#x is not of the range from %#x", id, a.first())
	}
	if err := a.release(); err != nil {
		t.Fatal(err)
	}
	c := claimUIDs(dir)
	if c.first() != a.first() {
		t.Errorf("a new jail has the range from %#x, want the free one from %#x", c.first(), a.first())
	}
	for _, u := range []*uids{b, c} {
		if err := u.release(); err != nil {
			t.Error(err)
		}
	}
	// Where nothing can be locked there is a range all the same.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if u := claimUIDs(filepath.Join(file, "below")); u.lock != nil || u.first() < firstUID {
		t.Errorf("without a folder: %+v", u)
	}
}
