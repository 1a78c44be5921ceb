package evaluate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"temper/internal/chat"
	"temper/internal/dataset"
	"temper/internal/openai/chatclient"
	"temper/internal/rl"
)

// Set is a set of problems with the settings of its samples.
type Set struct {
	Name string `json:"name"`
	// Path is where the problems come from, SHA256 the sum of the file.
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	// Rollouts is the number of samples of each problem.
	Rollouts int `json:"rollouts"`
	// Temperature of the samples; 0 is greedy.
	Temperature float64 `json:"temperature"`
	// MaxTurns bounds the turns of a sample, MaxTokens the tokens after its prompt; 0 leaves
	// the latter to the server.
	MaxTurns  int `json:"max_turns"`
	MaxTokens int `json:"max_tokens"`
	// Mode is how answers are found and compared; see Modes.
	Mode Mode `json:"mode"`
	// Suffix is put behind each prompt.
	Suffix string `json:"suffix,omitempty"`

	Problems []rl.Problem `json:"-"`
}

// ReadSet reads the problems of a set and checks that each can be judged.
func ReadSet(s Set) (Set, error) {
	data, err := os.ReadFile(s.Path)
	if err != nil {
		return s, err
	}
	s.SHA256 = sumOf(data)
	if s.Problems, err = dataset.ReadProblems(bytes.NewReader(data), s.Path); err != nil {
		return s, err
	}
	if len(s.Problems) == 0 {
		return s, fmt.Errorf("%s: no problem in it", s.Path)
	}
	var bad []error
	for _, p := range s.Problems {
		if _, err := s.Mode.judge(p, ""); err != nil {
			bad = append(bad, fmt.Errorf("%s: problem %s: %w", s.Path, p.ID, err))
		}
		if len(bad) == maxReported {
			break
		}
	}
	return s, errors.Join(bad...)
}

// maxReported bounds the problems that one error lists.
const maxReported = 20

// Sample is one answer to one problem with its verdict, a line of the journal.
type Sample struct {
	Set     string `json:"set"`
	Problem string `json:"problem"`
	Sample  int    `json:"sample"`
	Correct bool   `json:"correct"`
	// Extracted is the answer as the response has it.
	Extracted string `json:"extracted"`
	Reason    string `json:"reason,omitempty"`
	// Finish is why the answer ended: stop, length or max_turns. Only what ended by itself
	// is judged.
	Finish string `json:"finish"`
	// Tokens were sampled, over all turns.
	Tokens int `json:"tokens"`
	Turns  int `json:"turns"`
	Calls  int `json:"calls"`
	Failed int `json:"failed_calls"`
	// Response is what all turns said.
	Response string `json:"response"`
}

func (s Sample) key() sampleKey { return sampleKey{s.Set, s.Problem, s.Sample} }

type sampleKey struct {
	set, problem string
	sample       int
}

// Config says what to evaluate and how.
type Config struct {
	// Model is the server, of which each sample gets a copy.
	Model chatclient.Client
	// NewTools makes the tools of one sample; nil for a model that gets none.
	NewTools func(name, fixture string) (*chatclient.Tools, error)
	// System is the system message; "" leaves it to the server's template.
	System string
	Sets   []Set
	Seed   uint64
	// Parallel is the number of samples that are made at a time, at least 1.
	Parallel int
	// Patience is how long one sample waits for a server that does not answer, from its first
	// failure on.
	Patience time.Duration
	// Folder holds the journal.
	Folder string
	// Label names the model in reports.
	Label string
	// Source tells models of one label apart.
	Source Source
	// Progress is told the number of samples that are there, and of all.
	Progress func(done, all int)
}

// Run makes the samples that the journal lacks, and returns all of them.
func Run(ctx context.Context, c Config) ([]Sample, error) {
	j, err := openJournal(c)
	if err != nil {
		return nil, err
	}
	e := &evaluation{Config: c, journal: j}
	if err = e.sampleMissing(ctx); err == nil {
		err = e.checkAfter(ctx)
	}
	return j.samples(), errors.Join(err, j.close())
}

