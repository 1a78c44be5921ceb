package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/object"
)

// fakeAPI is a server with one kind of write, whose answers a test can spoil.
type fakeAPI struct {
	object.API // what no test calls

	mu      sync.Mutex
	objects map[string]object.Object
	data    map[string][]byte
	version int
	// answers are taken one by one by puts: what the client gets to see.
	answers []answer
	puts    int
	headErr error
}

// answer spoils one put.
type answer struct {
	acts bool  // the write happens all the same
	err  error // nil: the true answer
	then func()
}

var errLost = errors.New("connection reset by peer")

func status(code int, name string) error {
	return &object.Failure{Status: code, Code: name, Err: fmt.Errorf("status %d", code)}
}

func newFake(answers ...answer) *fakeAPI {
	return &fakeAPI{objects: map[string]object.Object{}, data: map[string][]byte{}, answers: answers}
}

func (f *fakeAPI) store() *object.Store {
	return object.New(object.Config{Place: "s3://fake"}, f)
}

func (f *fakeAPI) Put(_ context.Context, key string, body object.Body, m object.Match, nonce string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts++
	var a answer
	if len(f.answers) > 0 {
		a, f.answers = f.answers[0], f.answers[1:]
	}
	var truth error
	if a.acts || a.err == nil {
		truth = f.write(key, body.Data, m, nonce)
	}
	if a.then != nil {
		a.then()
	}
	if a.err != nil {
		return a.err
	}
	return truth
}

func (f *fakeAPI) write(key string, data []byte, m object.Match, nonce string) error {
	have, ok := f.objects[key]
	if m.Absent && ok || m.ETag != "" && m.ETag != have.ETag {
		return status(http.StatusPreconditionFailed, "PreconditionFailed")
	}
	f.version++
	f.objects[key] = object.Object{Key: key, Size: int64(len(data)), ETag: fmt.Sprint(f.version), Nonce: nonce}
	f.data[key] = bytes.Clone(data)
	return nil
}

func (f *fakeAPI) Head(_ context.Context, key string) (object.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.headErr != nil {
		return object.Object{}, f.headErr
	}
	o, ok := f.objects[key]
	if !ok {
		return o, status(http.StatusNotFound, "")
	}
	return o, nil
}

func (f *fakeAPI) Get(_ context.Context, key string, r object.Range) (io.ReadCloser, object.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.objects[key]
	if !ok {
		return nil, o, status(http.StatusNotFound, "NoSuchKey")
	}
	return io.NopCloser(bytes.NewReader(f.data[key][r.Offset:])), o, nil
}

// TestAnswersOfPuts: whatever the answer, the caller learns whether its own bytes lie there.
func TestAnswersOfPuts(t *testing.T) {
	refusal := status(http.StatusPreconditionFailed, "PreconditionFailed")
	busy := status(http.StatusConflict, "ConditionalRequestConflict")
	for name, row := range map[string]struct {
		answers []answer
		want    error // nil: success
		puts    int
	}{
		"412 after one's own success":        {[]answer{{acts: true, err: refusal}}, nil, 1},
		"412 of another writer":              {[]answer{{err: refusal}}, blob.ErrExists, 1},
		"a lost reply after the write":       {[]answer{{acts: true, err: errLost}}, nil, 1},
		"a lost reply without the write":     {[]answer{{err: errLost}}, blob.ErrUnavailable, 1},
		"503 after the write":                {[]answer{{acts: true, err: status(503, "SlowDown")}}, nil, 1},
		"503 without the write":              {[]answer{{err: status(503, "SlowDown")}}, blob.ErrUnavailable, 1},
		"409 and then room":                  {[]answer{{err: busy}, {err: busy}}, nil, 3},
		"409 for ever":                       {[]answer{{err: busy}, {err: busy}, {err: busy}, {err: busy}, {err: busy}, {err: busy}}, blob.ErrUnavailable, 5},
		"403":                                {[]answer{{err: status(403, "AccessDenied")}}, blob.ErrMisconfigured, 1},
		"403 is believed even if it acted":   {[]answer{{acts: true, err: status(403, "AccessDenied")}}, blob.ErrMisconfigured, 1},
		"a full disk":                        {[]answer{{err: status(507, "XMinioStorageFull")}}, blob.ErrUnavailable, 1},
		"an answer that says nothing at all": {[]answer{{err: status(400, "Weird")}}, blob.ErrMisconfigured, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(row.answers...)
			_, err := blob.PutBytes(t.Context(), f.store(), "k", []byte("mine"), blob.IfAbsent)
			if !errors.Is(err, row.want) || f.puts != row.puts {
				t.Errorf("got %v after %d requests, want %v after %d", err, f.puts, row.want, row.puts)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("several lines: %q", err)
			}
		})
	}
}

