package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// binKey names the program, shotsKey a folder for pictures of all pages.
const (
	binKey   = "TEMPER_BIN"
	shotsKey = "TEMPER_UI_SHOTS"
)

// TestDistIsBuiltOfItsSources: the committed page is, byte for byte, what its sources give.
func TestDistIsBuiltOfItsSources(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	want, err := bundle(root)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(root, "dist"))
	if err != nil || len(entries) != len(want) {
		t.Errorf("ui/dist has %d files, want %d (%v): run ./task ui:build", len(entries), len(want), err)
	}
	for name, data := range want {
		have, err := os.ReadFile(filepath.Join(root, "dist", name))
		if err != nil || string(have) != string(data) {
			t.Errorf("ui/dist/%s differs from what its sources give (%v): run ./task ui:build", name, err)
		}
	}
}

// browser is a Chromium of its own; the machine must have one.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		if os.Getenv("TEMPER_REQUIRE_CHROMIUM") != "" {
			t.Fatal("no Chromium is installed")
		}
		t.Skip("no Chromium is installed")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1440, 900))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// dashboard serves the runs of the fixture and returns its address.
func dashboard(t *testing.T) string { return dashboardOf(t, func(string) {}) }

// dashboardOf is dashboard with a store that was changed before.
func dashboardOf(t *testing.T, change func(store string)) string {
	t.Helper()
	return dashboardWith(t, change, "--read-only")
}

