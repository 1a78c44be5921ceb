// Package budget bounds the bytes that a server of the sandbox holds for its callers:
// the bodies that have arrived, the answers that nobody has read yet, those that are
// kept for repeated calls, and the cells of sessions. It owns the sum and its shares,
// and who holds how much; what is charged, and when, is up to those who hold it.
//
// Invariant: one caller alone never takes more than half of a share, so that what it
// leaves unfinished cannot shut out another.
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

// Budget is the sum, cut into shares that do not wait for each other: a call whose body
// is held can always get the room for its answer in time.
type Budget struct {
	Total   int64
	Bodies  *Account // a half: bodies and the calls that were read from them
	Answers *Account // a quarter: what is not sent yet
	Repeats int64    // an eighth: answers kept for calls that are repeated
	Cells   int64    // an eighth: of the sessions
}

// Sizes of a budget that nobody chose.
const (
	least     = 256 << 20
	most      = 2 << 30
	ofMachine = 8 // the part of the memory of the machine
)

// Smallest is the smallest budget: one caller can send a call of the largest size in it, and
// get the largest answer.
const Smallest = 64 << 20

// Check refuses a total that would hold up single calls for ever. Zero is the default.
func Check(total int64) error {
	if total != 0 && total < Smallest {
		return fmt.Errorf("--budget is %d bytes, want at least %dMiB", total, Smallest>>20)
	}
	return nil
}

// New returns a budget of total bytes. Zero takes an eighth of the memory of the
// machine, from 256 MiB to 2 GiB.
func New(total int64) *Budget {
	if total <= 0 {
		total = min(max(memory("/proc/meminfo")/ofMachine, least), most)
	}
	return &Budget{
		Total: total, Bodies: NewAccount(total / 2), Answers: NewAccount(total / 4),
		Repeats: total / 8, Cells: total / 8,
	}
}

// memory reads the memory of the machine; zero where it cannot.
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
	// ErrFull means that there is no room now.
	ErrFull = errors.New("no room")
	// ErrTooMuch means that an empty account has no room for it either.
	ErrTooMuch = errors.New("more than one caller may hold")
)

// Account is a share. It is safe for concurrent use.
type Account struct {
	most int64

	mu      sync.Mutex
	held    int64
	callers map[string]int64
	freed   chan struct{} // closed when something was given back; nil when nobody waits
}

// NewAccount returns an account of that many bytes.
func NewAccount(most int64) *Account {
	return &Account{most: most, callers: map[string]int64{}}
}

// Most is the bound.
func (a *Account) Most() int64 { return a.most }

// Half is what one caller may have.
func (a *Account) Half() int64 { return a.most / 2 }

// Held is what all callers hold.
func (a *Account) Held() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// Try charges n bytes to a caller: ErrFull or ErrTooMuch where there is no room.
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

// Take is Try that waits for room until ctx ends. Errors: ErrTooMuch, ctx.Err().
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

// Add charges n bytes that are there already, also where there is no room for them. A
// negative n gives back.
func (a *Account) Add(caller string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(caller, n)
}

// Give returns what was charged.
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

// Room for the output of one call. That of calls with the default limit is not charged:
// the slots bound it.
const (
	freeOutput = 64 << 10
	mostOutput = 16 << 20 // no node allows more
	streams    = 2
	copies     = 2 // as it is read, and the text of it
)

// OutputRoom is what a call with that limit of output needs of Answers while it runs,
// beyond what every call has.
func OutputRoom(limit int64) int64 {
	return streams * copies * max(0, min(limit, mostOutput)-freeOutput)
}
