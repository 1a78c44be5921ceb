package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/fault"
	"temper/internal/proc/failpoint"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Prepare makes or imports all data of a run: dialogues, tokenizer, the
// training and held-out problems of each stage. It calls progress with what it does,
// when that changes. Errors: Dataset, InvalidConfig.
func Prepare(ctx context.Context, store blob.Store, ref run.Ref, progress func(string)) (run.Prepared, error) {
	layout := artifact.Layout{RunID: ref.RunID}
	if done, ok, err := artifact.Lookup[run.Prepared](ctx, store, layout.Data().Ready()); ok || err != nil {
		return done, err
	}
	started := time.Now()
	cfg, err := run.ReadConfig(ctx, store, ref)
	if err != nil {
		return run.Prepared{}, err
	}
	p := preparation{store: store, layout: layout, cfg: cfg, progress: progress, sieve: dataFilter{cfg: cfg}}
	if cfg.Fork.RunID != "" {
		err = p.prepareFork(ctx, ref)
	} else {
		err = p.prepareNew(ctx)
	}
	if err != nil {
		return run.Prepared{}, err
	}
	p.out.Dropped = p.sieve.dropped
	p.out.DurationMS = int(time.Since(started).Milliseconds())
	failpoint.Hit("prepare/before-ready")
	return artifact.PutOnce(ctx, store, layout.Data().Ready(), p.out)
}

// preparation writes the data of a run. Nothing counts before the marker that
// Prepare writes last.
type preparation struct {
	store  blob.Store
	layout artifact.Layout
	cfg    config.Run
	// template is nil for the small ChatML.
	template *chat.Template
	format   *chat.Format
	code     run.Code
	out      run.Prepared
	progress func(string)
	// prompts are the prompts of the problems of eval.sets, by their keys.
	prompts map[dataset.Key]string
	// sets are the sets of the stages by their keys, once they are gathered.
	sets  map[string]stageSet
	sieve dataFilter
}

// prepareNew makes or imports all data.
func (p *preparation) prepareNew(ctx context.Context) error {
	var err error
	if p.code, err = findCode(p.cfg); err != nil {
		return err
	}
	p.progress("dialogues and tokenizer")
	if err := p.writeDialogues(ctx); err != nil {
		return err
	}
	if err := (evaluated{p}).writeSets(ctx); err != nil {
		return err
	}
	p.gather(ctx)
	for i, s := range p.cfg.Stages {
		p.progress("problems of stage " + s.Name)
		if err := p.writeStage(ctx, i+1, s); err != nil {
			return err
		}
	}
	return nil
}

// writeDialogues makes the supervised data and, from it or the checkpoint that the
// run starts from, the tokenizer.
func (p *preparation) writeDialogues(ctx context.Context) error {
	ds, err := readDialogues(ctx, p.store, p.cfg)
	if err != nil {
		return fmt.Errorf("sft.data: %w", err)
	}
	var data []byte
	if p.cfg.Model.Starts() {
		data, err = p.storeStart(ctx, &ds)
	} else {
		data, err = p.learnTokenizer(&ds)
	}
	if err == nil {
		ds, err = p.sieve.dropLong(p.format, ds)
	}
	if err != nil {
		return err
	}
	p.out.Dialogues = len(ds)
	if err := p.keep(blob.PutBytes(ctx, p.store, p.layout.Tokenizer(), data, blob.Always)); err != nil {
		return err
	}
	if err := p.storeTemplate(ctx); err != nil {
		return err
	}
	if err := p.storeCode(ctx); err != nil {
		return err
	}
	return p.keep(run.PutLines(ctx, p.store, p.layout.SFT().Dialogues(), ds))
}

// keep notes what was stored.
func (p *preparation) keep(ref blob.Ref, err error) error {
	if err == nil {
		p.out.Files = append(p.out.Files, ref)
	}
	return err
}

// readDialogues makes or imports the dialogues, none for a run without
// supervised updates.
func readDialogues(ctx context.Context, store blob.Store, cfg config.Run) ([]chat.Dialogue, error) {
	if cfg.SFT.Steps == 0 {
		return nil, nil
	}
	if len(cfg.Data.Mix) > 0 {
		return mixDialogues(ctx, store, cfg)
	}
	return dialoguesOf(ctx, store, cfg.SFT.Data, cfg.Seed)
}

func dialoguesOf(ctx context.Context, store blob.Store, src config.Source, seed uint64) ([]chat.Dialogue, error) {
	if key, stored := config.StoreKey(src.Path); stored {
		return fromStore(ctx, store, key, dataset.ReadDialogues)
	}
	ds, err := dataset.Dialogues(src, seed)
	return ds, asDataset(err)
}

// mixPart is one file of a mix with so many rows.
func mixPart(cfg config.Run, m config.MixPart, rows int) dataset.Part {
	if cfg.Data.MixBy == config.MixByWeights {
		return dataset.Part{Rows: rows, Weight: m.Share}
	}
	return dataset.Part{Rows: rows, Epochs: m.Share}
}

// mixDialogues reads the files of data.mix and mixes them.
func mixDialogues(ctx context.Context, store blob.Store, cfg config.Run) ([]chat.Dialogue, error) {
	var files [][]chat.Dialogue
	var parts []dataset.Part
	var bad []error
	for i, m := range cfg.Data.Mix {
		ds, err := dialoguesOf(ctx, store, config.Source{Path: m.Path}, cfg.Seed)
		if err != nil {
			bad = append(bad, fmt.Errorf("data.mix[%d]: %w", i, err))
			continue
		}
		files, parts = append(files, ds), append(parts, mixPart(cfg, m, len(ds)))
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	picks, err := dataset.Mix(parts, cfg.Data.MixNum, cfg.Seed)
	if err != nil {
		return nil, fault.Newf(fault.Dataset, "data.mix: %w", err)
	}
	out := make([]chat.Dialogue, len(picks))
	for i, pick := range picks {
		out[i] = files[pick.Part][pick.Row]
	}
	return out, nil
}

// learnTokenizer makes the tokenizer from the dialogues, which it fits to the format.
func (p *preparation) learnTokenizer(ds *[]chat.Dialogue) (tokenizerJSON []byte, err error) {
	if p.template, err = findTemplate(p.cfg, "", nil); err != nil {
		return nil, config.Problems{templateProblem(err)}
	}
	format := run.ChatConfig(p.cfg, p.template, p.code.Functions())
	plain, err := chat.NewPlain(format)
	if err != nil {
		return nil, config.Problems{templateProblem(err)}
	}
	if *ds, err = p.sieve.adaptDialogues(plain, *ds); err != nil {
		return nil, err
	}
	tok, err := chat.TrainTokenizer(format, *ds, p.cfg.Tokenizer.NumMerges)
	if err != nil {
		return nil, fault.Newf(fault.Dataset, "sft.data: %w", err)
	}
	if p.format, err = chat.New(tok, format); err != nil {
		return nil, err
	}
	p.out.VocabSize = tok.VocabSize()
	return tok.Marshal()
}

// storeStart stores the checkpoint that the run starts from; its tokenizer is the run's.
func (p *preparation) storeStart(ctx context.Context, ds *[]chat.Dialogue) (tokenizerJSON []byte, err error) {
	s, err := openStart(ctx, p.store, p.cfg, p.code.Functions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.template, p.format, p.out.VocabSize = s.template, s.format, s.model.VocabSize
	if *ds, err = p.sieve.adaptDialogues(p.format, *ds); err != nil {
		return nil, err
	}
	p.out.Start, err = s.store(ctx, p.store, p.layout, p.cfg.Checkpoint)
	return s.tokenizerJSON, err
}
