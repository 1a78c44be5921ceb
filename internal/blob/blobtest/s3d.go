package blobtest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// S3Server is a running S3 server and what a client needs to know of it. The
// account is in the environment of the test.
type S3Server struct {
	Endpoint string `json:"endpoint"` // URL
	Address  string `json:"address"`  // host:port
	Bucket   string `json:"bucket"`
	Region   string `json:"region"`
	CA       string `json:"ca"` // file of the certificate to trust, "" without TLS
}

// The account of the servers that StartS3 starts.
const (
	AccessKey = "temper-test"
	SecretKey = "temper-test-secret"
)

// StartS3 starts an S3 server as a child process on a new folder, ends it with the test,
// and puts its account into the environment.
func StartS3(t *testing.T, args ...string) S3Server {
	t.Helper()
	setAccount(t, AccessKey, SecretKey)
	cmd := exec.Command(s3dPath(t), append([]string{
		"--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--bucket", "temper-test", "--exit-with-parent",
	}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // nothing of the folder is needed any more
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no ready line of s3d: %v", err)
	}
	var server S3Server
	if err := json.Unmarshal(line, &server); err != nil {
		t.Fatalf("ready line %q: %v", line, err)
	}
	return server
}

// s3dPath finds the binary in the bin folder of this module.
func s3dPath(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
	path := filepath.Join(dir, "bin", "s3d")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: build it with ./task build:s3d", err)
	}
	return path
}
