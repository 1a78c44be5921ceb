package external_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"temper/internal/config"
	"temper/internal/inference/external"
	"temper/internal/inference/external/fakes"
	"temper/internal/inference/inferencetest"
)

const (
	vocab      = 64
	maxContext = 96
)

// TestMain is the fake of llama.cpp where a test starts it as a process.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "fake-llamacpp" {
		s := &fakes.Server{MaxContext: maxContext, ModelFile: os.Args[2]}
		handler, err := s.LlamaCpp()
		if err == nil {
			err = http.ListenAndServe(net.JoinHostPort("127.0.0.1", os.Args[3]), handler) //nolint:gosec // it lives as long as a test
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bed is an engine over a fake.
type bed struct {
	*external.Engine
	kind   string
	folder string
	server *fakes.Server // nil for llama.cpp, which runs in another process
	cfg    external.Config
}

func newBed(t *testing.T, kind string, patience time.Duration) *bed {
	t.Helper()
	b := &bed{kind: kind, folder: t.TempDir()}
	b.cfg = external.Config{
		Kind: kind, Folder: b.folder, MaxContext: maxContext, Vocab: vocab, Patience: patience, Publisher: fakes.Publisher{Vocab: vocab}, Key: "secret",
	}
	if kind == config.EngineLlamaCpp {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		b.cfg.Command = []string{self, "fake-llamacpp", "{model}", "{port}"}
	} else {
		b.server = &fakes.Server{MaxContext: maxContext, Vocab: vocab, Key: "secret"}
		handler := b.server.VLLM()
		if kind == config.EngineSGLang {
			handler = b.server.SGLang()
		}
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		s.Config.ErrorLog = nil
		b.cfg.URLs = []string{s.URL}
	}
	var err error
	if b.Engine, err = external.New(b.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// fail gives the server faults.
func (b *bed) fail(t *testing.T, f fakes.Faults) {
	t.Helper()
	if b.server != nil {
		b.server.Fail(f)
		return
	}
	if err := fakes.PutFaults(b.folder, f); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) load(t *testing.T, version int64) {
	t.Helper()
	if err := b.Load(t.Context(), fakes.Ref(version+1), version); err != nil {
		t.Fatal(err)
	}
}

func kinds() []string { return []string{config.EngineVLLM, config.EngineSGLang, config.EngineLlamaCpp} }

// TestFakesKeepTheContract runs the second level of the suite behind a change of the
// policy.
func TestFakesKeepTheContract(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t, kind, 5*time.Second)
			b.load(t, 0)
			b.load(t, 1)
			inferencetest.RunExternal(t, func(*testing.T) inferencetest.External {
				return inferencetest.External{
					Engine: b, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: vocab, Tolerance: 1e-5,
					Logprobs: func(ids []int32, from int, temperature float32) ([]float32, error) {
						dir := filepath.Join(b.folder, fmt.Sprintf("policy-%06d-%.12s", 1, fakes.Ref(2).SHA256))
						return fakes.Publisher{Vocab: vocab}.Logprobs(t.Context(), dir, ids, from, temperature)
					},
				}
			})
			if b.server != nil && b.server.Dead() {
				t.Error("a token id beyond the vocabulary reached the server")
			}
		})
	}
}
