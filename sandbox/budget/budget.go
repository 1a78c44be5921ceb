// Package budget bounds the bytes that a server of the sandbox holds for its callers:
// bodies that have arrived, answers that are not read yet, answers that are
// kept for repeated calls, and the cells of sessions. It owns the sum, its shares,
// and the account of each caller; its users decide what they charge, and when.
//
// Invariant: one caller never holds more than half of a share, so that its unfinished
// calls cannot shut out another caller.
package budget

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Budget is the sum, cut into independent shares, so that a call whose body is held can
// always get the memory for its answer in time.
type Budget struct {
	Total   int64
	Bodies  *Account // a half: bodies and the calls decoded from them
	Answers *Account // a quarter: answers not sent yet
	Repeats int64    // an eighth: answers kept for repeated calls
	Cells   int64    // an eighth: cells of sessions
}

// Bounds of the default budget.
const (
	least     = 256 << 20
	most      = 2 << 30
	ofMachine = 8 // divisor of the machine's memory
)

// Smallest is the smallest allowed budget, in bytes. It holds the largest call of one
// caller and the largest answer.
const Smallest = 64 << 20

// Check returns an error for a total that would block single calls for ever. Zero selects
// the default.
func Check(total int64) error {
	if total != 0 && total < Smallest {
		return fmt.Errorf("--budget is %d bytes, want at least %dMiB", total, Smallest>>20)
	}
	return nil
}

// New returns a budget of total bytes. With zero it takes an eighth of the memory of the
// machine, but at least 256 MiB and at most 2 GiB.
func New(total int64) *Budget {
	if total <= 0 {
		total = min(max(memory("/proc/meminfo")/ofMachine, least), most)
	}
	return &Budget{
		Total: total, Bodies: NewAccount(total / 2), Answers: NewAccount(total / 4),
		Repeats: total / 8, Cells: total / 8,
	}
}

// memory returns the memory of the machine in bytes, or zero if it cannot be read.
func memory(path string) int64 {
	text, err := os.ReadFile(path) //nolint:gosec // a path of /proc
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}

// Errors of an account.
var (
	// ErrFull means that the account has no room now.
	ErrFull = errors.New("no room")
	// ErrTooMuch means that the charge is larger than one caller may ever hold.
	ErrTooMuch = errors.New("more than one caller may hold")
)

// Account counts the bytes of one share. It is safe for concurrent use.
type Account struct {
	most int64

	mu      sync.Mutex
	held    int64
	callers map[string]int64
	freed   chan struct{} // closed by the next release; nil without waiters
}

// NewAccount returns an account of most bytes.
func NewAccount(most int64) *Account {
	return &Account{most: most, callers: map[string]int64{}}
}

// Most returns the bound of all callers together.
func (a *Account) Most() int64 { return a.most }

// Half returns the bound of one caller.
func (a *Account) Half() int64 { return a.most / 2 }

// Held returns the bytes that all callers hold.
func (a *Account) Held() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// TryAcquire charges n bytes to a caller. It returns ErrFull or ErrTooMuch if there is no
// room.
func (a *Account) TryAcquire(caller string, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tryAcquire(caller, n)
}

func (a *Account) tryAcquire(caller string, n int64) error {
	switch {
	case n > a.most/2:
		return ErrTooMuch
	case a.held+n > a.most || a.callers[caller]+n > a.most/2:
		return ErrFull
	}
	a.add(caller, n)
	return nil
}

// Acquire is like TryAcquire, but waits for room until ctx ends. Errors: ErrTooMuch,
// ctx.Err().
func (a *Account) Acquire(ctx context.Context, caller string, n int64) error {
	for {
		a.mu.Lock()
		err := a.tryAcquire(caller, n)
		if !errors.Is(err, ErrFull) {
			a.mu.Unlock()
			return err
		}
		if a.freed == nil {
			a.freed = make(chan struct{})
		}
		freed := a.freed
		a.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Add charges n bytes that the caller already holds, even without room for them. A negative
// n releases bytes.
func (a *Account) Add(caller string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(caller, n)
}

// Release returns n charged bytes.
func (a *Account) Release(caller string, n int64) { a.Add(caller, -n) }

func (a *Account) add(caller string, n int64) {
	a.held += n
	if a.callers[caller] += n; a.callers[caller] == 0 {
		delete(a.callers, caller)
	}
	if n < 0 && a.freed != nil {
		close(a.freed)
		a.freed = nil
	}
}

// Sizes of the output of one call. Output up to the default limit is not charged:
// the slots bound it.
const (
	freeOutput = 64 << 10
	mostOutput = 16 << 20 // no node allows more
	streams    = 2
	copies     = 2 // the bytes read, and the text made from them
)

// OutputRoom returns the bytes of Answers that a call with that output limit needs while it
// runs, beyond the uncharged part.
func OutputRoom(limit int64) int64 {
	return streams * copies * max(0, min(limit, mostOutput)-freeOutput)
}