// evaluation is an evaluation under way.
type evaluation struct {
	Config
	journal  *journal
	checking sync.Mutex // of the settings
}

// checkModel asks the server whether it still serves the model of the samples. A model in this
// process stays.
func (e *evaluation) checkModel(ctx context.Context) error {
	if e.Source.Server == "" {
		return nil
	}
	client := e.Model
	if err := client.Check(ctx); err != nil {
		return err
	}
	now := e.settings()
	now.Source.Card = client.Card
	e.checking.Lock()
	defer e.checking.Unlock()
	return checkSettings(e.Folder, now)
}

// checkAfter reports a model that took the place of another while samples were made.
func (e *evaluation) checkAfter(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, mostPause)
	defer stop()
	var other *otherModelError
	if err := e.checkModel(ctx); errors.As(err, &other) { // a server that has gone says nothing against its answers
		return fmt.Errorf("%w; the samples of this command may be of either", err)
	}
	return nil
}

// job is a sample to make.
type job struct {
	set     *Set
	problem *rl.Problem
	sample  int
}

// jobs are the samples that the journal lacks, the first samples of all problems first.
func (e *evaluation) jobs() []job {
	var out []job
	for i := range e.Sets {
		set := &e.Sets[i]
		for n := range set.Rollouts {
			for k := range set.Problems {
				if !e.journal.has(sampleKey{set.Name, set.Problems[k].ID, n}) {
					out = append(out, job{set, &set.Problems[k], n})
				}
			}
		}
	}
	return out
}

func (e *evaluation) sampleMissing(ctx context.Context) error {
	jobs := e.jobs()
	all := 0
	for _, s := range e.Sets {
		all += s.Rollouts * len(s.Problems)
	}
	e.reportProgress(all-len(jobs), all)
	// A sample that fails ends the evaluation, but not those that are under way.
	feeding, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan job)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := all - len(jobs)
	for range min(e.Parallel, max(1, len(jobs))) {
		wg.Go(func() {
			for j := range queue {
				if err := e.makeSample(ctx, j); err != nil {
					stop(err)
					return
				}
				mu.Lock()
				done++
				e.reportProgress(done, all)
				mu.Unlock()
			}
		})
	}
feed:
	for _, j := range jobs {
		select {
		case queue <- j:
		case <-feeding.Done():
			break feed
		}
	}
	close(queue)
	wg.Wait()
	if err := context.Cause(feeding); err != nil {
		return fmt.Errorf("%w; %d of %d samples are in %s, and the same command goes on with them", err, done, all, e.journal.path)
	}
	return nil
}

func (e *evaluation) reportProgress(done, all int) {
	if e.Progress != nil {
		e.Progress(done, all)
	}
}

// Pauses while a server does not answer.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 10 * time.Second
)

