package main

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// The checker of accessibility is no part of the page and is not kept here: the test
// fetches it from the registry of packages, in the version and with the hash that are
// stated, and keeps it in the cache of the user.
const (
	axeVersion   = "4.14.1" // MPL-2.0
	axeIntegrity = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
	// axeKey makes a test fail that cannot fetch it.
	axeKey = "TEMPER_REQUIRE_AXE"
)

// axe is the checker's source.
func axe(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = t.TempDir()
	}
	archive := filepath.Join(dir, "temper-test", "axe-core-"+axeVersion+".tgz")
	data, err := os.ReadFile(archive)
	if err != nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var registry string
		if registry, err = registryAddress(); err == nil {
			data, err = fetch(ctx, registry+"/axe-core/-/axe-core-"+axeVersion+".tgz")
		}
		if err != nil {
			if os.Getenv(axeKey) != "" {
				t.Fatal(err)
			}
			t.Skipf("axe-core %s is not here and cannot be fetched: %v", axeVersion, err)
		}
	}
	have := sha512.Sum512(data)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(have[:]); got != axeIntegrity {
		t.Fatalf("%s has %s, want %s: remove it", archive, got, axeIntegrity)
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err == nil {
		_ = os.WriteFile(archive, data, 0o644) // else the next test fetches it again
	}
	files, err := unpack(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(files["package/axe.min.js"])
}

// breaches are what axe finds, one line each.
const breaches = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + " | " + n.failureSummary.replace(/\n/g, " ").slice(0, 300))))`

// TestAccessible: axe has nothing against any page, light and dark.
func TestAccessible(t *testing.T) {
	source, home, ctx := axe(t), dashboard(t), browser(t)
	problem := keptProblem(t, ctx, home)
	for _, theme := range []string{"light", "dark"} {
		if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`localStorage.setItem("temper.theme", %q)`, theme))); err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			t.Run(v.name+"/"+theme, func(t *testing.T) {
				look(t, ctx, home+strings.ReplaceAll(v.path, "PROBLEM", problem), v.see, "axe-"+v.name+"-"+theme)
				found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](source+";"+breaches, chromedp.EvalAwaitPromise))
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range found {
					t.Error(line)
				}
			})
		}
	}
}
