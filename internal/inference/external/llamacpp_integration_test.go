//go:build integration

package external_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/inference/external"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// llamaPython is a Python with the package xllamacpp. The pipeline makes one and
// requires these tests.
func llamaPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("TEMPER_TEST_LLAMACPP")
	if python == "" {
		if os.Getenv("TEMPER_REQUIRE_LLAMACPP") != "" {
			t.Fatal("TEMPER_REQUIRE_LLAMACPP is set, but TEMPER_TEST_LLAMACPP names no Python with xllamacpp")
		}
		t.Skip("TEMPER_TEST_LLAMACPP names no Python with the package xllamacpp: no llama.cpp server here")
	}
	return python
}

func llama(t *testing.T, store blob.Store, m model.Config, folder string) *external.Engine {
	t.Helper()
	script, err := filepath.Abs("../../../tools/bench/enginebench/llamacpp.py")
	if err != nil {
		t.Fatal(err)
	}
	e, err := external.New(external.Config{
		Kind: config.EngineLlamaCpp, Folder: folder, MaxContext: m.MaxPositionEmbeddings, Vocab: m.VocabSize, Patience: time.Minute,
		Command:   []string{llamaPython(t), script, "--precise", "--model", "{model}", "--host", "{host}", "--port", "{port}", "--ctx-size", "4096"},
		Publisher: checkpoint.Exporter{Store: store},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestRealLlamaCpp keeps the contract of engines that force no draws, with a tied head
// and with one of its own, after a change of the policy.
func TestRealLlamaCpp(t *testing.T) {
	for name, tied := range map[string]bool{"tied": true, "untied": false} {
		t.Run(name, func(t *testing.T) {
			m, store := network(tied), memblob.New()
			e := llama(t, store, m, t.TempDir())
			var ref blob.Ref
			for version := range int64(2) {
				ref = stored(t, store, m, uint64(version+1))
				if err := e.Load(t.Context(), ref, version); err != nil {
					t.Fatal(err)
				}
			}
			cutLate(t, e)
			conform(t, e, m, store, ref, 5e-5)
			measure(t, e, m, store, ref, 1e-4)
		})
	}
}
