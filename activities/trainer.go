package activities

import (
	"context"
	"fmt"
	"sync/atomic"

	"temper/internal/artifact"
)

// TrainSFT makes the supervised updates From+1 to To.
func (t *Trainer) TrainSFT(ctx context.Context, in TrainSFTInput) (TrainSFTResult, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.SFTResult(in.To)
	if done, ok, err := artifact.Lookup[SFTRecord](ctx, t.Store, key); ok || err != nil {
		return done.Result, toTemporal(err)
	}
	out, err := t.trainSFT(ctx, in)
	return out.Result, toTemporal(err)
}

func (t *Trainer) trainSFT(ctx context.Context, in TrainSFTInput) (SFTRecord, error) {
	var done atomic.Int64
	done.Store(int64(in.From))
	stop := heartbeat(ctx, func() any { return fmt.Sprintf("update %d of %d", done.Load(), in.To) })
	defer stop()
	s, err := t.seek(ctx, in.Run, in.From)
	if err != nil {
		return SFTRecord{}, err
	}
	started := t.Now()
	tokens := 0
	for n := in.From + 1; n <= in.To; n++ {
		if s, err = t.seek(ctx, in.Run, n); err != nil {
			return SFTRecord{}, err
		}
		tokens += s.last.Tokens
		done.Store(int64(n))
	}
	out := SFTRecord{To: in.To, Total: s.cfg.SFT.Steps}
	out.Result.Metrics = s.last
	out.Result.TrainTime = t.Now().Sub(started)
	out.Result.TokensPerSec = perSecond(tokens, out.Result.TrainTime)
	if in.Save {
		if err := s.save(ctx); err != nil {
			return out, err
		}
	}
	return artifact.PutOnce(ctx, t.Store, s.layout.SFTResult(in.To), out)
}

// PublishPolicy publishes the weights after a step as a policy, or finds the
// one that was published then.
func (t *Trainer) PublishPolicy(ctx context.Context, in PublishInput) (Policy, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.PolicyRef(int64(in.Step))
	if p, ok, err := artifact.Lookup[Policy](ctx, t.Store, key); ok || err != nil {
		return p, toTemporal(err)
	}
	stop := heartbeat(ctx, func() any { return nil })
	defer stop()
	s, err := t.seekStep(ctx, in.Run, in.Step)
	if err != nil {
		return Policy{}, toTemporal(err)
	}
	p, err := s.publish(ctx)
	return p, toTemporal(err)
}

func (t *Trainer) seekStep(ctx context.Context, run RunRef, step int) (*session, error) {
	s, err := t.open(ctx, run)
	if err != nil {
		return nil, err
	}
	return t.seek(ctx, run, s.cfg.SFT.Steps+step)
}

func (s *session) publish(ctx context.Context) (Policy, error) {
	version := int64(s.at - s.cfg.SFT.Steps)
	ref, err := s.learner.Publish(ctx, s.store, s.layout.Policy(version), s.tokenizerJSON)
	if err != nil {
		return Policy{}, fmt.Errorf("publish policy %d: %w", version, err)
	}
	return artifact.PutOnce(ctx, s.store, s.layout.PolicyRef(version), Policy{Version: version, Ref: ref})
}

// TrainStep applies the batch of a step exactly once and publishes the policy
// that comes of it.
func (t *Trainer) TrainStep(ctx context.Context, in TrainStepInput) (TrainStepResult, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.TrainResult(in.Step)
	if done, ok, err := artifact.Lookup[TrainStepResult](ctx, t.Store, key); ok || err != nil {
		return done, toTemporal(err)
	}
	stop := heartbeat(ctx, func() any { return nil })
	defer stop()
	out, err := t.trainStep(ctx, in)
	if err != nil {
		return out, toTemporal(err)
	}
	out, err = artifact.PutOnce(ctx, t.Store, key, out)
	return out, toTemporal(err)
}

func (t *Trainer) trainStep(ctx context.Context, in TrainStepInput) (TrainStepResult, error) {
	if _, err := t.seekStep(ctx, in.Run, in.Step-1); err != nil {
		return TrainStepResult{}, err
	}
	started := t.Now()
	s, err := t.seekStep(ctx, in.Run, in.Step)
	if err != nil {
		return TrainStepResult{}, err
	}
	out := TrainStepResult{Metrics: s.last}
	if out.Policy, err = s.publish(ctx); err != nil {
		return out, err
	}
	trained := t.Now()
	out.TrainTime = trained.Sub(started)
	if in.Save {
		if err := s.save(ctx); err != nil {
			return out, err
		}
		out.SaveTime = t.Now().Sub(trained)
	}
	return out, nil
}
