package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes the test binary act as the server, or as a parent that
// starts it, tells its process id and waits.
const roleVariable = "S3D_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "server":
		main()
		os.Exit(0)
	case "parent":
		cmd := exec.Command(os.Args[0], os.Args[1:]...)
		cmd.Env = append(os.Environ(), roleVariable+"=server")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		_ = cmd.Wait() // this process is killed before
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, accessKeyVariable+"=test", secretKeyVariable+"=test-secret")
	return cmd
}

// start starts a server and returns what it said when it was ready, and the rest of its output.
func start(t *testing.T, role string, args ...string) (*exec.Cmd, readyLine, *bufio.Reader) {
	t.Helper()
	cmd := command(role, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		_ = cmd.Wait()
	})
	out := bufio.NewReader(stdout)
	text, err := out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("no ready line: %v", err)
	}
	var line readyLine
	if err := json.Unmarshal(text, &line); err != nil {
		t.Fatalf("ready line %q: %v", text, err)
	}
	return cmd, line, out
}

func TestTheReadyLineIsTrueAndAlone(t *testing.T) {
	dir := t.TempDir()
	cmd, line, out := start(t, "server", "--dir", dir, "--listen", "127.0.0.1:0", "--bucket", "my-bucket")
	if !line.Ready || line.Bucket != "my-bucket" || line.Region != "us-east-1" || line.PID != cmd.Process.Pid || line.Endpoint != "http://"+line.Address {
		t.Errorf("ready line %+v", line)
	}
	if info, err := os.Stat(filepath.Join(dir, "buckets", "my-bucket")); err != nil || !info.IsDir() {
		t.Errorf("no bucket: %v", err)
	}
	resp, err := http.Get(line.Endpoint + healthPath)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // nothing is read
	resp, err = http.Get(line.Endpoint + "/my-bucket?list-type=2")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a listing without a signature answers %s", resp.Status)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("stdout goes on with %q (%v)", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM ends it with %v", err)
	}
}

func TestTLSIsServedWithTheNamedCertificate(t *testing.T) {
	_, line, _ := start(t, "server", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--tls")
	client, err := trusting(line.CA)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(line.Endpoint + healthPath)
	if err != nil || !strings.HasPrefix(line.Endpoint, "https://") {
		t.Fatalf("%s: %v", line.Endpoint, err)
	}
	_ = resp.Body.Close() // nothing is read
	if info, err := os.Stat(filepath.Join(filepath.Dir(line.CA), "key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key has the mode %v (%v), want 0600", info.Mode(), err)
	}
	_, given, _ := start(t, "server", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--tls-cert", line.CA, "--tls-key", filepath.Join(filepath.Dir(line.CA), "key.pem"))
	resp, err = client.Get(given.Endpoint + healthPath)
	if err != nil || given.CA != line.CA {
		t.Fatalf("with a certificate of somebody else's: %+v, %v", given, err)
	}
	_ = resp.Body.Close() // nothing is read
}

func TestMistakesEndWithOneLineAndTheirCode(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used := t.TempDir()
	start(t, "server", "--dir", used, "--listen", "127.0.0.1:0")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		args []string
		env  string
		code int
		want string
	}{
		"an unknown flag":       {args: []string{"--frob"}, code: 2, want: "-frob"},
		"an argument":           {args: []string{"x"}, code: 2, want: `unexpected argument "x"`},
		"no port":               {args: []string{"--listen", "127.0.0.1"}, code: 2, want: "is not IP:port"},
		"a host name":           {args: []string{"--listen", "localhost:0"}, code: 2, want: "is not IP:port"},
		"half of TLS":           {args: []string{"--tls-cert", "x"}, code: 2, want: "want --tls, or --tls-cert and --tls-key"},
		"TLS twice":             {args: []string{"--tls", "--tls-cert", "x", "--tls-key", "y"}, code: 2, want: "want --tls, or --tls-cert and --tls-key"},
		"a bad bucket":          {args: []string{"--bucket", "Up"}, code: 2, want: "3 to 63 lower-case"},
		"no account":            {env: secretKeyVariable + "=", code: 2, want: "set " + accessKeyVariable},
		"a port that is taken":  {args: []string{"--dir", t.TempDir(), "--listen", taken.Addr().String()}, code: 1, want: "address already in use"},
		"a folder that is used": {args: []string{"--dir", used, "--listen", "127.0.0.1:0"}, code: 1, want: "in use by another s3d"},
		"a file as folder":      {args: []string{"--dir", file, "--listen", "127.0.0.1:0"}, code: 1, want: "--dir: "},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command("server", row.args...)
			cmd.Env = append(cmd.Env, row.env)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // the exit code says it
			if got := cmd.ProcessState.ExitCode(); got != row.code {
				t.Errorf("exit code %d, want %d", got, row.code)
			}
			text := stderr.String()
			if waits, rest, ok := strings.Cut(text, "\n"); ok && strings.Contains(waits, "waiting up to 5s for another s3d to leave ") {
				text = rest // it says first for whom it waits
			}
			if !strings.HasPrefix(text, "s3d: ") || strings.Count(text, "\n") != 1 || !strings.Contains(text, row.want) {
				t.Errorf("stderr %q, want one line with %q", text, row.want)
			}
			if stdout.Len() > 0 || strings.Contains(text, "test-secret") {
				t.Errorf("stdout %q, stderr %q", stdout.String(), text)
			}
		})
	}
}

func TestItEndsWithItsParentAndFreesItsFolder(t *testing.T) {
	dir := t.TempDir()
	parent, line, _ := start(t, "parent", "--dir", dir, "--listen", "127.0.0.1:0", "--exit-with-parent")
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(line.PID) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server outlives its parent")
		}
	}
	start(t, "server", "--dir", dir, "--listen", line.Address)
}
