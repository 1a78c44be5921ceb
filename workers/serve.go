package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/openai"
	"temper/internal/role"
	"temper/sandbox/httpapi"
	"temper/sandbox/server"
	"temper/trainer/engine"
	"temper/trainer/weights/hf"
)

// ServeKeyKey is the variable of the environment with the key that clients of a served
// model send as a bearer token.
const ServeKeyKey = "TEMPER_SERVE_KEY" //nolint:gosec // a name

// ModelOptions configure a role that serves a model.
type ModelOptions struct {
	// Dir is the model in Hugging Face layout.
	Dir string
	// Name is the model's name for clients; the base name of Dir if empty.
	Name string
	// Backend for tensors; empty is the Go backend.
	Backend string
	// MaxContext bounds prompt and answer together; 0 is the model's limit.
	MaxContext int
	// Slots is the number of answers that are sampled at a time.
	Slots  int
	Server server.Config
	// Wrap stands before the API of the model of that name; nil for nothing.
	Wrap func(api http.Handler, model string) http.Handler
	// OnReady is called when requests are answered.
	OnReady func(url, name string)
	Log     *slog.Logger
}

// drainServing is how long answers may continue after the role was told to end.
const drainServing = 10 * time.Second

// Serve answers requests to a model in the form of OpenAI's API.
func Serve(o ModelOptions) Role {
	return Role{
		Row: role.Of(role.Serve),
		Run: func(ctx context.Context, v *Vitals) error { return serveModel(ctx, o, v) },
	}
}

func serveModel(ctx context.Context, o ModelOptions, v *Vitals) error {
	reading, stop := context.WithCancel(ctx)
	digest := make(chan string, 1)
	go func() { digest <- digestOf(reading, o) }()
	defer stop()
	m, closeEngine, err := openModel(ctx, o)
	if err != nil {
		stop()
		<-digest
		return err
	}
	defer closeEngine()
	m.Weights = <-digest
	api, err := openai.New(m, openai.Limits{}, v.Metrics) //nolint:contextcheck // a scrape of metrics has no context
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	if o.Wrap != nil {
		mux.Handle("/", o.Wrap(api, m.Name))
	} else {
		mux.Handle("/", api)
	}
	for path, handler := range metricsHandler(v.Metrics) {
		mux.Handle(path, handler)
	}
	alive := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	mux.HandleFunc("GET /health", alive)
	mux.HandleFunc("GET "+httpapi.PathHealth, alive)
	mux.Handle("GET "+httpapi.PathReady, v.ReadyHandler())
	srv, err := server.New(o.Server)
	if err != nil {
		return err
	}
	return srv.Serve(ctx, mux, server.Hooks{
		Ready:   func() { o.OnReady(srv.URL(), m.Name) },
		Drain:   v.Drain,
		Timeout: drainServing,
	})
}

// digestOf is the digest of a directory, "" where it cannot be made: the model is served all
// the same. A directory that cannot be loaded is left to openModel.
func digestOf(ctx context.Context, o ModelOptions) string {
	m, err := hf.Load(o.Dir)
	if err != nil {
		return ""
	}
	digest, err := hf.Digest(ctx, m)
	if err = errors.Join(err, m.Close()); err != nil && ctx.Err() == nil {
		o.Log.Warn("no digest of the weights", "err", err)
	}
	return digest
}

// OpenModel loads a model for callers in this process. The handler speaks OpenAI's API; the
// caller ends with end, when no request is under way.
func OpenModel(ctx context.Context, o ModelOptions) (h http.Handler, name string, end func(), err error) {
	m, end, err := openModel(ctx, o)
	if err != nil {
		return nil, "", nil, err
	}
	api, err := openai.New(m, openai.Limits{}, nil) //nolint:contextcheck // a scrape of metrics has no context
	if err != nil {
		end()
		return nil, "", nil, err
	}
	return api, m.Name, end, nil
}

// openModel loads a directory into an engine. The caller closes it.
func openModel(ctx context.Context, o ModelOptions) (model openai.Model, end func(), err error) {
	dir, err := hf.Load(o.Dir)
	if err != nil {
		return openai.Model{}, nil, err
	}
	opened := dir // until the engine has taken the weights over
	defer func() {
		if opened != nil {
			err = errors.Join(err, opened.Close())
		}
	}()
	talk, talkErr := dir.Talk()
	tok, tokErr := tokenizer.Load(filepath.Join(o.Dir, hf.TokenizerFile))
	template, templateErr := chat.LoadTemplate(o.Dir, "", false)
	if errors.Is(templateErr, chat.ErrNoTemplate) {
		templateErr = nil // completions go without
	}
	if err := errors.Join(talkErr, tokErr, templateErr); err != nil {
		return openai.Model{}, nil, fmt.Errorf("%s: %w", o.Dir, err)
	}
	e, err := engine.New(engine.Config{
		Model: dir.Config.Config, MaxContext: o.MaxContext, Backend: o.Backend, Slots: o.Slots, Log: o.Log,
	})
	if err != nil {
		return openai.Model{}, nil, err
	}
	opened = nil
	if err := e.LoadFrom(ctx, hf.Mapped{Model: dir}, 0); err != nil {
		e.Close()
		return openai.Model{}, nil, err
	}
	name := o.Name
	if name == "" {
		name = filepath.Base(filepath.Clean(o.Dir))
	}
	return openai.Model{
		Name: name, Engine: e, Tokenizer: tok, Template: template, Stop: talk.Stop, Temperature: talk.Temperature, Created: time.Now(),
	}, e.Close, nil
}
