package external

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"temper/internal/inference"
	"temper/internal/proc"
	"temper/internal/rl"
)

// llamaCpp speaks with a llama.cpp server. Such a server cannot replace its weights: for
// each policy there is another process, which this package starts and ends.
type llamaCpp struct {
	processes processes

	mu  sync.Mutex
	now *childServer // nil before the first load
}

func newLlamaCpp(c Config) *llamaCpp {
	return &llamaCpp{processes: processes{command: c.Command, folder: c.Folder, key: c.Key, patience: c.Patience, log: c.Log}}
}

// label is the name of the file, by which a server calls its model.
func (l *llamaCpp) label(name string) string { return name + ".gguf" }
func (l *llamaCpp) needsFile() bool          { return true }

func (l *llamaCpp) address() string {
	if now := l.server(); now != nil {
		return now.wire.base
	}
	return "llama.cpp server"
}

func (l *llamaCpp) server() *childServer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *llamaCpp) close() {
	l.mu.Lock()
	old := l.now
	l.now = nil
	l.mu.Unlock()
	if old != nil {
		old.end()
	}
}

// load starts a process with the file, unless the one that runs has it. That one was
// restarted if it died, with the same file.
func (l *llamaCpp) load(ctx context.Context, p published) error {
	if now := l.server(); now != nil && now.file == p.file {
		return now.wait(ctx)
	}
	l.close() //nolint:contextcheck // a server ends even when the load is cancelled
	started, err := l.processes.start(ctx, p.file)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.now = started
	l.mu.Unlock()
	return nil
}

// event is a piece of a stream. The last one has stop.
type event struct {
	Tokens        []int32 `json:"tokens"`
	Probabilities []struct {
		ID      int32    `json:"id"`
		Logprob *logprob `json:"logprob"`
		Prob    *float64 `json:"prob"` // with post_sampling_probs
	} `json:"completion_probabilities"`
	Stop      bool            `json:"stop"`
	StopType  string          `json:"stop_type"`
	Model     string          `json:"model"`
	Truncated bool            `json:"truncated"`
	Error     json.RawMessage `json:"error"`
}

// generate reads a stream, so that nothing is lost when the server dies or the caller
// takes the generation away. The server knows no ids to stop at: the stream is left
// behind a stop token, which ends the request there.
func (l *llamaCpp) generate(ctx context.Context, c call) (answer, error) {
	now := l.server()
	if now == nil {
		return answer{}, fmt.Errorf("no llama.cpp server runs: %w", errLost)
	}
	body := map[string]any{
		"prompt": c.tokens, "n_predict": c.maxTokens, "temperature": c.temperature, "samplers": []string{"temperature"}, "seed": seed32(c.seed),
		"n_probs": 1, "return_tokens": true, "cache_prompt": true, "stream": true,
		// Log-probabilities are from before the temperature otherwise.
		"post_sampling_probs": c.temperature != 0 && c.temperature != 1,
	}
	r, err := now.wire.send(ctx, http.MethodPost, "/completion", body)
	if err != nil {
		return answer{}, cutIsNoError(ctx, err)
	}
	defer r.Close() //nolint:errcheck // read only
	a, err := readStream(r, c)
	if err != nil {
		err = fmt.Errorf("%s/completion: %w", now.wire.base, err)
	}
	return a, cutIsNoError(ctx, err)
}

// cutIsNoError is the error of a request that the caller may have taken away.
func cutIsNoError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if errors.Is(context.Cause(ctx), inference.ErrCut) {
		return nil
	}
	return ctx.Err()
}

// readStream collects the events of a stream up to its end, a stop token, or an error.
func readStream(r io.Reader, c call) (answer, error) {
	a := answer{finish: rl.FinishAbort}
	lines := bufio.NewScanner(io.LimitReader(r, maxAnswer))
	lines.Buffer(nil, 64<<20) // the last event repeats the settings
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			if bytes.HasPrefix(lines.Bytes(), []byte("error: ")) {
				return a, fmt.Errorf("an error inside the stream: %s (%w)", reason(lines.Bytes()[len("error: "):]), errLost)
			}
			continue
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return a, fmt.Errorf("event %d is not the JSON of this server: %w: %w", len(a.tokens), errLost, err)
		}
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return a, fmt.Errorf("an error inside the stream: %s (%w)", reason(data), errLost)
		}
		if err := a.add(e); err != nil {
			return a, err
		}
		if n := len(a.tokens); n > 0 && len(e.Tokens) > 0 && slices.ContainsFunc(e.Tokens, func(id int32) bool { return slices.Contains(c.stop, id) }) {
			a.finish = rl.FinishStop
			return a, nil
		}
		if e.Stop {
			return a, a.end(e)
		}
	}
	if err := lines.Err(); err != nil {
		return a, fmt.Errorf("the stream ends after %d tokens: %w: %w", len(a.tokens), errLost, err)
	}
	return a, fmt.Errorf("the stream ends after %d tokens without its last event: %w", len(a.tokens), errLost)
}

