package learner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/proc"
	"temper/internal/proc/failpoint"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/chain"
	"temper/internal/series"
	"temper/trainer/checkpoint"
)

// Config has the parts and limits of a Service.
type Config struct {
	Store blob.Store
	// New makes a learner without weights from a run's configuration and model.
	New func(*run.Loaded) (Learner, error)
	// OnLease is called with the epoch of each lease that was acquired; nil for none.
	OnLease func(run string, epoch int64)
	Now     func() time.Time
	// Meter measures the processor time of the machine; nil measures nothing.
	Meter *proc.Meter
	// Graphs counts the programs compiled since the process began; nil without a compiler.
	Graphs func() series.Graphs
	// Work returns what an update by so many tokens in so many sequences computes, and the
	// peak of the devices; nil when unknown.
	Work func(r *run.Loaded, tokens, sequences int) *series.Work
	// Background stores a checkpoint while calls continue; nil starts a goroutine.
	Background func(task func())
	// Log is for operators; nil discards.
	Log *slog.Logger
	// MaxResident bounds the runs whose state stays in memory while another one is trained,
	// and MaxResidentBytes the memory of all of them with the trained one; 0 keeps none.
	MaxResident      int
	MaxResidentBytes int64
	// MadeBy describes this program and machine in the records of a run; nil omits them.
	MadeBy func(config.Run) chain.Maker
	// Sharing tells how policies are published.
	Sharing
	// Rehearsal is set when the stored objects are discarded afterwards: the service makes
	// only the checkpoints that a caller asks for, and deletes nothing.
	Rehearsal bool
}

// Sharing configures how policies are published. The zero value is usable.
type Sharing struct {
	// Memory is memory for the policies of a run that engines of this host read; nil gives
	// none.
	Memory func(run string) checkpoint.ShardMemory
	// Published has the policies as they were published first. A policy that is made again
	// takes their form; nil means that the store has them.
	Published blob.Store
}

// Service updates policies. It trains one run at a time, keeps the states of a
// few others, and can rebuild each from the store at any moment. Its calls run
// one after another. Each is idempotent by run and step.
type Service struct {
	Config
	mu      sync.Mutex
	current *session
	parked  residents
	doing   atomic.Value // string
}

