package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Checked is what Check learned of a run.
type Checked struct {
	Dialogues, Problems, HeldOut int
	// SFTSteps is the number of supervised updates, those of sft.epochs too.
	SFTSteps int
	// VocabSize is the number of tokens of the vocabulary.
	VocabSize int
	// LongestDialogue is in tokens; 0 without supervised updates.
	LongestDialogue int
	// TokenBudget is the longest prompt with the response that its stage allows.
	TokenBudget int
	// Dropped are rows that the run does not take.
	Dropped []run.Dropped
}

// Check does what Open and Prepare do with a valid configuration up to where they write,
// and continues after a mistake: it opens what the run starts from, reads or makes all
// data, and counts the tokens. It reads the store for starts and data in it. The error has
// a line for each mistake.
func Check(ctx context.Context, store blob.Store, cfg config.Run) (Checked, error) {
	var bad []error
	countErr := countEpochs(ctx, store, &cfg)
	p := &preparation{store: store, layout: artifact.Layout{RunID: "check"}, cfg: cfg, sieve: dataFilter{cfg: cfg}}
	code, err := findCode(cfg)
	bad = append(bad, err)
	if p.code = code; err != nil {
		p.code.Tools = nil // a schema may be missing
	}
	var dialogues []chat.Dialogue
	if err = countErr; err == nil {
		dialogues, err = readDialogues(ctx, store, cfg)
		err = underKey("sft.data", err)
	}
	bad = append(bad, err)
	// Without dialogues a tokenizer cannot be learned, and nothing can be counted.
	if err == nil || cfg.Model.Starts() {
		bad = append(bad, p.findFormat(ctx, &dialogues))
	} else {
		bad = append(bad, checkChat(cfg, p.code.Functions()))
	}
	dialogues, err = p.sieve.dropLong(p.format, dialogues)
	bad = append(bad, err)
	longest, err := p.longest(dialogues)
	bad = append(bad, err)
	for i := range cfg.Eval.Sets {
		_, err := (evaluated{p}).readSet(ctx, i)
		bad = append(bad, underKey(setKey(i), err))
	}
	p.gather(ctx)
	for i, s := range cfg.Stages {
		train, _, err := p.stageProblems(ctx, dataKey(i+1), s)
		bad = append(bad, underKey(dataKey(i+1), err))
		if err == nil {
			_, err = (evaluated{p}).readRates(i+1, train)
			bad = append(bad, err)
		}
	}
	return Checked{
		SFTSteps: cfg.SFT.Steps, Dialogues: len(dialogues), Problems: p.out.Problems, HeldOut: p.out.NumHeldOut, VocabSize: p.out.VocabSize,
		LongestDialogue: longest, TokenBudget: p.out.TokenBudget, Dropped: p.sieve.dropped,
	}, errors.Join(bad...)
}

// findFormat takes the format of what the run starts from, or makes that of a run
// from random weights.
func (p *preparation) findFormat(ctx context.Context, dialogues *[]chat.Dialogue) error {
	if !p.cfg.Model.Starts() {
		_, err := p.learnTokenizer(dialogues)
		return err
	}
	s, err := openStart(ctx, p.store, p.cfg, p.code.Functions())
	if err != nil {
		return err
	}
	p.template, p.format, p.out.VocabSize = s.template, s.format, s.model.VocabSize
	*dialogues, err = p.sieve.adaptDialogues(p.format, *dialogues)
	return errors.Join(err, s.Close())
}

// longest is the length of the longest dialogue in tokens. One that does not fit the
// context is a mistake.
func (p *preparation) longest(dialogues []chat.Dialogue) (int, error) {
	if p.format == nil {
		return 0, nil
	}
	longest := 0
	var bad []error
	for i, d := range dialogues {
		t, err := p.format.Render(d)
		if err == nil {
			n := len(t.Tokens())
			if longest = max(longest, n); n > p.cfg.Model.MaxContext {
				err = fmt.Errorf("has %d tokens, above model.max_context (%d)", n, p.cfg.Model.MaxContext)
			}
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("sft.data: dialogue %d: %w", i+1, err))
		}
		if len(bad) == maxReported {
			break
		}
	}
	return longest, errors.Join(bad...)
}

// underKey puts a key before each line of an error that has none.
func underKey(key string, err error) error {
	var problems config.Problems
	if err == nil || errors.As(err, &problems) {
		return err
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, key) {
			lines[i] = key + ": " + line
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}
