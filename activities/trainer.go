package activities

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/artifact"
	"temper/internal/failpoint"
	"temper/trainer/checkpoint"
)

// TrainSFT makes the supervised updates From+1 to To. A retry resumes from the
// newest checkpoint.
func (t *Trainer) TrainSFT(ctx context.Context, in TrainSFTInput) (TrainSFTResult, error) {
	var out SFTRecord
	err := t.work(ctx, func(ctx context.Context) (err error) {
		out, err = t.trainSFT(ctx, in)
		return err
	})
	return out.Result, toTemporal(err)
}

// PublishPolicy publishes the weights after SFT as policy 0, and those that a
// fork begins with. Any other policy was published by its TrainStep, and is
// looked up.
// Errors: NotFound for a policy that the run does not have yet.
func (t *Trainer) PublishPolicy(ctx context.Context, in PublishInput) (Policy, error) {
	var out Policy
	err := t.work(ctx, func(ctx context.Context) (err error) {
		out, err = t.publishPolicy(ctx, in)
		return err
	})
	return out, toTemporal(err)
}

// TrainStep applies the batch of a step exactly once and publishes the policy
// that comes of it.
func (t *Trainer) TrainStep(ctx context.Context, in TrainStepInput) (TrainStepResult, error) {
	var out TrainStepResult
	err := t.work(ctx, func(ctx context.Context) (err error) {
		out, err = t.trainStep(ctx, in)
		return err
	})
	return out, toTemporal(err)
}

// work calls f alone, while the server is told that the activity lives.
func (t *Trainer) work(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := heartbeat(ctx, func() string {
		doing, _ := t.doing.Load().(string)
		return doing
	})
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	err := f(ctx)
	if errors.Is(err, checkpoint.ErrFenced) {
		t.drop()
	}
	return err
}

func (t *Trainer) trainSFT(ctx context.Context, in TrainSFTInput) (SFTRecord, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.SFTResult(in.To)
	if done, ok, err := artifact.Lookup[SFTRecord](ctx, t.Store, key); ok || err != nil {
		return done, err
	}
	s, err := t.open(ctx, in.Run)
	if err != nil {
		return SFTRecord{}, err
	}
	if err := t.seek(ctx, in.From); err != nil {
		return SFTRecord{}, err
	}
	started := t.Now()
	tokens := 0
	for n := in.From + 1; n <= in.To; n++ {
		if err := t.seek(ctx, n); err != nil {
			return SFTRecord{}, err
		}
		tokens += s.last.Tokens
		failpoint.Hit("sft/after-update")
	}
	out := SFTRecord{To: in.To, Total: s.cfg.SFT.Steps}
	out.Result.Metrics = s.last
	out.Result.TrainTime = t.Now().Sub(started)
	out.Result.TokensPerSec = perSecond(tokens, out.Result.TrainTime)
	if err := s.saveFor(ctx, in.Save, in.To == s.cfg.SFT.Steps); err != nil {
		return SFTRecord{}, err
	}
	out.Saved = in.Save
	failpoint.Hit("sft/before-result")
	return artifact.PutOnce(ctx, t.Store, key, out)
}

func (t *Trainer) publishPolicy(ctx context.Context, in PublishInput) (Policy, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	missing := func() error {
		return missingPolicy(ctx, t.Store, ErrTypeNotFound, in.Run.RunID, int64(in.Step))
	}
	if in.Step < 0 {
		return Policy{}, missing()
	}
	if p, ok, err := artifact.Lookup[Policy](ctx, t.Store, layout.PolicyRef(int64(in.Step))); ok || err != nil {
		return p, err
	}
	cfg, err := readConfig(ctx, t.Store, in.Run)
	if err != nil {
		return Policy{}, err
	}
	_, taught, err := artifact.Lookup[SFTRecord](ctx, t.Store, layout.SFTResult(cfg.SFT.Steps))
	if err != nil {
		return Policy{}, err
	}
	forked := cfg.Fork.RunID != "" && in.Step == cfg.Fork.Step
	if !forked && (in.Step > 0 || !taught && cfg.SFT.Steps > 0) {
		return Policy{}, missing()
	}
	s, err := t.open(ctx, in.Run)
	if err != nil {
		return Policy{}, err
	}
	if err := t.seek(ctx, s.cursor(in.Step)); err != nil {
		return Policy{}, err
	}
	return s.publish(ctx)
}

func (t *Trainer) trainStep(ctx context.Context, in TrainStepInput) (TrainStepResult, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if done, ok, err := artifact.Lookup[TrainStepResult](ctx, t.Store, layout.TrainResult(in.Step)); ok || err != nil {
		return done, err
	}
	if _, ok, err := artifact.Lookup[BuildBatchResult](ctx, t.Store, layout.BatchStats(in.Step)); err != nil {
		return TrainStepResult{}, err
	} else if !ok {
		return TrainStepResult{}, permanent(ErrTypeNotFound, fmt.Errorf("run %s has no batch of step %d", in.Run.RunID, in.Step))
	}
	s, err := t.open(ctx, in.Run)
	if err != nil {
		return TrainStepResult{}, err
	}
	if err := t.seek(ctx, s.cursor(in.Step-1)); err != nil {
		return TrainStepResult{}, err
	}
	failpoint.Hit("train/before-update")
	started := t.Now()
	if err := t.seek(ctx, s.cursor(in.Step)); err != nil {
		return TrainStepResult{}, err
	}
	failpoint.Hit("train/after-update")
	out := TrainStepResult{Metrics: s.last}
	if out.Policy, err = s.publish(ctx); err != nil {
		return TrainStepResult{}, err
	}
	trained := t.Now()
	out.TrainTime = trained.Sub(started)
	if err := s.saveFor(ctx, in.Save, s.endsStage(in.Step)); err != nil {
		return TrainStepResult{}, err
	}
	out.Saved, out.SaveTime = in.Save, t.Now().Sub(trained)
	failpoint.Hit("train/before-result")
	return artifact.PutOnce(ctx, t.Store, layout.TrainResult(in.Step), out)
}

// publish stores the weights at the current cursor as a policy. Publishing a
// stored one again changes nothing.
func (s *session) publish(ctx context.Context) (Policy, error) {
	version := int64(s.at - s.cursor(0))
	if err := s.lease.Check(ctx); err != nil {
		return Policy{}, err
	}
	ref, err := s.learner.Publish(ctx, s.store, s.layout.Policy(version), checkpoint.Policy{
		Model: s.model, Tokenizer: s.tokenizerJSON, Files: s.files,
	})
	if err != nil {
		return Policy{}, fmt.Errorf("publish policy %d: %w", version, err)
	}
	failpoint.Hit("policy/before-ref")
	return artifact.PutOnce(ctx, s.store, s.layout.PolicyRef(version), Policy{Version: version, Ref: ref})
}
