package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// requireKey makes a missing Postgres a failure instead of a skip.
const requireKey = "TEMPER_REQUIRE_POSTGRES"

// postgresBin is the folder of Postgres's own programs, as Debian installs them.
func postgresBin(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		if os.Getenv(requireKey) != "" {
			t.Fatal("no initdb: install the package postgresql")
		}
		t.Skip("no initdb: install the package postgresql")
	}
	return filepath.Dir(slices.Max(found))
}

// database is a Postgres of the test on a port of its own.
type database struct {
	t         *testing.T
	bin, data string
	port      string
	cmd       *exec.Cmd
}

// superuser is the administrator of the Postgres of a test, and owner is who makes
// databases in it.
const (
	superuser = "temper"
	secret    = "p@ss word/1"
)

// newDatabase makes a cluster of databases that wants a password, and starts it.
func newDatabase(t *testing.T) *database {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg-") //nolint:usetesting // another user must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // of the system's temporary folder
	d := &database{t: t, bin: postgresBin(t), data: filepath.Join(dir, "data"), port: port(t)}
	words := filepath.Join(dir, "password")
	if err := os.WriteFile(words, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		for _, path := range []string{dir, words} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := d.program("initdb", "--pgdata", d.data, "--username", superuser, "--pwfile", words, "--auth", "scram-sha-256", "--no-sync", "--encoding", "UTF8", "--locale", "C").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	d.start()
	return d
}

// nobody owns the processes where the test is root, which Postgres refuses to be.
const nobody = 65534

func (d *database) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(d.bin, name), args...)
	cmd.Dir = filepath.Dir(d.data)
	cmd.Env = append(os.Environ(), passwordKey+"="+secret)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd
}

func (d *database) start() {
	d.t.Helper()
	d.cmd = d.program("postgres", "-D", d.data, "-p", d.port, "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off")
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	cmd := d.cmd
	d.t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGQUIT); _ = cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, err := d.program("pg_isready", "-h", "127.0.0.1", "-p", d.port).CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("Postgres does not answer: %v %s", err, out)
		}
	}
}

func (d *database) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait() // its exit status is of no interest
}

func (d *database) url(user string) string {
	return "postgres://" + user + "@127.0.0.1:" + d.port + "/temporal?sslmode=disable"
}

func (d *database) sql(statement string) {
	d.t.Helper()
	if out, err := d.program("psql", "-h", "127.0.0.1", "-p", d.port, "-U", superuser, "-d", "postgres", "-c", statement).CombinedOutput(); err != nil {
		d.t.Fatalf("%s: %v %s", statement, err, out)
	}
}

// twice waits for a signal between two activities, so that a server can be replaced
// under it.
func twice(ctx workflow.Context) (int, error) {
	var n int
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, &n)
	return 2 * n, nil
}

// startTwice starts the workflow, and endTwice lets a worker on one frontend end it.
func startTwice(t *testing.T, c client.Client, id string) {
	t.Helper()
	if _, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "twice"}, twice); err != nil {
		t.Fatal(err)
	}
}

func endTwice(t *testing.T, c client.Client, id string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	w := worker.New(c, "twice", worker.Options{})
	w.RegisterWorkflow(twice)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := c.SignalWorkflow(ctx, id, "", "go", n); err != nil {
		t.Fatal(err)
	}
	var got int
	if err := c.GetWorkflow(ctx, id, "").Get(ctx, &got); err != nil || got != 2*n {
		t.Fatalf("workflow %s = %d, %v; want %d", id, got, err, 2*n)
	}
}

