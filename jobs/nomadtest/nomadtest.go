// Package nomadtest starts real Nomad agents for tests: a server, and as many clients as
// a test needs, on the loopback address of this machine. Only tests import it.
//
// Invariant: when a test ends, its agents and tasks have ended.
package nomadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/proc"
)

// BinaryKey is the environment variable that names another Nomad than the one that ./task
// build:nomadd makes.
const BinaryKey = "TEMPER_TEST_NOMAD"

// RequireKey is the environment variable that makes a missing Nomad a failure instead of a
// skip.
const RequireKey = "TEMPER_REQUIRE_NOMAD"

// binary returns the path of the Nomad for the tests; root is the folder of the repository.
func binary(t testing.TB, root string) string {
	t.Helper()
	path := os.Getenv(BinaryKey)
	if path == "" {
		path = filepath.Join(root, "bin", "nomad")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil && os.Getuid() == 0 {
		return path
	}
	missing := fmt.Sprintf("no Nomad at %s (or not root): build it with ./task build:nomadd, or name one with %s", path, BinaryKey)
	if os.Getenv(RequireKey) != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// Cluster is a running server with its clients.
type Cluster struct {
	t      testing.TB
	binary string
	root   string // folder of the repository
	dir    string
	// Address is the URL of the server's API.
	Address string
	// API is a client of the server.
	API *api.Client

	rpc    string
	ranges int // ranges of dynamic ports that clients use
	mu     sync.Mutex
	agents []*Agent
}

// Options of a cluster.
type Options struct {
	// Root is the folder of the repository, as seen from the test's package.
	Root string
	// ACL requires tokens; Bootstrap makes the first one.
	ACL bool
}

// Agent is a process of Nomad.
type Agent struct {
	Name string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan struct{}
	// config is kept for a restart.
	config string
	owner  *Cluster
}

// Node describes the simulated machine of a client.
type Node struct {
	Name string
	Pool string
	Meta map[string]string
	// CPU in MHz and MemoryMB; 0 is 8000 and 16384, whatever the machine has.
	CPU, MemoryMB int
	// HostVolumes maps names to folders.
	HostVolumes map[string]string
	// Further is copied into the client block.
	Further string
	// Plugins is copied into the top level.
	Plugins string
}

// Start starts a server and waits until it leads.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	path := binary(t, o.Root)
	dir, err := os.MkdirTemp("", "nomad-") //nolint:usetesting // short, because sockets of tasks lie below, and removed after they are unmounted
	if err != nil {
		t.Fatal(err)
	}
	ports := addresses(t, 3)
	c := &Cluster{t: t, binary: path, root: o.Root, dir: dir, Address: "http://" + ports[0], rpc: ports[1]}
	t.Cleanup(c.close)
	c.launch("server", fmt.Sprintf(`
data_dir = %q
%s
server {
  enabled = true
  bootstrap_expect = 1
  min_heartbeat_ttl = "3s"
  heartbeat_grace = "3s"
}
acl { enabled = %t }
`, filepath.Join(dir, "server"), common(ports), o.ACL))
	cfg := api.DefaultConfig()
	cfg.Address = c.Address
	cfg.SecretID, cfg.Namespace, cfg.Region = "", "", ""
	if c.API, err = api.NewClient(cfg); err != nil {
		t.Fatal(err)
	}
	c.Await("a server that leads", func() error {
		leader, err := c.API.Status().Leader()
		if err == nil && leader == "" {
			err = errors.New("none")
		}
		return err
	})
	c.Await("a server that can encrypt", func() error { // from 1.7 on it makes its key after it leads
		_, _, err := c.API.Variables().Create(&api.Variable{Path: "nomadtest", Items: api.VariableItems{"ready": "yes"}}, nil)
		if err != nil && !strings.Contains(err.Error(), "keyring") {
			err = nil // it exists already, or a token is required
		}
		return err
	})
	return c
}

func addresses(t testing.TB, n int) []string {
	t.Helper()
	out, err := proc.Addresses(n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// common returns the configuration of every agent.
func common(addrs []string) string {
	port := func(i int) string {
		_, p, _ := net.SplitHostPort(addrs[i]) // made by freeport
		return p
	}
	return fmt.Sprintf(`
bind_addr = "127.0.0.1"
disable_update_check = true
log_level = "WARN"
advertise {
  http = "127.0.0.1"
  rpc = "127.0.0.1"
  serf = "127.0.0.1"
}
ports {
  http = %s
  rpc = %s
  serf = %s
}
telemetry { publish_allocation_metrics = false }
`, port(0), port(1), port(2))
}

// firstDynamic begins the ranges of dynamic ports of the clients: below the ports that
// kernels assign, and separate for each client.
const (
	firstDynamic = 20000
	numDynamic   = 100
)

// Node starts a client and waits until it is ready.
func (c *Cluster) Node(n Node) *Agent {
	c.t.Helper()
	a := c.launch(n.Name, c.nodeConfig(n))
	c.Await("node "+n.Name, func() error { return c.ready(n.Name) })
	return a
}

func (c *Cluster) nodeConfig(n Node) string {
	c.mu.Lock()
	slot := c.ranges
	c.ranges++
	c.mu.Unlock()
	first := firstDynamic + (os.Getpid()%80+slot)*numDynamic
	var volumes, meta strings.Builder
	for name, path := range n.HostVolumes {
		fmt.Fprintf(&volumes, "  host_volume %q { path = %q }\n", name, path)
	}
	for key, value := range n.Meta {
		fmt.Fprintf(&meta, "    %s = %q\n", key, value)
	}
	pool := n.Pool
	if pool == "" {
		pool = "default"
	}
	return fmt.Sprintf(`
name = %q
data_dir = %q
%s
client {
  enabled = true
  servers = [%q]
  node_pool = %q
  network_interface = "lo"
  cpu_total_compute = %d
  memory_total_mb = %d
  min_dynamic_port = %d
  max_dynamic_port = %d
  max_kill_timeout = "10m"
  gc_interval = "10m"
  gc_disk_usage_threshold = 100
  gc_inode_usage_threshold = 100
  options = {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault"
    "user.denylist" = ""
  }
  meta {
%s  }
%s
%s
}
plugin "raw_exec" {
  config { enabled = true }
}
%s
`, n.Name, filepath.Join(c.dir, n.Name), common(addresses(c.t, 3)), c.rpc, pool, orElse(n.CPU, 8000), orElse(n.MemoryMB, 16384),
		first, first+numDynamic-1, meta.String(), volumes.String(), n.Further, n.Plugins)
}

func orElse(n, other int) int {
	if n == 0 {
		return other
	}
	return n
}

func (c *Cluster) ready(name string) error {
	nodes, _, err := c.API.Nodes().List(nil)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if node.Name == name && node.Status == api.NodeStatusReady && node.Drivers["raw_exec"] != nil && node.Drivers["raw_exec"].Healthy {
			return nil
		}
	}
	return fmt.Errorf("%d nodes, and none ready of that name", len(nodes))
}

// launch starts an agent with a configuration.
func (c *Cluster) launch(name, config string) *Agent {
	c.t.Helper()
	a := &Agent{Name: name, owner: c, config: filepath.Join(c.dir, name+".hcl")}
	if err := os.WriteFile(a.config, []byte(config), 0o600); err != nil {
		c.t.Fatal(err)
	}
	a.start()
	c.mu.Lock()
	c.agents = append(c.agents, a)
	c.mu.Unlock()
	return a
}

func (a *Agent) start() {
	a.owner.t.Helper()
	a.log, a.done = &bytes.Buffer{}, make(chan struct{})
	a.cmd = exec.Command(a.owner.binary, "agent", "-config", a.config) //nolint:gosec // the Nomad of the tests
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	a.cmd.Env = append(os.Environ(), dirKey+"="+a.owner.dir) // its helpers inherit it
	if err := a.cmd.Start(); err != nil {
		a.owner.t.Fatal(err)
	}
	go func() {
		defer close(a.done)
		_ = a.cmd.Wait() // its exit status does not matter
	}()
}

// Kill ends the agent as a crash would: its tasks continue.
func (a *Agent) Kill() {
	a.owner.t.Helper()
	plugins, holders := a.owner.childrenOf(a.cmd.Process.Pid)
	if err := a.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		a.owner.t.Fatal(err)
	}
	<-a.done
	for _, pid := range plugins {
		reap(pid)
	}
	for _, pid := range holders {
		go collect(pid)
	}
}

// Restart starts a killed agent.
func (a *Agent) Restart() { a.owner.t.Helper(); a.start() }

// Bootstrap makes the first token of a cluster with ACL; c.API uses it after that.
func (c *Cluster) Bootstrap() string {
	c.t.Helper()
	token, _, err := c.API.ACLTokens().Bootstrap(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.API.SetSecretID(token.SecretID)
	return token.SecretID
}

// patience bounds every wait under load.
const patience = 3 * time.Minute

// Await calls check until it returns nil.
func (c *Cluster) Await(what string, check func() error) {
	c.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	c.t.Fatalf("%s: not after %v: %v\n%s", what, patience, err, c.logs())
}

func (c *Cluster) logs() string {
	var out strings.Builder
	for _, a := range c.agents {
		select {
		case <-a.done:
			fmt.Fprintf(&out, "agent %s has ended and said:\n%s\n", a.Name, a.log)
		default: // it still writes its log
		}
	}
	return out.String()
}

// Allocations returns the allocations of a job, newest first.
func (c *Cluster) Allocations(job string) []*api.AllocationListStub {
	c.t.Helper()
	allocs, _, err := c.API.Jobs().Allocations(job, true, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return allocs
}

// Running returns the running allocations of a job.
func (c *Cluster) Running(job string) []*api.AllocationListStub {
	c.t.Helper()
	var out []*api.AllocationListStub
	for _, a := range c.Allocations(job) {
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			out = append(out, a)
		}
	}
	return out
}

// dirKey marks an agent and its helpers, which outlive a killed agent.
const dirKey = "NOMADTEST_DIR"

// Pids returns the processes of an allocation's tasks on this machine.
func Pids(alloc string) []int { return pidsWith("NOMAD_ALLOC_ID=" + alloc) }

// pidsWith returns the processes with a variable of that value in their environment.
func pidsWith(variable string) []int {
	var out []int
	entries, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
	for _, name := range entries {
		env, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(env, []byte(variable+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// close stops every job, then the agents, then their remaining processes.
func (c *Cluster) close() {
	var allocs []string
	if c.API != nil {
		if stubs, _, err := c.API.Allocations().List(nil); err == nil {
			for _, s := range stubs {
				allocs = append(allocs, s.ID)
			}
		}
		c.stopJobs()
	}
	for i := len(c.agents) - 1; i >= 0; i-- {
		a := c.agents[i]
		_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-a.done:
		case <-time.After(30 * time.Second):
			_ = a.cmd.Process.Kill()
			<-a.done
		}
	}
	marks := []string{dirKey + "=" + c.dir}
	for _, id := range allocs {
		marks = append(marks, "NOMAD_ALLOC_ID="+id)
	}
	for _, mark := range marks { // remaining processes of killed agents
		for _, pid := range pidsWith(mark) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	c.unmount()
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Errorf("folder of the agents: %v", err)
	}
	if c.t.Failed() {
		c.t.Log(c.logs())
	}
}

// stopJobs deregisters all jobs and waits a while for their tasks.
func (c *Cluster) stopJobs() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	q := (&api.QueryOptions{}).WithContext(ctx)
	jobs, _, err := c.API.Jobs().List(q)
	if err != nil {
		return // the server is gone
	}
	for _, j := range jobs {
		_, _, _ = c.API.Jobs().Deregister(j.ID, false, (&api.WriteOptions{}).WithContext(ctx)) // close kills the remaining tasks
	}
	for ctx.Err() == nil {
		stubs, _, err := c.API.Allocations().List(q)
		if err != nil {
			return
		}
		alive := 0
		for _, s := range stubs {
			if s.ClientStatus == api.AllocClientStatusRunning || s.ClientStatus == api.AllocClientStatusPending {
				alive++
			}
		}
		if alive == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// unmount releases the secrets folders of tasks whose agent was killed.
func (c *Cluster) unmount() {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], c.dir+"/") {
			_ = syscall.Unmount(f[4], syscall.MNT_DETACH) // if it fails the folder stays, which is reported
		}
	}
}

// JSON returns v as JSON for a message.
func JSON(v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
