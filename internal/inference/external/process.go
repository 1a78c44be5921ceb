package external

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"temper/internal/proc"
)

// processes starts servers, one for each policy. In the words of the command {model}
// stands for the GGUF file, {host} and {port} for where the server listens.
type processes struct {
	command  []string
	folder   string
	key      string
	patience time.Duration
	log      *slog.Logger
}

// life is one server with one file. It is started again when it dies.
type life struct {
	file  string
	wire  wire
	super *proc.Supervisor
	limit time.Duration
}

// start returns when the server answers.
func (p processes) start(ctx context.Context, file string) (*life, error) {
	addresses, err := proc.Addresses(1)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	words := make([]string, len(p.command))
	for i, word := range p.command {
		words[i] = strings.NewReplacer("{model}", file, "{host}", host, "{port}", port).Replace(word)
	}
	w, err := newWire("http://"+addresses[0], p.key)
	if err != nil {
		return nil, err
	}
	l := &life{file: file, wire: w, limit: p.patience}
	l.super, err = proc.New(proc.Config{
		Children: []proc.Child{{
			Name: "llamacpp", Path: words[0], Args: words[1:], LogFile: filepath.Join(p.folder, "llamacpp.log"),
			Ready: l.healthy, StopTimeout: 2 * time.Second,
		}},
		StartTimeout: p.patience, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	if err := l.super.Start(ctx); err != nil {
		return nil, fmt.Errorf("start llama.cpp server %s: %w", words[0], err)
	}
	return l, nil
}

func (l *life) healthy(ctx context.Context) error {
	return l.wire.call(ctx, http.MethodGet, "/health", nil, nil)
}

// wait returns when the server answers, which it does again soon after its death.
func (l *life) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	for {
		err := l.healthy(ctx)
		if err == nil {
			return nil
		}
		if sleepErr := sleep(ctx, 50*time.Millisecond); sleepErr != nil {
			return fmt.Errorf("%s does not come back: %w", l.wire.base, err)
		}
	}
}

// end stops the process.
func (l *life) end() {
	l.wire.close()
	_ = l.super.Stop(context.Background()) // it says that a kill was needed, which is no matter here
}
