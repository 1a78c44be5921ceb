package ui

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that are made of the route table")

// TestGenerated: the description of the API and the types of the page are those of the
// route table.
func TestGenerated(t *testing.T) {
	description, err := openAPI()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"openapi.json": description, "src/api.ts": typeScript()} {
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is stale (%v): run go generate ./ui", name, err)
		}
	}
}

// TestDistIsFresh: the page was built of the sources and libraries that are here. The
// module tools/ui builds it again and compares every byte.
func TestDistIsFresh(t *testing.T) {
	data, err := os.ReadFile("dist/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, dir := range []string{"src", "vendor"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			sum := sha256.Sum256(data)
			have[filepath.ToSlash(path)] = hex.EncodeToString(sum[:])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("ui/dist is stale: run ./task ui:build. What it was built of is -, what is here is +\n%s", diff)
	}
}

// typeScript returns the types of all answers and bodies for the page.
func typeScript() []byte {
	t := newTypes()
	for _, r := range routes(&Server{}) {
		for _, of := range []reflect.Type{r.Answer, r.Body} {
			if of != nil {
				t.name(of)
			}
		}
	}
	var b strings.Builder
	b.WriteString("// Made of the route table by go generate ./ui; do not edit.\n\n")
	for _, name := range slices.Sorted(maps.Keys(t.script)) {
		b.WriteString(t.script[name])
	}
	return []byte(b.String())
}
