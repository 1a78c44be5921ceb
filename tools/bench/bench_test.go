package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"temper/internal/cli"
	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/sandboxtest"
	"temper/tools/bench/loadgen"
)

// calculator serves the sandbox's interfaces with the answer 2.
func calculator(t *testing.T) string {
	t.Helper()
	handler := httpapi.NewHandler(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "2\n"}, nil
	}}, httpapi.Config{})
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func TestBenchSandboxAgainstAServer(t *testing.T) {
	url := calculator(t)
	program := filepath.Join(t.TempDir(), "p.py")
	if err := os.WriteFile(program, []byte("print(2)"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--api", "native"}, {"--api", "native-stream", "--cpu-of", strconv.Itoa(os.Getpid())}, {"--api", "batch", "--concurrency", "100"},
		{"--api", "native", "--program", program, "--want", "2"},
		{"--api", "native", "--rate", "500", "--duration", "200ms"},
	} {
		var out, errOut bytes.Buffer
		args := append([]string{"sandbox", "--url", url, "--calls", "150", "--json"}, args...)
		if code := execute(args, &out, &errOut); code != 0 {
			t.Errorf("%v: exit %d: %s", args, code, errOut.String())
			continue
		}
		var f loadgen.Figures
		if err := json.Unmarshal(out.Bytes(), &f); err != nil {
			t.Fatal(err)
		}
		if f.Failed != 0 || f.Calls < 50 || f.P99 <= 0 {
			t.Errorf("%v: %+v", args, f)
		}
	}
}

func TestBenchSandboxReportsNoAnswer(t *testing.T) {
	var out, errOut bytes.Buffer
	code := execute([]string{"sandbox", "--url", "http://127.0.0.1:1", "--api", "codejudge-run", "--calls", "3"}, &out, &errOut)
	if code != cli.ExitSystem || !strings.Contains(out.String(), "failed: 3 no_answer") || !strings.Contains(errOut.String(), "no call of 3") {
		t.Errorf("exit %d\n%s%s", code, out.String(), errOut.String())
	}
}

func TestBenchCompareAgainstServers(t *testing.T) {
	var out, errOut bytes.Buffer
	code := execute([]string{"compare", "--levels", "4,8", "--rounds", "2", "--min-calls", "20", "--programs", "trivial",
		"--service", "name=one,url=" + calculator(t) + ",api=native-stream,cpu=" + strconv.Itoa(os.Getpid()),
		"--service", "name=two,url=" + calculator(t) + ",api=native,cpu=" + strconv.Itoa(os.Getpid()),
	}, &out, &errOut)
	if code != 0 || strings.Count(out.String(), "| trivial |") != 4 || !strings.Contains(out.String(), "0 of 20") {
		t.Errorf("exit %d\n%s%s", code, out.String(), errOut.String())
	}
	if strings.Count(errOut.String(), "round 2") != 4 {
		t.Errorf("progress:\n%s", errOut.String())
	}
}

func TestBenchBadInput(t *testing.T) {
	url := calculator(t)
	for want, args := range map[string][]string{
		`interface "soap"`:   {"sandbox", "--url", url, "--api", "soap"},
		"one call at a time": {"sandbox", "--url", url, "--api", "batch", "--rate", "5"},
		"neither a process":  {"sandbox", "--url", url, "--cpu-of", "me"},
		`mix "nothing"`:      {"sandbox", "--url", url, "--mix", "nothing"},
		"no such file":       {"sandbox", "--url", url, "--program", "/nonexistent.py"},
		"at least 1":         {"sandbox", "--url", url, "--calls", "0"},
		"--rate needs --url": {"sandbox", "--rate", "5"},
		"--code is for":      {"sandbox", "--url", url, "--code", "1"},
		"at least two":       {"compare", "--service", "name=a,url=" + url + ",api=native"},
		`"who": want name`:   {"compare", "--service", "who=a", "--service", "who=b"},
		"name and api":       {"compare", "--service", "url=" + url, "--service", "url=" + url},
		"--nodes 0":          {"scale", "--nodes", "0"},
		`python "no-python"`: {"soak", "--python", "no-python"},
		"--calls is 3":       {"soak", "--calls", "3"},
		"--hostile 101":      {"overload", "--hostile", "101"},
		"--levels has 0":     {"overload", "--levels", "1,0"},
		`"s3d" is none of`:   {"chaos", "--victims", "s3d"},
	} {
		var out, errOut bytes.Buffer
		if code := execute(args, &out, &errOut); code != cli.ExitUser || !strings.Contains(errOut.String(), want) {
			t.Errorf("%v: exit %d, %s; want exit %d and %q", args, code, errOut.String(), cli.ExitUser, want)
		}
	}
}
