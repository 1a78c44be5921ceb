package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// hostile is what a model may write.
const hostile = `<img src=x onerror="window.hit=1"></pre><script>window.hit=1</script> ` + "\x00\x1b[31mred\u202egnp.exe\u2066 [link](javascript:window.hit=1)"

// TestHostileTexts: what a model, a tool, a problem or a name says is text and nothing else.
func TestHostileTexts(t *testing.T) {
	home, ctx := dashboardOf(t, func(store string) {
		for _, pattern := range []string{"runs/demo/steps/000002/trajectories/*.jsonl", "runs/demo/data/*.jsonl", "runs/demo/events/*.json", "catalog/demo.json"} {
			paths, err := filepath.Glob(filepath.Join(store, pattern))
			if err != nil || len(paths) == 0 {
				t.Fatalf("%s: %v, %v", pattern, paths, err)
			}
			for _, path := range paths {
				poison(t, path)
			}
		}
	}), browser(t)
	heard := &complaints{home: home}
	if err := chromedp.Listen(ctx, heard.hear); err != nil {
		t.Fatal(err)
	}
	problem := keptProblem(t, ctx, home)
	for _, v := range views {
		look(t, ctx, home+strings.ReplaceAll(v.path, "PROBLEM", problem), v.see, "hostile-"+v.name)
		wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](`[window.hit && "a script ran", document.querySelector("main img,main script,main iframe,a[href^='javascript']") && "markup was made",
			/[\u0000\u001b\u202e\u2066]/.test(document.body.innerText) && "a control character is shown as it is"].filter(Boolean).join(", ")`))
		if err != nil || wrong != "" {
			t.Errorf("%s: %s %v", v.name, wrong, err)
		}
		for _, c := range heard.take() {
			t.Errorf("%s: %s", v.name, c)
		}
	}
	look(t, ctx, home+fmt.Sprintf("/runs/demo/steps/2/%s/1", problem), ".msg-policy pre", "hostile-trajectory")
	shown, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText`))
	if err != nil || !strings.Contains(shown, `\u{202e}`) || !strings.Contains(shown, "<img src=x onerror") {
		t.Errorf("the text is not shown with escapes (%v):\n%.500s", err, shown)
	}
}

// poison puts hostile text into each text of the lines of a file that is shown and names
// nothing.
func poison(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(poisoned(v))
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, out.Bytes(), 0o644)
	}
	if err == nil {
		err = os.Chtimes(path, info.ModTime(), info.ModTime())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func poisoned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if _, isText := inner.(string); isText {
				switch key {
				case "text", "answer", "response", "arguments", "prompt", "reason", "name", "reward_details", "err":
					v[key] = hostile
				}
				continue
			}
			v[key] = poisoned(inner)
		}
	case []any:
		for i := range v {
			v[i] = poisoned(v[i])
		}
	}
	return v
}
