package blobtest

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
)

// Opener opens the store in a folder behind a proxy, whose transfers may stand
// still for stall at most, 0 for the default.
type Opener func(t *testing.T, folder string, stall time.Duration) blob.Store

// RunFaults proves that a store survives what networks and servers do. large is
// a blob of several parts. No transfer is given up for slowness but where that is
// the point, as a machine that is busy may be as slow as one that is broken.
func RunFaults(t *testing.T, p *Proxy, large int, open Opener) {
	data := bytes.Repeat([]byte("0123456789abcdef"), large/16)
	for name, test := range map[string]func(*testing.T, faulty){
		"passing faults are not noticed":            passing,
		"a lost answer is read back":                lostAnswer,
		"a lost answer of a completion":             lostCompletion,
		"a lost answer of a swap":                   lostSwap,
		"damage on the way to the server":           damagedRequest,
		"damage on the way back":                    damagedAnswer,
		"a broken read goes on where it was":        brokenRead,
		"a read that stands still ends":             stalledRead,
		"lasting faults are told in one line":       lasting,
		"a multipart put that fails leaves nothing": failedParts,
	} {
		t.Run(name, func(t *testing.T) {
			p.Heal()
			again := func(stall time.Duration) blob.Store { return open(t, strings.ReplaceAll(name, " ", "-"), stall) }
			test(t, faulty{Proxy: p, s: again(0), again: again, data: data})
			p.Heal()
		})
	}
}

// faulty is a store behind a proxy.
type faulty struct {
	*Proxy
	s     blob.Store
	again func(stall time.Duration) blob.Store // opens the same store with another patience
	data  []byte                               // a large blob
}

// put stores data and checks that they are there.
func (f faulty) put(t *testing.T, key string, data []byte, cond blob.Condition) {
	t.Helper()
	ref, err := f.s.Put(t.Context(), key, onlyReader{bytes.NewReader(data)}, cond)
	if err != nil {
		t.Errorf("Put gave %v", err)
		return
	}
	if _, err := blob.ReadRef(t.Context(), f.s, ref); err != nil {
		t.Errorf("what was put: %v", err)
	}
}

// checkHits fails the test if fewer than want requests met a fault since before.
func (f faulty) checkHits(t *testing.T, before, want int) {
	t.Helper()
	if got := f.Hits() - before; got < want {
		t.Errorf("%d requests suffered a fault, want %d: the test shows nothing", got, want)
	}
}

func passing(t *testing.T, f faulty) {
	for _, fault := range []Fault{SlowDown, CutRequest, LoseAnswer} {
		for key, data := range map[string][]byte{"small": []byte("small"), "large": f.data} {
			before := f.Hits()
			f.Inject(fault, 1, "PUT", "")
			f.put(t, string(fault)+"/"+key, data, blob.IfAbsent)
			f.checkHits(t, before, 1)
		}
	}
}

func lostAnswer(t *testing.T, f faulty) {
	before := f.Hits()
	f.Inject(LoseAnswer, 2, "PUT", "") // the retry of the client meets the blob of its first try
	f.put(t, "k", []byte("mine"), blob.IfAbsent)
	f.checkHits(t, before, 2)
	f.Inject(LoseAnswer, 1, "PUT", "")
	if _, err := blob.PutBytes(t.Context(), f.s, "k", []byte("mine"), blob.IfAbsent); !errors.Is(err, blob.ErrExists) {
		t.Errorf("a second writer of the same bytes got %v, want ErrExists", err)
	}
}

func lostCompletion(t *testing.T, f faulty) {
	before := f.Hits()
	f.Inject(LoseAnswer, 1, "POST", "uploadId")
	f.put(t, "k", f.data, blob.IfAbsent)
	f.checkHits(t, before, 1)
}

func lostSwap(t *testing.T, f faulty) {
	before := f.Hits()
	f.Inject(LoseAnswer, 1, "PUT", "")
	first, err := f.s.Swap(t.Context(), "head", blob.Ref{}, []byte("epoch 1"))
	if err != nil {
		t.Fatal(err)
	}
	f.Inject(LoseAnswer, 1, "PUT", "")
	if _, err := f.s.Swap(t.Context(), "head", first, []byte("epoch 2")); err != nil {
		t.Error(err)
	}
	f.checkHits(t, before, 2)
	want(t, f.s, "head", "epoch 2")
}