// TestPostgres goes the whole way of a server on Postgres: from nothing, a second
// server on the same databases, kill -9 of the first with a workflow in flight,
// which ends on the other, a restart, and Postgres itself away for a while.
func TestPostgres(t *testing.T) {
	t.Setenv(passwordKey, secret)
	pg := newDatabase(t)
	args := func(more ...string) []string {
		return append([]string{"--postgres", pg.url(superuser), "--ui-port", "0", "--port", port(t)}, more...)
	}
	first := start(t, "server", args("--retention", "48h")...)
	if want := "postgres://temper@127.0.0.1:" + pg.port + "/temporal"; first.ready.DB != want {
		t.Errorf("the ready line says db %q, want %q", first.ready.DB, want)
	}
	c1 := dial(t, first.ready.Address)
	runDouble(t, c1, "before", 21)
	startTwice(t, c1, "in-flight")

	second := start(t, "server", args("--retention", "48h")...)
	t.Logf("first start %d ms, second server %d ms", first.ready.StartMS, second.ready.StartMS)
	c2 := dial(t, second.ready.Address)
	runDouble(t, c2, "on-second", 3)
	runDouble(t, c1, "on-first", 4)

	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // killed
	killed := time.Now()
	endTwice(t, c2, "in-flight", 5)
	t.Logf("the second server ends the workflow of a killed one after %.1f s", time.Since(killed).Seconds())

	third := start(t, "server", args("--retention", "72h")...)
	t.Logf("restart after kill -9: %d ms", third.ready.StartMS)
	c3 := dial(t, third.ready.Address)
	ns, err := c3.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
	if err != nil || ns.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration() != 72*time.Hour {
		t.Errorf("retention after a restart with 72h: %v, %v", ns.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), err)
	}
	for _, id := range []string{"before", "on-second", "on-first", "in-flight"} {
		var got int
		if err := c3.GetWorkflow(t.Context(), id, "").Get(t.Context(), &got); err != nil {
			t.Errorf("workflow %s after two kills: %v", id, err)
		}
	}

	startTwice(t, c3, "through-the-outage")
	pg.stop()
	time.Sleep(watchEvery)
	pg.start()
	endTwice(t, c3, "through-the-outage", 7)
	for _, p := range []*process{second, third} {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("stop by SIGTERM: %v, want exit 0", err)
		}
	}
}

// TestPostgresRefusals: each is one line that says what to do, without the password.
func TestPostgresRefusals(t *testing.T) {
	pg := newDatabase(t)
	pg.sql("CREATE ROLE plain LOGIN PASSWORD '" + secret + "'")
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobodyThere := mute.Addr().(*net.TCPAddr).Port
	if err := mute.Close(); err != nil {
		t.Fatal(err)
	}
	at := "127.0.0.1:" + pg.port
	for _, c := range []struct {
		name, url, password string
		exit                int
		want                string
	}{
		{"away", "postgres://temper@127.0.0.1:" + strconv.Itoa(nobodyThere) + "/temporal", secret, 1, "does not answer (connect: connection refused): start Postgres, or name another"},
		{"wrong password", pg.url(superuser), "other", 1, `refuses user temper: password authentication failed for user "temper"; put the password into PGPASSWORD`},
		{"no right to make databases", pg.url("plain"), secret, 1, `permission denied to create database; as its administrator: CREATE DATABASE "temporal" OWNER "plain"`},
		{"without TLS", "postgres://temper@" + at + "/temporal?sslmode=require", secret, 1, "TLS"},
		{"password in the URL", "postgres://temper:hush@" + at + "/temporal", "", 2, "holds a password, which everybody on the machine can read: put it into PGPASSWORD"},
		{"another scheme", "mysql://temper@" + at + "/temporal", secret, 2, `the scheme is "mysql"; want postgres://`},
		{"no database", "postgres://temper@" + at, secret, 2, `the database is ""; want postgres://`},
		{"no user", "postgres://" + at + "/temporal", secret, 2, "names no host or no user"},
		{"no URL", "postgres://temper@[/temporal", secret, 2, "want postgres://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(passwordKey, c.password)
			exit, out := refuse(t, "--postgres", c.url, "--port", port(t), "--ui-port", "0")
			if exit != c.exit || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 || strings.Contains(out, secret) || strings.Contains(out, "hush") {
				t.Errorf("exit %d, output %q; want exit %d and one line with %q", exit, out, c.exit, c.want)
			}
		})
	}
	if exit, out := refuse(t, "--postgres", pg.url(superuser), "--db", "x.db"); exit != 2 || !strings.Contains(out, "--db and --postgres are two places") {
		t.Errorf("exit %d, output %q", exit, out)
	}
	if exit, out := refuse(t, "--postgres", pg.url(superuser), "--ip", "0.0.0.0"); exit != 2 || !strings.Contains(out, "want the address of this machine") {
		t.Errorf("exit %d, output %q", exit, out)
	}
}
