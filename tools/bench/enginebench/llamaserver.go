package enginebench

import (
	"context"
	_ "embed" // the server's start
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"temper/internal/proc"
	"temper/trainer/model"
	"temper/trainer/weights/gguf"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

//go:embed llamacpp.py
var llamaServer string

// llamaPatience is how long a server may take until it answers.
const llamaPatience = time.Minute

// llamaProcess is a server of llama.cpp that lasts for one case.
type llamaProcess struct {
	LlamaCPP
	cmd   *exec.Cmd
	ended chan error // holds what the process ended with
	dir   string
}

// startLlamaCPP serves start weights of the plan's network in float32 on one thread,
// with a cache for just the sequences of the case. The interpreter has xllamacpp.
func startLlamaCPP(ctx context.Context, python string, p Plan, c Case) (_ *llamaProcess, err error) {
	dir, err := os.MkdirTemp("", "temper-llamacpp-")
	if err != nil {
		return nil, err
	}
	l := &llamaProcess{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("llama.cpp: %w", err), l.close())
		}
	}()
	file := filepath.Join(dir, "model.gguf")
	if err := writeGGUF(file, filepath.Join(dir, "model"), p, c); err != nil {
		return nil, err
	}
	addresses, err := proc.Addresses(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addresses[0])
	// The server keeps some cells of each sequence to itself.
	cells := max(512, c.Batch*(c.Context+64))
	//nolint:gosec // the user names the interpreter
	l.cmd = exec.CommandContext(ctx, python, "-c", llamaServer, "--model", file, "--port", port,
		"--ctx-size", strconv.Itoa(cells), "--parallel", strconv.Itoa(c.Batch))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	l.cmd.Stdout, l.cmd.Stderr = log, log
	if err := l.cmd.Start(); err != nil {
		l.cmd = nil
		return nil, err
	}
	l.ended = make(chan error, 1)
	go func() { l.ended <- l.cmd.Wait() }()
	l.URL, l.PID = "http://"+addresses[0], l.cmd.Process.Pid
	return l, l.await(ctx)
}

// writeGGUF makes the file of the plan's network.
func writeGGUF(file, dir string, p Plan, c Case) error {
	m := p.Model
	m.MaxPositionEmbeddings = max(m.MaxPositionEmbeddings, c.Context+64)
	weights, err := model.InitialTensors(m, p.Seed)
	if err != nil {
		return err
	}
	if err := hf.Create(dir, m, model.ByName(weights), hf.Layout{DType: safetensors.F32}); err != nil {
		return err
	}
	loaded, err := hf.Load(dir)
	if err != nil {
		return err
	}
	defer loaded.Close() //nolint:errcheck // read only
	_, err = gguf.Write(file, loaded, gguf.Options{DType: safetensors.F32, IDsOnly: true})
	return err
}

// await returns when the server answers.
func (l *llamaProcess) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, llamaPatience)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close() // only the status counts
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-l.ended:
			l.ended <- err
			return fmt.Errorf("the server ended before it answered: %w: %s", err, l.said())
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w: %s", ctx.Err(), l.said())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// said is the end of the server's log.
func (l *llamaProcess) said() string {
	log, err := os.ReadFile(filepath.Join(l.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-500):])
}

// close ends the server and removes its files.
func (l *llamaProcess) close() error {
	if l.cmd != nil {
		_ = l.cmd.Process.Kill() // it may have ended
		<-l.ended                //nolint:errcheck // it was killed
	}
	return os.RemoveAll(l.dir)
}
