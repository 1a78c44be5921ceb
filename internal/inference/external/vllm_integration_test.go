//go:build integration

package external_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/inference/external"
	"temper/internal/proc"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// startVLLM starts a vLLM server on the CPU with a policy and returns its URL.
// TEMPER_TEST_VLLM is a Python with the package, or the URL of a server that was
// started with the options below and a model of the same shape.
func startVLLM(t *testing.T, store blob.Store, ref blob.Ref) string {
	t.Helper()
	python := os.Getenv("TEMPER_TEST_VLLM")
	if python == "" {
		t.Skip("TEMPER_TEST_VLLM names neither a Python with vLLM nor the URL of a server")
	}
	if strings.HasPrefix(python, "http") {
		return python
	}
	dir := filepath.Join(t.TempDir(), "first")
	if err := (checkpoint.Exporter{Store: store}).Write(t.Context(), ref, dir); err != nil {
		t.Fatal(err)
	}
	addresses, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(addresses[0], ":")
	log := filepath.Join(t.TempDir(), "vllm.log")
	s, err := proc.New(proc.Config{
		Children: []proc.Child{{
			Name: "vllm", Path: python, LogFile: log, StopTimeout: 10 * time.Second, Ready: accepts(addresses[0]),
			Args: strings.Fields("-m vllm.entrypoints.cli.main serve " + dir + " --host 127.0.0.1 --port " + port + " --dtype float32 --enforce-eager " +
				"--max-model-len 256 --tokens-only --skip-tokenizer-init --logprobs-mode processed_logprobs"),
			Env: append(os.Environ(), "VLLM_SERVER_DEV_MODE=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "HF_HUB_OFFLINE=1"),
		}},
		StartTimeout: 10 * time.Minute, MaxStarts: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		text, _ := os.ReadFile(log)
		t.Fatalf("%v\n%s", err, text)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()); http.DefaultClient.CloseIdleConnections() })
	return "http://" + addresses[0]
}

func vllmEngine(t *testing.T, store blob.Store, m model.Config, url string) *external.Engine {
	t.Helper()
	e, err := external.New(external.Config{
		Kind: config.EngineVLLM, URLs: []string{url}, Folder: t.TempDir(), MaxContext: m.MaxPositionEmbeddings, Vocab: m.VocabSize, Patience: time.Minute,
		Publisher: checkpoint.Exporter{Store: store},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestRealVLLM replaces the policy between generations, and keeps the contract.
func TestRealVLLM(t *testing.T) {
	m, store := network(false), memblob.New()
	e := vllmEngine(t, store, m, startVLLM(t, store, stored(t, store, m, 1)))
	var ref blob.Ref
	for version := range int64(3) {
		ref = stored(t, store, m, uint64(version+1))
		if err := e.Load(t.Context(), ref, version); err != nil {
			t.Fatal(err)
		}
	}
	cutLate(t, e)
	conform(t, e, m, store, ref, 1e-5)
	measure(t, e, m, store, ref, 1e-5)
}

// TestRealVLLMWithATiedHead: it keeps the output head of the policy that it was started
// with, under the new label, and is refused.
func TestRealVLLMWithATiedHead(t *testing.T) {
	if strings.HasPrefix(os.Getenv("TEMPER_TEST_VLLM"), "http") {
		t.Skip("the server at TEMPER_TEST_VLLM has an untied head")
	}
	m, store := network(true), memblob.New()
	first := stored(t, store, m, 1)
	e := vllmEngine(t, store, m, startVLLM(t, store, first))
	if err := e.Load(t.Context(), first, 0); err != nil {
		t.Fatal(err)
	}
	err := e.Load(t.Context(), stored(t, store, m, 2), 1)
	if err == nil || !strings.Contains(err.Error(), "computes another policy than version 1") {
		t.Fatalf("error %v, want the refusal", err)
	}
	t.Log(err)
	if e.Version() != -1 {
		t.Errorf("version %d is served after the refusal", e.Version())
	}
}

// accepts is a Child.Ready: something accepts TCP connections on addr.
func accepts(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