// makeSample asks until there is a whole answer, and journals it.
func (e *evaluation) makeSample(ctx context.Context, j job) error {
	out := outage{pause: firstPause}
	for {
		begun, said := time.Now(), false
		var answer chatclient.Answer
		var err error
		if out.failed { // the server that comes back may be another one
			err = e.checkModel(ctx)
		}
		if err == nil {
			answer, err = e.ask(ctx, j, func(chatclient.Delta) error { said = true; return nil })
		}
		switch {
		case err == nil:
			s, err := e.sampleOf(j, answer)
			if err == nil {
				err = e.journal.add(s)
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !mayPass(err) || out.lasts(err, said, time.Since(begun)) > e.Patience:
			return fmt.Errorf("%s, problem %s, sample %d: %w", j.set.Name, j.problem.ID, j.sample, err)
		}
		timer := time.NewTimer(out.pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		out.pause = min(2*out.pause, mostPause)
	}
}

// outage is how long a sample has waited for a server that does not answer.
type outage struct {
	failed bool
	waited time.Duration
	pause  time.Duration // before the next attempt
}

// lasts adds an attempt that failed, and the pause after it. It counts the silent time
// after the first failure: an answer may take longer than the patience, and break off more
// than once. The pauses bound the attempts.
func (o *outage) lasts(err error, said bool, took time.Duration) time.Duration {
	var silence *chatclient.SilenceError
	switch {
	case !o.failed:
	case errors.As(err, &silence):
		o.waited += silence.For
	case !said:
		o.waited += took
	}
	o.failed = true
	o.waited += o.pause
	return o.waited
}

// mayPass reports whether the same question may be answered later: not where the server
// has refused it, or serves another model.
func mayPass(err error) bool {
	var other *otherModelError
	if errors.As(err, &other) {
		return false
	}
	var status *chatclient.StatusError
	if !errors.As(err, &status) {
		return true
	}
	return status.Status >= 500 || status.Status == 408 || status.Status == 425 || status.Status == 429
}

// ask asks one question and follows its calls.
func (e *evaluation) ask(ctx context.Context, j job, emit func(chatclient.Delta) error) (chatclient.Answer, error) {
	client := e.Model
	temperature := j.set.Temperature
	seed := int64(rl.Seed(e.Seed, "evaluate/"+j.set.Name, rl.Hash(j.problem.ID), uint64(j.sample)) & (1<<31 - 1)) //nolint:gosec // 31 bits: some servers take no more
	client.Temperature, client.Seed = &temperature, &seed
	var tools *chatclient.Tools
	if j.set.Mode == Calls {
		return e.askCalls(ctx, &client, j, emit)
	}
	if e.NewTools != nil && j.set.Mode != Rules {
		var err error
		if tools, err = e.NewTools(fmt.Sprintf("%s/%s/%d", j.set.Name, j.problem.ID, j.sample), j.problem.Fixture); err != nil {
			return chatclient.Answer{}, err
		}
		if client.Tools, err = tools.Schemas(); err != nil {
			return chatclient.Answer{}, err
		}
		defer tools.Close(ctx)
	}
	talk, err := chatclient.New(&budget{client: &client, left: j.set.MaxTokens}, tools, e.System, j.set.MaxTurns)
	if err != nil {
		return chatclient.Answer{}, err
	}
	prompt := j.problem.Prompt
	if j.set.Suffix != "" {
		prompt += "\n" + j.set.Suffix
	}
	answer, err := talk.Ask(ctx, prompt, emit)
	if errors.Is(err, chatclient.ErrTooLong) { // no room for a word: the same again whenever it is asked
		return chatclient.Answer{Finish: chatclient.FinishLength}, nil
	}
	return answer, err
}

// askCalls asks for one turn with the functions of the problem, whose calls are not run.
func (e *evaluation) askCalls(ctx context.Context, client *chatclient.Client, j job, emit func(chatclient.Delta) error) (chatclient.Answer, error) {
	k, err := readCalls(j.problem.Answer)
	if err != nil {
		return chatclient.Answer{}, err
	}
	client.Tools, client.MaxTokens = k.Functions, j.set.MaxTokens
	var messages []chatclient.Message
	if e.System != "" {
		messages = append(messages, chatclient.Message{Role: chat.RoleSystem, Content: e.System})
	}
	turn, err := client.Turn(ctx, append(messages, chatclient.Message{Role: chat.RoleUser, Content: j.problem.Prompt}), emit)
	if err != nil && !errors.Is(err, chatclient.ErrTooLong) {
		return chatclient.Answer{}, err
	}
	finish := turn.Finish
	switch {
	case err != nil:
		finish = chatclient.FinishLength
	case len(turn.Calls) > 0:
		finish = chatclient.FinishStop
	}
	return chatclient.Answer{Content: turn.Content, Finish: finish, Turns: []chatclient.Turn{turn}, Usage: turn.Usage}, nil
}

// budget bounds the tokens of all turns of an answer, tool results included.
type budget struct {
	client *chatclient.Client
	left   int // of the first turn; 0 for no bound
	prompt int // of the first turn
	said   int // of all turns
	used   int // after the first prompt, up to the last turn
}

// Turn implements chatclient.Sampler.
func (b *budget) Turn(ctx context.Context, messages []chatclient.Message, emit func(chatclient.Delta) error) (chatclient.Turn, error) {
	if b.left > 0 {
		if b.client.MaxTokens = b.left - b.used; b.client.MaxTokens <= 0 {
			return chatclient.Turn{Finish: chatclient.FinishLength}, nil
		}
	}
	turn, err := b.client.Turn(ctx, messages, emit)
	if b.prompt == 0 {
		b.prompt = turn.Usage.Prompt
	}
	b.said += turn.Usage.Completion
	// The thoughts of a turn may leave the history, but they were sampled.
	b.used = max(turn.Usage.Prompt+turn.Usage.Completion-b.prompt, b.said)
	return turn, err
}

// sampleOf judges an answer.
func (e *evaluation) sampleOf(j job, a chatclient.Answer) (Sample, error) {
	s := Sample{
		Set: j.set.Name, Problem: j.problem.ID, Sample: j.sample, Finish: a.Finish,
		Tokens: a.Usage.Completion, Turns: len(a.Turns), Calls: len(a.Results),
	}
	var said []string
	for _, t := range a.Turns {
		text := t.Content
		if j.set.Mode == Calls {
			text = turnText(t)
			s.Calls += len(t.Calls)
		}
		if text != "" {
			said = append(said, text)
		}
	}
	s.Response = strings.Join(said, "\n")
	for _, r := range a.Results {
		if r.Status.Failed() {
			s.Failed++
		}
	}
	return s.judged(j.set, j.problem)
}

// judged returns the sample with its verdict. A sample that was cut has no answer.
func (s Sample) judged(set *Set, p *rl.Problem) (Sample, error) {
	s.Correct, s.Extracted, s.Reason = false, "", "the answer did not end by itself: "+s.Finish
	if s.Finish != chatclient.FinishStop {
		return s, nil
	}
	v, err := set.Mode.judge(*p, s.Response)
	s.Correct, s.Extracted, s.Reason = v.Correct, v.Extracted, v.Reason
	return s, err
}

// Reverify judges the samples of a journal again, by today's rules or another mode, and
// samples nothing. It returns them with the number of verdicts that changed.
func Reverify(c Config) (samples []Sample, changed int, err error) {
	samples, err = readJournal(filepath.Join(c.Folder, journalName))
	if err != nil {
		return nil, 0, err
	}
	problems := map[string]map[string]*rl.Problem{}
	for i := range c.Sets {
		of := map[string]*rl.Problem{}
		for k := range c.Sets[i].Problems {
			of[c.Sets[i].Problems[k].ID] = &c.Sets[i].Problems[k]
		}
		problems[c.Sets[i].Name] = of
	}
	for i := range samples {
		at := slices.IndexFunc(c.Sets, func(s Set) bool { return s.Name == samples[i].Set })
		if at < 0 {
			return nil, 0, fmt.Errorf("%s: samples of the set %s, which is not given", c.Folder, samples[i].Set)
		}
		p, ok := problems[samples[i].Set][samples[i].Problem]
		if !ok {
			return nil, 0, fmt.Errorf("%s: a sample of problem %s, which the set %s does not have", c.Folder, samples[i].Problem, samples[i].Set)
		}
		again, err := samples[i].judged(&c.Sets[at], p)
		if err != nil {
			return nil, 0, err
		}
		if again.Correct != samples[i].Correct {
			changed++
		}
		samples[i] = again
	}
	return samples, changed, nil
}
