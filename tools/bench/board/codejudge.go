package board

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"temper/internal/proc"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// httpWorkers is how many processes serve Code-Judge's requests: its README's number.
const httpWorkers = 4

func missingCodeJudge(cfg Config) string {
	if cfg.CodeJudge == "" {
		return "clone github.com/0xWJ/code-judge and name the folder with --code-judge"
	}
	if _, err := os.Stat(filepath.Join(cfg.CodeJudge, "run_workers.py")); err != nil {
		return fmt.Sprintf("--code-judge %s has no run_workers.py: want a checkout of github.com/0xWJ/code-judge", cfg.CodeJudge)
	}
	if err := exec.Command(cfg.CodeJudgePython, "-c", "import fastapi, psutil, redis, uvicorn").Run(); err != nil { //nolint:gosec // the caller's interpreter
		return fmt.Sprintf("%s lacks fastapi, uvicorn, redis or psutil: install them, or name another interpreter with --code-judge-python", cfg.CodeJudgePython)
	}
	return missingCommand("redis-server", "install Debian's package redis-server, or what your system calls it")
}

// startCodeJudge starts redis, the HTTP workers and as many workers as there are
// calls in flight.
func startCodeJudge(ctx context.Context, cfg Config) (_ *running, err error) {
	p, err := newPeer()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	addresses, err := proc.Addresses(2)
	if err != nil {
		return nil, err
	}
	_, redisPort, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	_, httpPort, err := net.SplitHostPort(addresses[1])
	if err != nil {
		return nil, err
	}
	if err := p.spawn(p.dir, nil, "redis-server", "--bind", "127.0.0.1", "--port", redisPort, "--save", "", "--appendonly", "no", "--dir", p.dir); err != nil {
		return nil, err
	}
	if err := p.await(ctx, func() bool { return listens(addresses[0]) }); err != nil {
		return nil, err
	}
	workers := cfg.Concurrency
	env := []string{
		"REDIS_URI=redis://" + addresses[0], "PYTHON_EXECUTOR_PATH=" + cfg.Python, fmt.Sprintf("MAX_WORKERS=%d", workers), "PYTHONDONTWRITEBYTECODE=1",
	}
	if err := p.spawn(cfg.CodeJudge, env, cfg.CodeJudgePython, "run_workers.py"); err != nil {
		return nil, err
	}
	err = p.spawn(cfg.CodeJudge, env, cfg.CodeJudgePython, "-m", "uvicorn", "app.main:app",
		"--workers", fmt.Sprint(httpWorkers), "--host", "127.0.0.1", "--port", httpPort, "--log-level", "warning")
	if err != nil {
		return nil, err
	}
	target, err := loadgen.Connect(addresses[1], loadgen.Options{API: loadgen.APICodeJudgeRun})
	if err != nil {
		return nil, err
	}
	first := loadgen.Call{ID: "board-first", Program: programs()[0]}
	if err := p.await(ctx, func() bool { return target.Do(ctx, []loadgen.Call{first})[0].Class == loadgen.Good }); err != nil {
		return nil, err
	}
	manager := p.cmds[1].Process.Pid
	return &running{
		target: target, cpu: p.cpu(), unit: "worker, no interpreter", layers: "none: limits of memory and time",
		idle: func(context.Context, int) (int64, error) {
			own := meter.StatusBytes(fmt.Sprintf("/proc/%d/smaps_rollup", manager), "Pss")
			return (meter.Memory(manager) - own) / int64(workers), nil
		},
		stop: func() error { target.Close(); return p.stop() },
	}, nil
}
