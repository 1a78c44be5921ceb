package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/fleet"
)

// TestFollowAll: the lines of all instances come, each whole and behind the name of its instance.
func TestFollowAll(t *testing.T) {
	w := newLone(t, smallCluster)
	if err := w.apply(w.fleet("v1"), false); err != nil {
		t.Fatal(err)
	}
	a := last(w.allocs)
	for i := range 3 {
		copied := *a
		copied.ID, copied.Name, copied.NodeName = fmt.Sprintf("%08d-cccc", i), fmt.Sprintf("shop-control.control[%d]", i), "one"
		copied.CreateIndex, copied.TaskStates = uint64(10-i), map[string]*api.TaskState{"control": {State: "running"}}
		w.allocs = append(w.allocs, &copied)
	}
	w.allocs = w.allocs[len(w.allocs)-3:]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.follow = func(out http.ResponseWriter, r *http.Request) {
		id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/client/fs/logs/"), "-")
		if id == "00000002" {
			http.Error(out, "it was removed", http.StatusNotFound)
			return
		}
		frames := json.NewEncoder(out)
		for _, text := range []string{"first of " + id + "\nsec", "ond of " + id + "\n", "\nopen"} {
			_ = frames.Encode(api.StreamFrame{Data: []byte(text), File: "x"}) // to a client of this test
			out.(http.Flusher).Flush()
		}
		<-r.Context().Done() // as long as somebody follows
	}
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- w.fleet("v1").Logs(ctx, "control", fleet.LogOptions{Follow: true, Bytes: 100}, write)
		_ = write.Close() // the reader has all
	}()
	var got []string
	for scan := bufio.NewScanner(read); scan.Scan(); {
		if got = append(got, scan.Text()); len(got) == 7 {
			cancel()
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("a follow that was ended: %v", err)
	}
	for i := range 2 {
		prefix := fmt.Sprintf("shop-control.control[%d] on one (%08d) | ", i, i)
		var of []string
		for _, line := range got {
			if text, ok := strings.CutPrefix(line, prefix); ok {
				of = append(of, text)
			}
		}
		want := fmt.Sprintf("[first of %08[1]d second of %08[1]d  open]", i)
		if fmt.Sprint(of) != want {
			t.Errorf("lines of instance %d: %q, want %s", i, of, want)
		}
	}
	if lost := "shop-control.control[2] on one (00000002) | read the log of"; len(got) != 9 || !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, lost) }) {
		t.Errorf("%d lines: %q, want 9 and one that begins with %q", len(got), got, lost)
	}
}

// TestFollowLaterOnes: an instance that begins later is followed as well, what begins and ends is
// said, and it ends by itself when the job was stopped and nothing runs.
func TestFollowLaterOnes(t *testing.T) {
	w := newLone(t, smallCluster)
	if err := w.apply(w.fleet("v1"), false); err != nil {
		t.Fatal(err)
	}
	instance := func(i int, state string) *api.AllocationListStub {
		copied := *last(w.allocs)
		copied.ID, copied.Name, copied.NodeName = fmt.Sprintf("%08d-cccc", i), fmt.Sprintf("shop-control.control[%d]", i), "one"
		copied.CreateIndex, copied.TaskStates = uint64(10+i), map[string]*api.TaskState{"control": {State: state}}
		return &copied
	}
	w.follow = func(out http.ResponseWriter, r *http.Request) {
		id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/client/fs/logs/"), "-")
		_ = json.NewEncoder(out).Encode(api.StreamFrame{Data: []byte("from " + id + "\n"), File: "x"}) // to a client of this test
		out.(http.Flusher).Flush()
		<-r.Context().Done() // as the real one, also when the task has ended
	}
	w.set(func() { w.allocs = []*api.AllocationListStub{instance(0, "running")} })
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- w.fleet("v1").Logs(t.Context(), "control", fleet.LogOptions{Follow: true, Bytes: 100}, write)
		_ = write.Close() // the reader has all
	}()
	first, second := "shop-control.control[0] on one (00000000)", "shop-control.control[1] on one (00000001)"
	steps := []struct {
		line string
		then func()
	}{
		{"from 00000000", func() { w.allocs = append(w.allocs, instance(1, "pending")) }},
		{"", func() { w.allocs[1] = instance(1, "running") }},
		{"==> " + second + " begins", nil},
		{second + " | from 00000001", func() { w.allocs[0].TaskStates["control"].State = "dead" }},
		{"==> " + first + " has ended", func() {
			w.allocs = w.allocs[1:]
			w.allocs[0].ClientStatus = api.AllocClientStatusComplete
			last(w.jobs["shop-control"]).Stop = new(true)
		}},
		{"==> " + second + " has ended", nil},
	}
	scan := bufio.NewScanner(read)
	for _, s := range steps {
		if s.line != "" && (!scan.Scan() || scan.Text() != s.line) {
			t.Fatalf("%q, want %q", scan.Text(), s.line)
		}
		if s.line == "" {
			time.Sleep(2500 * time.Millisecond) // it is looked at while it has not begun
		}
		if s.then != nil {
			w.set(s.then)
		}
	}
	if scan.Scan() {
		t.Errorf("another line: %q", scan.Text())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLogsOfTheEnded: the log of an instance that has ended, which its node has removed, hides none
// of the others; where there is no other, it is the error.
func TestLogsOfTheEnded(t *testing.T) {
	w := newLone(t, smallCluster)
	if err := w.apply(w.fleet("v1"), false); err != nil {
		t.Fatal(err)
	}
	instance := func(i int, status, state string) *api.AllocationListStub {
		copied := *last(w.allocs)
		copied.ID, copied.Name, copied.NodeName = fmt.Sprintf("%08d-cccc", i), "shop-control.control[0]", "one"
		copied.CreateIndex, copied.ClientStatus, copied.TaskStates = uint64(10+i), status, map[string]*api.TaskState{"control": {State: state}}
		return &copied
	}
	w.follow = func(out http.ResponseWriter, r *http.Request) {
		id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/client/fs/logs/"), "-")
		if id == "00000000" {
			http.Error(out, "it was removed", http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(out).Encode(api.StreamFrame{Data: []byte("from " + id + "\n"), File: "x"}) // to a client of this test
	}
	gone, lives := instance(0, api.AllocClientStatusFailed, "dead"), instance(1, api.AllocClientStatusRunning, "running")
	gone.NextAllocation = lives.ID
	w.set(func() { w.allocs = []*api.AllocationListStub{gone, lives} })
	var out strings.Builder
	if err := w.fleet("v1").Logs(t.Context(), "control", fleet.LogOptions{Bytes: 100}, &out); err != nil {
		t.Errorf("%v, after %q", err, out.String())
	}
	if text := out.String(); !strings.Contains(text, "from 00000001\n") || !strings.Contains(text, "it was removed") {
		t.Errorf("%q: want the log that is there, and why the other is not", text)
	}
	w.set(func() { w.allocs = []*api.AllocationListStub{gone} })
	if err := w.fleet("v1").Logs(t.Context(), "control", fleet.LogOptions{Bytes: 100}, &out); err == nil || !strings.Contains(err.Error(), "it was removed") {
		t.Errorf("no log at all: %v", err)
	}
}
