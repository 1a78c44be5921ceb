package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/openai/chatclient"
	"temper/sandbox/server"
	"temper/trainer/hf"
	"temper/workers"
)

func serveCommand(p *config.Process) *cobra.Command {
	o := workers.ModelOptions{Slots: 64}
	var asked servedModel
	var tools []string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a model with the API of OpenAI's servers", Args: cobra.NoArgs,
		Long: `Serves a model for clients of OpenAI and vLLM: /v1/models, /v1/completions, /v1/chat/completions with
streams and tools, /tokenize, /detokenize, /health and /metrics. Prints one line of JSON when it answers.

The model is a directory in Hugging Face layout, or a run, of which it takes the newest checkpoint or
what --policy, --step or --best choose.`,
	}
	f := cmd.Flags()
	cli.PythonFlag(f, p)
	f.StringVar(&asked.model, "model", "", "directory in Hugging Face layout, or the id of a run")
	f.Int64Var(&asked.run.policy, "policy", 0, "this published policy of the run")
	f.StringVar(&asked.run.step, "step", "", "the checkpoint of this step of the run")
	f.BoolVar(&asked.run.best, "best", false, "the checkpoint of the run with the highest reward of the step after it")
	f.StringVar(&o.Name, "name", "", "what clients call the model; the name of the directory or the run by default")
	f.StringVar(&o.Backend, "backend", "", "device that computes; the Go backend by default")
	f.IntVar(&o.Slots, "slots", o.Slots, "answers that are sampled at a time")
	f.IntVar(&o.MaxContext, "max-context", 0, "tokens of a prompt and its answer together; what the model allows by default")
	f.StringSliceVar(&tools, "tools", nil, "built-in tools, such as python, that the server runs itself in the sandbox for chats that bring none")
	serveFlags(cmd, &o.Server)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if asked.model == "" {
			return cli.Usagef("--model is missing: a directory or the id of a run")
		}
		if err := onlyOne(cmd, "step", "policy", "best"); err != nil {
			return err
		}
		if o.Slots < 1 || o.MaxContext < 0 {
			return cli.Usagef("--slots %d, --max-context %d: want at least 1 and 0", o.Slots, o.MaxContext)
		}
		if err := o.Server.Check(); err != nil {
			return cli.Usage(err)
		}
		dir, remove, err := asked.directory(cmd.Context(), p, cmd.Flags().Changed("policy"))
		if err != nil {
			return err
		}
		defer remove()
		o.Dir, o.Log = dir, sandboxLogger("serve", false)
		if o.Name == "" {
			o.Name = filepath.Base(filepath.Clean(asked.model))
		}
		o.Server.Logger = o.Log
		o.OnReady = func(url, name string) {
			_ = server.WriteReady(cmd.OutOrStdout(), url, map[string]any{"url": url, "model": name})
		}
		if len(tools) > 0 {
			end, err := serveTools(cmd, p, tools, &o)
			if err != nil {
				return err
			}
			defer end()
		}
		return workers.Serve(o).Serve(cmd.Context(), workers.ServeOptions{Log: o.Log})
	}
	return cmd
}

// servedTurns bounds the turns of an answer whose tools the server runs.
const servedTurns = 10

// serveTools lets the server run tools, in the sandbox that was named or one of its own.
func serveTools(cmd *cobra.Command, p *config.Process, names []string, o *workers.ModelOptions) (end func(), err error) {
	executor, end, err := openSandbox(cmd.Context(), cmd, p, runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	tools := func(name string) (*chatclient.Tools, error) {
		return chatclient.NewTools(chatclient.ToolConfig{Names: names, Executor: executor, Name: name, MaxResponseChars: toolChars})
	}
	if _, err := tools("check"); err != nil {
		end()
		return nil, cli.Usagef("--tools: %w", err)
	}
	o.Wrap = func(api http.Handler, model string) http.Handler {
		return &chatclient.Served{Inner: api, Model: model, NewTools: tools, MaxTurns: servedTurns}
	}
	return end, nil
}

// serveFlags are those of the listener. The key comes from the environment: every user of a
// machine sees the flags of a process.
func serveFlags(cmd *cobra.Command, cfg *server.Config) {
	cfg.Token = os.Getenv(workers.ServeKeyKey)
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8000", "host:port or unix:/path")
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "PEM file of the certificate to serve with TLS; read again when it changes")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM file of its private key")
	f.BoolVar(&cfg.Insecure, "insecure", false, "serve other machines without a key ("+workers.ServeKeyKey+")")
}

// servedModel is what a person asks to be served.
type servedModel struct {
	model string
	run   exporting
}

// directory returns a directory with the model. That of a run is made for the time of the
// service, with all bits of the weights.
func (s *servedModel) directory(ctx context.Context, p *config.Process, published bool) (dir string, remove func(), err error) {
	if _, err := os.Stat(filepath.Join(s.model, hf.ConfigFile)); err == nil {
		return s.model, func() {}, nil
	} else if info, statErr := os.Stat(s.model); statErr == nil && info.IsDir() {
		return "", nil, cli.Usagef("--model %s: no model: %w", s.model, errors.Unwrap(err))
	} else if !errors.Is(statErr, fs.ErrNotExist) {
		return "", nil, cli.Usagef("--model: %w", statErr)
	}
	store, err := openStore(ctx, p)
	if err != nil {
		return "", nil, err
	}
	tmp, err := os.MkdirTemp("", "temper-serve-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(tmp) }
	s.run.runID, s.run.dir = s.model, filepath.Join(tmp, "model")
	dtype, err := dtypeNamed("f32")
	if err == nil {
		err = s.run.export(ctx, store, dtype, published, os.Stderr)
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("--model %s: %w", s.model, err)
	}
	return s.run.dir, remove, nil
}
