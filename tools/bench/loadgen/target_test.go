package loadgen_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"temper/sandbox"
	"temper/tools/bench/loadgen"
)

// service serves one handler and connects to it.
func service(t *testing.T, api loadgen.API, handler http.HandlerFunc) loadgen.Target {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	target, err := loadgen.Connect(server.URL, loadgen.Options{API: api, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	return target
}

func run(t *testing.T, target loadgen.Target, load loadgen.Load) loadgen.Figures {
	t.Helper()
	load.Prefix = "id"
	f, err := loadgen.Run(t.Context(), target, load)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// reply writes v; a broken connection shows at the client.
func reply(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v)
}

func TestNativeCountsEachWayToFail(t *testing.T) {
	var n atomic.Int64
	target := service(t, loadgen.APINative, func(w http.ResponseWriter, r *http.Request) {
		var req sandbox.Request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != "/v1/execute" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %v %v", r.URL, r.Header, err)
		}
		good := sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: "2\n"}
		switch n.Add(1) {
		case 1:
			http.Error(w, "broken", http.StatusInternalServerError)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			reply(w, map[string]any{"error": map[string]any{"code": "unavailable", "message": "no"}})
		case 3:
			panic(http.ErrAbortHandler)
		case 4:
			fmt.Fprint(w, "{")
		case 5:
			good.ID = "another"
			reply(w, good)
		case 6:
			w.WriteHeader(http.StatusTooManyRequests)
			reply(w, map[string]any{"error": map[string]any{"code": "overloaded", "message": "full", "retry_after_ms": 1}})
		default:
			reply(w, good)
		}
	})
	f := run(t, target, loadgen.Load{Concurrency: 1, Calls: 20})
	want := map[string]int{"http_500": 1, "unavailable": 1, "no_answer": 1, "undecodable": 1, "foreign": 1}
	if f.Lost != 4 || f.Wrong != 1 || f.Resent != 1 || fmt.Sprint(f.Kinds) != fmt.Sprint(want) {
		t.Errorf("lost %d, wrong %d, resent %d, %v; want 4, 1, 1, %v", f.Lost, f.Wrong, f.Resent, f.Kinds, want)
	}
}

func TestBatchesFillTheLevelAndCountMissingAnswers(t *testing.T) {
	var most atomic.Int64
	var inFlight atomic.Int64
	target := service(t, loadgen.APIBatch, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Calls []sandbox.Request }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		size := int64(len(body.Calls))
		most.Store(max(most.Load(), inFlight.Add(size), size))
		defer inFlight.Add(-size)
		var answers []map[string]any
		for i, req := range body.Calls {
			res := sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: "2"}
			switch {
			case strings.HasSuffix(req.ID, "-0"):
				answers = append(answers, map[string]any{"error": map[string]any{"code": "invalid", "message": "no"}})
			case i == len(body.Calls)-1 && strings.HasSuffix(req.ID, "-199"):
			default:
				answers = append(answers, map[string]any{"result": res})
			}
		}
		reply(w, map[string]any{"answers": answers})
	})
	f := run(t, target, loadgen.Load{Concurrency: 100, Calls: 200})
	if f.Lost < 2 || f.Kinds["no_answer"] != 1 || f.Kinds["invalid"] < 1 {
		t.Errorf("%+v; want an invalid and a missing answer", f)
	}
	if most.Load() > 100 {
		t.Errorf("%d calls in flight, want at most 100", most.Load())
	}
}

