package sandboxbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"temper/sandbox"
	"temper/sandbox/httpapi"
	"temper/sandbox/jail"
	"temper/tools/bench/meter"
)

// LayersConfig says how MeasureLayers measures. Zero fields take the stated defaults.
type LayersConfig struct {
	Python string
	Code   string // print(1+1)
	Calls  int    // of each way in each round; 500
	Rounds int    // 5
}

// Cost is the processor time of one call by who spends it: a median over rounds.
type Cost struct {
	Name  string        `json:"name"`
	Child time.Duration `json:"child_ns"` // entering the jail, the program, the exit
	Fork  time.Duration `json:"fork_ns"`  // in the zygote
	Owner time.Duration `json:"owner_ns"` // this process: request, streams, result, transport
	Total time.Duration `json:"total_ns"`

	// What does not depend on the load of the machine.
	Faults   int64 `json:"page_faults"` // of the child
	Mappings int   `json:"mappings"`    // of the zygote, which a fork copies
}

// layerOrder is the order in which the table adds layers; each has those before it.
var layerOrder = [][]string{
	nil,
	{"rlimits"},
	{"uid", "capabilities"},
	{"landlock"},
	{"parent_death", "seccomp"},
	{"pid_namespace"},
	{"call_namespaces"},
	{"tmpfs"},
}

// MeasureLayers returns what a call costs without any layer, with one layer more at
// a time, with all of them, and with all of them over HTTP. One caller makes one
// call at a time; the ways take turns in each round.
func MeasureLayers(ctx context.Context, cfg LayersConfig) (_ []Cost, err error) {
	cfg = cfg.withDefaults()
	ways, err := layerWays(ctx, cfg.Python)
	defer func() {
		for _, w := range ways {
			err = errors.Join(err, w.close())
		}
	}()
	if err != nil {
		return nil, err
	}
	for round := range cfg.Rounds + 1 {
		calls := cfg.Calls
		if round == 0 {
			calls = 50 // warms up, and is not counted
		}
		for _, w := range ways {
			cost, err := w.measure(ctx, cfg.Code, calls)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				w.costs = append(w.costs, cost)
			}
		}
	}
	costs := make([]Cost, len(ways))
	for i, w := range ways {
		costs[i] = w.median()
	}
	return costs, nil
}

// layerWays opens what MeasureLayers compares. The caller closes them, also with
// an error.
func layerWays(ctx context.Context, python string) (ways []*way, err error) {
	for i, added := range layerOrder {
		var without []string
		for _, later := range layerOrder[i+1:] {
			without = append(without, later...)
		}
		name := "bare fork"
		if i > 0 {
			name = "+ " + fmt.Sprint(added)
		}
		w, err := newWay(ctx, name, jail.Config{Python: python, Without: without})
		if err != nil {
			return ways, err
		}
		ways = append(ways, w)
	}
	served, err := newWay(ctx, "all, over HTTP", jail.Config{Python: python})
	if err != nil {
		return ways, err
	}
	return append(ways, served), served.serve()
}

func (c LayersConfig) withDefaults() LayersConfig {
	if c.Code == "" {
		c.Code = "print(1+1)"
	}
	if c.Calls == 0 {
		c.Calls = 500
	}
	if c.Rounds == 0 {
		c.Rounds = 5
	}
	return c
}

// way is one configuration under measurement.
type way struct {
	name        string
	interpreter *jail.Interpreter
	exec        sandbox.Executor
	costs       []Cost
	stops       []func() error // in the order in which they were added
	calls       int
}

func newWay(ctx context.Context, name string, cfg jail.Config) (*way, error) {
	j, err := jail.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	in, err := j.Start(ctx)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	stop := func() error { in.Close(); return j.Close() }
	return &way{name: name, interpreter: in, exec: direct{in}, stops: []func() error{stop}}, nil
}

// direct is an interpreter as an executor.
type direct struct{ *jail.Interpreter }

func (d direct) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	return d.Run(ctx, req)
}

// serve puts a node's HTTP interface and its client between the caller and the
// interpreter.
func (w *way) serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:   httpapi.NewHandler(w.exec, httpapi.Config{Logger: slog.New(slog.DiscardHandler)}),
		Protocols: protocols, ReadHeaderTimeout: time.Second,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Close below
	}()
	client, err := httpapi.NewClient(listener.Addr().String(), httpapi.Options{})
	if err != nil {
		return errors.Join(err, server.Close())
	}
	w.exec = client
	w.stops = append(w.stops, func() error {
		client.Close()
		err := server.Close()
		<-done
		return err
	})
	return nil
}

func (w *way) close() (err error) {
	for _, stop := range slices.Backward(w.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

// measure makes calls one after the other.
func (w *way) measure(ctx context.Context, code string, calls int) (Cost, error) {
	var child time.Duration
	faults, _, err := forked(w.interpreter.PIDs())
	if err != nil {
		return Cost{}, err
	}
	owner, family := meter.OwnCPU(), w.interpreter.CPU()
	for range calls {
		w.calls++
		res, err := w.exec.Execute(ctx, sandbox.Request{ID: w.name + strconv.Itoa(w.calls), Code: code})
		if err != nil {
			return Cost{}, err
		}
		if res.Status != sandbox.StatusOK {
			return Cost{}, fmt.Errorf("status %s: %s", res.Status, res.Reason)
		}
		child += res.Usage.CPU
	}
	n := time.Duration(calls)
	c := Cost{Child: child / n, Owner: (meter.OwnCPU() - owner) / n}
	c.Fork = max(0, (w.interpreter.CPU()-family)/n-c.Child)
	c.Total = c.Child + c.Fork + c.Owner
	c.Faults, c.Mappings, err = forked(w.interpreter.PIDs())
	c.Faults = (c.Faults - faults) / int64(calls)
	return c, err
}

// forked returns the page faults of all children of the zygotes so far, and the number
// of the zygotes' mappings.
func forked(pids []int) (faults int64, mappings int, err error) {
	for _, pid := range pids {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, 0, err
		}
		p, err := meter.ParseStat(line)
		if err != nil {
			return 0, 0, err
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			return 0, 0, err
		}
		faults += p.ChildFaults
		mappings += bytes.Count(maps, []byte("\n"))
	}
	return faults, mappings, nil
}

func (w *way) median() Cost {
	return Cost{
		Name:  w.name,
		Child: meter.Median(meter.Pick(w.costs, func(c Cost) time.Duration { return c.Child })),
		Fork:  meter.Median(meter.Pick(w.costs, func(c Cost) time.Duration { return c.Fork })),
		Owner: meter.Median(meter.Pick(w.costs, func(c Cost) time.Duration { return c.Owner })),
		Total: meter.Median(meter.Pick(w.costs, func(c Cost) time.Duration { return c.Total })),

		Faults: w.costs[len(w.costs)-1].Faults, Mappings: w.costs[len(w.costs)-1].Mappings,
	}
}