// TestTheWinnerOfARaceIsNeverToldOfAnother, not even when its bytes equal the other's.
func TestTheWinnerOfARaceIsNeverToldOfAnother(t *testing.T) {
	f := newFake()
	other := func() {
		if err := f.write("k", []byte("same"), object.Match{}, "another writer's"); err != nil {
			t.Error(err)
		}
	}
	f.answers = []answer{{err: errLost, then: other}}
	if _, err := blob.PutBytes(t.Context(), f.store(), "k", []byte("same"), blob.IfAbsent); err == nil {
		t.Error("another writer's bytes were taken for one's own")
	}
}

// TestAnUnclearAnswerStaysOneWhenNobodyCanBeAsked: it is neither a success nor a refusal.
func TestAnUnclearAnswerStaysOneWhenNobodyCanBeAsked(t *testing.T) {
	f := newFake(answer{acts: true, err: errLost})
	f.headErr = status(503, "SlowDown")
	if _, err := blob.PutBytes(t.Context(), f.store(), "k", []byte("x"), blob.IfAbsent); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable: the caller asks again", err)
	}
}

// TestTheQuestionOutlivesTheCaller: who is cancelled in the middle of a write
// that happened is told of its success or of its end, never of a conflict.
func TestTheQuestionOutlivesTheCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := newFake(answer{acts: true, err: context.Canceled, then: cancel})
	if _, err := blob.PutBytes(ctx, f.store(), "k", []byte("x"), blob.IfAbsent); err != nil {
		t.Errorf("got %v, but the bytes are there and the server could be asked", err)
	}
}

func TestAnswersOfSwaps(t *testing.T) {
	refusal := status(http.StatusPreconditionFailed, "PreconditionFailed")
	for name, row := range map[string]struct {
		answer answer
		want   error
	}{
		"412 after one's own success":  {answer{acts: true, err: refusal}, nil},
		"412 of another writer":        {answer{err: refusal}, blob.ErrConflict},
		"a lost reply after the write": {answer{acts: true, err: errLost}, nil},
		"a lost reply without it":      {answer{err: errLost}, blob.ErrUnavailable},
		"404: it was deleted":          {answer{err: status(404, "NoSuchKey")}, blob.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s := f.store()
			old, err := blob.PutBytes(t.Context(), s, "k", []byte("old"), blob.IfAbsent)
			if err != nil {
				t.Fatal(err)
			}
			f.answers = []answer{row.answer}
			ref, err := s.Swap(t.Context(), "k", old, []byte("new"))
			if !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
			if err == nil && ref != blob.RefOf("k", []byte("new")) {
				t.Errorf("reference %+v", ref)
			}
			before := f.puts
			if _, err := s.Swap(t.Context(), "k", blob.RefOf("k", []byte("never there")), []byte("x")); !errors.Is(err, blob.ErrConflict) || f.puts != before {
				t.Errorf("a swap of what was never there gave %v and %d requests, want a conflict without one", err, f.puts-before)
			}
		})
	}
}

// TestARefusalIsNoneWhenNobodyCanBeAsked: the first try of a client library may have done
// the work, and then the second is refused.
func TestARefusalIsNoneWhenNobodyCanBeAsked(t *testing.T) {
	refusal := status(http.StatusPreconditionFailed, "PreconditionFailed")
	f := newFake(answer{acts: true, err: refusal})
	f.headErr = errLost
	if _, err := blob.PutBytes(t.Context(), f.store(), "k", []byte("old"), blob.IfAbsent); !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrExists) {
		t.Errorf("put: %v, want ErrUnavailable: it is the caller's own", err)
	}
	f.answers = []answer{{acts: true, err: refusal}}
	if _, err := f.store().Swap(t.Context(), "k", blob.RefOf("k", []byte("old")), []byte("new")); !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrConflict) {
		t.Errorf("swap: %v, want ErrUnavailable: it is the caller's own", err)
	}
}

// aborted is a server that has ended each upload before its first part comes.
type aborted struct{ *fakeAPI }

func (aborted) Create(context.Context, string, string) (string, error) { return "id", nil }

func (aborted) UploadPart(context.Context, string, string, int, object.Body) (string, error) {
	return "", status(http.StatusNotFound, "NoSuchUpload")
}

func (aborted) Abort(context.Context, string, string) error {
	return status(http.StatusNotFound, "NoSuchUpload")
}

// TestAnUploadThatIsGoneIsMadeAgain: a rule of the bucket may end uploads that take long.
func TestAnUploadThatIsGoneIsMadeAgain(t *testing.T) {
	s := object.New(object.Config{Place: "s3://fake", PartSize: 4}, aborted{newFake()})
	if _, err := blob.PutBytes(t.Context(), s, "k", []byte("several parts"), blob.Always); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable: the caller repeats it", err)
	}
}
