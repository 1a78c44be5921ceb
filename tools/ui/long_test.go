package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestLongRun: of a run of more steps than a picture shows, the overview says that it is thinned,
// the cell with the one step that was best is the brightest, and the numbers are those of the
// newest step.
func TestLongRun(t *testing.T) {
	const steps, best = 5000, 3333
	home, ctx := dashboardOf(t, func(store string) { lengthen(t, store, steps, best) }), browser(t)
	for _, width := range []int64{1440, 360} {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 740)); err != nil {
			t.Fatal(err)
		}
		look(t, ctx, home+"/runs/demo", ".stepbar a.cell", fmt.Sprintf("long-%d", width))
		for what, condition := range map[string]string{
			"bars of times": `document.querySelectorAll("svg.bars rect").length > 100`,
			"charts":        `document.querySelectorAll(".charts .u-over").length >= 10`,
			"thinned":       `[...document.querySelectorAll("main p")].filter((p) => p.textContent.startsWith("Thinned: of 5,000 steps")).length >= 3`,
			"newest step":   `[...document.querySelectorAll(".tile")].some((e) => e.textContent.startsWith("reward0.53")) && document.querySelector(".tiles").textContent.includes("trajectories of step 5000")`,
			"all are made":  `document.querySelectorAll(".cell.none").length === 0`,
			"best step":     `(() => { const c = [...document.querySelectorAll("a.cell")].filter((e) => e.style.getPropertyValue("--heat") === "1"); return c.length === 1 && c[0].title.endsWith(" to 0.99") && Math.abs(Number(c[0].title.split(/[ -]/)[1]) - 3333) < 60; })()`,
			"cells are seen": `(() => { const b = document.querySelector(".stepbar").getBoundingClientRect(), c = [...document.querySelectorAll(".cell")].map((e) => e.getBoundingClientRect());
				return c.every((r) => r.width >= 0.5 && r.right <= b.right + 1); })()`,
		} {
			if _, err := await[bool](ctx, condition); err != nil {
				text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText.slice(0, 800)`))
				t.Fatalf("%d pixels, %s: %v\n%s", width, what, err, text)
			}
		}
		fits(t, ctx)
	}
}

// TestFilesFit: the pages that commands write as files are not wider than a narrow screen either.
func TestFilesFit(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	store, out := t.TempDir(), t.TempDir()
	if err := extract(filepath.Join(root, "testdata", "demo.tar.gz"), store); err != nil {
		t.Fatal(err)
	}
	lengthen(t, store, 60, 33)
	cmd := exec.Command(program(t, root), "export", "demo", "--format", "html", "--store", "file://"+store, "--home", t.TempDir(), "-o", filepath.Join(out, "demo.html"))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	ctx := browser(t)
	for name, page := range map[string]string{"analysis": filepath.Join(root, "..", "internal", "evaluate", "testdata", "page.html"), "report": filepath.Join(out, "demo.html")} {
		for _, width := range []int64{1440, 420, 360} {
			t.Run(fmt.Sprint(name, "/", width), func(t *testing.T) {
				if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 740)); err != nil {
					t.Fatal(err)
				}
				look(t, ctx, "file://"+page, "h1", fmt.Sprint("file-", name, "-", width))
			})
		}
	}
}

// lengthen gives the last stage of the run of the fixture so many steps that the run has that
// many, one of which has the best reward and takes the longest.
func lengthen(t *testing.T, store string, steps, best int) {
	t.Helper()
	dir := filepath.Join(store, "runs", "demo")
	replace := func(path string, pairs ...string) {
		t.Helper()
		data, err := os.ReadFile(path)
		for i := 0; i+1 < len(pairs); i += 2 {
			if err == nil && !bytes.Contains(data, []byte(pairs[i])) {
				err = fmt.Errorf("%s has no %s", path, pairs[i])
			}
			data = bytes.ReplaceAll(data, []byte(pairs[i]), []byte(pairs[i+1]))
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	last, err := os.ReadFile(filepath.Join(dir, "steps", "000007", "step.json"))
	if err != nil {
		t.Fatal(err)
	}
	for step := 8; step <= steps; step++ {
		path := filepath.Join(dir, "steps", fmt.Sprintf("%06d", step), "step.json")
		data := bytes.Replace(last, []byte(`"step": 7`), fmt.Appendf(nil, `"step": %d`, step), 1)
		if step == best {
			data = bytes.Replace(data, []byte(`"critic/rewards/mean": 0.53125`), []byte(`"critic/rewards/mean": 0.99`), 1)
		}
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	number := fmt.Sprint(steps - 5) // of the last stage, which begins with step 6
	replace(filepath.Join(dir, "plan.json"), `"first_step": 6,
      "steps": 2`, `"first_step": 6,
      "steps": `+number)
	replace(filepath.Join(store, "catalog", "demo.json"), `"step":7,"num_steps":7`, fmt.Sprintf(`"step":%d,"num_steps":%d`, steps, steps))
}
