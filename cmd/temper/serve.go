package main

import (
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/openai/chatclient"
	"temper/internal/run/modeldir"
	"temper/internal/service/runclient"
	"temper/sandbox/server"
	"temper/workers"
)

// servedTurns bounds the turns of an answer whose tools the server runs.
const servedTurns = 10

func serveCommand(p *config.Process) *cobra.Command {
	o := workers.ModelOptions{Slots: 64}
	var asked modelFlags
	var tools []string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a model with the API of OpenAI's servers", Args: cobra.NoArgs,
		Long: `Serves a model for clients of OpenAI and vLLM: /v1/models, /v1/completions, /v1/chat/completions with
streams and tools, /tokenize, /detokenize, /health and /metrics. Prints one line of JSON when it answers.

The model is a directory in Hugging Face layout, or a run, of which it takes the newest checkpoint or
what --step or --policy-version chooses.`,
	}
	f := cmd.Flags()
	cli.PythonFlag(f, p)
	asked.add(f)
	f.StringVar(&o.Name, "name", "", "what clients call the model; the name of the directory or the run by default")
	f.StringVar(&o.Backend, "backend", "", "device that computes; the Go backend by default")
	f.IntVar(&o.Slots, "slots", o.Slots, "answers that are sampled at a time")
	f.IntVar(&o.MaxContext, "max-context", 0, "tokens of a prompt and its answer together; what the model allows by default")
	f.StringSliceVar(&tools, "tools", nil, "built-in tools, such as python, that the server runs itself in the sandbox for chats that bring none")
	serveFlags(cmd, &o.Server)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if asked.model == "" {
			return cli.Usagef("--model is missing: a directory or the id of a run")
		}
		if err := onlyOne(cmd, "step", "policy-version"); err != nil {
			return err
		}
		if o.Slots < 1 || o.MaxContext < 0 {
			return cli.Usagef("--slots %d, --max-context %d: want at least 1 and 0", o.Slots, o.MaxContext)
		}
		if err := o.Server.Check(); err != nil {
			return cli.Usage(err)
		}
		model, err := modeldir.Open(ctx, asked.model, asked.source, runclient.StoreOf(p))
		if err != nil {
			return err
		}
		defer model.Close()
		o.Dir, o.Log = model.Dir, sandboxLogger("serve", false)
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
		return workers.Serve(o).Serve(ctx, workers.ServeOptions{Log: o.Log})
	}
	return cmd
}

// serveTools lets the server run tools.
func serveTools(cmd *cobra.Command, p *config.Process, names []string, o *workers.ModelOptions) (end func(), err error) {
	executor, end, err := workers.OpenSandbox(cmd.Context(), p, cmd.Flags().Changed("sandbox"), 0)
	if err != nil {
		return nil, err
	}
	tools := func(name string) (*chatclient.Tools, error) {
		return chatclient.NewTools(chatclient.ToolConfig{Names: names, Executor: executor, Name: name, MaxResponseChars: workers.MaxToolChars})
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

// serveFlags add the flags of the listener. The key comes from the environment: every user
// of a machine sees the flags of a process.
func serveFlags(cmd *cobra.Command, cfg *server.Config) {
	cfg.Token = os.Getenv(workers.ServeKeyKey)
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8000", "host:port or unix:/path")
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "PEM file of the certificate to serve with TLS; read again when it changes")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM file of its private key")
	f.BoolVar(&cfg.Insecure, "insecure", false, "serve other machines without a key ("+workers.ServeKeyKey+")")
}
