//go:build integration

package external_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/internal/blob/memblob"
	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/config"
	"temper/internal/inference/external"
	"temper/internal/openai"
	"temper/trainer/checkpoint"
	"temper/trainer/engine"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
)

// ownServer is our own serving of a policy, behind the routes with which vLLM takes new
// weights.
type ownServer struct {
	t      *testing.T
	engine *engine.Engine
	api    http.Handler
	model  model.Config

	mu      sync.Mutex
	loads   int64
	version string // what the client calls the policy
}

// serveOwn serves a network that has no weights yet.
func serveOwn(t *testing.T, m model.Config, tok *tokenizer.Tokenizer) string {
	t.Helper()
	e, err := engine.New(engine.Config{Model: m, Slots: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	api, err := openai.New(openai.Model{Name: "m", Engine: e, Tokenizer: tok, Temperature: 1, Created: time.Unix(7, 0)}, openai.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &ownServer{t: t, engine: e, api: api, model: m}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	return server.URL
}

func (o *ownServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/pause", "/resume", "/reset_prefix_cache":
	case "/collective_rpc":
		var in struct {
			Kwargs struct {
				Path string `json:"weights_path"`
			} `json:"kwargs"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			o.t.Error(err)
		}
		o.reload(r, in.Kwargs.Path)
	case "/update_weight_version":
		var in struct {
			Version string `json:"new_version"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			o.t.Error(err)
		}
		o.mu.Lock()
		o.version = in.Version
		o.mu.Unlock()
	case "/inference/v1/generate":
		o.generate(w, r)
	default:
		o.api.ServeHTTP(w, r)
	}
}

// reload reads the weights of a folder.
func (o *ownServer) reload(r *http.Request, dir string) {
	m, err := hf.Load(dir)
	if err != nil {
		o.t.Error(err)
		return
	}
	defer m.Close()
	var weights []model.Tensor
	for _, spec := range o.model.Tensors() {
		w, err := m.Tensor(spec.Name)
		if err != nil {
			o.t.Error(err)
		}
		weights = append(weights, w)
	}
	o.loads++
	if err := o.engine.LoadTensors(r.Context(), weights, o.loads); err != nil {
		o.t.Error(err)
	}
}

// generate has our server answer, and calls the version by the client's name for it.
func (o *ownServer) generate(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	o.api.ServeHTTP(rec, r)
	body := rec.Body.String()
	o.mu.Lock()
	defer o.mu.Unlock()
	for v := range o.loads + 1 {
		body = strings.ReplaceAll(body, `"version":"`+strconv.FormatInt(v, 10)+`"`, `"version":"`+o.version+`"`)
	}
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	w.WriteHeader(rec.Code)
	_, _ = w.Write([]byte(body)) // a client that left is none of our business
}

// TestOwnServer: the client of vLLM keeps its contract against our own server.
func TestOwnServer(t *testing.T) {
	m, store := network(true), memblob.New()
	tok, err := chat.TrainTokenizer(chat.Config{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.VocabSize = tok.VocabSize() // the server knows no others
	e, err := external.New(external.Config{
		Kind: config.EngineVLLM, URLs: []string{serveOwn(t, m, tok)}, Folder: t.TempDir(), MaxContext: m.MaxPositionEmbeddings, Vocab: m.VocabSize,
		Patience: time.Minute, Publisher: checkpoint.Exporter{Store: store},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	ref := stored(t, store, m, 1)
	for version := range int64(2) {
		ref = stored(t, store, m, uint64(version+1))
		if err := e.Load(t.Context(), ref, version); err != nil {
			t.Fatal(err)
		}
	}
	cutLate(t, e)
	conform(t, e, m, store, ref, 1e-5)
	measure(t, e, m, store, ref, 1e-5)
}
