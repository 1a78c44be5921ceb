package service

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"temper/internal/config"
	"temper/internal/proc"
	"temper/internal/role"
	"temper/internal/temporalclient"
	"temper/workers"
)

// childStopTimeout lies between SIGTERM and SIGKILL: a worker drains for 10 s, and a save
// may then take another 3.
const childStopTimeout = 15 * time.Second

// silence is how long a child that is alive may give no answer before the screen shows it.
// The supervisor waits for its own time-out on top of that: a busy machine may stop a
// process for some seconds, which is no reason to kill it. The activity's own watch finds
// an activity that makes no progress in a running process.
const silence = 15 * time.Second

// Children lists the processes of the service. They stop in the reverse order. The sandbox
// starts beside the servers, and the roles start after the servers: a role waits for the
// sandbox itself.
func Children(p *config.Process, o Options) ([]proc.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	children, err := serverChildren(p, o)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for i := range children {
		names = append(names, children[i].Name)
		children[i].After = []string{}
	}
	token := workers.SandboxTokenKey + "=" + sandboxToken()
	sandbox := sandboxChild(p, o, self, token)
	sandbox.After = []string{}
	children = append(children, sandbox)
	for _, child := range roleChildren(p, o, self, token) {
		child.After = names
		children = append(children, child)
	}
	if o.Dashboard != "" {
		dashboard := dashboardChild(p, o, self)
		dashboard.After = names
		children = append(children, dashboard)
	}
	return children, nil
}

// dashboardChild reads the store beside the roles: runs do not need it. It stops first.
func dashboardChild(p *config.Process, o Options, self string) proc.Child {
	probe := &proc.Probe{Address: healthSocket(p, role.UI), Patience: silence}
	args := role.Of(role.UI).Arguments("--listen", o.Dashboard, "--address-file", dashboardNote(p), "--health", probe.Address, "--home", p.Home,
		"--store", p.Store, "--temporal", p.TemporalAddress, "--namespace", p.Namespace, "--ui", p.UIAddress)
	if o.UIHosts != "" {
		args = append(args, "--host", o.UIHosts)
	}
	return proc.Child{
		Name: role.UI, Path: self, Args: args, Env: append(os.Environ(), supervisedKey+"=1"), Ready: probe.Ready, Alive: probe.Alive,
		LogFile: filepath.Join(p.LogDir(), "ui.log"), StopTimeout: childStopTimeout,
	}
}

// dashboardNote is where the dashboard of the service says its address.
func dashboardNote(p *config.Process) string { return filepath.Join(socketDir(p), "ui.address") }

// DashboardAddress is host:port of the dashboard of a started service.
func DashboardAddress(p *config.Process) (string, error) {
	data, err := os.ReadFile(dashboardNote(p))
	return string(data), err
}

// serverChildren are the servers that the roles cannot start without.
func serverChildren(p *config.Process, o Options) ([]proc.Child, error) {
	var children []proc.Child
	if o.Embedded {
		temporal, err := temporalChild(p, o.UIHosts)
		if err != nil {
			return nil, err
		}
		children = append(children, temporal)
	}
	if ServesStore(p) {
		store, err := StoreChild(p)
		if err != nil {
			return nil, err
		}
		children = append(children, store)
	}
	return children, nil
}

// roleChildren are the roles that poll a queue. The one that runs no programs does not
// know the token of the sandbox.
func roleChildren(p *config.Process, o Options, self, token string) []proc.Child {
	env := append(os.Environ(), supervisedKey+"=1")
	children := []proc.Child{roleChild(p, self, role.Control, env, "--rollout-shards", strconv.Itoa(max(1, o.RolloutWorkers)))}
	env = append(env, token)
	var trainer []string
	if o.Backend != "" {
		trainer = append(trainer, "--backend", o.Backend)
	}
	if o.Mesh != "" {
		trainer = append(trainer, "--mesh", o.Mesh)
	}
	if o.Trainers > 1 {
		at := proc.UnixPrefix + socketDir(p) + "/members"
		trainer = append(trainer, "--members", at)
		for i := 1; i < o.Trainers; i++ {
			name := fmt.Sprintf("host-%d", i)
			host := []string{"--trainer", at, "--name", name}
			if o.Backend != "" {
				host = append(host, "--backend", o.Backend)
			}
			children = append(children, hostChild(roleChild(p, self, name, env, host...)))
		}
	}
	if o.RolloutWorkers == 0 {
		return append(children, roleChild(p, self, role.Trainer, env, append(trainer, "--with-rollouts")...))
	}
	children = append(children, roleChild(p, self, role.Trainer, env, trainer...))
	for i := range o.RolloutWorkers {
		children = append(children, roleChild(p, self, fmt.Sprintf("rollout-%d", i+1), env))
	}
	return children
}

