package runclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/placement"
	"temper/internal/run"
	"temper/internal/run/setup"
	"temper/workflows"
)

// Submission is what a person asks for.
type Submission struct {
	File  string // of the configuration
	RunID string // "" makes one from the name of the configuration and the time
	// Seed replaces the seed of the configuration if Seeded.
	Seed   uint64
	Seeded bool
	Set    []string // KEY=VALUE over the configuration
	// From is the policy that the run starts from, RUN or RUN@POLICY; see takeFrom.
	From     string
	Priority int
	// Placement is --placement; see ParsePlacement.
	Placement string
	// Local says that the workers have the files of this machine.
	Local bool

	loaded *config.Run // by Load
	found  setup.Checked
}

// Load validates the configuration and its datasets here, so that mistakes are
// reported before anything is started, all at once.
func (s *Submission) Load() (config.Run, error) {
	if s.loaded != nil {
		return *s.loaded, nil
	}
	set, err := s.Overrides()
	cfg, loadErr := config.LoadFile(s.File, set)
	if s.From != "" && loadErr == nil {
		cfg, loadErr = cfg.From(s.From, set)
	}
	err = errors.Join(err, loadErr, CheckData(cfg))
	if s.RunID == "" {
		s.RunID = cfg.Name + "-" + time.Now().UTC().Format("20060102-150405")
	} else {
		err = errors.Join(err, history.CheckRunID(s.RunID))
	}
	if err != nil {
		return cfg, cli.Usage(err)
	}
	s.loaded = &cfg
	return cfg, nil
}

func (s *Submission) Overrides() (map[string]string, error) {
	set, err := cli.ParseSet(s.Set)
	if s.Seeded {
		set["seed"] = fmt.Sprint(s.Seed)
	}
	return set, err
}

// CheckData reads the files that a configuration names.
func CheckData(cfg config.Run) error {
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

// Check finds every mistake that can be found before a server is asked.
func (s *Submission) Check(ctx context.Context, store blob.Store) error {
	_, placementErr := ParsePlacement(s.Placement)
	if err := errors.Join(CheckPriority(s.Priority), placementErr); err != nil {
		return err
	}
	err := s.takeFrom(ctx, store)
	if err == nil {
		var cfg config.Run
		if cfg, err = s.Load(); err == nil && s.readsHere(cfg) {
			s.found, err = CheckRun(ctx, store, cfg)
		}
	}
	if history.CheckRunID(s.RunID) != nil {
		return err
	}
	taken, readErr := history.Exists(ctx, store, s.RunID)
	if taken {
		readErr = cli.Usagef("run id %q exists already at %s: choose another", s.RunID, history.Place(store, s.RunID))
	}
	return errors.Join(err, readErr)
}

// readsHere reports whether this process can read all files of the run. The control worker
// looks for a checkpoint that lies elsewhere.
func (s *Submission) readsHere(cfg config.Run) bool {
	if s.Local || cfg.Model.Path == "" {
		return true
	}
	_, err := os.Stat(cfg.Model.Path)
	return err == nil
}

// takeFrom gives --from its version, the newest of the run unless it names one.
func (s *Submission) takeFrom(ctx context.Context, store blob.Store) error {
	if s.From == "" || strings.Contains(s.From, "@") {
		return nil // the run itself checks the rest
	}
	if err := history.CheckRunID(s.From); err != nil {
		return cli.Usagef("--from: %w", err)
	}
	version, err := history.NewestPolicy(ctx, store, s.From)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	s.From = config.PolicyName(s.From, version)
	return nil
}

// WriteNote says which bits the run does not promise.
func (s *Submission) WriteNote(out io.Writer) {
	if note := s.loaded.NotPromised(); note != "" {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	for _, d := range s.found.Dropped {
		fmt.Fprintf(out, "note: %s\n", d)
	}
}

// Submit starts the workflow exactly as a plain Temporal client would.
func Submit(ctx context.Context, c client.Client, s *Submission) error {
	cfg, err := s.Load()
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
	spec, err := ParsePlacement(s.Placement)
	if err != nil {
		return err
	}
	return Start(ctx, c, run.Input{RunID: s.RunID, Config: inline, Priority: s.Priority, Placement: spec})
}

func Start(ctx context.Context, c client.Client, in run.Input) error {
	_, err := workflows.Start(ctx, c, in)
	if errors.Is(err, workflows.ErrRunning) {
		return cli.Usage(err)
	}
	return err
}

func LoadConfig(file string, set []string) (config.Run, error) {
	overrides, err := cli.ParseSet(set)
	cfg, loadErr := config.LoadFile(file, overrides)
	return cfg, errors.Join(err, loadErr)
}

// NeedsStore reports whether a run starts from the store or has data there.
func NeedsStore(cfg config.Run) bool {
	_, stored := config.StoreKey(cfg.SFT.Data.Path)
	for _, m := range cfg.Data.Mix {
		_, at := config.StoreKey(m.Path)
		stored = stored || at
	}
	for _, s := range cfg.Stages {
		_, at := config.StoreKey(s.Data.Path)
		stored = stored || at
	}
	for _, s := range cfg.Eval.Sets {
		_, at := config.StoreKey(s.Path)
		stored = stored || at
	}
	return stored || cfg.Model.Run != ""
}

// CheckRun is setup.Check with the user's mistakes marked. A store that fails is not
// one of them.
func CheckRun(ctx context.Context, store blob.Store, cfg config.Run) (setup.Checked, error) {
	found, err := setup.Check(ctx, store, cfg)
	if err != nil && !fault.IsUsers(err) && (errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrMisconfigured) || ctx.Err() != nil) {
		return found, err
	}
	if err != nil {
		return found, cli.Usage(err)
	}
	return found, nil
}

// ParsePlacement reads --placement: JSON, or the name of a file with it; "" is none.
func ParsePlacement(text string) (*placement.Spec, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // none
	}
	data := []byte(text)
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		var err error
		if data, err = os.ReadFile(text); err != nil {
			return nil, cli.Usage(fmt.Errorf("--placement: %w", err))
		}
	}
	var spec placement.Spec
	if err := config.DecodeInput(bytes.TrimSpace(data), &spec).Err(); err != nil {
		return nil, cli.Usage(fmt.Errorf("--placement: %w", err))
	}
	if wrong := spec.Check(); len(wrong) > 0 {
		return nil, cli.Usage(errors.New("--" + strings.Join(wrong, "\n--")))
	}
	return &spec, nil
}

func CheckPriority(n int) error {
	if n < 0 || n > 5 {
		return cli.Usagef("--priority: is %d, want 1 (first) to 5 (last)", n)
	}
	return nil
}

// ReadsStore reports whether the run starts from the store or has data there. A
// configuration that cannot be read does neither.
func (s *Submission) ReadsStore() bool {
	set, _ := s.Overrides() // Load reports what is wrong
	cfg, err := config.LoadFile(s.File, set)
	return s.From != "" || err == nil && NeedsStore(cfg)
}

// Checked returns what Check has found.
func (s *Submission) Checked() (config.Run, setup.Checked) { return *s.loaded, s.found }
