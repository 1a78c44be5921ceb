package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
)

// generationFile holds the sampling and stop settings of a model.
const generationFile = "generation_config.json"

// Talk describes how a model samples and ends its answers.
type Talk struct {
	// Stop are the ids of the tokens that end a turn.
	Stop []int32
	// Temperature is the sampling temperature; 1 if the directory states none, and 0, which is
	// greedy, if it turns sampling off.
	Temperature float32
}

// Talk reads generation_config.json, and config.json for the fields that the first leaves out.
func (m *Model) Talk() (Talk, error) {
	var g struct {
		EOS         json.RawMessage `json:"eos_token_id"`
		Sample      *bool           `json:"do_sample"`
		Temperature *float64        `json:"temperature"`
	}
	if err := m.readJSON(generationFile, &g); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Talk{}, err
	}
	t, file := Talk{Temperature: 1}, generationFile
	if g.EOS == nil {
		file = ConfigFile
		if err := m.readJSON(ConfigFile, &g); err != nil {
			return Talk{}, err
		}
	}
	var err error
	if t.Stop, err = m.ids(g.EOS); err != nil {
		return Talk{}, fmt.Errorf("%s: eos_token_id: %w", file, err)
	}
	if g.Temperature != nil {
		if !(*g.Temperature >= 0 && *g.Temperature <= math.MaxFloat32) {
			return Talk{}, fmt.Errorf("%s: temperature %v, want 0 or more", generationFile, *g.Temperature)
		}
		t.Temperature = float32(*g.Temperature)
	}
	if g.Sample != nil && !*g.Sample {
		t.Temperature = 0
	}
	return t, nil
}

// ids reads one token id, or a list of them.
func (m *Model) ids(raw json.RawMessage) ([]int32, error) {
	var one int32
	var list []int32
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, errors.New("is missing: without it answers do not end")
	case json.Unmarshal(raw, &one) == nil:
		list = []int32{one}
	case json.Unmarshal(raw, &list) != nil:
		return nil, errors.New("want a token id or a list of them")
	}
	for _, id := range list {
		if id < 0 || int(id) >= m.Config.VocabSize {
			return nil, fmt.Errorf("%d is outside the vocabulary of %d", id, m.Config.VocabSize)
		}
	}
	return list, nil
}
