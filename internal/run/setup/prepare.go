package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/failpoint"
	"temper/internal/fault"
	"temper/internal/run"
)

// Prepare makes or imports all data of a run: dialogues, tokenizer, the
// training and held-out problems of each stage. It calls progress with what it does,
// when that changes. Errors: Dataset, InvalidConfig.
func Prepare(ctx context.Context, store blob.Store, ref run.Ref, progress func(string)) (run.Prepared, error) {
	layout := artifact.Layout{RunID: ref.RunID}
	if done, ok, err := artifact.Lookup[run.Prepared](ctx, store, layout.DataReady()); ok || err != nil {
		return done, err
	}
	started := time.Now()
	cfg, err := run.ReadConfig(ctx, store, ref)
	if err != nil {
		return run.Prepared{}, err
	}
	p := preparation{store: store, layout: layout, cfg: cfg, progress: progress}
	if cfg.Fork.RunID != "" {
		err = p.prepareFork(ctx, ref)
	} else {
		err = p.prepareNew(ctx)
	}
	if err != nil {
		return run.Prepared{}, err
	}
	p.out.DurationMS = int(time.Since(started).Milliseconds())
	failpoint.Hit("prepare/before-ready")
	return artifact.PutOnce(ctx, store, layout.DataReady(), p.out)
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
	// sets are those of the stages by their keys, once they are gathered, and heldOut all
	// problems that no stage may train on.
	sets    map[string]stageSet
	heldOut dataset.HeldOut
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
	ds, err := p.readDialogues(ctx)
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
		ds, err = p.dropLong(ds)
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
	return p.keep(run.PutLines(ctx, p.store, p.layout.Dialogues(), ds))
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
func (p *preparation) readDialogues(ctx context.Context) ([]chat.Dialogue, error) {
	src := p.cfg.SFT.Data
	if p.cfg.SFT.Steps == 0 {
		return nil, nil
	}
	if len(p.cfg.Data.Mix) > 0 {
		return p.mixDialogues(ctx)
	}
	return p.dialoguesOf(ctx, src)
}

func (p *preparation) dialoguesOf(ctx context.Context, src config.Source) ([]chat.Dialogue, error) {
	if key, stored := config.StoreKey(src.Path); stored {
		return fromStore(ctx, p.store, key, dataset.ReadDialogues)
	}
	ds, err := dataset.Dialogues(src, p.cfg.Seed)
	return ds, asDataset(err)
}

// learnTokenizer makes the tokenizer from the dialogues, which it fits to the format.
func (p *preparation) learnTokenizer(ds *[]chat.Dialogue) (tokenizerJSON []byte, err error) {
	if p.template, err = findTemplate(p.cfg, "", nil); err != nil {
		return nil, config.Problems{templateProblem(err)}
	}
	format := run.ChatConfig(p.cfg, p.template, p.functions())
	plain, err := chat.NewPlain(format)
	if err != nil {
		return nil, config.Problems{templateProblem(err)}
	}
	if *ds, err = p.adaptDialogues(plain, *ds); err != nil {
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
	s, err := openStart(ctx, p.store, p.cfg, p.functions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.template, p.format, p.out.VocabSize = s.template, s.format, s.model.VocabSize
	if *ds, err = p.adaptDialogues(p.format, *ds); err != nil {
		return nil, err
	}
	p.out.Start, err = s.store(ctx, p.store, p.layout)
	return s.tokenizerJSON, err
}
