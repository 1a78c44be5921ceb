package dataset

import (
	"errors"
	"fmt"

	"temper/internal/dataset/layout"
	"temper/internal/reward"
)

// Agreement keeps a problem whose stated answer comes up in enough samples of a strong
// model: a wrong label seldom does.
type Agreement struct {
	// MinMatches of the samples must be right.
	MinMatches int
	Mode       reward.Mode
	// samples are the responses by the key of their prompt.
	samples map[Key][]string
}

// NewAgreement returns a filter without samples.
func NewAgreement(minMatches int, mode reward.Mode) (*Agreement, error) {
	if minMatches < 1 {
		return nil, fmt.Errorf("min matches is %d, want at least 1", minMatches)
	}
	if err := mode.Check(); err != nil {
		return nil, err
	}
	return &Agreement{MinMatches: minMatches, Mode: mode, samples: map[Key][]string{}}, nil
}

// Add takes the samples of a prompt. Only the end of a long response is kept: the answer
// is there.
func (a *Agreement) Add(prompt string, responses ...string) error {
	if prompt == "" || len(responses) == 0 {
		return errors.New("want a prompt and at least one response")
	}
	key := KeyOf(prompt)
	for _, r := range responses {
		if len(r) > maxSample {
			r = r[len(r)-maxSample:]
		}
		a.samples[key] = append(a.samples[key], r)
	}
	return nil
}

// maxSample bounds what is kept of a response, in bytes.
const maxSample = 4 << 10

// Check returns why a problem is dropped, nil if it is kept.
func (a *Agreement) Check(prompt, key string) *layout.Reject {
	samples := a.samples[KeyOf(prompt)]
	if len(samples) == 0 {
		return &layout.Reject{Reason: layout.NoSamples, Detail: "no sample has this prompt"}
	}
	matches := 0
	for _, s := range samples {
		v, err := reward.Response(a.Mode, s, key)
		if err != nil {
			return &layout.Reject{Reason: layout.Unverifiable, Detail: err.Error()}
		}
		if v.Correct {
			matches++
		}
		if matches == a.MinMatches {
			return nil
		}
	}
	return &layout.Reject{Reason: layout.Disagreement, Detail: fmt.Sprintf("%d of %d samples match, want %d", matches, len(samples), a.MinMatches)}
}