// add appends what an event brings.
func (a *answer) add(e event) error {
	if e.Stop && len(e.Tokens) == 0 {
		return nil
	}
	if len(e.Tokens) != len(e.Probabilities) {
		return fmt.Errorf("%d tokens with %d log-probabilities in an event (%w)", len(e.Tokens), len(e.Probabilities), errRefused)
	}
	for i, p := range e.Probabilities {
		if p.ID != e.Tokens[i] {
			return fmt.Errorf("token %d with the log-probability of %d (%w)", e.Tokens[i], p.ID, errRefused)
		}
		lp := number(p.Logprob)
		if p.Prob != nil {
			lp = float32(math.Log(*p.Prob))
		}
		a.tokens, a.logprobs = append(a.tokens, p.ID), append(a.logprobs, lp)
	}
	return nil
}

// end reads the last event.
func (a *answer) end(e event) error {
	a.labels = []string{filepath.Base(e.Model)}
	switch e.StopType {
	case "limit":
		a.finish = rl.FinishLength
	case "eos", "word":
		a.finish = rl.FinishStop
	default:
		return fmt.Errorf("stop type %q, want limit, eos or word (%w)", e.StopType, errLost)
	}
	return nil
}

func (l *llamaCpp) limits(ctx context.Context) (limits, error) {
	p, err := l.properties(ctx)
	return limits{maxContext: p.Settings.Context}, err
}

type properties struct {
	Settings struct {
		Context int `json:"n_ctx"`
	} `json:"default_generation_settings"`
	Slots int `json:"total_slots"`
}

func (l *llamaCpp) properties(ctx context.Context) (p properties, err error) {
	now := l.server()
	if now == nil {
		return p, fmt.Errorf("no llama.cpp server runs: %w", errLost)
	}
	err = now.wire.call(ctx, http.MethodGet, "/props", nil, &p)
	return p, err
}

// status counts the slots: with a cache shared by all of them, a server holds fewer
// tokens than this, and queues what does not fit.
func (l *llamaCpp) status(ctx context.Context) (load, error) {
	p, err := l.properties(ctx)
	if err != nil {
		return load{}, err
	}
	out := load{capacity: int64(p.Slots) * int64(p.Settings.Context), used: -1}
	var slots []struct {
		Processing bool  `json:"is_processing"`
		Prompt     int64 `json:"n_prompt_tokens"`
	}
	if l.server().wire.call(ctx, http.MethodGet, "/slots", nil, &slots) == nil { // it may be switched off
		out.used = 0
		for _, s := range slots {
			if s.Processing {
				out.used += s.Prompt
				out.running++
			}
		}
	}
	return out, nil
}

// processes starts servers, one for each policy. In the words of the command {model}
// stands for the GGUF file, {host} and {port} for where the server listens.
type processes struct {
	command  []string
	folder   string
	key      string
	patience time.Duration
	log      *slog.Logger
}

// childServer is one server with one file. It is started again when it dies.
type childServer struct {
	file  string
	wire  wire
	super *proc.Supervisor
	limit time.Duration
}

// start returns when the server answers.
func (p processes) start(ctx context.Context, file string) (*childServer, error) {
	addresses, err := proc.Addresses(1)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	words := make([]string, len(p.command))
	for i, word := range p.command {
		words[i] = strings.NewReplacer("{model}", file, "{host}", host, "{port}", port).Replace(word)
	}
	w, err := newWire("http://"+addresses[0], p.key)
	if err != nil {
		return nil, err
	}
	l := &childServer{file: file, wire: w, limit: p.patience}
	l.super, err = proc.New(proc.Config{
		Children: []proc.Child{{
			Name: "llamacpp", Path: words[0], Args: words[1:], LogFile: filepath.Join(p.folder, "llamacpp.log"),
			Ready: l.healthy, StopTimeout: 2 * time.Second,
		}},
		StartTimeout: p.patience, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	if err := l.super.Start(ctx); err != nil {
		return nil, fmt.Errorf("start llama.cpp server %s: %w", words[0], err)
	}
	return l, nil
}

func (l *childServer) healthy(ctx context.Context) error {
	return l.wire.call(ctx, http.MethodGet, "/health", nil, nil)
}

// wait returns when the server answers, which it does again soon after its death.
func (l *childServer) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	for {
		err := l.healthy(ctx)
		if err == nil {
			return nil
		}
		if sleepErr := sleep(ctx, 50*time.Millisecond); sleepErr != nil {
			return fmt.Errorf("%s does not come back: %w", l.wire.base, err)
		}
	}
}

// end stops the process.
func (l *childServer) end() {
	l.wire.close()
	_ = l.super.Stop(context.Background()) // the error says that a kill was needed
}
