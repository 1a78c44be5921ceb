package runtest

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run/artifact"
)

// ReadLines decodes the JSON lines of a key.
func ReadLines[T any](t testing.TB, store blob.Store, key string) []T {
	t.Helper()
	data, err := blob.ReadKey(t.Context(), store, key)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
		var v T
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// Dump is the content of a store by key, without what holds times: the catalog and what
// is aside.
func Dump(t testing.TB, store blob.Store) map[string]string {
	t.Helper()
	infos, err := store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, info := range infos {
		if strings.HasPrefix(info.Key, artifact.CatalogRoot+"/") || artifact.Aside(info.Key) {
			continue
		}
		data, err := blob.ReadKey(t.Context(), store, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		out[info.Key] = string(data)
	}
	return out
}

// Durable is a dump without what depends on when and by whom it was written, and is
// not read as state: epochs and parents in manifests, the holder of the lease,
// announcements, notes of deletions, shards that no manifest names.
func Durable(t testing.TB, store blob.Store) map[string]string {
	t.Helper()
	all := Dump(t, store)
	var manifests strings.Builder
	for key, data := range all {
		if strings.HasSuffix(key, "/manifest.json") {
			all[key] = provenance.ReplaceAllString(data, "")
			manifests.WriteString(data)
		}
		if strings.HasSuffix(key, "/shards.json") {
			manifests.WriteString(data)
		}
		if strings.HasSuffix(key, "/head.json") {
			all[key] = lease.ReplaceAllString(data, "")
		}
	}
	for key := range all {
		if strings.Contains(key, "/pending/") || strings.Contains(key, "/retired/") || strings.HasPrefix(key, "cas/") && !strings.Contains(manifests.String(), key) {
			delete(all, key)
		}
	}
	return all
}

var (
	provenance = regexp.MustCompile(`(?s)"written": \{.*\}`)
	lease      = regexp.MustCompile(`(?s)"epoch": .*"step"|"sha256": "\w+",\s+"size": \d+`)
)

// Fill makes a store with the given content.
func Fill(t testing.TB, content map[string]string) *memblob.Store {
	t.Helper()
	store := memblob.New()
	for key, data := range content {
		Put(t, store, key, data)
	}
	return store
}

// Put stores a text under a key.
func Put(t testing.TB, store blob.Store, key, data string) {
	t.Helper()
	if _, err := blob.PutBytes(t.Context(), store, key, []byte(data), blob.Always); err != nil {
		t.Fatal(err)
	}
}