// roleChild runs temper role with the role that name begins with, as in rollout-2. A socket
// tells its health: the child counts as started when it is ready, and stays as long as it lives.
func roleChild(p *config.Process, self, name string, env []string, args ...string) proc.Child {
	probe := &proc.Probe{Address: healthSocket(p, name), Patience: silence}
	kind, _, _ := strings.Cut(name, "-")
	args = role.Of(kind).Arguments(args...)
	args = append(args, "--listen", probe.Address, "--home", p.Home, "--store", p.Store, "--temporal", p.TemporalAddress,
		"--namespace", p.Namespace, "--ui", p.UIAddress, "--sandbox", p.SandboxAddress)
	return proc.Child{
		Name: name, Path: self, Args: args, Env: env, Ready: probe.Ready, Alive: probe.Alive,
		LogFile: filepath.Join(p.LogDir(), name+".log"), StopTimeout: childStopTimeout,
	}
}

// hostChild makes a child a host of the trainer: the service is up without it.
func hostChild(c proc.Child) proc.Child {
	c.Ready = c.Alive
	return c
}

// sandboxChild gets no environment but what its interpreters may see, and the token.
func sandboxChild(p *config.Process, o Options, self, token string) proc.Child {
	probe := &proc.Probe{Address: p.SandboxAddress, Patience: silence}
	args := role.Of(role.Sandbox).Arguments("--listen", p.SandboxAddress, "--python", p.Python)
	if len(o.Require) > 0 {
		args = append(args, "--require", strings.Join(o.Require, ","))
	}
	return proc.Child{
		Name: role.Sandbox, Path: self, Args: args, Env: append(scrubbedEnv(), token), Ready: probe.Ready, Alive: probe.Alive,
		LogFile: filepath.Join(p.LogDir(), "sandbox.log"), StopTimeout: childStopTimeout,
	}
}

// temporaldPath is where the embedded Temporal server is: beside this binary.
func temporaldPath() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "temporald"), err
}

func temporalChild(p *config.Process, uiHosts string) (proc.Child, error) {
	path, err := temporaldPath()
	if err != nil {
		return proc.Child{}, err
	}
	host, port, err := net.SplitHostPort(p.TemporalAddress)
	if err != nil {
		return proc.Child{}, err
	}
	args := []string{"--db", p.TemporalDB(), "--ip", host, "--port", port, "--namespace", p.Namespace, "--exit-with-parent", "--ui-port", "0"}
	if p.UIAddress != "" {
		uiHost, uiPort, err := net.SplitHostPort(p.UIAddress)
		if err != nil {
			return proc.Child{}, err
		}
		args[len(args)-1] = uiPort
		args = append(args, "--ui-host", uiHost+","+uiHosts) // the address that we print must work
	}
	return proc.Child{
		Name: "temporal", Path: path, Args: args, LogFile: filepath.Join(p.LogDir(), "temporal.log"),
		StopTimeout: childStopTimeout,
		Ready: func(ctx context.Context) error {
			c, err := temporalclient.Dial(ctx, temporalclient.Config{Address: p.TemporalAddress, Namespace: p.Namespace})
			if err != nil {
				return err
			}
			c.Close()
			return nil
		},
	}, nil
}

// sandboxToken returns the token of the environment or a new random one: all users of a
// machine share its loopback address, and the sandbox runs their programs as this user.
func sandboxToken() string {
	if token := os.Getenv(workers.SandboxTokenKey); token != "" {
		return token
	}
	return rand.Text()
}

// scrubbedEnv is all that the sandbox sees of the environment, besides its token,
// which it keeps from its interpreters. It has no other secret.
func scrubbedEnv() []string {
	env := []string{"LANG=C.UTF-8", supervisedKey + "=1"}
	for _, key := range []string{"PATH", "PYENV_ROOT", "PYENV_VERSION", "HOME"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}
