package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/inference/remote"
)

// reporter is an engine of 50 token ids with a context of 64.
type reporter struct {
	*inferencetest.Script
}

func (r reporter) Load(context.Context, blob.Ref, int64) error { return nil }

func (r reporter) Status(context.Context) (inference.Status, error) {
	return inference.Status{Version: r.Version(), MaxContext: r.MaxContext(), Capacity: 64}, nil
}

func start(t *testing.T) (*remote.Server, string) {
	t.Helper()
	s := remote.NewServer(reporter{&inferencetest.Script{Reply: inferencetest.Random(50), Serving: 3, Context: 64}}, remote.Identity{Name: "one", Run: "run-1", Vocab: 50, Holder: "h"}, nil)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	return s, web.URL
}

// post returns status, Retry-After and body of an answer.
func post(t *testing.T, url, body string) (int, string, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(text)
}

// TestBadRequests: each is refused with a code, the parameter and one line.
func TestBadRequests(t *testing.T) {
	_, url := start(t)
	const good = `"id":"a","tokens":"AQAAAAIAAAA=","max_tokens":4,"temperature":1,"seed":1,"version":-1`
	replaced := func(old, now string) string { return "{" + strings.Replace(good, old, now, 1) + "}" }
	for name, c := range map[string]struct {
		path, body  string
		status      int
		code, param string
	}{
		"good":                   {remote.PathGenerate, "{" + good + "}", 200, "", ""},
		"no body":                {remote.PathGenerate, "", 400, "invalid", "body"},
		"no JSON":                {remote.PathGenerate, "tokens", 400, "invalid", "body"},
		"two values":             {remote.PathGenerate, "{" + good + "}{}", 400, "invalid", "body"},
		"unknown field":          {remote.PathGenerate, "{" + good + `,"top_p":0.5}`, 400, "invalid", "body"},
		"no id":                  {remote.PathGenerate, replaced(`"id":"a",`, ""), 400, "invalid", "id"},
		"long id":                {remote.PathGenerate, replaced(`"a"`, `"`+strings.Repeat("a", 2000)+`"`), 400, "invalid", "id"},
		"no tokens":              {remote.PathGenerate, replaced(`"AQAAAAIAAAA="`, `""`), 400, "invalid", "tokens"},
		"half a token":           {remote.PathGenerate, replaced(`"AQAAAAIAAAA="`, `"AQA="`), 400, "invalid", "tokens"},
		"numbers":                {remote.PathGenerate, replaced(`"AQAAAAIAAAA="`, `[1,2,3,4]`), 400, "invalid", "tokens"},
		"id beyond vocabulary":   {remote.PathGenerate, replaced(`"AQAAAAIAAAA="`, `"AQAAADIAAAA="`), 400, "invalid", "tokens"},
		"id below 0":             {remote.PathGenerate, replaced(`"AQAAAAIAAAA="`, `"/////w=="`), 400, "invalid", "tokens"},
		"no room":                {remote.PathGenerate, replaced(`"max_tokens":4`, `"max_tokens":0`), 400, "invalid", "max_tokens"},
		"negative room":          {remote.PathGenerate, replaced(`"max_tokens":4`, `"max_tokens":-4`), 400, "invalid", "max_tokens"},
		"text for a number":      {remote.PathGenerate, replaced(`"max_tokens":4`, `"max_tokens":"4"`), 400, "invalid", "max_tokens"},
		"temperature":            {remote.PathGenerate, replaced(`"temperature":1`, `"temperature":-1`), 400, "invalid", "temperature"},
		"NaN":                    {remote.PathGenerate, replaced(`"temperature":1`, `"temperature":NaN`), 400, "invalid", "body"},
		"wrong version":          {remote.PathGenerate, replaced(`"version":-1`, `"version":9`), 409, "stale_version", ""},
		"version below -1":       {remote.PathGenerate, replaced(`"version":-1`, `"version":-3`), 400, "invalid", "version"},
		"too long":               {remote.PathGenerate, replaced(`"max_tokens":4`, `"max_tokens":63`), 413, "too_large", "max_tokens"},
		"huge max_tokens":        {remote.PathGenerate, replaced(`"max_tokens":4`, `"max_tokens":9223372036854775807`), 413, "too_large", "max_tokens"},
		"prompt beyond any body": {remote.PathGenerate, replaced("AQAAAAIAAAA=", strings.Repeat("AAAA", 1<<19)), 413, "too_large", "body"},
		"load nothing":           {remote.PathLoad, `{"version":1}`, 400, "invalid", "ref"},
		"load below 0":           {remote.PathLoad, `{"ref":{"key":"a","sha256":"00"},"version":-1}`, 400, "invalid", "version"},
		"read nothing ahead":     {remote.PathPrefetch, `{"version":1}`, 400, "invalid", "ref"},
		"no such path":           {"/v1/chat", `{}`, 404, "not_found", ""},
		"cut nobody":             {remote.PathCut, `{"id":"b"}`, 200, "", ""},
	} {
		status, _, body := post(t, url+c.path, c.body)
		var f struct {
			Error struct{ Code, Param, Message string }
		}
		if err := json.Unmarshal([]byte(body), &f); err != nil {
			t.Errorf("%s: answer %q: %v", name, body, err)
		}
		if status != c.status || f.Error.Code != c.code || f.Error.Param != c.param || strings.Contains(f.Error.Message, "\n") || (c.code != "") != (f.Error.Message != "") {
			t.Errorf("%s: %d %+v, want %d %s of %q", name, status, f.Error, c.status, c.code, c.param)
		}
	}
}

