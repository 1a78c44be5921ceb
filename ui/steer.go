package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"temper/internal/config"
	"temper/internal/fault"
	"temper/workflows"
)

// Order is a command with the confirmation of the page.
type Order struct {
	Command workflows.Command `json:"command"`
	// Confirm repeats the id of the run; stop and restart need it.
	Confirm string `json:"confirm,omitempty"`
}

// Answer is the answer of a run to a command.
type Answer struct {
	Answer string `json:"answer"`
}

// Orders that no workflow takes: to start another run from a checkpoint of this one, and to
// pin or unpin a checkpoint. From names the checkpoint.
const (
	OrderFork  = "fork"
	OrderPin   = "pin"
	OrderUnpin = "unpin"
)

// commands holds the commands of the page, and whether each needs a confirmation.
var commands = map[string]struct{ confirm bool }{
	workflows.CommandPause: {}, workflows.CommandResume: {}, workflows.CommandCheckpoint: {}, workflows.CommandSkipStage: {},
	workflows.CommandRepeatStage: {}, workflows.CommandAmend: {}, workflows.CommandRestart: {confirm: true}, workflows.CommandStop: {confirm: true},
	OrderFork: {}, OrderPin: {}, OrderUnpin: {},
}

// commandTime bounds the wait for a run's answer.
const commandTime = 20 * time.Second

// steering sends commands to runs.
type steering struct {
	reader *runReader
	steer  Steerer // nil: no Temporal server
	log    *slog.Logger
}

func (s *steering) sendCommand(r *request, o Order) (Answer, error) {
	name, id := r.PathValue("command"), r.PathValue("run")
	about, ok := commands[name]
	if !ok {
		return Answer{}, missing("no command %s: want one of %s", brief(name), strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	if s.steer == nil {
		return Answer{}, problem{http.StatusServiceUnavailable, "this dashboard reads alone: it was started without a Temporal server"}
	}
	if _, err := s.reader.open(r); err != nil {
		return Answer{}, err
	}
	if strings.TrimSpace(o.Command.Reason) == "" {
		return Answer{}, problem{http.StatusBadRequest, "reason is empty: say why, it stays in the run's event log"}
	}
	if about.confirm && o.Confirm != id {
		return Answer{}, problem{http.StatusBadRequest, fmt.Sprintf("%s ends the run: repeat its id %q to confirm", name, id)}
	}
	if o.Command.By == "" {
		o.Command.By = "browser"
	}
	o.Command.By = "ui/" + o.Command.By
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), commandTime)
	defer cancel()
	answer, err := s.steer.Send(ctx, id, name, o.Command)
	s.log.Info("command sent", "run_id", id, "command", name, "by", o.Command.By, "err", err)
	if errors.Is(err, context.DeadlineExceeded) {
		return Answer{}, problem{http.StatusServiceUnavailable, "the run has not answered yet; the command may still take effect: look at its events"}
	}
	if err != nil && fault.Of(err) == "" {
		return Answer{}, problem{http.StatusConflict, err.Error()}
	}
	return Answer{Answer: answer}, err
}

// Change is a key that a command would change.
type Change struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Preview lists the changes that a command would make.
type Preview struct {
	// Step is the first step under the change.
	Step     int      `json:"step"`
	Changes  []Change `json:"changes"`
	Warnings []string `json:"warnings"`
	// Problems tells why the run would refuse it.
	Problems []string `json:"problems"`
}

func (s *steering) previewCommand(r *request, o Order) (Preview, error) {
	out := Preview{Changes: []Change{}, Warnings: []string{}, Problems: []string{}}
	name := r.PathValue("command")
	if name != workflows.CommandAmend && name != workflows.CommandRestart && name != OrderFork {
		return out, missing("command %s changes no key", brief(name))
	}
	h, err := s.reader.open(r)
	if err != nil {
		return out, err
	}
	cfg, err := h.Config(r.Context())
	if err != nil {
		return out, err
	}
	entry, err := h.Entry(r.Context())
	if err != nil {
		return out, err
	}
	out.Step = entry.Step + 1
	switch {
	case o.Command.FromStep != 0 && o.Command.FromStep < out.Step:
		out.Problems = append(out.Problems, fmt.Sprintf("step %d is made: amend from step %d on", o.Command.FromStep, out.Step))
	case o.Command.FromStep != 0:
		out.Step = o.Command.FromStep
	}
	if len(o.Command.Set) == 0 {
		out.Problems = append(out.Problems, "nothing is set: say what changes, for example rl.optimizer.lr=1e-4")
		return out, nil
	}
	before := cfg.At(out.Step)
	cfg.Amendments = append(slices.Clone(cfg.Amendments), config.Amendment{FromStep: out.Step, Set: o.Command.Set})
	if name == workflows.CommandAmend {
		if err := cfg.Validate(); err != nil {
			out.Problems = append(out.Problems, strings.Split(err.Error(), "\n")...)
			return out, nil
		}
	}
	after := cfg.At(out.Step)
	out.Warnings = append(out.Warnings, config.Warnings(before, after)...)
	out.Changes, err = difference(before, after)
	return out, err
}

// difference lists the keys in which two configurations differ.
func difference(before, after config.Run) ([]Change, error) {
	a, err := config.Flat(before)
	if err != nil {
		return nil, err
	}
	b, err := config.Flat(after)
	if err != nil {
		return nil, err
	}
	out := []Change{}
	keys := map[string]bool{}
	for key := range a {
		keys[key] = true
	}
	for key := range b {
		keys[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if a[key] != b[key] && !strings.HasPrefix(key, "amendments") {
			out = append(out, Change{Key: key, From: a[key], To: b[key]})
		}
	}
	return out, nil
}
