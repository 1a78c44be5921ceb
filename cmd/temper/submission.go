package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/run/setup"
	"temper/workflows"
)

// submission is what a person asks for.
type submission struct {
	config string
	runID  string
	seed   uint64
	seeded bool
	set    []string
	// from is the policy that the run starts from, RUN or RUN@POLICY; see takeFrom.
	from     string
	priority int
	// placement is --placement; see parsePlacement.
	placement string
	// local says that the workers have the files of this machine.
	local bool

	loaded *config.Run // by load
	found  setup.Checked
}

func (s *submission) flags(cmd *cobra.Command, configFlag string) {
	f := cmd.Flags()
	f.StringVar(&s.config, configFlag, "", "run configuration (YAML); relative paths in it count from its folder")
	f.StringVar(&s.runID, "run-id", "", "id of the run; default is the configuration's name and the time")
	f.Uint64Var(&s.seed, "seed", 0, "seed, over the configuration's")
	f.StringArrayVar(&s.set, "set", nil, "key=value over the configuration, for example rl.roc.enabled=false; repeatable; relative paths in it count from the working folder")
}

// takeFile takes the configuration that is named without a flag.
func (s *submission) takeFile(args []string) error {
	switch {
	case len(args) == 1 && s.config != "":
		return cli.Usagef("the configuration is named twice: %s and --config %s", args[0], s.config)
	case len(args) == 1:
		s.config = args[0]
	case s.config == "":
		return cli.Usagef("--config is missing: name the run's YAML file")
	}
	return nil
}

// load validates the configuration and its datasets here, so that mistakes are
// reported before anything is started, all at once.
func (s *submission) load() (config.Run, error) {
	if s.loaded != nil {
		return *s.loaded, nil
	}
	set, err := s.overrides()
	cfg, loadErr := config.LoadFile(s.config, set)
	if s.from != "" && loadErr == nil {
		cfg, loadErr = cfg.From(s.from, set)
	}
	err = errors.Join(err, loadErr, checkData(cfg))
	if s.runID == "" {
		s.runID = cfg.Name + "-" + time.Now().UTC().Format("20060102-150405")
	} else {
		err = errors.Join(err, history.CheckRunID(s.runID))
	}
	if err != nil {
		return cfg, cli.Usage(err)
	}
	s.loaded = &cfg
	return cfg, nil
}

func (s *submission) overrides() (map[string]string, error) {
	set, err := cli.ParseSet(s.set)
	if s.seeded {
		set["seed"] = fmt.Sprint(s.seed)
	}
	return set, err
}

// checkData reads the files that a configuration names.
func checkData(cfg config.Run) error {
	var bad []error
	if onDisk(cfg.SFT.Data.Path) {
		if _, err := dataset.Dialogues(cfg.SFT.Data, cfg.Seed); err != nil {
			bad = append(bad, underKey("sft.data.path", err))
		}
	}
	for i, part := range cfg.Data.Mix {
		if !onDisk(part.Path) {
			continue
		}
		if _, err := dataset.Dialogues(config.Source{Path: part.Path}, cfg.Seed); err != nil {
			bad = append(bad, underKey(fmt.Sprintf("data.mix[%d].path", i), err))
		}
	}
	for i, stage := range cfg.Stages {
		if !onDisk(stage.Data.Path) {
			continue
		}
		if _, err := dataset.Problems(stage.Data, cfg.Seed, env.Train); err != nil {
			bad = append(bad, underKey(fmt.Sprintf("stages[%d].data.path", i), err))
		}
	}
	return errors.Join(bad...)
}

// onDisk tells a file from generated data and from a blob of the store.
func onDisk(path string) bool {
	_, stored := config.StoreKey(path)
	return path != "" && !stored
}

// underKey puts a key before each line of an error.
func underKey(key string, err error) error {
	return errors.New(key + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+key+": "))
}

// check finds every mistake that can be found before a server is asked.
func (s *submission) check(ctx context.Context, store blob.Store) error {
	err := s.takeFrom(ctx, store)
	if err == nil {
		var cfg config.Run
		if cfg, err = s.load(); err == nil && s.here(cfg) {
			s.found, err = checkRun(ctx, store, cfg)
		}
	}
	if history.CheckRunID(s.runID) != nil {
		return err
	}
	taken, readErr := history.Exists(ctx, store, s.runID)
	if taken {
		readErr = cli.Usagef("run id %q exists already at %s: choose another", s.runID, history.Place(store, s.runID))
	}
	return errors.Join(err, readErr)
}

// rehearse finds every mistake and prints what the run would be. It opens the store only
// where the run reads from it.
func (s *submission) rehearse(cmd *cobra.Command, p *config.Process) error {
	ctx := cmd.Context()
	s.local = true // what cannot be read cannot be checked
	var store blob.Store = memblob.New()
	set, _ := s.overrides() // load reports what is wrong
	cfg, loadErr := config.LoadFile(s.config, set)
	if s.from != "" || cmd.Flags().Changed("run-id") || loadErr == nil && needsStore(cfg) {
		var err error
		if store, err = openStore(ctx, p); err != nil {
			return err
		}
	}
	if err := s.check(ctx, store); err != nil {
		return err
	}
	return describeRun(cmd.OutOrStdout(), s.config, *s.loaded, s.found)
}

// here reports whether all that the run reads can be read by this process. A
// checkpoint that lies elsewhere is looked for by the control worker.
func (s *submission) here(cfg config.Run) bool {
	if s.local || cfg.Model.Path == "" {
		return true
	}
	_, err := os.Stat(cfg.Model.Path)
	return err == nil
}

// takeFrom gives --from its version, the newest of the run unless it names one.
func (s *submission) takeFrom(ctx context.Context, store blob.Store) error {
	if s.from == "" || strings.Contains(s.from, "@") {
		return nil // the run itself checks the rest
	}
	if err := history.CheckRunID(s.from); err != nil {
		return cli.Usagef("--from: %w", err)
	}
	version, err := history.NewestPolicy(ctx, store, s.from)
	if err != nil {
		return usersError(fmt.Errorf("--from: %w", err))
	}
	s.from = config.PolicyName(s.from, version)
	return nil
}

// writeNote says which bits the run does not promise.
func (s *submission) writeNote(out io.Writer) {
	if note := s.loaded.NotPromised(); note != "" {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	for _, d := range s.found.Dropped {
		fmt.Fprintf(out, "note: %s\n", d)
	}
}

// submit starts the workflow exactly as a plain Temporal client would.
func submit(ctx context.Context, c client.Client, s *submission) error {
	cfg, err := s.load()
	if err != nil {
		return err
	}
	text, err := cfg.YAML()
	if err != nil {
		return err
	}
	inline, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	spec, err := parsePlacement(s.placement)
	if err != nil {
		return err
	}
	return start(ctx, c, run.Input{RunID: s.runID, Config: inline, Priority: s.priority, Placement: spec})
}

func start(ctx context.Context, c client.Client, in run.Input) error {
	_, err := workflows.Start(ctx, c, in)
	if errors.Is(err, workflows.ErrRunning) {
		return cli.Usage(err)
	}
	return err
}
