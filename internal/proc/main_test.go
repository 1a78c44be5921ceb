package proc_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"temper/internal/proc"
)

// roleEnv makes the test binary act as a child, or as a supervisor to be killed.
const roleEnv = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		act(role, os.Args[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// act is what the test's children do.
func act(role string, args []string) {
	fmt.Println("start", role)
	switch role {
	case "serve": // journal name address: up until SIGTERM
		serve(args[0], args[1], args[2])
	case "crash":
		fmt.Println("last words")
		os.Exit(3)
	case "idle":
		time.Sleep(time.Minute)
	case "stubborn": // address: ignores SIGTERM
		signal.Ignore(syscall.SIGTERM)
		listen(args[0])
		time.Sleep(time.Minute)
	case "litter": // file: leaves a child of its own behind
		grandchild := exec.Command("sleep", "60")
		if err := grandchild.Start(); err != nil {
			panic(err)
		}
		if err := os.WriteFile(args[0], fmt.Append(nil, grandchild.Process.Pid), 0o600); err != nil {
			panic(err)
		}
		os.Exit(1)
	case "supervisor": // folder addresses...: reports its children's pids and waits
		var children []proc.Child
		for i, addr := range args[1:] {
			children = append(children, child(args[0], fmt.Sprint("c", i), "stubborn", addr, addr))
		}
		s, err := proc.New(proc.Config{Children: children})
		if err == nil {
			err = s.Start(context.Background())
		}
		if err != nil {
			panic(err)
		}
		for _, c := range s.Snapshot() {
			fmt.Println("pid", c.PID)
		}
		time.Sleep(time.Minute)
	}
}

func serve(journal, name, addr string) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	write(journal, name+" up")
	listen(addr)
	<-term
	write(journal, name+" down")
}

func listen(addr string) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
}

func write(path, line string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
	}
	if err != nil {
		panic(err)
	}
	_ = f.Close()
}

// child is the test binary in a role, ready when addr answers.
func child(dir, name, role, addr string, args ...string) proc.Child {
	return proc.Child{
		Name: name, Path: os.Args[0], Args: args,
		Env:         append(os.Environ(), roleEnv+"="+role, "GORACE=atexit_sleep_ms=0"), // quick exits under -race
		LogFile:     dir + "/" + name + ".log",
		Ready:       accepts(addr),
		StopTimeout: 10 * time.Second,
	}
}

// server is a child that notes its ups and downs in the journal of dir.
func server(t *testing.T, dir, name string) proc.Child {
	addr := freeAddr(t)
	return child(dir, name, "serve", addr, dir+"/journal", name, addr)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addrs, err := proc.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}

// supervisor has the quick back-off that tests want. It is stopped at the end.
func supervisor(t *testing.T, conf proc.Config) *proc.Supervisor {
	t.Helper()
	conf.Backoff = proc.Backoff{Initial: 5 * time.Millisecond, Max: 20 * time.Millisecond}
	conf.PollInterval = 5 * time.Millisecond
	s, err := proc.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) }) // tests of Stop look at its error themselves
	return s
}

func mustStart(t *testing.T, s *proc.Supervisor) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// eventually polls until ok and fails with what after 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out waiting for", what)
		}
	}
}

// gone reports that no process has the pid, or only as a corpse for somebody else to reap.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// accepts is a Child.Ready: something accepts TCP connections on addr.
func accepts(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
