//go:build integration

package hosts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/trainer"
	"temper/trainer/hosts"
	"temper/trainer/model"
)

// What a leader of BenchmarkProcesses trains, and with how many hosts.
const (
	sizeKey  = "TEMPER_TEST_SIZE"
	hostsKey = "TEMPER_TEST_MEMBERS"
)

// measuredUpdates are made after one that compiles and is not counted.
const measuredUpdates = 2

// sizes are networks of about 1 and 5 million parameters.
var sizes = map[string]model.Config{
	"1M": {VocabSize: 512, HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 5, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32},
	"5M": {VocabSize: 1024, HiddenSize: 256, IntermediateSize: 768, NumHiddenLayers: 6, NumAttentionHeads: 8, NumKeyValueHeads: 4, HeadDim: 32},
}

// figures are what a leader says.
type figures struct {
	Parameters     int
	Wall, CPU      time.Duration
	Sent, Received int64
	Passes         int64
}

// measure leads updates and prints figures.
func measure(ctx context.Context, place string) error {
	cfg := smallConfig()
	m := sizes[os.Getenv(sizeKey)]
	m.MaxPositionEmbeddings, m.RopeTheta, m.RMSNormEps, m.TieWordEmbeddings, m.InitializerRange = 512, 1e4, 1e-6, true, 0.02
	cfg.Model, cfg.LaneTokens, cfg.Lanes = m, 512, 1
	numHosts, err := strconv.Atoi(os.Getenv(hostsKey))
	if err != nil {
		return err
	}
	hub := hosts.NewHub(hosts.Config{Identity: identity("leader"), Patience: time.Minute})
	if numHosts > 0 {
		l, err := net.Listen("unix", filepath.Join(place, "hosts")) //nolint:noctx // a test
		if err != nil {
			return err
		}
		go hub.Serve(ctx, l) //nolint:errcheck // it ends with the process
		cfg.Remote = hub.Session("r")
		for hub.Counts().Hosts < numHosts {
			time.Sleep(time.Millisecond)
		}
	}
	tr, err := trainer.New(cfg)
	if err != nil {
		return err
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		return err
	}
	batch := samples(64, 256, 3)
	var before hosts.Counts
	var began time.Time
	var used time.Duration
	for n := range 1 + measuredUpdates {
		if n == 1 {
			fmt.Println("begin")
			before, began, used = hub.Counts(), time.Now(), ownCPU()
		}
		if _, err := tr.SFTStep(ctx, batch, adam(), trainer.Position{Step: n + 1}); err != nil {
			return err
		}
	}
	now := hub.Counts()
	text, err := json.Marshal(figures{Parameters: m.NumParameters(), Wall: time.Since(began), CPU: ownCPU() - used,
		Sent: now.Sent - before.Sent, Received: now.Received - before.Received, Passes: now.Passes - before.Passes})
	fmt.Println("figures", string(text))
	time.Sleep(time.Second) // until the hosts' times are read
	return err
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuOf is the processor time of a process, to a hundredth of a second.
func cpuOf(b *testing.B, p *process) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkProcesses measures an update with 1, 2 and 4 processes of one processor each:
// wall time, processor time of all together, and bytes.
func BenchmarkProcesses(b *testing.B) {
	b.Setenv("GOMAXPROCS", "1")
	for _, size := range []string{"1M", "5M"} {
		for _, processes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/%d", size, processes), func(b *testing.B) {
				b.Setenv(sizeKey, size)
				b.Setenv(hostsKey, strconv.Itoa(processes-1))
				for b.Loop() {
					measureProcesses(b, processes-1)
				}
			})
		}
	}
}

func measureProcesses(b *testing.B, numHosts int) {
	place, err := os.MkdirTemp("", "hosts") //nolint:usetesting // short enough for a socket
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(place) //nolint:errcheck // of a benchmark
	leader := start(b, "measure", place)
	defer leader.kill()
	var others []*process
	for range numHosts {
		p := start(b, "host", place)
		defer p.kill()
		others = append(others, p)
	}
	sum := func() (out time.Duration) {
		for _, p := range others {
			out += cpuOf(b, p)
		}
		return out
	}
	leader.await(b, "begin")
	before := sum()
	said := leader.await(b, "figures ")
	after := sum()
	var f figures
	if err := json.Unmarshal([]byte(said[strings.LastIndex(said, "figures ")+len("figures "):]), &f); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(f.Parameters), "parameters")
	b.ReportMetric(f.Wall.Seconds()/measuredUpdates, "wall-s/update")
	b.ReportMetric((f.CPU+after-before).Seconds()/measuredUpdates, "cpu-s/update")
	b.ReportMetric(f.CPU.Seconds()/measuredUpdates, "leader-cpu-s/update")
	b.ReportMetric(float64(f.Sent)/measuredUpdates, "sent-B/update")
	b.ReportMetric(float64(f.Received)/measuredUpdates, "received-B/update")
	b.ReportMetric(float64(f.Passes)/measuredUpdates, "host-passes/update")
}
