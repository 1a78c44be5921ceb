package workflows_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// maxPayload is what the project allows itself for anything that crosses
// Temporal; the server refuses 2 MiB, and warns from 512 KiB on.
const maxPayload = 64 << 10

// scale is a data converter that notes the largest payload of each type.
type scale struct {
	converter.DataConverter
	mu      sync.Mutex
	largest map[string]int // bytes by Go type
	total   int            // payloads
}

func newScale() *scale {
	return &scale{DataConverter: converter.GetDefaultDataConverter(), largest: map[string]int{}}
}

func (s *scale) ToPayload(value any) (*common.Payload, error) {
	p, err := s.DataConverter.ToPayload(value)
	s.weigh(value, len(p.GetData()))
	return p, err
}

func (s *scale) ToPayloads(values ...any) (*common.Payloads, error) {
	ps, err := s.DataConverter.ToPayloads(values...)
	for i, p := range ps.GetPayloads() {
		s.weigh(values[i], len(p.GetData()))
	}
	return ps, err
}

func (s *scale) weigh(value any, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimPrefix(fmt.Sprintf("%T", value), "*")
	s.largest[name] = max(s.largest[name], size)
	s.total++
}

// check fails the test for each type above the limit and lists the largest.
func (s *scale) check(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(s.largest), func(a, b string) int { return s.largest[b] - s.largest[a] })
	if s.total == 0 {
		t.Fatal("no payload was weighed")
	}
	for i, name := range names {
		if s.largest[name] > maxPayload {
			t.Errorf("a payload of %s has %d bytes, want at most %d", name, s.largest[name], maxPayload)
		}
		if i < 6 {
			t.Logf("payload %-40s %6d bytes at most", name, s.largest[name])
		}
	}
	t.Logf("%d payloads in all", s.total)
}