func TestCodeJudgeReasons(t *testing.T) {
	yes, no := true, false
	answers := []struct {
		success *bool
		reason  string
		stdout  string
		kind    string
	}{
		{&yes, "", "2\n", ""},
		{&yes, "", "3\n", "output"},
		{&no, "queue_timeout", "", "queue_timeout"},
		{&no, "internal_error", "", "internal_error"},
		{&no, "worker_timeout", "", "status_time_limit"},
		{&no, "", "", "status_error"},
		{nil, "", "", "undecodable"},
	}
	single := service(t, loadgen.APICodeJudgeRun, func(w http.ResponseWriter, r *http.Request) {
		var sub struct {
			ID       string `json:"sub_id"`
			Type     string `json:"type"`
			Solution string `json:"solution"`
		}
		if err := json.NewDecoder(r.Body).Decode(&sub); err != nil || r.URL.Path != "/run" || sub.Type != "python" || sub.Solution != "print(1+1)" {
			t.Errorf("%s %+v %v", r.URL, sub, err)
		}
		var i int
		if _, err := fmt.Sscanf(sub.ID, "id-%d", &i); err != nil {
			t.Error(err)
		}
		a := answers[i]
		reply(w, map[string]any{"sub_id": sub.ID, "run_success": a.success, "success": a.success, "reason": a.reason, "stdout": a.stdout})
	})
	f := run(t, single, loadgen.Load{Concurrency: 3, Calls: len(answers)})
	for _, a := range answers {
		if a.kind != "" && f.Kinds[a.kind] != 1 {
			t.Errorf("kind %s: %d calls, want 1: %v", a.kind, f.Kinds[a.kind], f.Kinds)
		}
	}
	if f.Lost != 3 || f.Wrong != 3 {
		t.Errorf("lost %d, wrong %d, want 3 and 3", f.Lost, f.Wrong)
	}
	batch := service(t, loadgen.APICodeJudgeBatch, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Submissions []struct {
				ID string `json:"sub_id"`
			} `json:"submissions"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/run/long-batch" {
			t.Errorf("%s %v", r.URL, err)
		}
		results := []map[string]any{}
		for i := range body.Submissions { // in the wrong order
			sub := body.Submissions[len(body.Submissions)-1-i]
			results = append(results, map[string]any{"sub_id": sub.ID, "run_success": true, "stdout": "2\n"})
		}
		reply(w, map[string]any{"results": results})
	})
	if f := run(t, batch, loadgen.Load{Concurrency: 64, Calls: 64}); f.Kinds["foreign"] != 64 {
		t.Errorf("answers of other calls: %v, want 64 foreign", f.Kinds)
	}
}

// streamServer answers each call of a stream with what answer writes.
func streamServer(answer func(id string, send func(v any))) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		enc := json.NewEncoder(w)
		send := func(v any) {
			_ = enc.Encode(v)
			_ = control.Flush()
		}
		send(map[string]any{"load": map[string]int{"slots": 1}})
		dec := json.NewDecoder(r.Body)
		for {
			var frame struct{ Call sandbox.Request }
			if err := dec.Decode(&frame); err != nil {
				return
			}
			answer(frame.Call.ID, send)
		}
	}
}

func TestStreamSeesSecondAnswers(t *testing.T) {
	target := service(t, loadgen.APIStream, streamServer(func(id string, send func(any)) {
		frame := map[string]any{"id": id, "result": sandbox.Result{ID: id, Status: sandbox.StatusOK, Stdout: "2"}}
		send(frame)
		switch id {
		case "id-3":
			send(frame)
		case "id-5":
			send(map[string]any{"id": "nobody", "result": frame["result"]})
		}
	}))
	f := run(t, target, loadgen.Load{Concurrency: 4, Calls: 50})
	duplicated, unasked := target.(loadgen.Auditor).Surplus()
	if f.Failed != 0 || duplicated != 1 || unasked != 1 {
		t.Errorf("failed %d, duplicated %d, unasked %d; want 0, 1, 1: %s", f.Failed, duplicated, unasked, f.Failure)
	}
}

func TestStreamReopensAndLosesOnlyWhatWasInFlight(t *testing.T) {
	var opened atomic.Int64
	handler := streamServer(func(id string, send func(any)) {
		if id == "id-3" {
			panic(http.ErrAbortHandler)
		}
		send(map[string]any{"id": id, "result": sandbox.Result{ID: id, Status: sandbox.StatusOK, Stdout: "2"}})
	})
	target := service(t, loadgen.APIStream, func(w http.ResponseWriter, r *http.Request) {
		opened.Add(1)
		handler(w, r)
	})
	f := run(t, target, loadgen.Load{Concurrency: 1, Calls: 20})
	if f.Lost != 1 || f.Kinds["no_answer"] != 1 || opened.Load() != 2 {
		t.Errorf("lost %d, %v, %d streams; want 1 lost, 2 streams", f.Lost, f.Kinds, opened.Load())
	}
	refused := service(t, loadgen.APIStream, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, strings.NewReader(""))
		http.Error(w, "no", http.StatusNotFound)
	})
	if f := run(t, refused, loadgen.Load{Concurrency: 1, Calls: 2}); f.Lost != 2 {
		t.Errorf("lost %d of 2 calls to a service without streams", f.Lost)
	}
}

func TestConnectRefusesNonsense(t *testing.T) {
	for address, api := range map[string]loadgen.API{"": loadgen.APINative, "unix:": loadgen.APINative, "host": loadgen.APINative, "127.0.0.1:1": "soap"} {
		if _, err := loadgen.Connect(address, loadgen.Options{API: api}); err == nil {
			t.Errorf("address %q, interface %q was accepted", address, api)
		}
	}
}