// NewService returns a service without a run.
func NewService(c Config) *Service {
	if c.Background == nil {
		c.Background = func(task func()) { go task() }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := &Service{Config: c}
	t.parked.limits = &t.Config
	return t
}

// Doing describes the current work for people.
func (t *Service) Doing() string {
	doing, _ := t.doing.Load().(string)
	return doing
}

// SFTInput asks for supervised updates From+1..To. A retry resumes.
type SFTInput struct {
	Run      run.Ref `json:"run"`
	From, To int
	// Save asks for a checkpoint at To.
	Save bool `json:"save"`
}

// TrainSFT makes the supervised updates From+1 to To. A retry resumes from the
// newest checkpoint.
func (t *Service) TrainSFT(ctx context.Context, in SFTInput) (run.SFTResult, error) {
	defer t.lock()()
	out, err := t.trainSFT(ctx, in)
	return out.Result, t.settle(err)
}

// PublishInput asks for the weights at Step as a served policy.
type PublishInput struct {
	Run  run.Ref `json:"run"`
	Step int     `json:"step"` // 0 = after SFT
}

// Publish publishes the weights after SFT as policy 0, and the first weights of a fork. It
// looks any other policy up, which TrainStep has published. Errors: NotFound for a policy
// that the run does not have yet.
func (t *Service) Publish(ctx context.Context, in PublishInput) (run.Policy, error) {
	defer t.lock()()
	out, err := t.publishPolicy(ctx, in)
	return out, t.settle(err)
}

// StepInput asks for the update of a step. It is applied exactly once.
type StepInput struct {
	Run  run.Ref `json:"run"`
	Step int     `json:"step"`
	// Batch is the batch that BuildBatch returned; zero for a step without an update.
	Batch blob.Ref `json:"batch"`
	// Save asks for a checkpoint after the step.
	Save bool `json:"save"`
}

// TrainStep applies the batch of a step exactly once and publishes the new policy.
func (t *Service) TrainStep(ctx context.Context, in StepInput) (run.Trained, error) {
	defer t.lock()()
	out, err := t.trainStep(ctx, in)
	return out, t.settle(err)
}

// SaveInput asks for a checkpoint after Step (0 = after SFT).
type SaveInput struct {
	Run  run.Ref `json:"run"`
	Step int     `json:"step"`
}

// SaveCheckpoint saves the state after a step, unless its checkpoint exists.
func (t *Service) SaveCheckpoint(ctx context.Context, in SaveInput) error {
	defer t.lock()()
	s, err := t.open(ctx, in.Run)
	if err == nil {
		err = t.seek(ctx, s.timetable().cursor(in.Step))
	}
	if err == nil {
		err = s.saveNow(ctx)
	}
	return t.settle(err)
}

// Close ends all sessions, once no call runs. It waits up to patience for a running save. A
// save that takes longer is lost; the process that continues the run makes it again.
func (t *Service) Close(patience time.Duration) {
	defer t.lock()()
	late := time.After(patience)
	for _, s := range append(slices.Clone(t.parked.sessions), t.current) {
		if s != nil && !s.saves.wait(late) {
			late = time.After(0) // for the others
		}
	}
	t.parked.close()
	t.drop()
}

// lock acquires the service and returns the function that releases it.
func (t *Service) lock() (unlock func()) {
	t.mu.Lock()
	return t.mu.Unlock
}

// settle drops a session whose lease another trainer has, or whose device has failed. The
// next attempt opens the device again and continues from the newest checkpoint.
func (t *Service) settle(err error) error {
	var failure interface{ DeviceFailed() bool }
	if errors.Is(err, checkpoint.ErrFenced) || errors.As(err, &failure) && failure.DeviceFailed() {
		t.drop()
	}
	return err
}

// drop ends the current session.
func (t *Service) drop() {
	if t.current != nil {
		t.current.close()
		t.current = nil
	}
}

func (t *Service) trainSFT(ctx context.Context, in SFTInput) (run.SFTRecord, error) {
	key := artifact.Layout{RunID: in.Run.RunID}.SFT().Result(in.To)
	if done, ok, err := artifact.Lookup[run.SFTRecord](ctx, t.Store, key); ok || err != nil {
		return done, err
	}
	s, err := t.open(ctx, in.Run)
	if err != nil {
		return run.SFTRecord{}, err
	}
	if err := t.seek(ctx, in.From); err != nil {
		return run.SFTRecord{}, err
	}
	started := t.Now()
	tokens := 0
	for n := in.From + 1; n <= in.To; n++ {
		if err := t.seek(ctx, n); err != nil {
			return run.SFTRecord{}, err
		}
		tokens += s.last.Tokens
		failpoint.Hit("sft/after-update")
	}
	out := run.SFTRecord{To: in.To, Total: s.Config.SFT.Steps}
	out.Result.Metrics = s.last
	out.Result.TrainTime = t.Now().Sub(started)
	out.Result.TokensPerSec = series.PerSecond(tokens, out.Result.TrainTime)
	if err := s.saveIfAsked(ctx, in.Save, in.To == s.Config.SFT.Steps); err != nil {
		return run.SFTRecord{}, err
	}
	out.Saved = in.Save
	failpoint.Hit("sft/before-result")
	return artifact.PutOnce(ctx, t.Store, key, out)
}

func (t *Service) publishPolicy(ctx context.Context, in PublishInput) (run.Policy, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	missing := func() error {
		return run.MissingPolicy(ctx, t.Store, fault.NotFound, in.Run.RunID, int64(in.Step))
	}
	if in.Step < 0 {
		return run.Policy{}, missing()
	}
	if p, ok, err := artifact.Lookup[run.Policy](ctx, t.Store, layout.Policy(int64(in.Step)).Ref()); ok || err != nil {
		return p, err
	}
	cfg, err := run.ReadConfig(ctx, t.Store, in.Run)
	if err != nil {
		return run.Policy{}, err
	}
	_, taught, err := artifact.Lookup[run.SFTRecord](ctx, t.Store, layout.SFT().Result(cfg.SFT.Steps))
	if err != nil {
		return run.Policy{}, err
	}
	forked := cfg.Fork.RunID != "" && in.Step == cfg.Fork.Step
	if !forked && (in.Step > 0 || !taught && cfg.SFT.Steps > 0) {
		return run.Policy{}, missing()
	}
	s, err := t.open(ctx, in.Run)
	if err != nil {
		return run.Policy{}, err
	}
	if err := t.seek(ctx, s.timetable().cursor(in.Step)); err != nil {
		return run.Policy{}, err
	}
	return s.publish(ctx)
}

func (t *Service) trainStep(ctx context.Context, in StepInput) (run.Trained, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	if done, ok, err := artifact.Lookup[run.Trained](ctx, t.Store, layout.Step(in.Step).TrainResult()); ok || err != nil {
		return done, err
	}
	if err := t.checkBatch(ctx, in); err != nil {
		return run.Trained{}, err
	}
	s, err := t.open(ctx, in.Run)
	if err != nil {
		return run.Trained{}, err
	}
	at := s.timetable()
	if err := t.seek(ctx, at.cursor(in.Step-1)); err != nil {
		return run.Trained{}, err
	}
	failpoint.Hit("train/before-update")
	started, span := t.Now(), t.Meter.Begin()
	compiled := beginCompilation(t.Graphs)
	if err := t.seek(ctx, at.cursor(in.Step)); err != nil {
		return run.Trained{}, err
	}
	failpoint.Hit("train/after-update")
	out := run.Trained{Metrics: s.last}
	if t.MadeBy != nil {
		out.MadeBy = t.MadeBy(s.Config.At(in.Step))
	}
	publishing := t.Now()
	if out.Policy, err = s.publish(ctx); err != nil {
		return run.Trained{}, err
	}
	trained := t.Now()
	out.PublishTime = trained.Sub(publishing)
	out.TrainTime, out.Busy = trained.Sub(started), span.End()
	compiled.end(out.Busy)
	if t.Work != nil && out.Busy != nil && s.samples > 0 {
		out.Busy.Work = t.Work(s.Loaded, s.last.Tokens, s.samples)
	}
	if err := s.saveIfAsked(ctx, in.Save, at.endsStage(in.Step)); err != nil {
		return run.Trained{}, err
	}
	out.Saved, out.SaveTime = in.Save, t.Now().Sub(trained)
	failpoint.Hit("train/before-result")
	return artifact.PutOnce(ctx, t.Store, layout.Step(in.Step).TrainResult(), out)
}

// compilation counts the programs compiled during a span of work. before is the count at
// its beginning; nil when not counted.
type compilation struct {
	count  func() series.Graphs
	before *series.Graphs
}

func beginCompilation(count func() series.Graphs) compilation {
	if count == nil {
		return compilation{}
	}
	before := count()
	return compilation{count, &before}
}

// end adds the compilations since the beginning to busy.
func (c compilation) end(busy *series.Busy) {
	if busy == nil || c.before == nil {
		return
	}
	g := c.count()
	g.Compiled -= c.before.Compiled
	g.Loaded -= c.before.Loaded
	g.Compiling -= c.before.Compiling
	busy.Graphs = &g
}

// checkBatch refuses a batch other than the stored one, which a replay of the step would
// read. Errors: NotFound, Conflict.
func (t *Service) checkBatch(ctx context.Context, in StepInput) error {
	layout := artifact.Layout{RunID: in.Run.RunID}
	built, ok, err := artifact.Lookup[run.BuiltBatch](ctx, t.Store, layout.Step(in.Step).BatchStats())
	switch {
	case err != nil:
		return blob.AtRef(err, blob.Ref{Key: layout.Step(in.Step).BatchStats()})
	case !ok:
		return missingBatch(layout, in.Step)
	case built.Samples > 0 && built.Batch != in.Batch:
		return fault.Newf(fault.Conflict, "run %s, step %d: asked to train on batch %.12s, but %.12s is stored", in.Run.RunID, in.Step, in.Batch.SHA256, built.Batch.SHA256)
	}
	return nil
}

// seek brings the current session to a cursor: from its present cursor, or from the newest
// checkpoint before the wanted one.
func (t *Service) seek(ctx context.Context, want int) error {
	s := t.current
	if !s.stateValid || s.cursor > want || s.cursor+1 < want {
		t.doing.Store("restoring")
		if err := s.restore(ctx, want); err != nil {
			return fmt.Errorf("restore run %s: %w", s.Ref.RunID, err)
		}
	}
	for s.cursor < want {
		name := s.timetable().name(s.cursor + 1)
		t.doing.Store(name)
		if err := s.advance(ctx); err != nil {
			return fmt.Errorf("run %s, %s: %w", s.Ref.RunID, name, err)
		}
	}
	return nil
}
