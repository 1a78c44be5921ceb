package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
)

// API is an interface of a service.
type API string

// APIs that a generator speaks.
const (
	APIStream         API = "native-stream"   // one HTTP/2 stream of JSON lines each way
	APINative         API = "native"          // one call in a request
	APIBatch          API = "batch"           // 64 calls in a request
	APICodeJudgeRun   API = "codejudge-run"   // POST /run
	APICodeJudgeBatch API = "codejudge-batch" // POST /run/long-batch of 64 submissions
)

// APIs are all of them.
func APIs() []API {
	return []API{APIStream, APINative, APIBatch, APICodeJudgeRun, APICodeJudgeBatch}
}

// batchSize is that of the paper's send workers.
const batchSize = 64

// maxAnswer bounds a response: a service under test is not trusted.
const maxAnswer = 256 << 20

// Options say how to reach a service.
type Options struct {
	API   API
	Token string
}

// Connect returns the service at address: an http or https URL, host:port, or
// unix:/path. Connect sends nothing: when no service is there, the calls are lost.
func Connect(address string, o Options) (Target, error) {
	base, dial, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(APIs(), o.API) {
		return nil, fmt.Errorf("interface %q: want one of %v", o.API, APIs())
	}
	if o.API == APIStream {
		return newStreamTarget(base, dial, o.Token), nil
	}
	// The same transport for every service that is measured: connections kept
	// alive, as many as there are calls in flight.
	transport := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1 << 16, DisableCompression: true}
	return &httpTarget{base: base, api: o.API, token: o.Token, client: &http.Client{Transport: transport}}, nil
}

// DialFunc opens a connection to a service.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// ParseAddress returns the base URL of a service and how to reach it, for the
// addresses that Connect takes.
func ParseAddress(address string) (base string, dial DialFunc, err error) {
	d := &net.Dialer{Timeout: time.Minute, KeepAlive: 15 * time.Second}
	path, isUnix := strings.CutPrefix(address, httpapi.UnixPrefix)
	switch {
	case address == "" || isUnix && path == "":
		return "", nil, fmt.Errorf("address %q: empty", address)
	case isUnix:
		return "http://sandbox", func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}, nil
	case strings.HasPrefix(address, "http://"), strings.HasPrefix(address, "https://"):
		return strings.TrimRight(address, "/"), d.DialContext, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", nil, fmt.Errorf("address %q: %w", address, err)
	}
	return "http://" + address, d.DialContext, nil
}

// httpTarget sends each exchange as one request.
type httpTarget struct {
	base, token string
	api         API
	client      *http.Client
}

// Batch implements Target.
func (t *httpTarget) Batch() int {
	if t.api == APIBatch || t.api == APICodeJudgeBatch {
		return batchSize
	}
	return 1
}

// Close implements Target.
func (t *httpTarget) Close() { t.client.CloseIdleConnections() }

// Do implements Target.
func (t *httpTarget) Do(ctx context.Context, calls []Call) []Outcome {
	switch t.api {
	case APINative:
		var res sandbox.Result
		if o := t.post(ctx, httpapi.PathExecute, calls[0].request(), &res); o.Class == Lost {
			return []Outcome{o}
		}
		return []Outcome{calls[0].judge(res)}
	case APIBatch:
		return t.batch(ctx, calls)
	default:
		return t.codeJudge(ctx, calls)
	}
}

func (t *httpTarget) batch(ctx context.Context, calls []Call) []Outcome {
	batch := struct {
		Calls []sandbox.Request `json:"calls"`
	}{make([]sandbox.Request, len(calls))}
	for i, call := range calls {
		batch.Calls[i] = call.request()
	}
	var answer struct {
		Answers []struct {
			Result *sandbox.Result `json:"result"`
			Error  *failure        `json:"error"`
		} `json:"answers"`
	}
	if o := t.post(ctx, httpapi.PathBatch, batch, &answer); o.Class == Lost {
		return slices.Repeat([]Outcome{o}, len(calls))
	}
	out := make([]Outcome, len(calls))
	for i, call := range calls {
		switch {
		case i >= len(answer.Answers):
			out[i] = lost(KindNoAnswer, "the batch has fewer answers than calls")
		case answer.Answers[i].Error != nil:
			out[i] = answer.Answers[i].Error.outcome("")
		case answer.Answers[i].Result != nil:
			out[i] = call.judge(*answer.Answers[i].Result)
		default:
			out[i] = lost(KindNoAnswer, "empty answer")
		}
	}
	return out
}

// failure is an answer of the native interfaces that is not a result.
type failure struct {
	Code         string `json:"code"`
	Message      string `json:"message"`
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// outcome of a failure that may come with a Retry-After header.
func (f failure) outcome(retryAfter string) Outcome {
	o := lost(f.Code, f.Message)
	if f.Code == KindRefused {
		o.RetryAfter = advised
		if f.RetryAfterMS > 0 {
			o.RetryAfter = time.Duration(f.RetryAfterMS) * time.Millisecond
		} else if s, err := strconv.Atoi(retryAfter); err == nil && s > 0 {
			o.RetryAfter = time.Duration(s) * time.Second
		}
	}
	return o
}

// post makes one request and decodes a 200 into out. The outcome is Lost when
// there is no such answer, else empty.
func (t *httpTarget) post(ctx context.Context, path string, in, out any) Outcome {
	body, err := json.Marshal(in)
	if err != nil {
		return lost(KindNoAnswer, err.Error())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+path, bytes.NewReader(body))
	if err != nil {
		return lost(KindNoAnswer, err.Error())
	}
	req.Header.Set("Content-Type", "application/json")
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return noAnswer(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end or given up
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return noAnswer(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(resp, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return lost("undecodable", err.Error())
	}
	return Outcome{}
}

func noAnswer(ctx context.Context, err error) Outcome {
	if ctx.Err() != nil {
		return lost(KindGaveUp, err.Error())
	}
	return lost(KindNoAnswer, err.Error())
}

// refusal is the outcome of an HTTP status other than 200.
func refusal(resp *http.Response, data []byte) Outcome {
	header := resp.Header.Get("Retry-After")
	var body struct {
		Error failure `json:"error"`
	}
	if json.Unmarshal(data, &body) == nil && body.Error.Code != "" {
		return body.Error.outcome(header)
	}
	o := lost(fmt.Sprintf("http_%d", resp.StatusCode), fmt.Sprintf("%.200s", data))
	if s, err := strconv.Atoi(header); err == nil && s > 0 {
		o.RetryAfter = time.Duration(s) * time.Second
	}
	return o
}
