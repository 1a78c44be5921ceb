//go:build integration

package main_test

import (
	"syscall"
	"testing"
	"time"
)

// TestUpStraightAfterAKill kills `temper up` alone, during its start and later, and
// starts the next one at once: what still holds locks and ports is waited for.
func TestUpStraightAfterAKill(t *testing.T) {
	p := newPlace(t)
	for _, when := range []string{`^service temporal: `, `^all services up`, `^service sandbox: `} {
		up := p.start("up")
		up.await(when, 3*time.Minute)
		up.signal(syscall.SIGKILL)
		up.end(-1, time.Minute)
	}
	up := p.start("up")
	up.await(`^all services up`, 3*time.Minute)
	up.signal(syscall.SIGTERM)
	up.end(0, time.Minute)
	noOrphans(t, 10*time.Second)
}