// dashboardWith is dashboardOf with flags.
func dashboardWith(t *testing.T, change func(store string), flags ...string) string {
	t.Helper()
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	store := t.TempDir()
	if err := extract(filepath.Join(root, "testdata", "demo.tar.gz"), store); err != nil {
		t.Fatal(err)
	}
	change(store)
	cmd := exec.Command(program(t, root), append([]string{"role", "ui", "--store", "file://" + store, "--home", t.TempDir(), "--listen", "127.0.0.1:0"}, flags...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	var ready struct {
		URL string `json:"url"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ready.URL
}

// program is the path of temper.
func program(t *testing.T, root string) string {
	t.Helper()
	bin := os.Getenv(binKey)
	if bin == "" {
		bin = filepath.Join(root, "..", "bin", "temper")
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%s is not built: run ./task build:temper, or name a program with %s", bin, binKey)
	}
	return bin
}

// extract unpacks an archive into a folder.
func extract(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = errors.Join(os.WriteFile(path, data, 0o644), os.Chtimes(path, h.ModTime, h.ModTime)) // the time line needs them
			}
		}
		if err != nil {
			return err
		}
	}
}

// complaints are what a browser has against a page: errors, breaches of its policy, and
// requests that leave it.
type complaints struct {
	mu   sync.Mutex
	home string
	all  []string
}

func (c *complaints) hear(ev any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		c.all = append(c.all, "exception: "+exceptionText(ev.ExceptionDetails))
	case *cdplog.EventEntryAdded:
		if ev.Entry.Level == cdplog.EntryLevelError {
			c.all = append(c.all, "log: "+ev.Entry.Text+" "+ev.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if u := ev.Request.URL; !strings.HasPrefix(u, c.home) && !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") {
			c.all = append(c.all, "a request leaves the origin: "+u)
		}
	}
}

func exceptionText(d *runtime.ExceptionDetails) string {
	if d.Exception != nil && d.Exception.Description != "" {
		return d.Exception.Description
	}
	return d.Text
}

func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.all
	c.all = nil
	return out
}

// views are the pages with what must be seen on each.
var views = []struct{ name, path, see string }{
	{"runs", "/", "table.runs td.name a"},
	{"run", "/runs/demo", ".tiles .tile b"},
	{"metrics", "/runs/demo/metrics?q=reward|entropy&smooth=0.6", ".chart .u-over"},
	{"overlay", "/runs/demo/metrics?q=reward&with=seed-2", ".chart .u-over"},
	{"step", "/runs/demo/steps/2", ".grid-row span a"},
	{"groups", "/runs/demo/steps/2?show=groups", "tbody td a"},
	{"group", "/runs/demo/steps/2/PROBLEM", ".rollout .why"},
	{"columns", "/runs/demo/steps/2/PROBLEM?view=columns", ".rollout .why"},
	{"trajectory", "/runs/demo/steps/2/PROBLEM/1", ".msg-policy pre"},
	{"tokens", "/runs/demo/steps/2/PROBLEM/1?tab=tokens", ".tokens .tok"},
	{"raw", "/runs/demo/steps/2/PROBLEM/1?tab=raw", ".text pre"},
	{"timeline", "/runs/demo/timeline", ".lane-track .span"},
	{"checkpoints", "/runs/demo/checkpoints", "tbody td"},
	{"config", "/runs/demo/config?diff=seed-2", ".config td"},
	{"alerts", "/runs/demo/alerts", "main h2"},
	{"compare", "/compare?runs=demo,seed-2", ".chart .u-over"},
	{"time", "/runs/demo/steps/2/PROBLEM/1?tab=time", "main .tabs"},
	{"search", "/runs/demo/search?filter=failed_calls%3E0", "tbody td a"},
	{"band", "/runs/demo/metrics?q=reward&band=1", ".chart .u-over"},
	{"problem", "/compare?runs=demo,seed-2&step=2&problem=PROBLEM", "section:last-of-type tbody td"},
	{"services", "/services", ".note"},
	{"schedules", "/schedules", ".note"},
	{"allalerts", "/alerts", "main p"},
	{"forks", "/forks", ".empty pre"},
	{"evaluation", "/runs/demo/evals/1-after-3", ".grid-row span a"},
	{"bytext", "/runs/demo/search?by=text&text=print", ".hits li a"},
	{"licences", "/licences", "main h1"},
	{"api", "/api-page", "tbody td.mono"},
	{"nowhere", "/there/is/nothing", ".note-bad"},
}

// visible is true when the middle of the first element of a selector, scrolled into view,
// belongs to it: a test of the DOM alone passes where nothing can be seen.
const visible = `(() => {
	const e = document.querySelector(%q);
	if (!e || document.querySelector(".loading")) return false;
	e.scrollIntoView({block: "center", inline: "nearest"});
	const r = e.getBoundingClientRect();
	if (r.width < 1 || r.height < 1) return false;
	const at = document.elementFromPoint(Math.min(r.x + Math.min(r.width, innerWidth - r.x) / 2, innerWidth - 2), r.y + r.height / 2);
	return at !== null && (e === at || e.contains(at) || at.contains(e) && at.tagName !== "MAIN" && at.tagName !== "BODY" && at.tagName !== "HTML");
})()`

// wait is how long a page may take on a machine that does other things.
const wait = 2 * time.Minute

// TestPages opens every page, light and dark, wide and narrow: what matters is seen,
// nothing is wider than the screen, and no request leaves the origin.
func TestPages(t *testing.T) {
	home, ctx := dashboard(t), browser(t)
	heard := &complaints{home: home}
	if err := chromedp.Listen(ctx, heard.hear); err != nil {
		t.Fatal(err)
	}
	problem := keptProblem(t, ctx, home)
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"wide", 1440, 900}, {"narrow", 360, 740}} {
		for _, theme := range []string{"light", "dark"} {
			if err := chromedp.Do(ctx, chromedp.EmulateViewport(size.width, size.height), chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`localStorage.setItem("temper.theme", %q)`, theme))); err != nil {
				t.Fatal(err)
			}
			for _, v := range views {
				t.Run(v.name+"/"+size.name+"/"+theme, func(t *testing.T) {
					look(t, ctx, home+strings.ReplaceAll(v.path, "PROBLEM", problem), v.see, v.name+"-"+size.name+"-"+theme)
					for _, c := range heard.take() {
						t.Error(c)
					}
				})
			}
		}
	}
}

// await evaluates a condition until it gives more than the zero value. A page that is
// left in between is no failure: the next page is asked.
func await[T comparable](ctx context.Context, condition string) (T, error) {
	var nothing T
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		got, err := chromedp.Run(ctx, chromedp.Evaluate[T](condition))
		if err == nil && got != nothing {
			return got, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return nothing, errors.Join(fmt.Errorf("not within %s: %s", wait, condition), err)
		}
	}
}

// keptProblem is a problem of a step that was kept.
func keptProblem(t *testing.T, ctx context.Context, home string) string {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Navigate(home+"/runs/demo/steps/2")); err != nil {
		t.Fatal(err)
	}
	problem, err := await[string](ctx, `(document.querySelector("a.group-kept") ?? {title: ""}).title.split(":")[0]`)
	if err != nil {
		t.Fatal(err)
	}
	return problem
}

// look opens a page and waits until what must be seen is seen.
func look(t *testing.T, ctx context.Context, address, see, name string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatal(err)
	}
	_, err := await[bool](ctx, fmt.Sprintf(visible, see))
	shoot(t, ctx, name)
	if err != nil {
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 600)`))
		t.Fatalf("%s is not seen: %v\n%s", see, err, text)
	}
	if wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](blemishes)); err != nil || wrong != "" {
		t.Errorf("%s (%v)", wrong, err)
	}
	fits(t, ctx)
}