func damagedRequest(t *testing.T, f faulty) {
	for key, data := range map[string][]byte{"small": []byte("small"), "large": f.data} {
		before := f.Hits()
		f.Inject(FlipRequest, 100, "PUT", "")
		_, err := blob.PutBytes(t.Context(), f.s, key, data, blob.IfAbsent)
		f.checkHits(t, before, 1)
		if err == nil {
			t.Errorf("%s: a damaged body was accepted", key)
		}
		f.Heal()
	}
	wantKeys(t, f.s, "")
}

func damagedAnswer(t *testing.T, f faulty) {
	for key, data := range map[string][]byte{"small": []byte("small"), "large": f.data} {
		f.put(t, key, data, blob.Always)
		before := f.Hits()
		f.Inject(FlipAnswer, 1, "GET", "")
		if _, err := blob.ReadKey(t.Context(), f.s, key); err != nil {
			t.Errorf("%s: damage that passes: %v", key, err)
		}
		f.checkHits(t, before, 1)
		f.Inject(FlipAnswer, 100, "GET", "")
		if _, err := blob.ReadKey(t.Context(), f.s, key); !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("%s: damage that stays gave %v, want ErrCorrupt", key, err)
		}
		f.Heal()
	}
}

func brokenRead(t *testing.T, f faulty) {
	f.put(t, "k", f.data, blob.Always)
	before := f.Hits()
	f.Inject(CutAnswer, 3, "GET", "")
	got, err := blob.ReadKey(t.Context(), f.s, "k")
	if err != nil || !bytes.Equal(got, f.data) {
		t.Errorf("read %d bytes, error %v", len(got), err)
	}
	f.checkHits(t, before, 3)
	f.Inject(CutAnswer, 2, "GET", "")
	w := buffer(make([]byte, len(f.data)))
	if _, err := readInto(t.Context(), f.s, "k", w); err != nil || !bytes.Equal(w, f.data) {
		t.Errorf("ReadInto gave error %v", err)
	}
}

func stalledRead(t *testing.T, f faulty) {
	f.put(t, "k", f.data, blob.Always)
	before := f.Hits()
	f.Inject(StallAnswer, 100, "GET", "")
	const stall = 300 * time.Millisecond
	started := time.Now()
	_, err := blob.ReadKey(t.Context(), f.again(stall), "k")
	f.checkHits(t, before, 1)
	if took := time.Since(started); !errors.Is(err, blob.ErrUnavailable) || took > 20*stall+20*time.Second {
		t.Errorf("a read that stands still gave %v after %s, want ErrUnavailable", err, took)
	}
}

func lasting(t *testing.T, f faulty) {
	for fault, advice := range map[Fault]string{
		SlowDown: "overloaded", Skew: "set the clock", Full: "free some", CutRequest: "does not answer", LoseAnswer: "does not answer",
	} {
		f.Inject(fault, 1000, "", "")
		_, err := blob.PutBytes(t.Context(), f.s, "k", []byte("x"), blob.Always)
		if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s gave %v, want one line with %q", fault, err, advice)
		}
		if err != nil && strings.Contains(err.Error(), SecretKey) {
			t.Errorf("the error holds a secret: %v", err)
		}
		f.Heal()
	}
}

func failedParts(t *testing.T, f faulty) {
	f.Inject(SlowDown, 1000, "PUT", "partNumber")
	if _, err := f.s.Put(t.Context(), "k", onlyReader{bytes.NewReader(f.data)}, blob.Always); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("Put gave %v, want ErrUnavailable", err)
	}
	f.Heal()
	wantKeys(t, f.s, "")
	sweeper, ok := f.s.(blob.Sweeper)
	if !ok {
		return
	}
	n, err := sweeper.Sweep(t.Context(), time.Now().Add(48*time.Hour))
	if err != nil || n != 0 {
		t.Errorf("%d uploads stayed (error %v), want none", n, err)
	}
}