// TestDrainRefuses: a draining engine says when to come again.
func TestDrainRefuses(t *testing.T) {
	_, url := start(t)
	if status, _, body := post(t, url+remote.PathDrain, ""); status != 200 || !strings.Contains(body, `"draining":true`) {
		t.Errorf("%d %s, want a draining status", status, body)
	}
	if status, retry, body := post(t, url+remote.PathGenerate, ""); status != 503 || retry != "1" || !strings.Contains(body, `"draining"`) {
		t.Errorf("%d, Retry-After %q, %s", status, retry, body)
	}
}

// TestBodyThatNeverEnds: a request whose body does not come is answered and given up, and
// holds up no drain.
func TestBodyThatNeverEnds(t *testing.T) {
	s, url := start(t)
	s.SetPatience(50 * time.Millisecond)
	read, write := io.Pipe()
	defer write.Close()
	go func() { _, _ = write.Write([]byte(`{"id":"a",`)) }()
	resp, err := http.Post(url+remote.PathGenerate, "application/json", read) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(body), `"param":"body"`) {
		t.Errorf("%d %s (%v), want 408 that names the body", resp.StatusCode, body, err)
	}
	s.Drain()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Finish(ctx); err != nil {
		t.Errorf("something is still under way: %v", err)
	}
}

// TestNumbersKeepTheirBits: each bit of a number arrives.
func TestNumbersKeepTheirBits(t *testing.T) {
	ids := []int32{0, 1, -1, math.MaxInt32, math.MinInt32, 151936}
	probs := []float32{0, -0.1, float32(math.Inf(-1)), -math.SmallestNonzeroFloat32, -math.MaxFloat32, math.Float32frombits(0x7fc00001)}
	data, err := json.Marshal(remote.Generated{Tokens: remote.PackInt32s(ids), Logprobs: remote.PackFloat32s(probs)})
	if err != nil {
		t.Fatal(err)
	}
	var got remote.Generated
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	gotIDs, err := got.Tokens.Values()
	if err != nil || !slices.Equal(gotIDs, ids) {
		t.Errorf("tokens %v (%v), want %v", gotIDs, err, ids)
	}
	gotProbs, err := got.Logprobs.Values()
	if err != nil || len(gotProbs) != len(probs) {
		t.Fatalf("log-probs %v (%v), want %v", gotProbs, err, probs)
	}
	for i := range probs {
		if math.Float32bits(gotProbs[i]) != math.Float32bits(probs[i]) {
			t.Errorf("log-prob %d is %x, want %x", i, math.Float32bits(gotProbs[i]), math.Float32bits(probs[i]))
		}
	}
}

// TestWireCarriesTheWholePort: a field that the port gains must cross the wire, or an
// engine of another process would sample something else.
func TestWireCarriesTheWholePort(t *testing.T) {
	for _, pair := range []struct {
		port, wire any
	}{{inference.Request{}, remote.GenerateRequest{}}, {inference.Generation{}, remote.Generated{}}} {
		port, onWire := reflect.TypeOf(pair.port), reflect.TypeOf(pair.wire)
		for i := range port.NumField() {
			name := port.Field(i).Name
			if _, ok := onWire.FieldByName(name); !ok {
				t.Errorf("%s.%s is not in %s", port, name, onWire)
			}
		}
	}
}

// BenchmarkNumbers compares how the tokens of a request of 8,192 could be written.
func BenchmarkNumbers(b *testing.B) {
	ids := make([]int32, 8192)
	for i := range ids {
		ids[i] = int32(i*7919) % 151936
	}
	check := func(b *testing.B, n int, err error) {
		if err != nil || n != len(ids) {
			b.Fatalf("%d numbers (%v), want %d", n, err, len(ids))
		}
	}
	b.Run("base64", func(b *testing.B) {
		for b.Loop() {
			data, err := json.Marshal(remote.Generated{Tokens: remote.PackInt32s(ids)})
			var into remote.Generated
			err = errors.Join(err, json.Unmarshal(data, &into))
			values, err2 := into.Tokens.Values()
			check(b, len(values), errors.Join(err, err2))
		}
	})
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			data, err := json.Marshal(ids)
			var into []int32
			check(b, len(ids), errors.Join(err, json.Unmarshal(data, &into)))
		}
	})
}