// blemishes are what spoils the look of a page: a number over two lines, parts of a page that touch, and a link to
// the page that is shown out of sight.
const blemishes = `(() => {
	const out = [], box = (e) => e.getBoundingClientRect();
	for (const e of document.querySelectorAll("td.right, th.right")) {
		let tops = [];
		for (const texts = document.createTreeWalker(e, NodeFilter.SHOW_TEXT); texts.nextNode(); ) {
			const r = document.createRange();
			r.selectNodeContents(texts.currentNode);
			tops = tops.concat([...r.getClientRects()].filter((x) => x.width > 0).map((x) => x.top));
		}
		if (Math.max(...tops) - Math.min(...tops) > 8 && e.textContent.length < 20) out.push("the number " + e.textContent + " is broken");
	}
	const cards = [...document.querySelectorAll("main .scroll, main .chart, main .charts, main .conversation")].filter((e) => box(e).height > 0);
	for (const a of cards) for (const b of cards) {
		const gap = box(b).top - box(a).bottom;
		if (a !== b && !a.contains(b) && gap >= 0 && gap < 4 && box(a).left < box(b).right && box(b).left < box(a).right) out.push(a.className + " touches " + b.className);
	}
	for (const e of document.querySelectorAll(".lane-track > *")) if (box(e).right > box(e.parentElement).right + 1) out.push("a bar leaves its lane");
	const here = document.querySelector(".rail a.here");
	if (here && (box(here).left < 0 || box(here).right > innerWidth)) out.push("the link to the page, " + here.textContent + ", is out of sight");
	return [...new Set(out)].join("; ");
})()`

// narrowest is the width of the smallest screen on which no page scrolls sideways.
const narrowest = 320

// fits tests that the page is no wider than the screen, and where that is narrow, than the narrowest.
func fits(t *testing.T, ctx context.Context) {
	t.Helper()
	over := func() (int, error) {
		n := 0
		for range 20 { // a picture follows the width a moment later
			var err error
			if n, err = chromedp.Run(ctx, chromedp.Evaluate[int](`document.documentElement.scrollWidth - innerWidth`)); err != nil || n <= 0 {
				return n, err
			}
			time.Sleep(50 * time.Millisecond)
		}
		return n, nil
	}
	width, err := chromedp.Run(ctx, chromedp.Evaluate[int64](`innerWidth`))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := over(); err != nil || n > 0 {
		t.Errorf("the page is %d pixels wider than the screen of %d (%v)", n, width, err)
	}
	if width > 500 {
		return
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(narrowest, 740)); err != nil {
		t.Fatal(err)
	}
	if n, err := over(); err != nil || n > 0 {
		t.Errorf("the page is %d pixels wider than the screen of %d (%v)", n, narrowest, err)
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 740)); err != nil {
		t.Fatal(err)
	}
}

// shoot stores a picture, where somebody wants to look at it.
func shoot(t *testing.T, ctx context.Context, name string) {
	dir := os.Getenv(shotsKey)
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestKeyboard walks from the list to a trajectory and back without a pointer.
func TestKeyboard(t *testing.T) {
	home, ctx := dashboard(t), browser(t)
	at := func(what, condition string) {
		t.Helper()
		if _, err := await[bool](ctx, condition); err != nil {
			where, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location.pathname + location.search`))
			t.Fatalf("%s: %v, at %s", what, err, where)
		}
	}
	keys := func(text string) {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.KeyEvent(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(home+"/runs/demo")); err != nil {
		t.Fatal(err)
	}
	at("run", `document.querySelectorAll(".rail a").length > 4 && !!document.querySelector(".tile") && !!document.querySelector(".picker")`)
	keys("gs")
	at("newest step", `location.pathname === "/runs/demo/steps/7" && !!document.querySelector(".grid-row")`)
	keys("[")
	at("step before", `location.pathname === "/runs/demo/steps/6" && !!document.querySelector(".grid-row")`)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector(".grid").focus()`)); err != nil {
		t.Fatal(err)
	}
	keys("jj")
	at("third row", `document.querySelector(".grid-row.here")?.getAttribute("aria-rowindex") === "4"`)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll(".grid button.head")].find((b) => b.textContent.startsWith("tokens")).focus()`)); err != nil {
		t.Fatal(err)
	}
	keys("\r")
	at("sorted", `location.pathname === "/runs/demo/steps/6" && location.search === "?sort=response_tokens"`)
	// A bar of a histogram shows as many rows as it counts.
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`{ const b = [...document.querySelectorAll(".hist")[1].querySelectorAll("button.bar:not(:disabled)")][0]; window.counted = b.title.split(": ")[1]; b.click(); }`)); err != nil {
		t.Fatal(err)
	}
	at("rows of a bar", `location.search.includes("turns=") && [...document.querySelectorAll(".bar > .dim")].some((e) => e.textContent.startsWith(window.counted + " of "))`)
	if err := chromedp.Do(ctx, chromedp.Navigate(home+"/runs/demo/steps/6")); err != nil {
		t.Fatal(err)
	}
	at("all rows", `!!document.querySelector(".grid-row")`)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector(".grid").focus()`)); err != nil {
		t.Fatal(err)
	}
	keys("jj")
	at("third row again", `document.querySelector(".grid-row.here")?.getAttribute("aria-rowindex") === "4"`)
	keys("\r")
	at("trajectory", `/\/steps\/6\/[^/]+\/2$/.test(location.pathname) && !!document.querySelector(".msg-policy")`)
	keys("t")
	at("tokens", `location.search === "?tab=tokens" && !!document.querySelector(".tok")`)
	keys("k")
	at("rollout before", `/\/steps\/6\/[^/]+\/1$/.test(location.pathname)`)
	keys("?")
	at("help", `!!document.querySelector(".help")`)
	keys(".")
	at("dark", `document.documentElement.dataset.theme === "dark"`)
	keys("gv")
	at("services", `location.pathname === "/services" && !!document.querySelector(".note")`)
	keys("gr")
	at("runs", `location.pathname === "/" && !!document.querySelector("table.runs a")`)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector("table.runs td a[href='/runs/demo']").focus()`)); err != nil {
		t.Fatal(err)
	}
	keys("\r")
	at("run again", `location.pathname === "/runs/demo" && !!document.querySelector(".tile")`)
	keys("gf")
	at("search", `location.pathname === "/runs/demo/search" && !!document.querySelector("#search")`)
	keys("/")
	at("field", `document.activeElement.id === "search"`)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`)); err != nil { // chromedp types a key that the page has taken
		t.Fatal(err)
	}
	keys("failed_calls>0\r")
	at("found", `location.search.includes("failed_calls") && document.querySelectorAll("tbody tr").length > 0`)
	keys("\x1b")
	keys("p")
	at("drawer", `document.activeElement === document.querySelector(".drawer select") || !!document.querySelector(".drawer .note")`)
	keys("\x1b")
	at("no drawer", `!document.querySelector(".drawer")`)
	keys("gm")
	at("series", `location.pathname === "/runs/demo/metrics" && !!document.querySelector("#search")`)
	keys("/")
	at("search", `document.activeElement.id === "search"`)
	keys("reward")
	at("filtered", `location.search.includes("reward") && document.querySelectorAll(".chart").length > 0 && [...document.querySelectorAll(".chart-title")].every((e) => e.textContent.includes("reward"))`)
}
